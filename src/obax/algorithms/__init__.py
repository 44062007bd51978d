"""Online bilevel algorithms: one file, one algorithm. Every name here is a name of `obax` too.

Each is loaded when it is first asked for.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .aobo import AOBO as AOBO, AOBOState as AOBOState
    from .autobalance import AutoBalance as AutoBalance, AutoBalanceState as AutoBalanceState
    from .base import Algorithm as Algorithm, State as State
    from .f2obo import F2OBO as F2OBO, F2OBOState as F2OBOState
    from .fsobo import FSOBO as FSOBO, FSOBOState as FSOBOState
    from .itd import ITD as ITD, ITDState as ITDState
    from .oagd import OAGD as OAGD, OAGDState as OAGDState
    from .obbo import OBBO as OBBO, OBBOState as OBBOState
    from .ogd import OGD as OGD, OGDState as OGDState
    from .race import Race as Race, RaceState as RaceState
    from .record import Info as Info, Leader as Leader, Move as Move
    from .rtho import RTHO as RTHO, RTHOState as RTHOState
    from .sobow import SOBOW as SOBOW, SOBOWState as SOBOWState
    from .sogd import SOGD as SOGD, SOGDState as SOGDState
    from .wobo import WOBO as WOBO, WOBOState as WOBOState
    from .zo_sogd import ZOSOGD as ZOSOGD
else:
    from .._support.names import lazy_names

    __all__, __getattr__, __dir__ = lazy_names(__name__)
