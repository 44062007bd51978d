"""obax: online bilevel optimisation in JAX."""

from . import (
    hypergradient as hypergradient,
    problems as problems,
    regret as regret,
    theory as theory,
)
from .algorithms import (
    OAGD as OAGD,
    OGD as OGD,
    Algorithm as Algorithm,
    AutoBalance as AutoBalance,
    Info as Info,
)
from .domain import (
    Ball as Ball,
    Box as Box,
    Domain as Domain,
    NonNegative as NonNegative,
    Simplex as Simplex,
    Unconstrained as Unconstrained,
)
from .hypergradient import check_hypergradient as check_hypergradient
from .online import (
    Play as Play,
    RejectedRoundError as RejectedRoundError,
    play as play,
    run as run,
    sweep as sweep,
)
from .problem import Problem as Problem
from .window import Window as Window

__version__ = "0.1.0"
