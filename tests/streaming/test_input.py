"""Input as it comes: dates, quoted numbers, identifiers, Parquet, kinds of columns, the task."""

import datetime
import json

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from obax import cli
from obax.estimators import StreamingClassifier
from obax.streaming import Input, Kinds
from obax.streaming.reasons import MAX_KINDS, Reasons
from obax.streaming.source import Source

DATE_COLUMNS = ["days", "day_sin", "day_cos", "week_sin", "week_cos"]


def stream(*arguments):
    return CliRunner().invoke(cli.app, ["stream", *map(str, arguments)])


def read(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.fixture
def rows():
    """A date, a number, a category and a label."""
    rng = np.random.default_rng(0)
    begin = datetime.datetime(2024, 1, 1)
    return [
        {
            "when": (begin + datetime.timedelta(hours=i)).isoformat(),
            "a": round(float(rng.standard_normal()), 3),
            "zip": int(rng.integers(3)),
            "y": ["no", "yes"][int(rng.random() < 0.5)],
        }
        for i in range(60)
    ]


def test_iso_dates_are_dates_in_every_kind_of_input(tmp_path, rows):
    frame = pd.DataFrame(rows)
    frame.to_csv(tmp_path / "rows.csv", index=False)
    frame.to_parquet(tmp_path / "rows.parquet")
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
    outputs = set()
    for kind in ("csv", "jsonl", "parquet"):
        out = tmp_path / f"{kind}.out"
        done = stream(tmp_path / f"rows.{kind}", "--target", "y", "--out", out)
        assert done.exit_code == 0 and "0 rejected" in done.output, done.output
        outputs.add(out.read_bytes())
    assert len(outputs) == 1
    model = StreamingClassifier()
    model.learn_many(frame[["a", "when"]], frame["y"])
    expected = ["a", *(f"when.{part}" for part in DATE_COLUMNS)]
    assert sorted(model.feature_names_) == sorted(expected)
    one = StreamingClassifier()
    for row in rows:
        one.learn_one({"a": row["a"], "when": row["when"]}, row["y"])
    assert one.mean_loss_ == model.mean_loss_
    given = StreamingClassifier()
    for row in rows:
        when = datetime.datetime.fromisoformat(row["when"])
        given.learn_one({"a": row["a"], "when": when}, row["y"])
    assert given.mean_loss_ == model.mean_loss_


@pytest.mark.parametrize(
    ("text", "is_date"),
    [
        ("2024-01-01", True),
        ("2024-01-01 10:30", True),
        ("2024-01-01T10:30:00.25Z", True),
        ("2024-01-01T10:30:00+02:00", True),
        ("2024-02-30", False),
        ("2024-1-1", False),
        ("01/02/2024", False),
        ("2024-01-01-17", False),
    ],
)
def test_iso_8601_texts(text, is_date):
    model = StreamingClassifier()
    model.learn_one({"when": text}, True)
    assert ("when.days" in model.feature_names_) == is_date


def test_quoted_numbers_of_json_are_numbers(tmp_path):
    rows = [{"a": str(i % 7), "y": i % 7 > 3} for i in range(60)]
    (tmp_path / "quoted.jsonl").write_text("\n".join(map(json.dumps, rows)))
    plain = [row | {"a": float(row["a"])} for row in rows]
    (tmp_path / "plain.jsonl").write_text("\n".join(map(json.dumps, plain)))
    for name in ("quoted", "plain"):
        stream(tmp_path / f"{name}.jsonl", "--target", "y", "--out", tmp_path / name)
    assert (tmp_path / "quoted").read_bytes() == (tmp_path / "plain").read_bytes()


@pytest.mark.parametrize("kind", ["csv", "jsonl", "parquet"])
def test_identifier_columns_warn_and_suggest_drop(tmp_path, kind):
    frame = pd.DataFrame(
        {"id": [f"u{i}" for i in range(150)], "c": ["x", "y", "z"] * 50, "y": [0, 1] * 75}
    )
    path = tmp_path / f"rows.{kind}"
    if kind == "csv":
        frame.to_csv(path, index=False)
    elif kind == "jsonl":
        frame.to_json(path, orient="records", lines=True)
    else:
        frame.to_parquet(path)
    done = stream(path, "--target", "y", "--out", tmp_path / "out")
    assert "'id' looks like an identifier" in done.stderr and "--drop id" in done.stderr
    assert "'c' looks like" not in done.stderr
    done = stream(path, "--target", "y", "--drop", "id", "--out", tmp_path / "other")
    assert "identifier" not in done.stderr


def test_numeric_date_and_category_options(tmp_path):
    text = "zip,day,a,y\n" + "".join(
        f"{i % 3},2024-01-0{i % 3 + 1},{i},{i % 2}\n" for i in range(30)
    )
    (tmp_path / "rows.csv").write_text(text + "1,soon,1,1\n1,2024-01-01,x,1\n")
    kinds = Kinds(frozenset({"a"}), frozenset({"day"}), frozenset({"zip"}))
    source = Source(Input(tmp_path / "rows.csv", "y", kinds=kinds))
    batch = source.take(100)
    source.close()
    assert batch.rows.row(0)["zip"] == "0" and 2 in batch.rows.words
    assert batch.rows.rejected == {
        30: "feature 'day' is 'soon', not a date such as 2024-12-31",
        31: "feature 'a' is 'x', not a number",
    }
    arguments = ("--numeric", "a", "--date", "day", "--category", "zip", "--target", "y")
    done = stream(tmp_path / "rows.csv", *arguments, "--out", tmp_path / "out")
    assert "obax: rejected 1: feature 'day' is 'soon', not a date" in done.stderr
    # A date that is said to be a category is one.
    done = stream(
        tmp_path / "rows.csv", "--category", "day", "--target", "y", "--out", tmp_path / "o",
        "--checkpoint", tmp_path / "ck",
    )  # fmt: skip
    assert "rejected 1: feature 'a'" in done.stderr and "'day'" not in done.stderr


def test_parquet_resumes_and_refuses_pipes(tmp_path):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.standard_normal((900, 2)), columns=["a", "b"])
    frame["y"] = np.where(frame.a > frame.b, "up", "down")
    frame.loc[5, "y"] = None
    frame.to_parquet(tmp_path / "rows.parquet")
    arguments = (tmp_path / "rows.parquet", "--target", "y")
    stream(*arguments, "--out", tmp_path / "whole")
    saved = (*arguments, "--out", tmp_path / "out", "--checkpoint", tmp_path / "ck")
    stream(*saved, "--checkpoint-every", "300")
    # Killed after the second checkpoint, as far as the folder can tell.
    sorted((tmp_path / "ck").glob("*.obax"))[-1].unlink()
    done = stream(*saved, "--checkpoint-every", "300")
    assert done.exit_code == 0, done.output
    assert (tmp_path / "out").read_bytes() == (tmp_path / "whole").read_bytes()
    assert len(read(tmp_path / "out")) == 900 and "loss" not in read(tmp_path / "out")[5]
    frame.iloc[:, ::-1].to_parquet(tmp_path / "rows.parquet")
    assert "is not the one of the checkpoint" in str(stream(*saved).exception)
    assert "has no 'z'" in str(stream(*arguments[:2], "z").exception)
    (tmp_path / "rows.parquet").write_text("a,y\n1,2\n")
    assert "not a Parquet file" in str(stream(*arguments).exception)
    piped = stream("-", "--format", "parquet", "--target", "y")
    assert "cannot be read from a pipe" in str(piped.exception)


@pytest.mark.parametrize(
    ("values", "task"),
    [
        ([f"{i / 7:.3f}" for i in range(60)], "regress"),
        ([str(i) for i in range(60)], "regress"),
        ([str(i % 3) for i in range(60)], "classify"),
        (["0.5", "1.5"] * 30, "regress"),
        (["yes", "no"] * 30, "classify"),
        (["", "1", "nan"] * 20, "classify"),
    ],
)
def test_guessed_task_is_printed(tmp_path, values, task):
    text = "a,delay\n" + "".join(f"{i % 5},{value}\n" for i, value in enumerate(values))
    (tmp_path / "rows.csv").write_text(text)
    arguments = (tmp_path / "rows.csv", "--target", "delay", "--out")
    done = stream(*arguments, tmp_path / "out")
    assert f"--task {task}: its values" in done.stderr
    assert ("RMSE" in done.stderr) == (task == "regress")
    other = "classify" if task == "regress" else "regress"
    said = stream(*arguments, tmp_path / "other", "--task", other)
    assert "its values" not in said.stderr


def test_every_rejection_has_its_reason_in_the_summary(tmp_path):
    lines = [f"{i},{i}.5" for i in range(300)] + ["x,1.5"] * 3 + ["1,2,3"] * 2
    (tmp_path / "rows.csv").write_text("a,delay\n" + "\n".join(lines) + "\n")
    arguments = (tmp_path / "rows.csv", "--target", "delay", "--task", "classify")
    done = stream(*arguments, "--out", tmp_path / "out", "--checkpoint", tmp_path / "ck")
    rejected = sum("rejected" in line for line in read(tmp_path / "out"))
    counts = [
        int(line.split()[2].rstrip(":").replace(",", ""))
        for line in done.stderr.splitlines()
        if line.startswith("obax: rejected ")
    ]
    assert rejected > 200 and sum(counts) == rejected and len(counts) == 3
    assert "3: feature 'a' is 'x', not a number" in done.stderr
    # Counted on after a resumption.
    again = stream(*arguments, "--out", tmp_path / "out", "--checkpoint", tmp_path / "ck")
    assert f"obax: rejected {counts[0]}" in again.stderr


def test_kinds_of_reasons_are_bounded():
    reasons = Reasons()
    for i in range(100):
        reasons.add(f"feature 'x{chr(65 + i % 26)}{i}' cannot be")
        reasons.add(f"feature 'a' is 'word {i}', not a number as before")
    assert len(reasons.counts) == MAX_KINDS + 1 and sum(reasons.counts.values()) == 200
    assert reasons.summary()[0].startswith("100: feature 'a' is 'word 0'")
    assert reasons.summary()[-1].endswith("other reasons")
    assert Reasons(**json.loads(json.dumps(reasons.to_dict()))).counts == reasons.counts
