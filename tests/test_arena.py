"""The benchmark on StreamArena's protocol: its measures, its records and its table."""

import json

import numpy as np
import pytest
from sklearn import metrics as reference

from benchmarks import arena


def classified(rows=300, classes=3, seed=0):
    random = np.random.default_rng(seed)
    X = random.standard_normal((rows, 4))
    y = np.digitize(
        X[:, 0] + 0.5 * random.standard_normal(rows), np.linspace(-0.5, 0.5, classes - 1)
    )
    said = random.dirichlet(np.ones(classes), rows).round(2) + 0.01 * (X[:, :1] > 0)
    return arena.Stream("made", X, y, classes), said / said.sum(axis=1, keepdims=True)


@pytest.mark.parametrize("classes", [2, 3])
def test_measures_are_those_of_scikit_learn(classes):
    stream, said = classified(classes=classes)
    found = arena.metrics(stream, said)
    y, chosen = stream.y, said.argmax(axis=1)
    assert found["accuracy"] == pytest.approx(np.mean(y == chosen))
    assert found["kappa"] == pytest.approx(reference.cohen_kappa_score(y, chosen))
    floored = np.clip(said[np.arange(len(y)), y], 1e-7, 1)
    assert found["log_loss"] == pytest.approx(-np.log(floored).mean())
    labels, scores = (y == 1, said[:, 1]) if classes == 2 else (np.eye(3)[y], said)
    assert found["roc_auc"] == pytest.approx(reference.roc_auc_score(labels, scores), rel=1e-3)
    precision = reference.average_precision_score(labels, scores)
    assert found["pr_auc"] == pytest.approx(precision, rel=1e-3)  # rounding breaks a few ties


def test_the_floor_and_lines_without_probabilities_count():
    stream = arena.Stream("made", np.zeros((2, 1)), np.array([0, 1]), 2)
    sure = arena.metrics(stream, np.array([[0.0, 1.0], [0.0, 0.0]]))
    assert sure["log_loss"] == pytest.approx((-np.log(1e-7) + np.log(2)) / 2)
    numbers = arena.Stream("made", np.zeros((2, 1)), np.array([0.0, 2.0]), 0)
    found = arena.metrics(numbers, np.array([1.0, 1.0]))
    assert found == {"rmse": 1.0, "mae": 1.0, "r2": 0.0}
    assert arena.metrics(numbers, np.array([np.nan, 1.0]))["rmse"] == np.inf


def test_a_run_writes_records_and_a_table(tmp_path, capsys):
    folder = tmp_path / "arena"
    folder.mkdir()
    stream, _ = classified(120, 2)
    np.savez(folder / "adult.npz", X=stream.X.astype(np.float32), y=stream.y)
    np.savez(
        folder / "bike.npz", X=stream.X.astype(np.float32), y=stream.X[:, 0].astype(np.float32)
    )
    (folder / "board.csv").write_text(
        "task,dataset,algorithm,value\nclassification,real/adult,Good,0.0\n"
        "classification,real/adult,Bad,9.0\nregression,real/bike,Bad,9.0\n"
    )
    out = tmp_path / "out"
    arena.main(
        ["--data", str(folder), "--out", str(out), "--seeds", "2", "--only", "adult", "bike"]
    )
    table = capsys.readouterr().out.splitlines()
    assert table[2].startswith("| adult |") and table[2].endswith("| 0 Good | 2 |")
    assert table[3].startswith("| bike |") and table[3].endswith("| 9 Bad | 1 |")
    files = sorted(out.iterdir())
    assert [file.name for file in files] == [
        f"{name}-obax-{seed}.json" for name in ("adult", "bike") for seed in (0, 1)
    ]
    record = json.loads(files[0].read_text())
    assert list(record) == [
        "task", "algorithm", "dataset", "seed", "status", "metrics", "wallclock_s", "cpu_time_s",
        "hyperparameters", "submission",
    ]  # fmt: skip
    assert record["status"] == "ok" and record["hyperparameters"]["features"] == "auto"
    assert set(record["metrics"]) == {
        "accuracy", "kappa", "kappa_t", "kappa_m", "log_loss", "roc_auc", "pr_auc",
    }  # fmt: skip
    assert set(record["submission"]) == {
        "author", "contact_or_repo", "library_versions", "dataset_revision", "notes",
    }  # fmt: skip


def test_a_learner_that_fails_is_said():
    stream, _ = classified(20, 2)

    def broken():
        raise OSError("no Java")

    record = arena.submission(stream, "ARF", 0, broken)
    assert record["status"] == "failed: OSError: no Java"
    assert "failed: OSError: no Java" in list(arena.table([record], {}))[-1]
