"""What `obax list` promises: measured where it says nothing, an estimate where it says so."""

import dataclasses
import json

import pytest
from typer.testing import CliRunner

from benchmarks import durations as benchmark
from obax import cli
from obax.lab import EXPERIMENTS
from obax.lab.kit import durations
from obax.lab.kit.durations import DAY, Duration

LINE = {"processor": 9.0, "data": "real", "machine": "2 cores of X", "commit": "c", "date": "d"}


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


def test_a_measurement_takes_the_place_of_an_estimate(file):
    guess = Duration(50)
    assert str(durations.promised("toy", "quick", Config(), guess)) == "50 s (estimate)"
    durations.keep("toy", "quick", Config(), seconds=31.4, **LINE)
    assert str(durations.promised("toy", "quick", Config(), guess)) == "31 s"
    assert not durations.promised("toy", "paper", Config(), guess).measured
    assert not durations.promised("other", "quick", Config(), guess).measured


@pytest.mark.parametrize("changed", [Config(rounds=11), Config(sizes=(0.1, 0.2))])
def test_a_preset_that_has_changed_is_an_estimate_again(file, changed):
    durations.keep("toy", "quick", Config(), seconds=31.4, **LINE)
    assert durations.promised("toy", "quick", changed, Duration(50)) == Duration(50, measured=False)


def test_nobody_can_call_a_guess_measured(file):
    """Neither an experiment that says so itself, nor a line without its machine."""
    boast = Duration(50, measured=True)
    assert not durations.promised("toy", "quick", Config(), boast).measured
    file.write_text(json.dumps({"toy quick": {"seconds": 31.4}}))
    durations.measured.cache_clear()
    with pytest.raises(ValueError, match=r"toy quick.*machine"):
        durations.promised("toy", "quick", Config(), Duration(50))


def test_a_later_measurement_replaces_the_earlier_and_leaves_the_others(file):
    for name, seconds in (("toy", 31.4), ("other", 5.0), ("toy", 62.0)):
        durations.keep(name, "quick", Config(), seconds=seconds, **LINE)
    assert {key: line["seconds"] for key, line in durations.measured().items()} == {
        "other quick": 5.0,
        "toy quick": 62.0,
    }
    assert durations.machines() == "2 cores of X"


def test_what_takes_hours_is_an_estimate_and_every_quick_preset_is_quick():
    for experiment in EXPERIMENTS.values():
        assert experiment.durations["quick"].seconds < 600
        for duration in experiment.durations.values():
            assert duration.seconds < 3600 or not duration.measured
            assert ("estimate" in str(duration)) != duration.measured


def test_durations_in_words():
    took = [str(Duration(seconds, measured=True)) for seconds in (0.2, 59, 150, 3600, 2 * DAY)]
    assert took == ["1 s", "59 s", "2.5 min", "1 hour", "2 days"]


def test_the_list_says_where_times_come_from(file):
    assert "Times: measured, where not marked as estimates" in invoke("list").output
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
    own = dataclasses.replace(EXPERIMENTS["adult"], durations={"quick": Duration(40, True)})
    monkeypatch.setitem(EXPERIMENTS, "adult", own)
    assert benchmark.main(["--only", "adult"]) == 0
    took["wall"] = 100.0
    assert benchmark.main(["--only", "adult"]) == 1
    assert "not as promised: adult" in capsys.readouterr().err
    guess = dataclasses.replace(own, durations={"quick": Duration(100)})
    monkeypatch.setitem(EXPERIMENTS, "adult", guess)
    assert benchmark.main(["--only", "adult"]) == 1
