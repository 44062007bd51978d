"""obax: online bilevel optimisation in JAX.

Nothing is loaded before it is asked for: `import obax` is free, `obax.OAGD` loads the algorithms,
`obax --version` needs no JAX. The imports below are the list of public names; those who check types
read them as they stand, and `__getattr__` carries out the one that is needed.
"""

from typing import TYPE_CHECKING

__version__ = "0.2.0"

if TYPE_CHECKING:
    from . import (
        algorithms as algorithms,
        callbacks as callbacks,
        certify as certify,
        checkpoint as checkpoint,
        datasets as datasets,
        detectors as detectors,
        domain as domain,
        estimators as estimators,
        hypergradient as hypergradient,
        lab as lab,
        meta as meta,
        models as models,
        online as online,
        problem as problem,
        problems as problems,
        regret as regret,
        replay as replay,
        steps as steps,
        testing as testing,
        theory as theory,
        window as window,
    )
    from ._support.compiling import enable_compilation_cache as enable_compilation_cache
    from ._support.trees import whole as whole
    from .algorithms import *  # noqa: F403
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
    from .leader_check import LeaderWarning as LeaderWarning
    from .meta import adapt as adapt, prox_linear as prox_linear
    from .online import *  # noqa: F403
    from .problem import Problem as Problem
    from .replay import Replay as Replay
    from .window import Window as Window
else:
    from ._support.names import lazy_names

    __all__, __getattr__, __dir__ = lazy_names(__name__)
