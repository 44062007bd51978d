"""The benchmark of streams: what it counts, and that it complains where a limit is missed."""

import dataclasses
import json

import numpy as np
import pytest

pytest.importorskip("river")

from benchmarks.streams import beyond, kept, losses, page, rivals, speed
from benchmarks.streams.__main__ import main, missed
from benchmarks.streams.data import Stream
from benchmarks.streams.report import Table, shown, verdict
from benchmarks.streams.sources import SOURCES, NotHere, stream


@pytest.fixture(scope="module")
def phishing():
    return stream("phishing", 300)


@pytest.fixture(scope="module")
def known(phishing):
    return kept.one("phishing", 300, [*rivals.linear("classes")])["rivals"]


@pytest.mark.parametrize("name", SOURCES)
def test_streams_are_numbers_and_the_same_every_time(name):
    try:
        data = stream(name, 40)
    except NotHere:
        pytest.skip("not on this machine")
    assert len(data.rows) == len(data.y) == 40
    assert all(type(value) is float for row in data.rows for value in row.values())
    assert data.sparse == (name in ("words", "sms spam"))
    assert data.digest == stream(name, 40).digest != stream(name, 39).digest


def test_text_is_read_where_it_is_there(tmp_path, monkeypatch):
    (tmp_path / "SMSSpamCollection").write_text("ham\tOk lar, ok\nspam\tWIN a prize\n")
    monkeypatch.setenv("OBAX_DATA", str(tmp_path))
    data = stream("sms spam")
    assert data.rows == [{"ok": 2.0, "lar": 1.0}, {"win": 1.0, "prize": 1.0}]
    assert data.y.tolist() == [0, 1]


def test_scores_by_hand():
    data = Stream("hand", "classes", [{"a": 1.0}] * 4, np.array([0, 1, 1, 0]))
    said = np.array([[0, 0], [0, 0], [0.5, 0.5], [np.nan, np.nan]])
    # The first row of each class does not count; what is not a number is as bad as 0.
    expected = (np.log(2) - np.log(1e-15)) / 2
    assert data.score(said)["loss"] == pytest.approx(expected, rel=1e-12)
    numbers = Stream("hand", "regression", [{"a": 1.0}] * 2, np.array([0.0, 2.0]))
    assert numbers.score(np.array([1.0, 4.0])) == {
        "loss": 2.5,
        "rmse": pytest.approx(2.5**0.5),
        "unexplained": 2.5,
    }
    assert numbers.score(np.array([1.0, np.nan]))["loss"] == np.inf


def test_a_rival_is_tested_and_then_trained(phishing):
    from river import linear_model, preprocessing

    model = preprocessing.StandardScaler() | linear_model.LogisticRegression()
    said = []
    for row, label in zip(phishing.rows, phishing.y.tolist(), strict=True):
        found = model.predict_proba_one(row)
        said.append([found[False], found[True]])
        model.learn_one(row, bool(label))
    expected = phishing.score(np.array(said))
    found = rivals.play(phishing, rivals.linear("classes")["River default"])
    assert {key: found[key] for key in expected} == expected


@pytest.mark.parametrize("name", ["phishing", "segments", "trump", "words"])
def test_every_rival_plays_or_stays_away(name):
    data = stream(name, 30)
    found = {
        rival: rivals.play(data, begin)
        for rival, begin in (rivals.linear(data.kind) | rivals.OTHERS).items()
    }
    away = {rival for rival, result in found.items() if result is None}
    assert all(result["loss"] >= 0 for result in found.values() if result is not None)
    if data.kind == "classes":
        numbers = {rival for rival in found if "Bayesian" in rival or "scaled" in rival}
        assert numbers <= away
    if data.sparse:
        assert {"River ARF(10)", "scikit-learn SGD"} <= away
    assert not away & {*rivals.linear(data.kind), "River PA"}


def test_kept_results_are_of_the_same_stream(phishing, known):
    entry = {"digest": phishing.digest, "rivals": known}
    assert kept.of({"phishing": entry}, phishing) == known
    assert kept.of({"phishing": entry}, stream("phishing", 299)) == {}
    assert kept.river_best(known) == min(r["loss"] for r in known.values())


def test_a_model_that_always_says_a_half_is_missed(phishing, known):
    half = phishing.score(np.full((300, 2), 0.5))["loss"]
    ours = phishing.score(losses.ours(phishing))["loss"]
    best = kept.river_best(known)
    assert losses.table_row(phishing, half, ours, known)[-1] == "missed"
    assert losses.table_row(phishing, best, best, known)[-1] == "met"
    # Better than River is not enough where the same model untuned is better still.
    assert losses.table_row(phishing, best, 0.98 * best, known)[-1] == "missed"
    # Text may not be worse than River at all.
    text = dataclasses.replace(phishing, name="words")
    assert losses.table_row(phishing, 1.005 * best, best, known)[-1] == "met"
    assert losses.table_row(text, 1.005 * best, best, known)[-1] == "missed"


def test_one_bad_start_is_missed():
    starts = dict.fromkeys(losses.STARTS, (0.2, 0.3))
    assert losses.starts_row("a", starts, 0.2)[-2:] == ["16 of 16", "met"]
    for bad in (0.203, np.nan):
        found = losses.starts_row("a", starts | {(1.0, 30.0): (bad, 0.3)}, 0.2)
        assert found[2] == "penalty 1, memory 30"
        assert found[-2:] == ["15 of 16", "missed"]


def test_coverage_is_counted_over_every_window():
    hits = np.ones(8000, bool)
    hits[::10] = False
    assert beyond.interval_row("a", hits)[-1] == "met"
    # Right on average and wrong for a while.
    hits[3000:3100], hits[5000:5900:10] = False, True
    assert abs(hits.mean() - 0.9) < 0.001
    assert beyond.interval_row("a", hits)[-1] == "missed"
    assert beyond.interval_row("a", np.ones(8000, bool))[-1] == "missed"


@pytest.mark.parametrize(
    ("loss", "pace", "expected"), [(1.0, 9.0, "met"), (1.2, 9.0, "missed"), (1.0, 11.0, "missed")]
)
def test_features_are_judged_by_loss_and_by_time(phishing, loss, pace, expected):
    found = {"linear": 2.0, "fourier": loss, "interactions": 3.0}
    times = {"fourier": pace, "interactions": 1.0, beyond.FOREST: 100.0}
    assert beyond.curved_row(phishing, found, 1.0, times)[-1] == expected


@pytest.mark.parametrize(
    ("one", "many", "expected"), [(12.0, 3.0, "met"), (16.0, 3.0, "missed"), (12.0, 5.0, "missed")]
)
def test_speed_is_judged_by_ratio(one, many, expected):
    found = {"River": 10.0, "one": one, "many": many, "progressive": 3.0}
    assert speed.row_of("a", found, 1.5, 0.4)[-1] == expected


def test_exit_code_and_page(tmp_path, capsys):
    table = Table("a", ["stream", "ours", "verdict"], [["x", 0.123456, "met"]], "An answer.")
    file, text = tmp_path / "out.json", tmp_path / "page.md"
    text.write_text("Before\n<!-- table -->\nold\n<!-- end -->\nafter")
    file.write_text(json.dumps({"table": dataclasses.asdict(table)}))
    assert main(["--read", str(file), "--page", str(text)]) == 0
    assert "An answer." in text.read_text()
    assert "| x | 0.1235 | met |\n<!-- end -->\nafter" in text.read_text()
    assert "old" not in text.read_text()
    table.rows.append(["y", float("nan"), verdict(float("nan"), 1.0)])
    file.write_text(json.dumps({"table": dataclasses.asdict(table)}))
    assert main(["--read", str(file)]) == 1
    assert "missed, table: y" in capsys.readouterr().out
    text.write_text("<!-- table -->")
    with pytest.raises(ValueError, match="without"):
        page.fill(text, {"table": table})


def test_a_small_run_end_to_end(phishing, known, tmp_path):
    found = losses.part_table(["phishing", "sms spam"], 300, {})
    assert {len(row) for row in found.rows} == {len(found.columns)}
    row = dict(zip(found.columns, found.rows[0], strict=True))
    assert row["River's best"] == kept.river_best(known)
    assert row["ours"] == phishing.score(losses.ours(phishing))["loss"]
    assert found.note.startswith("Of 1 streams")
    assert missed({"table": found}) == (["table: phishing"] if row["verdict"] == "missed" else [])
    page.figure(tmp_path / "figure.png", found)
    assert (tmp_path / "figure.png").read_bytes()[1:4] == b"PNG"


def test_cells_as_people_read_them():
    assert [shown(v) for v in (None, 1e9, 1234, 0.5)] == ["-", "diverged", "1,234", "0.5"]
