"""What the tables of the loss-tuning experiments say. Reads tables only."""

import dataclasses

import pandas as pd

from ..kit.curves import band
from ..kit.learning import TIME, TRAINING, Runs
from ..report import Figure, Findings, Table
from .claims import claims, first_steps
from .config import QUESTIONS, Config, Method

TUNING = ("imbalance", "table", "shift")
"""The kinds that ask whether tuning helps."""
FINAL = 0.95
"""Final accuracies are means over the measurements after this share of the rounds."""


def findings(kind: str, config: Config, table: pd.DataFrame) -> Findings:
    """Everything that the report shows; `kind` names the question and the claims."""
    runs = Runs(config.runs().values(), table, FINAL)
    ones, others = _sides(kind, runs)
    return Findings(
        answers=[runs.contest(QUESTIONS[kind], ones, others, _doubt(kind, runs, ones, others))],
        claims=claims(kind, config, runs),
        figures=[*runs.panels([TRAINING, TIME]), *_paths(runs)],
        tables=[
            Table(
                "classes",
                "Accuracy of each class on the test rows",
                "Mean over seeds of the final accuracies, in per cent.",
                _classes(runs),
            ),
            Table(
                "leader",
                "Where the leader ended",
                "Mean over seeds of gamma_j and Delta_j after the last round.",
                _leader(runs),
            ),
        ],
        paragraphs=[*runs.notes(), *_explanation(config, runs)],
    )


def _sides(kind: str, runs: Runs[Method]) -> tuple[list[Method], list[Method]]:
    """Whose accuracies the question is about: a leader that moves against the same one held, or
    without such a pair against none; the longest window against the shortest, the best step sizes
    against the worst."""
    moving = [m for m in runs.methods if m.kind == "OAGD" and not m.held]
    if kind in TUNING:
        twins = {m: dataclasses.replace(m, held=True) for m in moving}
        if one := runs.best(m for m in moving if twins[m] in runs.methods):
            return [one], [twins[one]]
        return moving, [m for m in runs.methods if m.kind == "OGD"]
    if kind == "steps":
        return runs.extremes(moving, sorted(moving, key=lambda m: runs.final(m).mean()).index)
    return runs.extremes(moving, lambda m: m.w or 0)


def _doubt(
    kind: str, runs: Runs[Method], ones: list[Method], others: list[Method]
) -> tuple[str, str] | None:
    """What a gain over OGD may be due to besides the leader: a window trains the follower more."""
    one = runs.best(ones)
    if kind not in TUNING or one is None or any(other.held for other in others):
        return None
    steps = (one.w or 1) * (one.passes or 1)
    if steps == 1:
        return None
    return "more training", (
        f"a round of the first has {steps} follower steps, one of OGD one: the same method with "
        f"its leader held, -held, would tell"
    )


def _named(method: Method) -> dict[str, str]:
    """A method and its step sizes as they stand in tables for people."""
    sizes = {"alpha": method.alpha, "beta": method.beta}.items()
    said = {name: "-" if size is None else f"{size:g}" for name, size in sizes}
    return {"method": method.label()} | said


def _names(runs: Runs[Method], part: str) -> dict[str, str]:
    """The metrics of each class, by what its column is called."""
    metrics = [metric for metric in runs.rows[runs.methods[0]] if metric.startswith(f"{part}_")]
    return {f"class {metric.removeprefix(f'{part}_')}": metric for metric in metrics}


def _classes(runs: Runs[Method]) -> pd.DataFrame:
    names = _names(runs, "test_class").items()
    return pd.DataFrame(
        _named(method)
        | {name: round(100 * runs.final(method, metric).mean(), 1) for name, metric in names}
        for method in runs.methods
    )


def _leader(runs: Runs[Method]) -> pd.DataFrame:
    return pd.DataFrame(
        _named(method)
        | {"part": part}
        | {name: round(runs.last(method, m).mean(), 3) for name, m in _names(runs, part).items()}
        for method in runs.methods
        for part in ("gamma", "delta")
    )


def _paths(runs: Runs[Method]) -> list[Figure]:
    """gamma and Delta of the method that looks furthest back, and of AutoBalance."""
    moving = [method for method in first_steps(runs) if method.kind != "OGD" and not method.held]
    windows = sorted((m for m in moving if m.w is not None), key=lambda m: -(m.w or 0))[:1]
    return [
        Figure(
            f"{part}-{method.kind.lower()}",
            f"The {title} of {method.label()}",
            "round t",
            part,
            [band(runs.rows[method][metric], name) for name, metric in _names(runs, part).items()],
            f"{runs.data}.",
        )
        for method in [*windows, *(m for m in moving if m.kind == "AutoBalance")]
        for part, title in (("gamma", "scales gamma_j"), ("delta", "offsets Delta_j"))
    ]


def _explanation(config: Config, runs: Runs[Method]) -> list[str]:
    network = f"a 2-layer MLP with {config.hidden} hidden units and dropout {config.dropout:g}"
    if config.images:
        pixels = 28 // config.downsample
        papers = (config.blocks, config.filters, config.downsample) == (4, 64, 1)
        network = (
            f"a CNN of {config.blocks} blocks with {config.filters} filters on {pixels} x {pixels} "
            f"pixels (the paper's{'' if papers else ': 4 blocks, 64 filters, 28 x 28'})"
        )
    every = f", every {config.outer_every} rounds" if config.outer_every > 1 else ""
    shares = " and ".join(f"{share:.0%}" for share in config.step_decays) or "none"
    return [
        f"Data: {runs.data}. The follower is {network}; batches of {config.batch}; "
        f"{config.rounds} rounds; the leader moves from round {config.outer_start} on{every}. "
        "OAGD's follower makes one pass over the window's batches, oldest first, so a larger "
        "window also means more training in each round; OGD takes one step per round.",
        f"Step sizes warm up over {config.inner_warmup} (inner) and {config.outer_warmup} (outer) "
        f"rounds and are divided by ten after {shares} of the rounds. Momentum "
        f"{config.momentum:g}, weight decay {config.weight_decay:g}; the hypergradient is a "
        f"Neumann series of {config.neumann_terms} terms with step {config.neumann_step:g} unless "
        f"a method says CG.",
    ]
