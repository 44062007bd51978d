"""Certificates: bounds compared with measured regret, on problems whose assumptions are verified.

`certify` draws problems for each of the five settings of `obax.theory`, verifies their assumptions,
plays OAGD with the prescribed steps and compares regret and bound at every t; the lower-bound game
and the comparability example come with it. It does the same for the streaming models, with
the real estimators. `verify` tests the assumptions of your own problem.
"""

from .certificates import (
    Certificates as Certificates,
    certify as certify,
    check_arguments as check_arguments,
)
from .examination import SettingResult as SettingResult, Violation as Violation
from .families.catalogue import (
    FAMILIES as FAMILIES,
    SETTINGS as SETTINGS,
    Drawn as Drawn,
    draw as draw,
)
from .verify import AssumptionError as AssumptionError, Check as Check, verify as verify
