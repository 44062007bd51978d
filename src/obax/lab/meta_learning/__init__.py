"""Section 4.3: online meta-learning on FC100 and miniImageNet, and its sensitivity."""

import dataclasses
import functools
from typing import Any

from ..kit.experiment import Experiment, later
from .config import ADAPTATIONS, COLUMNS, Config as Config

# Two cores cannot play the paper's network for 500 rounds and five seeds in a day; these sizes they
# can in an hour and a half: 8 filters, 150 rounds, and MAML for 20 of them.
REDUCED: dict[str, Any] = {
    "filters": 8,
    "rounds": 150,
    "maml_rounds": 20,
    "evaluate_every": 30,
    "test_tasks": 100,
    "train_tasks": 20,
}
QUICK: dict[str, Any] = {
    "source": "auto",
    "filters": 4,
    "blocks": 3,
    "rounds": 30,
    "seeds": 2,
    "maml_rounds": 8,
    "maml_seeds": 1,
    "inner_steps": 5,
    "evaluate_every": 5,
    "test_tasks": 20,
    "train_tasks": 10,
}
WINDOWS = tuple(f"oagd-w{w}-{follower}" for follower in ADAPTATIONS for w in (1, 5, 10))
INNER_STEPS = tuple(f"oagd-w10-{how}-k{k}" for how in ("implicit", "head") for k in (5, 10, 20))
FC100 = "CIFAR-100; quick: generated if it is not at hand"
MINI = "your miniImageNet folder (--set folder=DIR); quick: generated without one"


def _experiment(
    name: str, summary: str, data: str, claims: str, paper: Config, durations: tuple[str, ...]
) -> Experiment:
    presets = {
        "quick": dataclasses.replace(paper, **QUICK),
        "paper": paper,
        "reduced": dataclasses.replace(paper, **REDUCED),
    }
    return Experiment(
        name=name,
        summary=summary,
        data=data,
        presets=presets,
        columns=COLUMNS,
        durations=dict(zip(presets, durations, strict=True)),
        parts=later(f"{__name__}.work", "parts"),
        findings=functools.partial(later(f"{__name__}.findings", "findings"), claims),
        headline=later("obax.lab.kit.curves", "accuracy_headline"),
    )


META_LEARNING = (
    _experiment(
        "fc100",
        "Section 4.3: online meta-learning on FC100 against MAML, ANIL and ITD-BiO (C6)",
        FC100,
        "comparison",
        Config(),
        ("about 4 minutes", "days on 2 cores", "about 2 hours"),
    ),
    _experiment(
        "miniimagenet",
        "Appendix: the same on miniImageNet (C6)",
        MINI,
        "comparison",
        Config(data="miniimagenet"),
        ("about 2 minutes", "weeks on 2 cores", "a day on 2 cores"),
    ),
    _experiment(
        "fc100-window",
        "Appendix: sensitivity to the window on FC100 (C7)",
        FC100,
        "window",
        Config(methods=WINDOWS),
        ("about 6 minutes", "days on 2 cores", "about 2 hours"),
    ),
    _experiment(
        "miniimagenet-inner-steps",
        "Appendix: sensitivity to K on miniImageNet (C7)",
        MINI,
        "steps",
        Config(data="miniimagenet", methods=INNER_STEPS),
        ("about 2 minutes", "weeks on 2 cores", "a day on 2 cores"),
    ),
)
