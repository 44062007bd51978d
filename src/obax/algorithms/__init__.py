"""Online bilevel algorithms: one file, one algorithm."""

from ._base import Algorithm as Algorithm, State as State
from ._record import Info as Info
from .autobalance import AutoBalance as AutoBalance, AutoBalanceState as AutoBalanceState
from .oagd import OAGD as OAGD, OAGDState as OAGDState
from .ogd import OGD as OGD, OGDState as OGDState
