"""A small experiment for the tests of workers, which load this module when they start."""

import dataclasses
import os
import time

import jax.numpy as jnp
import numpy as np

from obax import datasets, lab
from obax._support.checks import Count
from obax.lab import Experiment, report
from obax.lab.framework.config import Settings
from obax.lab.framework.run_folder import Rows


@dataclasses.dataclass(frozen=True)
class Config(Settings):
    parts: Count = 4
    milliseconds: Count = 1
    # Changes what workers give and nothing else: the part to spoil, or none.
    spoilt: int = -1
    failing: int = -1


def part(config, index):
    time.sleep(config.milliseconds / 1000)
    if index == config.failing:
        raise lab.UserError("this part cannot be done")
    rows, times = Rows(), np.arange(1, 30)
    # In the precision of the driver, which the worker must be told.
    values = np.array(jnp.sin(jnp.asarray(times * (index + 1) / 7.0)), np.float64)
    values[3] += 1e-15 * (index == config.spoilt and "DASK_WORKER" in os.environ)
    path = datasets.find("toy.txt")
    values[4] = np.nan if path is None else float(path.read_text())
    rows.add({"method": "m", "w": index or None, "seed": 0}, times, {"loss": values})
    return rows.table()


def findings(config, table):
    small = report.Table("t", "T", "c", table.head(2))
    answer = report.Answer("q?", "yes", small, report.Figure("f", "F", "x", "y", [], "c"))
    return report.Findings([answer], [], [], [], [])


TOY = Experiment(
    name="toy",
    question="q?",
    summary="s",
    data="none",
    presets={"quick": Config()},
    columns={"w": int},
    parts=lambda config: {f"p{i}": lambda i=i: part(config, i) for i in range(config.parts)},
    make_findings=findings,
    headline=lambda table: f"{table.value.mean():.1f}",
    files=("toy.txt",),
)


def experiment(name):
    return TOY


def dask_setup(worker):
    os.environ["DASK_WORKER"] = "1"
    lab.EXPERIMENTS["toy"] = "toy_on_workers"
