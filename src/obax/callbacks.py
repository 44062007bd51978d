"""Ready callbacks for `run` and `play`: where the numbers of a round go while others are played.

    obax.run(algorithm, state, rounds, on_round=obax.callbacks.Watch("mine"), every=100)

| where to | callback | needs |
|---|---|---|
| a file, a line of JSON for each call | `JSONLines("rounds.jsonl")` | nothing |
| a page that draws itself, `obax watch mine` | `Watch("mine")` | nothing |
| TensorBoard | `TensorBoard("logs")` | `pip install "obax[tensorboard]"` |
| MLflow | `MLflow()` | `pip install "obax[mlflow]"` |
| Weights & Biases, offline unless asked | `WandB("project")` | `pip install "obax[wandb]"` |

Your own is any function of `(state, info)`; `metrics(info)` gives its numbers by name. The driver
calls `close()` when it is done; called again, a callback goes on where it was.
"""

import importlib
import json
import math
import re
import time
from pathlib import Path
from typing import IO, Any, Literal

import numpy as np

from ._support import files
from ._support.checks import check, checked
from ._support.messages import counted
from .algorithms import Info
from .algorithms.history import NUMBERS, coordinates, size_of_x
from .serve import page

# Of x: as many coordinates as a person looks at; of more, the norm.
COORDINATES = 16
# Of a curve that is watched: when there are more, every other one goes.
POINTS = 600


def metrics(info: Info) -> dict[str, float]:
    """Return the numbers of a round by name: losses, norms, residual, `accepted`, and x.

    >>> import jax.numpy as jnp, obax
    >>> problem = obax.Problem(outer=lambda x, y, round: 0.5 * (x - round) ** 2)
    >>> algorithm = obax.OGD(problem, outer_step_size=0.5)
    >>> state = algorithm.init(0.0, None, jnp.zeros(()))
    >>> _, info = algorithm.step(state, jnp.asarray(1.0))
    >>> numbers = metrics(info)
    >>> numbers["played_value"], numbers["hypergradient_norm"], numbers["x"]
    (0.5, 1.0, 0.0)
    """
    numbers = {name: float(getattr(info, name)) for name in NUMBERS}
    numbers["accepted"] = float(info.accepted)
    if size_of_x(info) <= COORDINATES:
        return numbers | {name: float(value) for name, value in coordinates(info, COORDINATES)}
    leaves = [np.ravel(value) for _, value in coordinates(info, size_of_x(info))]
    return numbers | {"|x|": float(np.linalg.norm(np.concatenate(leaves)))}


class JSONLines:
    """A callback that appends a line of JSON to a file: `t` and the `metrics`."""

    @checked
    def __init__(self, file: str | Path):
        self.path = Path(file)
        self._file: IO[str] | None = None

    def __call__(self, state: Any, info: Info) -> None:
        """Write a line and flush it: a crash loses none that was written."""
        if self._file is None:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._file = self.path.open("a", encoding="utf-8")
        numbers = {name: _plain(value) for name, value in metrics(info).items()}
        with files.named_errors(self.path):
            self._file.write(json.dumps({"t": int(info.t), "time": time.time(), **numbers}) + "\n")
            self._file.flush()

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()
            self._file = None


class Watch:
    """A callback that writes a folder for `obax watch FOLDER`, a page that draws a run.

    Written at most once in `seconds`, and at the end. Memory does not grow: a curve has at most 600
    points. The page's mean is over all rounds that the callback was called for, and says so where
    these are not all that were played.
    """

    @checked
    def __init__(self, folder: str | Path, title: str = "run", seconds: float = 1.0):
        self.folder, self.title, self.seconds = Path(folder), title, seconds
        self._rows: list[tuple[int, dict[str, float]]] = []
        self._every = self._calls = self._rejected = self._first = 0
        # Of the losses suffered that are finite: number, mean, sum of squared deviations.
        self._count, self._mean, self._squares = 0, 0.0, 0.0
        self._begun = self._written = 0.0
        self._last: tuple[int, dict[str, float]] | None = None

    def __call__(self, state: Any, info: Info) -> None:
        """Take a round into account."""
        t, numbers = int(info.t), metrics(info)
        if self._last is None:
            self.folder.mkdir(parents=True, exist_ok=True)
            self._begun, self._first, self._every = time.time(), t, 1
        self._rejected += not numbers["accepted"]
        if self._calls % self._every == 0:
            self._rows.append((t, numbers))
            if len(self._rows) > POINTS:
                self._rows, self._every = self._rows[::2], 2 * self._every
        self._calls += 1
        self._last = t, numbers
        loss = numbers["played_value"]
        if math.isfinite(loss):
            self._count += 1
            gap = loss - self._mean
            self._mean += gap / self._count
            self._squares += gap * (loss - self._mean)
        if time.time() - self._written >= self.seconds:
            self._write(done=False)

    def close(self) -> None:
        """Write the last figures, and that the run has finished."""
        if self._last is not None:
            self._write(done=True)

    def _write(self, done: bool) -> None:
        assert self._last is not None
        t, last = self._last
        now = time.time()
        speed = (t - self._first) / (now - self._begun) if now > self._begun else 0.0
        leader = [name for name in last if name != "accepted" and name not in NUMBERS]
        charts = [
            self._chart("Loss", ["played_value", "outer_value"]),
            self._chart("Leader x", leader),
            self._chart("Residual of the solver", ["solver_residual"], log=True),
            self._chart("Gradient norms", ["inner_gradient_norm", "hypergradient_norm"], log=True),
        ]
        answer = "No loss was suffered yet."
        if self._count:
            deviation = math.sqrt(self._squares / max(1, self._count - 1))
            mean = page.with_interval(self._mean, deviation, self._count)
            losses = [v for v in charts[0]["curves"][0]["y"] if v is not None]
            recent = page.mean_with_interval(losses[-max(2, len(losses) // 10) :])
            rounds = counted(self._calls, "round")
            if self._calls < t - self._first + 1:
                # Called after some rounds only.
                rounds = f"{counted(self._calls, 'sampled round')} up to round {t:,}"
            answer = f"Loss suffered {mean} over {rounds}, recently {recent} (95% intervals)."
        page.write(
            self.folder,
            self.title,
            charts,
            [
                ("round", f"{t:,}"),
                ("rounds per second", f"{speed:,.0f}"),
                ("loss suffered", f"{last['played_value']:.4g}"),
                ("residual", f"{last['solver_residual']:.2g}"),
                ("rejected, of those seen", f"{self._rejected:,}"),
            ],
            question="What does a round cost, before it is learned?",
            answer=answer,
            text="Finished." if done else "Running.",
            done=done,
        )
        self._written = now

    def _chart(self, title: str, names: list[str], log: bool = False) -> dict[str, Any]:
        rounds = [t for t, _ in self._rows]
        curves = {name: (rounds, [numbers[name] for _, numbers in self._rows]) for name in names}
        return page.chart(title, "t", curves, log=log)


class TensorBoard:
    """A callback that writes scalars for TensorBoard with tensorboardX.

    `writer` is any other object with `add_scalar`, such as torch's.
    """

    @checked
    def __init__(self, folder: str | Path = "runs", *, writer: Any = None):
        self.folder, self._given, self._writer = Path(folder), writer, writer
        if writer is None:
            _library("tensorboardX", "tensorboard")

    def __call__(self, state: Any, info: Info) -> None:
        """Write all numbers of the round."""
        if self._writer is None:
            self._writer = _library("tensorboardX", "tensorboard").SummaryWriter(str(self.folder))
        for name, value in metrics(info).items():
            self._writer.add_scalar(f"obax/{name}", value, int(info.t))

    def close(self) -> None:
        """Flush the writer, and close it if it was opened here."""
        if self._given is not None:
            self._given.flush()
        elif self._writer is not None:
            self._writer.close()
            self._writer = None


class MLflow:
    """A callback that logs metrics of an MLflow run: the active one, or one of its own.

    `tracking_uri` is MLflow's own setting where it is left out, in its newer versions a file
    `mlflow.db` where the program runs; "sqlite:///runs.db" names another.
    """

    @checked
    def __init__(
        self, experiment: str | None = None, *, tracking_uri: str | None = None, **params: object
    ):
        _library("mlflow", "mlflow")
        self.experiment, self.tracking_uri, self.params = experiment, tracking_uri, params
        self._mlflow: Any = None
        self._mine = False

    def __call__(self, state: Any, info: Info) -> None:
        """Log all numbers of the round."""
        if self._mlflow is None:
            self._mlflow = _library("mlflow", "mlflow")
            if self.tracking_uri is not None:
                self._mlflow.set_tracking_uri(self.tracking_uri)
            if self.experiment is not None:
                self._mlflow.set_experiment(self.experiment)
            self._mine = self._mlflow.active_run() is None
            if self._mine:
                self._mlflow.start_run()
            if self.params:
                self._mlflow.log_params(self.params)
        numbers = {_mlflow_name(name): value for name, value in metrics(info).items()}
        self._mlflow.log_metrics(numbers, step=int(info.t))

    def close(self) -> None:
        """End a run that was started here."""
        if self._mlflow is not None and self._mine:
            self._mlflow.end_run()
        self._mlflow = None


class WandB:
    """A callback for Weights & Biases that writes to a local folder.

    `mode="online"` sends it at once, `wandb sync` later.

    What else `wandb.init` takes is passed on: `name=`, `dir=`, `config=`.
    """

    @checked
    def __init__(self, project: str = "obax", *, mode: str = "offline", **options: object):
        self.mode = check(mode, "mode", Literal["offline", "online", "disabled"])
        _library("wandb", "wandb")
        self.options = {"project": project, **options}
        self._run: Any = None

    def __call__(self, state: Any, info: Info) -> None:
        """Log all numbers of the round."""
        if self._run is None:
            self._run = _library("wandb", "wandb").init(mode=self.mode, **self.options)
        self._run.log(metrics(info), step=int(info.t))

    def close(self) -> None:
        """Finish the run."""
        if self._run is not None:
            self._run.finish()
            self._run = None


def _library(module: str, extra: str) -> Any:
    """Import the library that a callback needs, or raise an error that says how to install it.

    Constructors call this too: a missing library is noticed before the first round is played.
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            f'this callback writes with {module}, which is not there: pip install "obax[{extra}]".'
        ) from error


def _plain(value: float) -> float | None:
    """Return a number, or `None` for NaN and Inf, which JSON does not have."""
    return value if math.isfinite(value) else None


def _mlflow_name(name: str) -> str:
    """Return a name that MLflow accepts: letters, digits and a few signs, no brackets or quotes."""
    return re.sub(r"[^\w]+", ".", name).strip(".")
