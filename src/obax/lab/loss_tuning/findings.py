"""The findings of the loss-tuning experiments, from their tables alone."""

import dataclasses

import pandas as pd

from ..framework.learning import TIME, TRAINING, Runs
from ..framework.results import Figure, Findings, Table
from ..framework.statistics import mean_over_seeds
from .claims import claims, first_steps
from .config import QUESTIONS, Config, Method

FINAL = 0.95
"""Final accuracies are means over the measurements after this share of the rounds."""


def findings(config: Config, table: pd.DataFrame) -> Findings:
    """Return the content of the report."""
    runs = Runs(config.runs().values(), table, FINAL)
    ones, others = _sides(config, runs)
    doubt = _doubt(config, runs, ones, others)
    return Findings(
        answers=[runs.answer(QUESTIONS[config.topic], ones, others, doubt)],
        claims=claims(config, runs),
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


def _sides(config: Config, runs: Runs[Method]) -> tuple[list[Method], list[Method]]:
    """Return the two groups of methods whose accuracies the question compares.

    They are a method with its leader moving and held, or without such a pair OAGD and OGD; the
    longest and the shortest windows; or the best and the worst step sizes.
    """
    moving = [m for m in runs.methods if m.kind == "OAGD" and not m.held]
    if config.study == "methods":
        twins = {m: dataclasses.replace(m, held=True) for m in moving}
        if one := runs.best(m for m in moving if twins[m] in runs.methods):
            return [one], [twins[one]]
        return moving, [m for m in runs.methods if m.kind == "OGD"]
    if config.study == "steps":
        return runs.extremes(moving, sorted(moving, key=lambda m: runs.final(m).mean()).index)
    return runs.extremes(moving, lambda m: m.w or 0)


def _doubt(
    config: Config, runs: Runs[Method], ones: list[Method], others: list[Method]
) -> tuple[str, str] | None:
    """Return what else may explain a gain over OGD: a window trains the follower more."""
    one = runs.best(ones)
    if config.study != "methods" or one is None or any(other.held for other in others):
        return None
    steps = (one.w or 1) * (one.passes or 1)
    if steps == 1:
        return None
    return "more training", (
        f"a round of the first has {steps} follower steps, a round of OGD has one: the same method "
        f"with its leader held, -held, would tell"
    )


def _named(method: Method) -> dict[str, str]:
    """Return the columns of a method and its step sizes in a table for people."""
    sizes = {"alpha": method.alpha, "beta": method.beta}.items()
    return {"method": method.label()} | {
        name: "-" if size is None else f"{size:g}" for name, size in sizes
    }


def _names(runs: Runs[Method], part: str) -> dict[str, str]:
    """Return the metrics of each class by the names of their columns."""
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
    """Return gamma and Delta of the method with the longest window, and of AutoBalance."""
    moving = [method for method in first_steps(runs) if method.kind != "OGD" and not method.held]
    windows = sorted((m for m in moving if m.w is not None), key=lambda m: -(m.w or 0))[:1]
    return [
        Figure(
            f"{part}-{method.kind.lower()}",
            f"The {title} of {method.label()}",
            "round t",
            part,
            [
                mean_over_seeds(runs.rows[method][metric], name)
                for name, metric in _names(runs, part).items()
            ],
            f"{runs.data}.",
        )
        for method in [*windows, *(m for m in moving if m.kind == "AutoBalance")]
        for part, title in (("gamma", "scales gamma_j"), ("delta", "offsets Delta_j"))
    ]


def _explanation(config: Config, runs: Runs[Method]) -> list[str]:
    network = f"a 2-layer MLP with {config.hidden} hidden units and dropout {config.dropout:g}"
    if config.has_images:
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
        "OAGD's follower makes one pass over the window's batches, oldest first, so that a larger "
        "window also means more training in each round; OGD takes one step per round.",
        f"Step sizes warm up over {config.inner_warmup} (inner) and {config.outer_warmup} (outer) "
        f"rounds and are divided by ten after {shares} of the rounds. Momentum "
        f"{config.momentum:g}, weight decay {config.weight_decay:g}; the hypergradient is a "
        f"Neumann series of {config.neumann_terms} terms with step {config.neumann_step:g} unless "
        f"a method says CG.",
    ]
