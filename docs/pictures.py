"""The pictures of the README and the site: `python docs/pictures.py [NAME ...]`.

`one-round`, `what-it-does` and `what-it-wins` are drawn here, in half a minute and without data.
The others are figures of reports (quick preset, run here unless `--run FOLDER` has it).
"""

import argparse
import tempfile
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch
from PIL import Image

import obax
from obax.estimators import StreamingClassifier

FOLDER = Path(__file__).parent / "pictures"
# The beginning of the name of the figure that is taken from the report of each experiment.
EXPERIMENTS = {"dynamic-regression": "regret", "compare": "score", "adult": "test", "fc100": "test"}
BLUE, ORANGE, GREY = "#0072B2", "#D55E00", "#6E6E6E"


def one_round() -> Figure:
    """Draw what happens in a round: loss, follower, leader."""
    canvas = Figure(figsize=(7.2, 3.3), layout="constrained")
    axes = canvas.subplots()
    axes.set(xlim=(0, 100), ylim=(0, 46))
    axes.axis("off")
    boxes = {
        "leader": (
            2,
            27,
            40,
            15,
            BLUE,
            "Leader x",
            "hyperparameters:\npenalty, memory, weights ...",
        ),
        "follower": (2, 3, 40, 15, ORANGE, "Follower y", "model parameters:\nweights of the model"),
        "round": (68, 15, 30, 15, GREY, "Round t", "data that has just arrived"),
    }
    for left, bottom, width, height, colour, name, text in boxes.values():
        shape = FancyBboxPatch(
            (left, bottom), width, height, "round,pad=0.6", facecolor="none", edgecolor=colour, lw=2
        )
        axes.add_patch(shape)
        middle = left + width / 2
        axes.text(middle, bottom + height - 3.2, name, ha="center", color=colour, weight="bold")
        axes.text(middle, bottom + 4.2, text, ha="center", va="center", fontsize=9)
    arrows = (
        ((68, 20), (43.5, 10), ORANGE, "2. learn: gradient steps\non the inner loss", (57, 8.5)),
        ((68, 26), (43.5, 35), BLUE, "3. move: one step along\nthe hypergradient", (57, 37)),
        ((22, 26.2), (22, 19), GREY, "shapes the inner loss of", (23.5, 22.6)),
    )
    for begin, end, colour, text, place in arrows:
        arrow = {"arrowstyle": "-|>", "color": colour, "lw": 1.8}
        axes.annotate("", end, begin, arrowprops=arrow)
        side = "left" if begin[0] == end[0] else "center"
        axes.text(*place, text, ha=side, va="center", fontsize=9, color=colour)
    axes.text(83, 11, "1. suffer the loss of y\non data it has not seen", ha="center", fontsize=9,
              va="top", color=GREY)  # fmt: skip
    return canvas


def what_it_does() -> Figure:
    """Draw a penalty learned online beside the same penalty held, on a stream with two changes."""
    stream = obax.problems.dynamic_regression(horizon=900, stages=3, noise=0.1, seed=1)
    played = {}
    for name, when in (("learned online", None), ("held at its start", lambda t: t < 0)):
        algorithm = obax.OAGD(stream.problem, 0.1, 0.1, 10, outer_when=when)
        state = algorithm.init(stream.outer_var, stream.inner_var, stream.example_round)
        played[name] = obax.run(algorithm, state, stream.rounds)[1]
    canvas, (above, below) = _canvas(2)
    for (name, history), colour in zip(played.items(), (BLUE, ORANGE), strict=True):
        t = np.arange(1, 901)
        above.plot(t, np.asarray(history.outer_var)[:, 0], color=colour, label=name)
        total = np.cumsum(np.asarray(history.played_value))
        below.plot(t, total, color=colour)
        below.annotate(
            f"{total[-1]:.0f}", (900, total[-1]), xytext=(4, -3), textcoords="offset points"
        )
    for axes in (above, below):
        for change in (300, 600):
            axes.axvline(change, color=GREY, lw=0.8, ls=":")
    above.set_title("A ridge penalty tunes itself while the data arrives", loc="left", fontsize=12)
    above.set_ylabel("log penalty")
    above.legend(frameon=False, fontsize=9, loc="center right")
    below.set(ylabel="loss suffered, summed", xlabel="round (dotted: the true model changes)")
    return canvas


def what_it_wins() -> Figure:
    """Draw the log loss of sixteen starts, learned and frozen, on a drifting stream."""
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((8000, 5))
    angle = np.arange(8000) / 400 + np.pi * (np.arange(8000) > 4000)
    score = 3 * (np.cos(angle) * rows[:, 0] + np.sin(angle) * rows[:, 1])
    labels = score + rng.logistic(size=8000) > 0
    losses = []
    for penalty in (1e-4, 1e-2, 1.0, 100.0):
        for memory in (30.0, 100.0, 1000.0, 10000.0):
            pair = []
            for learn in ((), ("penalty", "forgetting", "inertia")):
                members = "tuned" if not learn else "auto"
                model = StreamingClassifier(penalty, memory, learn=learn, members=members)
                said = model.progressive(rows, labels, classes=[False, True])
                right = np.clip(said[np.arange(8000), labels.astype(int)], 1e-15, 1)
                pair.append(-np.log(right).mean())
            losses.append(pair)
    frozen, learned = np.array(sorted(losses)).T
    canvas, (axes,) = _canvas(1)
    place = np.arange(1, 17)
    axes.vlines(place, learned, frozen, color=GREY, lw=0.8)
    axes.plot(place, frozen, "s", color=ORANGE, label="frozen where it starts")
    axes.plot(place, learned, "o", color=BLUE, label="learns its own penalty and memory")
    axes.set_title("Sixteen starts, one drifting stream: no grid needed", loc="left", fontsize=12)
    axes.set(xlabel="start, from the best to the worst in hindsight", ylabel="log loss, 8,000 rows")
    axes.set_xticks([1, 4, 8, 12, 16])
    axes.legend(frameon=False, fontsize=9, loc="upper left")
    print(f"frozen {frozen.min():.3f} to {frozen.max():.3f}; ", end="")
    print(f"learned {learned.min():.3f} to {learned.max():.3f}")
    return canvas


def figure_of(findings: obax.lab.report.Findings, name: str) -> str:
    """Return the name of the figure that the page of an experiment shows."""
    names = [figure.name for figure in findings.every_figure()]
    for found in names:
        if found.startswith(EXPERIMENTS[name]):
            return found
    raise SystemExit(f"{name}: no figure {EXPERIMENTS[name]!r} among {names}.")


def of_experiment(name: str, run: Path | None) -> None:
    """Copy a figure of the report of a run."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = obax.lab.RunFolder.open(run) if run else obax.lab.run(name, out=f"{scratch}/run")
        findings = obax.lab.findings(folder)
        obax.lab.report.write(folder.path, folder.info, findings)
        chosen = figure_of(findings, name)
        with Image.open(folder.path / "figures" / f"{chosen}.png") as picture:
            # Fewer bytes, and still every colour of the legend: the usual choice, by how often a
            # colour occurs, gave two methods the same.
            few = picture.convert("RGB").quantize(200, Image.Quantize.MAXCOVERAGE)
            few.save(FOLDER / f"{name}.png", optimize=True)


def _canvas(rows: int) -> tuple[Figure, list[Axes]]:
    canvas = Figure(figsize=(7.2, 2.2 * rows + 1.2 * (rows == 1)), layout="constrained")
    found = list(np.atleast_1d(canvas.subplots(rows, sharex=True)))
    for axes in found:
        axes.grid(alpha=0.25, linewidth=0.6)
        axes.spines[["top", "right"]].set_visible(False)
    return canvas, found


DRAWN = {"one-round": one_round, "what-it-does": what_it_does, "what-it-wins": what_it_wins}


def main() -> None:
    """Draw the pictures that are named, or all of them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"{[*DRAWN, *EXPERIMENTS]}")
    parser.add_argument(
        "--run", type=Path, help="a finished run of the one experiment that is named"
    )
    options = parser.parse_args()
    unknown = {*options.names} - {*DRAWN, *EXPERIMENTS}
    if unknown or (options.run and len(options.names) != 1):
        parser.error(f"NAME must be among {[*DRAWN, *EXPERIMENTS]}, and one if --run is given")
    FOLDER.mkdir(exist_ok=True)
    for name in options.names or [*DRAWN, *EXPERIMENTS]:
        if name in DRAWN:
            DRAWN[name]().savefig(FOLDER / f"{name}.png", dpi=110)
        else:
            of_experiment(name, options.run)
        print(f"docs/pictures/{name}.png")


if __name__ == "__main__":
    main()
