"""`obax stream --id`: labels on lines of their own, later than their rows."""

import json

import numpy as np
import pytest

from obax.estimators import StreamingClassifier
from obax.streaming import Checkpoint, Input, Job, Output

pytestmark = pytest.mark.usefixtures("quick_compilation")


def read(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def drawn(rows=300, late=7, seed=0):
    """Lines of JSON in which the label of a row comes some lines after it; and the rows."""
    X = np.random.default_rng(seed).standard_normal((rows, 2)).round(3)
    y = (X[:, 0] - X[:, 1] > 0).tolist()
    asked = [{"id": f"n{i}", "a": a, "b": b} for i, (a, b) in enumerate(X.tolist())]
    told = [{"id": f"n{i}", "y": label} for i, label in enumerate(y)]
    lines = asked[:late]
    for i in range(rows):
        lines += asked[i + late : i + late + 1] + [told[i]]
    return lines, X, y


def written(path, lines):
    path.write_text("\n".join(map(json.dumps, lines)) + "\n")
    return path


def as_csv(path, lines):
    rows = [",".join(str(line.get(name, "")) for name in ("id", "a", "b", "y")) for line in lines]
    path.write_text("id,a,b,y\n" + "\n".join(rows) + "\n")
    return path


@pytest.mark.parametrize("kind", ["csv", "jsonl"])
def test_late_label_is_learned_with_its_row(tmp_path, kind):
    lines, X, y = drawn()
    source = tmp_path / f"rows.{kind}"
    (as_csv if kind == "csv" else written)(source, lines)
    job = Job(StreamingClassifier(), Input(source, "y", kind, id="id"), Output(tmp_path / "out"))
    assert job.run() == 600
    found = read(tmp_path / "out")
    assert [one["id"] for one in found] == [line["id"] for line in lines]
    assert ["loss" in one for one in found] == ["y" in line for line in lines]
    assert job.model.rejected_.count == 0 and len(job.model.pending_) == 0
    assert job.score.rows == 300 and job.score.means["accuracy"] > 0.9
    # The same as to learn the rows in the order of their labels.
    other = StreamingClassifier()
    names = [str(label) if kind == "csv" else label for label in y]
    other.learn_many([{"a": a, "b": b} for a, b in X.tolist()], names)
    assert job.model.mean_loss_ == pytest.approx(other.mean_loss_, rel=1e-12)


def test_labels_without_a_row_are_rejected_with_a_reason(tmp_path):
    lines = [
        {"id": 1, "a": 1.0},
        {"id": 2, "a": 2.0, "y": "up"},  # A row like any other.
        {"id": 1, "y": "down"},
        {"id": 1, "y": "down"},  # Learned already.
        {"id": 9, "y": "up"},  # Never came.
        {"id": 3, "a": 1.0},
        {"id": 3, "a": 7.0},  # Another row.
        {"id": 4, "a": 1.0},
        {"id": 5, "a": 1.0},  # One too many.
        {"id": 3, "y": "up"},
        {"id": [6], "a": 1.0},
        {"a": 3.0, "y": "up"},  # None at all.
    ]
    model = StreamingClassifier(max_pending=2)
    source = written(tmp_path / "rows.jsonl", lines)
    job = Job(model, Input(source, "y", "jsonl", id="id"), Output(tmp_path / "out"))
    job.run()
    reasons = {one["t"]: one["rejected"] for one in read(tmp_path / "out") if "rejected" in one}
    assert sorted(reasons) == [4, 5, 7, 10, 11]
    assert "learned already" in reasons[4] and "no row waits under id 9" in reasons[5]
    assert "another row" in reasons[7] and "dropped" in reasons[10] and "id" in reasons[11]
    assert job.score.rows == 3 and job.model.pending_.dropped == 1


def test_pending_rows_are_in_the_checkpoint(tmp_path):
    lines, _, _ = drawn(60)
    source = written(tmp_path / "rows.jsonl", lines)
    rows = Input(source, "y", "jsonl", id="id")
    whole = Job(StreamingClassifier(), rows, Output(tmp_path / "whole"))
    whole.run()
    saved = Output(tmp_path / "out"), Checkpoint(tmp_path / "ck")
    first = Job(StreamingClassifier(), rows, *saved)
    first.play(first.source.take(51))
    first.save()
    assert len(first.model.pending_) > 3
    first.close()
    second = Job(StreamingClassifier(), rows, *saved)
    assert second.run() == 120 and second.score == whole.score
    assert (tmp_path / "out").read_bytes() == (tmp_path / "whole").read_bytes()
