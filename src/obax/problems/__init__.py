"""Ready-made streams of bilevel problems: for tests, and to learn from."""

from ._instance import Instance as Instance
from .examples import comparability as comparability, lower_bound_game as lower_bound_game
from .moments import windowed as windowed
from .quadratic import quadratic as quadratic
from .regression import dynamic_regression as dynamic_regression
