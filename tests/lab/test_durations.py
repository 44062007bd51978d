"""What `obax list` promises: what was measured, and nothing that was not."""

import dataclasses
import json

import pandas as pd
import pytest
from typer.testing import CliRunner

from benchmarks import durations as benchmark
from obax import cli
from obax.lab import EXPERIMENTS, Part, RunFolder, UserError
from obax.lab.kit import durations
from obax.lab.kit.config import as_dict
from obax.lab.kit.durations import DAY, Duration

LINE = {"processor": 9.0, "data": "real", "machine": "2 cores of X", "commit": "c", "date": "d"}


ROW = pd.DataFrame({"t": [1], "metric": ["m"], "value": [0.5], "method": ["a"], "seed": [0]})


@dataclasses.dataclass(frozen=True)
class Config:
    rounds: int = 10
    sizes: tuple[float, ...] = (0.1,)


def invoke(*words):
    return CliRunner().invoke(cli.app, words)


@pytest.fixture
def file(tmp_path, monkeypatch):
    """An empty file of measurements."""
    monkeypatch.setattr(durations, "FILE", tmp_path / "durations.json")
    durations.measured.cache_clear()
    yield durations.FILE
    durations.measured.cache_clear()


def test_nothing_is_promised_until_somebody_has_measured_it(file):
    assert str(durations.promised("toy", "quick", Config())) == "not measured"
    durations.keep("toy", "quick", Config(), seconds=31.4, **LINE)
    assert str(durations.promised("toy", "quick", Config())) == "31 s"
    assert durations.promised("toy", "paper", Config()) == Duration()
    assert durations.promised("other", "quick", Config()) == Duration()


@pytest.mark.parametrize("changed", [Config(rounds=11), Config(sizes=(0.1, 0.2))])
def test_a_preset_that_has_changed_is_no_longer_measured(file, changed):
    durations.keep("toy", "quick", Config(), seconds=31.4, **LINE)
    assert str(durations.promised("toy", "quick", changed)) == "not measured"


@pytest.mark.parametrize("line", [{"seconds": 31.4}, LINE | {"seconds": 3, "guess": 4}])
def test_a_line_that_does_not_say_where_it_comes_from_is_refused(file, line):
    file.write_text(json.dumps({"toy quick": line}))
    durations.measured.cache_clear()
    with pytest.raises(ValueError, match=r"toy quick.*machine"):
        durations.promised("toy", "quick", Config())


def test_a_later_measurement_replaces_the_earlier_and_leaves_the_others(file):
    for name, seconds in (("toy", 31.4), ("other", 5.0), ("toy", 62.0)):
        durations.keep(name, "quick", Config(), seconds=seconds, **LINE)
    assert {key: line["seconds"] for key, line in durations.measured().items()} == {
        "other quick": 5.0,
        "toy quick": 62.0,
    }
    assert durations.machines() == "2 cores of X"


def test_every_experiment_promises_what_the_file_says_and_quick_ones_are_quick():
    kept = durations.measured()
    for name, experiment in EXPERIMENTS.items():
        assert (experiment.durations["quick"].seconds or 0) < 600
        for preset, duration in experiment.durations.items():
            line = kept.get(f"{name} {preset}")
            now = line and line["config"] == durations.fingerprint(experiment.presets[preset])
            assert duration.seconds == (line["seconds"] if now else None)


def test_durations_in_words():
    took = [str(Duration(seconds)) for seconds in (0.2, 59, 150, 3600, 2 * DAY)]
    assert took == ["1 s", "59 s", "2.5 min", "1 hour", "2 days"]
    assert str(Duration(5400, "1 of 5")) == "about 1.5 hours (from 1 of 5 parts)"


def test_the_list_says_where_times_come_from(file):
    assert "Times: measured; of other presets" in invoke("list").output
    durations.keep("toy", "quick", Config(), seconds=31.4, **LINE)
    assert "measured on 2 cores of X" in invoke("list").output.replace("\n", " ")
    json.loads(invoke("list", "--json").output)


@pytest.mark.parametrize(("seconds", "kept"), [(50, True), (74, True), (80, False), (20, False)])
def test_a_promise_is_held_to_what_was_measured(seconds, kept):
    assert benchmark.judged(seconds, 50, 1.5) == kept


def test_the_benchmark_keeps_what_it_measured_and_then_judges_by_it(file, monkeypatch, capsys):
    took = {"wall": 40.0}
    monkeypatch.setattr(benchmark, "measured", lambda name, preset, runs: (took["wall"], 61.0))
    assert benchmark.main(["--only", "adult", "--keep"]) == 0
    line = durations.measured()["adult quick"]
    assert line["seconds"] == 40.0 and line["processor"] == 61.0 and "cores" in line["machine"]
    assert line["config"] == durations.fingerprint(EXPERIMENTS["adult"].presets["quick"])
    own = dataclasses.replace(EXPERIMENTS["adult"], durations={"quick": Duration(40)})
    monkeypatch.setitem(EXPERIMENTS, "adult", own)
    assert benchmark.main(["--only", "adult"]) == 0
    took["wall"] = 100.0
    assert benchmark.main(["--only", "adult"]) == 1
    assert "not as promised: adult" in capsys.readouterr().err
    took["wall"] = 40.0
    unknown = dataclasses.replace(own, durations={"quick": Duration()})
    monkeypatch.setitem(EXPERIMENTS, "adult", unknown)
    assert benchmark.main(["--only", "adult"]) == 1


def adult_run(path, changes=(), parts=("seed0-oagd", "seed1-oagd", "seed0-auto")):
    """A folder of the paper preset with fewer seeds, whose parts took 10, 20, 30 s."""
    config = dataclasses.replace(EXPERIMENTS["adult"].presets["paper"], seeds=2, **dict(changes))
    folder = RunFolder.create(path, "adult", "paper", as_dict(config))
    for number, name in enumerate(parts, 1):
        folder.keep_part(name, ROW, 10.0 * number)
    return folder


@pytest.fixture
def adult(monkeypatch):
    """Adult with two methods and five seeds, two of them for AutoBalance."""
    names = [f"seed{seed}-oagd" for seed in range(5)] + [f"seed{seed}-auto" for seed in range(2)]
    parts = [Part(name, lambda: pd.DataFrame()) for name in names]
    one = dataclasses.replace(EXPERIMENTS["adult"], parts=lambda config: parts)
    monkeypatch.setitem(EXPERIMENTS, "adult", one)


def test_some_seeds_tell_how_long_all_of_them_take(file, adult, tmp_path, capsys):
    adult_run(tmp_path / "run")
    assert benchmark.main(["--from", str(tmp_path / "run"), "--keep"]) == 0
    # Five times the mean of 10 and 20 s, twice 30 s.
    assert "adult paper: about 2.2 min (from 3 of 7 parts)" in capsys.readouterr().out
    line = durations.measured()["adult paper"]
    assert line["seconds"] == 5 * 15 + 2 * 30 and line["parts"] == "3 of 7"
    promise = durations.promised("adult", "paper", EXPERIMENTS["adult"].presets["paper"])
    assert str(promise).startswith("about 2.2 min")


def test_a_method_without_a_finished_part_is_not_guessed(file, adult, tmp_path, capsys):
    adult_run(tmp_path / "run", parts=("seed0-oagd",))
    assert benchmark.main(["--from", str(tmp_path / "run"), "--keep"]) == 1
    assert "no finished part of auto" in capsys.readouterr().err
    assert durations.measured() == {}


def test_parts_of_other_settings_tell_nothing_of_a_preset(file, adult, tmp_path):
    adult_run(tmp_path / "run", {"rounds": 7})
    with pytest.raises(UserError, match=r"other settings \(rounds\)"):
        benchmark.main(["--from", str(tmp_path / "run"), "--keep"])
