"""Configs, run folders and resuming, on an experiment that costs nothing."""

import dataclasses
import json
import pathlib
import subprocess
import sys
import types
from typing import Annotated

import numpy as np
import pandas as pd
import pytest

from obax import lab
from obax._support.checks import Count, Fraction, Positive
from obax.lab import Experiment, RunFolder, UserError, report, run, with_overrides
from obax.lab.framework.config import Settings, one_of
from obax.lab.framework.run_folder import Rows
from obax.lab.framework.statistics import select


@dataclasses.dataclass(frozen=True)
class ToyConfig(Settings):
    horizon: Count = 3
    rate: Fraction = 0.5
    fast: bool = True
    name: Annotated[str, one_of("toy", "plaything")] = "toy"
    sizes: tuple[Count, ...] = (1, 2)
    steps: tuple[Positive, ...] = (0.5,)


def toy_part(index, calls):
    calls.append(index)
    rows = Rows()
    for seed in (0, 1):
        # The first part has no window: a column of whole numbers with a hole in it.
        at = {"method": "m", "w": index or None, "seed": seed}
        rows.add(at, [1, 2], {"loss": index + seed / 10 + np.array([1, 2])})
    return rows.table()


def toy(calls, parts=3):
    def findings(config, table):
        figure = report.Figure("f", "F", "x", "y", [report.Series("a", [1, 2], [1.0, 2.0])], "c")
        shown = report.Table("t", "T", "c", table.head(2))
        return report.Findings([report.Answer("Q?", "A.", shown, figure)], [], [], [], [])

    return Experiment(
        name="toy",
        question="Q?",
        summary="s",
        data="none",
        presets={"quick": ToyConfig(), "paper": ToyConfig(horizon=9)},
        columns={"w": int},
        parts=lambda config: {f"p{i}": lambda i=i: toy_part(i, calls) for i in range(parts)},
        make_findings=findings,
        headline=lambda table: f"{table.value.mean():.1f}",
    )


def test_overrides_are_typed():
    config = with_overrides(ToyConfig(), ["horizon=7", "rate=0.25", "fast=no", "sizes=3, 4,5"])
    assert config == ToyConfig(7, 0.25, False, "toy", (3, 4, 5), (0.5,))


@pytest.mark.parametrize(
    ("assignment", "message"),
    [
        ("horizn=3", "unknown key 'horizn'. Did you mean 'horizon'?"),
        ("horizon=three", "horizon must be an integer, but got 'three'"),
        ("rate=x", "rate must be a number"),
        ("fast=perhaps", "fast must be true or false"),
        ("sizes=1,b", "sizes must be an integer"),
        ("horizon", "--set takes key=value"),
        ("horizon=0", "horizon must be an integer >= 1, but got 0"),
        ("sizes=3,0", "sizes must be integers >= 1, but got 0"),
        ("sizes=", "sizes must not be empty"),
        ("rate=0", r"rate must be in \(0, 1\], but got 0.0"),
        ("rate=nan", "rate must be finite, but got nan"),
        ("name=tow", "name must be one of 'toy', 'plaything', but got 'tow'"),
        ("steps=0.1,inf", "steps must be numbers > 0, but got inf"),
    ],
)
def test_bad_overrides_say_what_is_wrong(assignment, message):
    with pytest.raises(UserError, match=message.replace("?", r"\?")):
        with_overrides(ToyConfig(), [assignment])


def test_a_run_holds_everything(tmp_path):
    seen = []
    folder = run(
        toy([]), ToyConfig(), "quick", tmp_path / "r", on_part=lambda *now: seen.append(now)
    )
    table = folder.table()
    assert list(table.columns) == [
        "experiment", "method", "w", "seed", "t", "metric", "value",
    ]  # fmt: skip
    # Values came back as what they were.
    assert table.w.dtype == "Int64"
    assert table.seed.dtype == table.t.dtype == "int64"
    assert len(select(table, w=2, seed=1)) == 2
    assert list(select(table, w=None, seed=1).value) == [1.1, 2.1]
    assert len(table) == 12
    assert seen[0][:2] == (0, 3)
    assert seen[-1] == (3, 3, "3.5")
    info = json.loads((tmp_path / "r" / "run.json").read_text())
    assert info["config"] == {
        "horizon": 3, "rate": 0.5, "fast": True, "name": "toy", "sizes": [1, 2], "steps": [0.5],
    }  # fmt: skip
    assert {"jax", "obax", "python"} <= info["versions"].keys()
    assert info["finished"]


def test_resume_skips_what_is_done_and_gives_the_same_table(tmp_path):
    whole = run(toy([]), ToyConfig(), "quick", tmp_path / "whole").table()
    calls = []
    broken = toy(calls)

    def stop_after_two(done, total, headline):
        if done == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(broken, ToyConfig(), "quick", tmp_path / "r", on_part=stop_after_two)
    assert calls == [0, 1]
    (tmp_path / "r" / "checkpoints" / ".p2.parquet.x.part").write_bytes(b"half")
    with pytest.raises(UserError, match="not finished; continue with: obax run toy"):
        RunFolder.open(tmp_path / "r").table()
    resumed = run(broken, ToyConfig(), "quick", tmp_path / "r", resume=True)
    assert calls == [0, 1, 2]
    pd.testing.assert_frame_equal(resumed.table(), whole)
    assert not list((tmp_path / "r").rglob("*.part"))


def reusing(calls, parts=3):
    return dataclasses.replace(toy(calls, parts), chooses_parts=frozenset({"sizes"}))


def test_parts_of_an_earlier_run_are_taken_over(tmp_path):
    """Also of one that had other parts and fewer settings; run.json says where they came from."""
    whole = run(toy([]), ToyConfig(sizes=(1, 2, 3)), "quick", tmp_path / "whole").table()
    earlier = run(reusing([], parts=2), ToyConfig(), "quick", tmp_path / "earlier")
    earlier.info["config"].pop("steps")
    earlier.save()
    calls = []
    config = ToyConfig(sizes=(1, 2, 3))
    after = run(reusing(calls), config, "quick", tmp_path / "new", reuse=[tmp_path / "earlier"])
    assert calls == [2]
    pd.testing.assert_frame_equal(after.table(), whole)
    partss = json.loads((tmp_path / "new" / "run.json").read_text())["parts"]
    assert partss["p1"]["from"] == str(tmp_path / "earlier") and "commit" in partss["p1"]
    assert partss["p1"]["seconds"] == earlier.info["parts"]["p1"]["seconds"]
    assert "from" not in partss["p2"]


def test_parts_of_another_run_are_not_taken_over(tmp_path):
    run(reusing([]), ToyConfig(), "quick", tmp_path / "earlier")
    with pytest.raises(UserError, match=r"other settings \(rate\)"):
        run(reusing([]), ToyConfig(rate=0.1), "quick", tmp_path / "a", reuse=[tmp_path / "earlier"])
    # A setting chooses parts only where the experiment says so.
    with pytest.raises(UserError, match=r"other settings \(sizes\)"):
        run(toy([]), ToyConfig(sizes=(9,)), "quick", tmp_path / "b", reuse=[tmp_path / "earlier"])
    with pytest.raises(UserError, match="a run of toy, not of other"):
        other = dataclasses.replace(reusing([]), name="other")
        run(other, ToyConfig(), "quick", tmp_path / "c", reuse=[tmp_path / "earlier"])
    part = tmp_path / "earlier" / "checkpoints" / "p1.parquet"
    part.write_bytes(part.read_bytes()[:-1])
    with pytest.raises(UserError, match=r"p1.parquet is damaged"):
        run(reusing([]), ToyConfig(), "quick", tmp_path / "d", reuse=[tmp_path / "earlier"])


def test_a_part_gives_the_declared_columns(tmp_path):
    def other(config):
        return {"p": lambda: toy_part(1, []).assign(alpha=0.1).drop(columns="w")}

    with pytest.raises(ValueError, match="missing: w, unknown: alpha"):
        run(dataclasses.replace(toy([]), parts=other), ToyConfig(), "quick", tmp_path)


def test_a_folder_of_an_older_version_is_named_as_such(tmp_path):
    run(toy([]), ToyConfig(), "quick", tmp_path)
    info = json.loads((tmp_path / "run.json").read_text())
    del info["format"]
    (tmp_path / "run.json").write_text(json.dumps(info))
    with pytest.raises(UserError, match=r"made by an older version of obax .*obax run toy"):
        RunFolder.open(tmp_path)


def test_an_experiment_is_run_by_its_name(tmp_path, monkeypatch):
    one = toy([])
    monkeypatch.setitem(sys.modules, "toy", types.SimpleNamespace(experiment=lambda name: one))
    monkeypatch.setitem(lab.EXPERIMENTS, "toy", "toy")

    monkeypatch.chdir(tmp_path)
    first, second = lab.run("toy"), lab.run("toy", preset="paper", rate=0.1, out="there")
    assert first.path.as_posix() == "runs/toy-quick"
    assert lab.new_folder("toy-quick").as_posix() == "runs/toy-quick-2"
    assert second.info["config"]["horizon"] == 9
    assert second.info["config"]["rate"] == 0.1
    assert [figure.name for figure in lab.findings(second).every_figure()] == ["f"]
    for changes, message in (
        ({"rate": 2.0}, "rate must be in"),
        ({"ratte": 1.0}, "ratte"),
        ({"preset": "papr"}, "Did you mean 'paper'?"),
    ):
        with pytest.raises(UserError, match=message.replace("?", r"\?")):
            lab.run("toy", **changes)


@pytest.mark.parametrize("name", lab.FORMER_NAMES)
def test_a_former_name_names_its_preset(name):
    experiment, preset = lab.FORMER_NAMES[name]
    assert {preset, f"{preset}-quick"} <= set(lab.find(experiment).presets)
    with pytest.raises(UserError, match=rf"obax run {experiment} --preset {preset} "):
        lab.find(name)


def test_finding_one_experiment_loads_no_other():
    code = (
        "import sys, obax.lab; obax.lab.find('dynamic-regression'); "
        "print(sorted(name for name in sys.modules if name.startswith('obax.lab.') "
        "and name.count('.') == 2))"
    )
    process = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert process.stdout.strip() == "['obax.lab.dynamic_regression', 'obax.lab.framework']"


LISTING = """
import sys, types
package = types.ModuleType("obax")
package.__path__, package.__version__ = [sys.argv[1]], "0"
sys.modules["obax"] = package
import obax.lab
for name in obax.lab.EXPERIMENTS:
    one = obax.lab.find(name)
    assert one.name == name and one.question and one.summary and one.data and one.presets
print(*sorted({"jax", "pandas", "scipy", "matplotlib", "equinox"} & set(sys.modules)))
"""


def test_looking_at_the_experiments_loads_nothing_heavy():
    """`obax/__init__.py` itself is not judged here: a bare package stands in for it."""
    package = pathlib.Path(lab.__file__).parents[1]
    command = [sys.executable, "-c", LISTING, str(package)]
    process = subprocess.run(command, capture_output=True, text=True, check=True)
    assert process.stdout.strip() == ""


def test_a_folder_with_something_in_it_is_rejected(tmp_path):
    run(toy([]), ToyConfig(), "quick", tmp_path)
    with pytest.raises(UserError, match="holds a run of toy"):
        run(toy([]), ToyConfig(), "quick", tmp_path)


def test_a_file_is_no_run_folder(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="is a file, not a folder"):
        run(toy([]), ToyConfig(), "quick", tmp_path / "file")


def test_resume_rejects_other_experiments_and_settings(tmp_path):
    run(toy([]), ToyConfig(), "quick", tmp_path)
    other = dataclasses.replace(toy([]), name="other")
    with pytest.raises(UserError, match="holds a run of toy, not of other"):
        run(other, ToyConfig(), "quick", tmp_path, resume=True)
    with pytest.raises(UserError, match=r"other settings \(rate\)"):
        run(toy([]), ToyConfig(rate=0.1), "quick", tmp_path, resume=True)


def test_damage_is_named_and_kept(tmp_path):
    run(toy([]), ToyConfig(), "quick", tmp_path)
    part = tmp_path / "checkpoints" / "p1.parquet"
    intact = part.read_bytes()
    part.write_bytes(b"rubbish")
    with pytest.raises(UserError, match=r"p1\.parquet is damaged.*run with --resume"):
        run(toy([]), ToyConfig(), "quick", tmp_path, resume=True)
    assert part.read_bytes() == b"rubbish"
    metrics = tmp_path / "metrics.parquet"
    metrics.write_bytes(metrics.read_bytes()[:-3])
    with pytest.raises(UserError, match=r"metrics\.parquet is damaged"):
        RunFolder.open(tmp_path).table()
    part.unlink()
    part.write_bytes(intact)
    run(toy([]), ToyConfig(), "quick", tmp_path, resume=True)
    assert (tmp_path / "metrics.damaged").is_file()
    assert len(RunFolder.open(tmp_path).table()) == 12
    info = json.loads((tmp_path / "run.json").read_text())
    (tmp_path / "run.json").write_text(json.dumps(info | {"parts": []}))
    with pytest.raises(UserError, match=r"run\.json is damaged"):
        RunFolder.open(tmp_path)
    (tmp_path / "run.json").write_text("{")
    with pytest.raises(UserError, match=r"run\.json is damaged"):
        RunFolder.open(tmp_path)
    with pytest.raises(UserError, match=r"no run\.json"):
        RunFolder.open(tmp_path / "nowhere")


def test_a_crash_while_writing_leaves_the_old_file(tmp_path, monkeypatch):
    from obax._support import files

    files.write_text(tmp_path / "a", "old")

    def fail(*_):
        raise OSError("disk full")

    monkeypatch.setattr(files.os, "fsync", fail)
    with pytest.raises(OSError, match="disk full"):
        files.write_text(tmp_path / "a", "new")
    assert (tmp_path / "a").read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["a"]
