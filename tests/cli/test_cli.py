"""The command line as a person meets it: real processes would be slow, so `main` is called."""

import hashlib
import json
import math
import os
import sys

import pandas as pd
import pytest
import typer

from obax import __version__, cli, datasets
from obax.cli import screen

pytestmark = pytest.mark.usefixtures("quick_compilation")

SMALL = [
    "horizon=20", "seeds=1", "tuning_seeds=1", "scenarios=paper", "stages=1", "outer_dims=1",
    "windows=1,5", "window_sizes=1", "decays=1", "normalisations=seen", "followers=current",
    "inner_steps=2", "outer_step_sizes=0.1", "inner_step_sizes=0.1", "own_curvature=no",
    "offline_points=2", "curve_points=5",
]  # fmt: skip


@pytest.fixture
def obax(monkeypatch, capsys, tmp_path):
    monkeypatch.chdir(tmp_path)

    def call(*words):
        monkeypatch.setattr(sys, "argv", ["obax", *map(str, words)])
        with pytest.raises(SystemExit) as stop:
            cli.main()
            raise SystemExit(0)
        out, err = capsys.readouterr()
        return stop.value.code or 0, out, err

    return call


def small_run(obax, out, *more):
    settings = [word for setting in SMALL for word in ("--set", setting)]
    return obax("run", "dynamic-regression", "--out", out, *settings, *more)


def test_version_and_help(obax):
    assert obax("--version")[:2] == (0, f"obax {__version__}\n")
    code, out, _ = obax("--help")
    assert code == 0
    assert all(word in out for word in ("list", "run", "report", "data"))


def test_list(obax):
    assert "dynamic-regression" in obax("list")[1]
    rows = json.loads(obax("list", "--json")[1])
    assert {"dynamic-regression", "adult", "fc100", "compare"} <= {row["name"] for row in rows}
    for row in rows:
        assert {"quick", "paper"} <= {*row["presets"].split(", ")}
        assert row["takes"] and row["asks"].endswith("?")


@pytest.mark.slow
def test_run_then_report(obax, tmp_path):
    code, out, _ = small_run(obax, "a")
    assert code == 0
    assert out.strip().startswith("Can a model tune its own regularisation")
    assert "Claims of the paper: " in out
    assert "a/report.html" in out
    for file in ("run.json", "metrics.parquet", "report.html", "figures/windows-paper.png"):
        assert (tmp_path / "a" / file).is_file()
    code, out, _ = small_run(obax, "b", "--seeds", "2", "--json")
    assert code == 0
    claims = {claim["id"] for claim in json.loads(out)["claims"]}
    assert claims == {"C1, S=1", "C1, S=1, never cut", "C2"}
    assert set(pd.read_parquet("b/metrics.parquet").seed) == {0, 1}
    (tmp_path / "a" / "report.html").unlink()
    assert obax("report", "a")[0] == 0
    assert (tmp_path / "a" / "report.html").is_file()
    assert json.loads(obax("report", "b", "--json")[1]) == {"report": "b/report.html"}
    code, _, err = small_run(obax, "a")
    assert code == 2
    assert "holds a run of dynamic-regression" in err
    # Going on with a finished run changes nothing.
    before = (tmp_path / "a" / "metrics.parquet").read_bytes()
    assert obax("run", "dynamic-regression", "--out", "a", "--resume")[0] == 0
    assert (tmp_path / "a" / "metrics.parquet").read_bytes() == before


def test_an_interrupt_says_how_to_go_on(obax, monkeypatch):
    from obax import lab

    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(lab, "run", interrupted)
    code, _, err = small_run(obax, "a")
    assert code == 130
    assert "obax run dynamic-regression --out a --resume" in err


def test_a_stream_writes_the_loss_of_the_probability_that_it_wrote(obax, tmp_path):
    """Also while only one class has been seen."""
    rows = [f"{i % 7},{(i * i) % 5},{'ab'[i > 12 and i % 2]}" for i in range(40)]
    (tmp_path / "rows.csv").write_text("\n".join(["p,q,y", *rows]))
    words = ("--target", "y", "--task", "classify", "--out", "out.jsonl")
    assert obax("stream", "rows.csv", *words)[0] == 0
    written = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert len(written) == 40
    for row, one in zip(rows[1:], written[1:], strict=True):
        right = one["prediction"] == row[-1]
        probability = one["probability"] if right else 1 - one["probability"]
        assert one["loss"] == pytest.approx(-math.log(probability), abs=1e-4)


def test_a_log_shows_progress(capsys, monkeypatch):
    """Away from a terminal there is a line now and then, and nothing beside JSON."""
    monkeypatch.setattr(screen, "LOG_SECONDS", 1000.0)
    with screen.progress("fc100", quiet=False) as on_part:
        for done in range(4):
            on_part(done, 3, "ANIL: 20%")
    lines = capsys.readouterr().err.splitlines()
    assert lines == [
        "obax: fc100: 0 of 3 parts, 0 s. ANIL: 20%",
        "obax: fc100: 3 of 3 parts, 0 s. ANIL: 20%",
    ]
    with screen.progress("fc100", quiet=True) as on_part:
        on_part(3, 3, "")
    assert capsys.readouterr().err == ""


def test_every_option_has_help(obax):
    """The help is in the docstrings of the commands; a name misspelt there is noticed."""
    for command in typer.main.get_command(cli.app).commands.values():
        shown = [one for one in command.params if not getattr(one, "hidden", False)]
        assert all(one.help for one in shown), command.name
        assert "- `" not in command.help
    with pytest.raises(KeyError, match="out"):

        @screen.documented
        def command(path: str) -> None:
            """Do it.

            - `out`: A folder.
            """


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["run", "dynamic-regresion"], "Did you mean 'dynamic-regression'?"),
        (["run", "dynamic-regression", "--set", "horizn=3"], "Did you mean 'horizon'?"),
        (["run", "dynamic-regression", "--set", "horizon=x"], "must be an integer"),
        (["run", "dynamic-regression", "--preset", "papr"], "Did you mean 'paper'?"),
        (["run", "dynamic-regression", "--resume"], "--resume needs --out"),
        (["run", "dynamic-regression", "--resume", "--out", "none"], "not a run folder"),
        (["report", "none"], "not a run folder"),
        (["report", "a", "b"], "give one folder"),
    ],
)
def test_bad_input_is_one_line_and_code_2(obax, words, message):
    code, out, err = obax(*words)
    assert code == 2
    assert out == ""
    assert message in err
    assert err.count("\n") == 1
    assert "Traceback" not in err


def test_data_says_what_is_where(obax, monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("OBAX_DATA", str(tmp_path))
    (tmp_path / "elec2.csv.gz").write_bytes(b"not the one we know")
    rows = {row["file"]: row for row in json.loads(obax("data", "--json")[1])}
    assert rows["mnist.npz"]["state"] == "missing"
    assert rows["elec2.csv.gz"]["state"].startswith("another version")
    out = obax("data")[1]
    assert "To get mnist" in out
    assert "OBAX_DATA" in out


def test_a_known_checksum_is_verified(monkeypatch, tmp_path):
    known = hashlib.sha256(b"the one we know").hexdigest()
    small = datasets.DataSet("small", "what", {"small.csv": known}, "how")
    monkeypatch.setattr(datasets.registry, "DATASETS", (small,))
    monkeypatch.setenv("OBAX_DATA", str(tmp_path))
    (tmp_path / "small.csv").write_bytes(b"the one we know")
    (status,) = datasets.status()
    assert (status.state, status.path) == ("verified", tmp_path / "small.csv")


@pytest.mark.skipif("OBAX_DATA" not in os.environ, reason="OBAX_DATA is not set: no real data")
def test_the_real_data_is_verified():
    assert {status.state for status in datasets.status()} == {"verified"}
