"""obax: online bilevel optimisation in JAX."""

from . import (
    datasets as datasets,
    hypergradient as hypergradient,
    models as models,
    problems as problems,
    regret as regret,
    theory as theory,
)
from .algorithms import (
    AOBO as AOBO,
    FSOBO as FSOBO,
    ITD as ITD,
    OAGD as OAGD,
    OBBO as OBBO,
    OGD as OGD,
    SOBOW as SOBOW,
    SOGD as SOGD,
    ZOSOGD as ZOSOGD,
    Algorithm as Algorithm,
    AutoBalance as AutoBalance,
    Info as Info,
)
from .checkpoint import load as load, save as save
from .domain import (
    Ball as Ball,
    Box as Box,
    Domain as Domain,
    NonNegative as NonNegative,
    Simplex as Simplex,
    Unconstrained as Unconstrained,
)
from .hypergradient import check_hypergradient as check_hypergradient
from .meta import adapt as adapt, prox_linear as prox_linear
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
