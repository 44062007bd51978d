"""All online bilevel methods on the same streams: equal oracle calls, and equal seconds."""

from ..kit.experiment import described
from .config import PAPER, QUESTION, QUICK, Config as Config

COMPARE = described(
    __name__,
    {"quick": QUICK, "paper": PAPER},
    name="compare",
    question=QUESTION,
    summary="Which online bilevel method when: equal oracle calls, and equal wall-clock.",
    data="generated; Adult for one of the problems, which is left out without it",
    columns={"problem": str, "budget": str, "alpha": float, "beta": float},
    files=("adult.data.gz", "adult.test.gz"),
)
