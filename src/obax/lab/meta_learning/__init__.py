"""Section 4.3: online meta-learning on FC100 and miniImageNet, and its sensitivity."""

import dataclasses
import functools
from typing import Any

from ..kit.experiment import Experiment, later
from .config import ADAPTATIONS, COLUMNS, Config as Config

# Two cores cannot play the paper's network for 500 rounds and five seeds in a day; these sizes they
# can in an hour and a half: 8 filters, 150 rounds, and MAML for 20 of them.
REDUCED: dict[str, Any] = {"filters": 8, "rounds": 150, "maml_rounds": 20}
REDUCED |= {"evaluate_every": 30, "test_tasks": 100, "train_tasks": 20}
QUICK: dict[str, Any] = {"source": "auto", "filters": 4, "blocks": 3, "rounds": 30, "seeds": 2}
QUICK |= {"maml_rounds": 8, "maml_seeds": 1, "inner_steps": 5}
QUICK |= {"evaluate_every": 5, "test_tasks": 20, "train_tasks": 10}
WINDOWS = tuple(f"oagd-w{w}-{follower}" for follower in ADAPTATIONS for w in (1, 5, 10))
INNER_STEPS = tuple(f"oagd-w10-{how}-k{k}" for how in ("implicit", "head") for k in (5, 10, 20))
PRESETS: dict[str, dict[str, Any]] = {"quick": QUICK, "paper": {}, "reduced": REDUCED}


def _experiment(
    name: str, claims: str, summary: str, paper: Config, durations: tuple[str, ...]
) -> Experiment:
    data = "CIFAR-100; quick: generated if it is not at hand"
    if paper.data == "miniimagenet":
        data = "your miniImageNet folder (--set folder=DIR); quick: generated without one"
    return Experiment(
        name=name,
        summary=summary,
        data=data,
        presets={preset: dataclasses.replace(paper, **own) for preset, own in PRESETS.items()},
        columns=COLUMNS,
        durations=dict(zip(PRESETS, durations, strict=True)),
        parts=later(f"{__name__}.work", "parts"),
        findings=functools.partial(later(f"{__name__}.findings", "findings"), claims),
        headline=later("obax.lab.kit.curves", "accuracy_headline"),
        files=("cifar-100-binary.tar.gz",) if paper.data == "fc100" else (),
    )


META_LEARNING = (
    _experiment(
        "fc100",
        "comparison",
        "Section 4.3: online meta-learning on FC100 against MAML, ANIL and ITD-BiO (C6)",
        Config(),
        ("about 4 minutes", "days on 2 cores", "about 2 hours"),
    ),
    _experiment(
        "miniimagenet",
        "comparison",
        "Appendix: the same on miniImageNet (C6)",
        Config(data="miniimagenet"),
        ("about 2 minutes", "weeks on 2 cores", "a day on 2 cores"),
    ),
    _experiment(
        "fc100-window",
        "window",
        "Appendix: sensitivity to the window on FC100 (C7)",
        Config(methods=WINDOWS),
        ("about 6 minutes", "days on 2 cores", "about 2 hours"),
    ),
    _experiment(
        "miniimagenet-inner-steps",
        "steps",
        "Appendix: sensitivity to K on miniImageNet (C7)",
        Config(data="miniimagenet", methods=INNER_STEPS),
        ("about 2 minutes", "weeks on 2 cores", "a day on 2 cores"),
    ),
)
