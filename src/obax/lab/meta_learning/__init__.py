"""Section 4.3: online meta-learning on FC100 and miniImageNet, and its sensitivity."""

import dataclasses
from typing import Any

from ..kit.experiment import Experiment, described, later
from .config import ADAPTATIONS, COLUMNS, QUESTIONS, Config as Config

# Two cores cannot play the paper's network for 500 rounds and five seeds in a day; these sizes they
# can: 8 filters, 150 rounds, and MAML for 20 of them.
REDUCED: dict[str, Any] = {"filters": 8, "rounds": 150, "maml_rounds": 20}
REDUCED |= {"evaluate_every": 30, "test_tasks": 100, "train_tasks": 20}
QUICK: dict[str, Any] = {"source": "auto", "filters": 4, "blocks": 3, "rounds": 30, "seeds": 2}
QUICK |= {"maml_rounds": 8, "maml_seeds": 1, "inner_steps": 5}
QUICK |= {"evaluate_every": 5, "test_tasks": 20, "train_tasks": 10}
# With the paper's 64 filters the head sees 256 features (FC100) or 1,600, and 20 steps of its 0.1
# diverge (docs/meta-learning.md): there the step of the head follows from its curvature.
SAFE: dict[str, Any] = {"head_step_size": 1.9}
WINDOWS = tuple(f"oagd-w{w}-{follower}" for follower in ADAPTATIONS for w in (1, 5, 10))
INNER_STEPS = tuple(f"oagd-w10-{how}-k{k}" for how in ("implicit", "head") for k in (5, 10, 20))
PRESETS: dict[str, dict[str, Any]] = {"quick": QUICK, "paper": SAFE, "reduced": REDUCED}
# A quarter of the pixels; 16 filters, because 8 save next to nothing on XLA's CPU.
SMALLER: dict[str, Any] = SAFE | {"image_size": 42}
OF_IMAGENET = PRESETS | {"reduced": REDUCED | SMALLER | {"filters": 16}}
OF_IMAGENET["quick"] = QUICK | SMALLER | {"rounds": 20, "evaluate_every": 10}


def _experiment(
    name: str, kind: str, summary: str, paper: Config, quick: tuple[str, ...] | None = None
) -> Experiment:
    """An experiment; of its methods `quick` may play fewer."""
    data = "CIFAR-100; quick: generated if it is not at hand"
    if paper.data == "miniimagenet":
        data = "miniImageNet (or --set folder=PATH); quick: generated if it is not at hand"
    presets = OF_IMAGENET if paper.data == "miniimagenet" else PRESETS
    fewer = {"quick": presets["quick"] | {"methods": quick or paper.methods}}
    return described(
        __name__,
        {preset: dataclasses.replace(paper, **own) for preset, own in (presets | fewer).items()},
        kind=(kind,),
        headline=later("obax.lab.kit.curves", "accuracy_headline"),
        name=name,
        question=QUESTIONS[kind],
        summary=summary,
        data=data,
        columns=COLUMNS,
        choosing=frozenset({"methods", "seeds", "maml_seeds"}),
        files=("cifar-100-binary.tar.gz" if paper.data == "fc100" else "miniimagenet.tar",),
    )


META_LEARNING = (
    _experiment(
        "fc100",
        "comparison",
        "Section 4.3: online meta-learning on FC100 against MAML, ANIL and ITD-BiO (C6)",
        Config(),
    ),
    _experiment(
        "miniimagenet",
        "comparison",
        "Appendix: the same on miniImageNet (C6)",
        Config(data="miniimagenet"),
        # The whole network inside takes minutes, and 32 sampled tasks are all of 20.
        quick=("oagd-w10-prox", "oagd-w10-head", "anil-all", "itd-all"),
    ),
    _experiment(
        "fc100-window",
        "window",
        "Appendix: sensitivity to the window on FC100 (C7)",
        Config(methods=WINDOWS),
    ),
    _experiment(
        "miniimagenet-inner-steps",
        "steps",
        "Appendix: sensitivity to K on miniImageNet (C7)",
        Config(data="miniimagenet", methods=INNER_STEPS),
        quick=INNER_STEPS[3:],
    ),
)
