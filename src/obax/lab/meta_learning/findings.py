"""The findings of the meta-learning experiments, from their tables alone."""

import pandas as pd

from ..framework.learning import TIME, TRAINING, Panel, Runs
from ..framework.results import Findings, Table
from ..framework.statistics import with_interval
from .claims import (
    CLOCK,
    CONSTANT,
    ENDS,
    claims,
    fitted_times,
    growth_in_words,
    inner_steps,
    learned,
    over_chance,
)
from .config import QUESTIONS, Config, Method

FINAL = 0.75
"""Final accuracies are means over the evaluations after this share of the rounds."""
PANELS = (
    TRAINING,
    TIME,
    Panel("loss", "test_loss", "Loss on test classes", "cross-entropy"),
    Panel("training-loss", "train_loss", "Loss on training classes", "cross-entropy"),
    Panel("round-time", "round_seconds", "Time of a round", "seconds", is_time=True),
)


def findings(config: Config, table: pd.DataFrame) -> Findings:
    """Return the content of the report."""
    examples = config.test_tasks * config.ways * config.queries
    runs = Runs(config.runs().values(), table, FINAL, resolution=100 / examples)
    for rows in runs.rows.values():
        rows["round_seconds"] = _of_rounds(rows["seconds"])
    return Findings(
        answers=[
            runs.answer(
                QUESTIONS[config.study], *_sides(config, runs), remarks=_at_chance(config, runs)
            )
        ],
        claims=claims(config, runs),
        figures=runs.panels(PANELS),
        tables=[
            Table(
                "time",
                "Time of a round as a function of t",
                "Processor time, which other programs disturb least. First and last: medians over "
                f"{ENDS} rounds. The slope is that of a line through the time of each round (Theil "
                "and Sen's, which is robust to outliers), with 95% intervals over seeds. Rounds "
                "before the window or the sample is full do not count. A round takes longer with "
                "t, or the same time, if the 95% interval of last over first is above, or below, "
                f"{1 + CONSTANT:g}; otherwise this is within noise.",
                _time_table(config, runs),
            ),
            Table(
                "accuracy",
                "Accuracy on held-out tasks",
                f"Query accuracy in per cent after the method's own adaptation, on tasks of unseen "
                f"(test) and seen (training) classes, mean over the evaluations after {FINAL:.0%} "
                "of the rounds; ± is the 95% interval over seeds, and over tasks of one seed in "
                "'over tasks'. The gain is over the untrained network with the same adaptation, "
                "paired by seed. Seconds are the processor's.",
                _accuracies(config, runs),
            ),
            Table(
                "order",
                "Methods in the order of their test accuracy",
                "Methods that play fewer rounds come last. Differences are paired over the seeds "
                "and rounds that both have; 95% t-intervals.",
                _order(config, runs),
            ),
        ],
        paragraphs=[*runs.notes(), *_explanation(config, runs)],
    )


def _sides(config: Config, runs: Runs[Method]) -> tuple[list[Method], list[Method]]:
    """Return the two groups of methods whose accuracies the question compares.

    They are OAGD and the others, the longest and the shortest windows, or the most and the fewest
    inner steps.
    """
    ours = [m for m in runs.methods if m.kind == "OAGD"]
    if config.study == "methods":
        return ours, [m for m in runs.methods if m.kind != "OAGD"]
    by_window = config.study == "window"
    return runs.extremes(ours, lambda m: (m.w or 1) if by_window else config.steps_of(m))


def _at_chance(config: Config, runs: Runs[Method]) -> list[str]:
    """Return a remark if no method is above chance: then no difference between them counts."""
    if any(over_chance(config, runs, m).verdict == "reproduced" for m in runs.methods):
        return []
    return [
        f"No method ends above chance ({100 / config.ways:.0f}%) beyond noise: these runs do not "
        "show that any of them has learned."
    ]


def _of_rounds(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the seconds of each round from the cumulative ones."""
    rows = rows.sort_values("t", kind="stable")
    return rows.assign(value=rows.groupby("seed").value.diff().fillna(rows.value))


def _time_table(config: Config, runs: Runs[Method]) -> pd.DataFrame:
    fitted = {method: fitted_times(config, runs, method) for method in runs.methods}
    on_the_wall = {method: fitted_times(config, runs, method, "seconds") for method in runs.methods}
    return pd.DataFrame(
        {
            "method": method.label(),
            "first round, ms": round(1e3 * line["first"].mean(), 1),
            "last round, ms": round(1e3 * line["last"].mean(), 1),
            "slope, ms": with_interval(1e3 * line.slope),
            "slope (wall clock), ms": with_interval(1e3 * on_the_wall[method].slope),
            "a round takes": growth_in_words(line),
            "rounds": config.rounds_of(method),
            "seeds": len(line),
        }
        for method, line in fitted.items()
    )


def _accuracies(config: Config, runs: Runs[Method]) -> pd.DataFrame:
    return pd.DataFrame(
        {
            "method": method.label(),
            "test": with_interval(100 * runs.final(method)),
            "over tasks": f"± {196 * runs.final(method, 'test_accuracy_error').mean():.1f}",
            "gain": learned(runs, method).words(),
            "training": with_interval(100 * runs.final(method, "train_accuracy")),
            "test loss": with_interval(runs.final(method, "test_loss")),
            "processor": with_interval(runs.last(method, CLOCK)),
            "rounds": config.rounds_of(method),
            "seeds": len(runs.final(method)),
        }
        for method in runs.methods
    )


def _order(config: Config, runs: Runs[Method]) -> pd.DataFrame:
    mean = {method: runs.final(method).mean() for method in runs.methods}
    best, *others = sorted(mean, key=lambda method: (-config.rounds_of(method), -mean[method]))
    against = {best: ""} | {m: runs.accuracy_gain(m, best).words("points") for m in others}
    return pd.DataFrame(
        {
            "method": method.label(),
            "test": f"{100 * mean[method]:.1f}",
            "rounds": config.rounds_of(method),
            f"against {best.label()}": words,
        }
        for method, words in against.items()
    )


def _explanation(config: Config, runs: Runs[Method]) -> list[str]:
    papers = (config.blocks, config.filters) == (4, 64)
    size = "the paper's" if papers else "the paper's: 4 blocks, 64 filters"
    optimiser = "Adam" if config.outer_optimiser == "adam" else "SGD"
    has_maml = any(method.kind == "MAML" for method in runs.methods)
    maml = f" (MAML {min(config.rounds, config.maml_rounds)})" if has_maml else ""
    steps, head = inner_steps(config), config.head_step_size
    units = f" If only the head adapts, beta is {head:g} over a bound on the curvature."
    return [
        f"Data: {runs.data}, {config.ways}-way {config.shots}-shot with {config.queries} queries "
        f"per class. The network has up to {config.blocks} blocks of {config.filters} filters "
        f"({size}), stride 1 and 2 x 2 pooling; BatchNorm uses the statistics of each batch. "
        f"{config.rounds} rounds{maml}, one new task in each; the leader takes one step of "
        f"{optimiser} per round with alpha = {config.outer_step_size:g}.",
        f"Followers: prox is one step of beta = {config.inner_step_size:g} in closed form, with "
        f"its exact derivative; implicit takes K = {steps} steps on the loss plus "
        f"{config.proximity:g}/2 |y - x|^2 and solves with {config.solver} in at most "
        f"{config.solver_steps} steps, head does so and adapts only the head; MAML, ANIL and "
        f"ITD-BiO unroll K = {steps} steps, on all tasks so far or on "
        f"{config.sampled_tasks} of them. All methods see the "
        f"same tasks, and are evaluated on the same {config.test_tasks} test and "
        f"{config.train_tasks} training tasks, each with its own adaptation."
        + (units if head else ""),
    ]
