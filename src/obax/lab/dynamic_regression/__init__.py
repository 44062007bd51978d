"""Section 4.1: online hyperparameter learning for dynamic regression."""

from ..kit.experiment import described
from .config import COLUMNS, PAPER, QUESTION, QUICK, Config as Config

DYNAMIC_REGRESSION = described(
    __name__,
    {"quick": QUICK, "paper": PAPER},
    name="dynamic-regression",
    question=QUESTION,
    summary="Section 4.1: does the regret fall with the window, and is x close to offline tuning?",
    data="none, generated",
    columns=COLUMNS,
)
