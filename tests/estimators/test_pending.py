"""Labels that come later: rows are kept, learned when their labels come, dropped when too many."""

import datetime
import uuid

import numpy as np
import pytest
from states import same

import obax
from obax.estimators import StreamingClassifier, StreamingRegressor


def rows(n, seed=0):
    rng = np.random.default_rng(seed)
    values = rng.standard_normal((n, 3))
    return [dict(zip("abc", row, strict=True)) for row in values.tolist()], values @ [1, -1, 0.5]


@pytest.mark.parametrize("make", [StreamingClassifier, StreamingRegressor])
def test_late_label_learns_the_kept_row(make):
    """Labels come 7 rows late: the same model as one that gets each row with its label then."""
    features, score = rows(120)
    targets = (score > 0).tolist() if make is StreamingClassifier else score.tolist()
    late, then = make(), make()
    for i, row in enumerate(features):
        mine = dict(row)
        assert late.predict_one(mine, id=i) == then.predict_one(row)
        mine["a"] = 1e9  # The row was kept as it was.
        if i >= 7:
            late.learn_one(id=i - 7, y=targets[i - 7])
            then.learn_one(features[i - 7], targets[i - 7])
    same(late, then)
    assert list(late.pending_) == list(range(113, 120)) and late.pending_.dropped == 0
    assert repr(late.pending_) == "Pending(7 waiting, 0 dropped)"


def test_late_labels_in_any_order():
    features, score = rows(40)
    model = StreamingClassifier()
    for i, row in enumerate(features):
        assert model.predict_proba_one(row, id=f"row {i}") == {}
    for i in reversed(range(40)):
        model.learn_one(y=bool(score[i] > 0), id=f"row {i}")
    plain = StreamingClassifier()
    for i in reversed(range(40)):
        plain.learn_one(features[i], bool(score[i] > 0))
    same(model, plain)
    assert len(model.pending_) == 0


def test_oldest_pending_row_is_dropped_beyond_max_pending():
    model = StreamingRegressor(max_pending=3)
    for i in range(5):
        model.predict_one({"a": float(i)}, id=i)
    assert list(model.pending_) == [2, 3, 4] and model.pending_.dropped == 2
    with pytest.raises(KeyError, match=r"id 1 was dropped before its label came.*max_pending = 3"):
        model.learn_one(id=1, y=1.0)
    with pytest.raises(KeyError, match="no row waits under id 99"):
        model.learn_one(id=99, y=1.0)
    model.learn_one(id=3, y=1.0)
    assert "2 rows were dropped before their labels came" in model.explain()
    with pytest.raises(KeyError, match=r"no row waits under id 3: .* or it was learned already"):
        model.learn_one(id=3, y=1.0)
    # What is known of dropped ids is bounded too.
    for i in range(10, 20):
        model.predict_one({"a": 0.0}, id=i)
    with pytest.raises(KeyError, match="no row waits under id 0"):
        model.learn_one(id=0, y=1.0)
    assert len(model.pending_._gone) == 3 and model.pending_.dropped == 11


def test_pending_id_belongs_to_one_row():
    model = StreamingClassifier()
    model.predict_one({"a": 1.0}, id=7)
    model.predict_proba_one({"a": 1.0}, id=7)
    with pytest.raises(ValueError, match="id 7 belongs to another row"):
        model.predict_one({"a": 2.0}, id=7)
    assert len(model.pending_) == 1
    model.learn_one(id=7, y=True)
    model.predict_one({"a": 2.0}, id=7)  # free again


def test_arguments_of_late_labels_are_checked():
    model = StreamingClassifier()
    with pytest.raises(ValueError, match=r"a row, x, or the id .* not both"):
        model.learn_one({"a": 1.0}, True, id=3)
    with pytest.raises(TypeError, match="needs a target, y"):
        model.learn_one(id=3)
    with pytest.raises(TypeError, match="needs a target, y"):
        model.learn_one({"a": 1.0})
    with pytest.raises(ValueError, match="x must be a dict"):
        model.learn_one(y=True)
    with pytest.raises(ValueError, match=r"id must be a word, a number.*but is UUID"):
        model.predict_one({"a": 1.0}, id=uuid.UUID(int=5))
    with pytest.raises(ValueError, match=r"id must be a word, a number.*but is \[1\]"):
        model.learn_one(id=[1], y=True)
    with pytest.raises(ValueError, match="max_pending must be an integer >= 1"):
        StreamingClassifier(max_pending=0).predict_one({"a": 1.0}, id=1)


def test_pending_faulty_row_is_rejected_on_learning():
    model = StreamingClassifier()
    model.predict_one({"a": [1.0]}, id="x")
    model.learn_one(id="x", y=True)
    assert model.rejected_.count == 1 and "x" not in model.pending_


def test_pending_rows_are_saved(tmp_path):
    features, score = rows(30)
    model = StreamingClassifier(max_pending=10)
    for i, row in enumerate(features):
        model.learn_one(row, bool(score[i] > 0))
        model.predict_one(row, id=(i, "id"))
    odd = {
        "a": np.float32(0.1),
        "b": None,
        "c": float("nan"),
        "bad": [1],
        "when": datetime.datetime(2024, 5, 1, 12, 30),
        "day": datetime.date(2024, 5, 1),
        "flag": True,
        "word": "x",
    }
    model.predict_one(odd, id=1.5)
    obax.save(tmp_path / "model", model)
    found = obax.load(tmp_path / "model", like=StreamingClassifier())
    assert list(found.pending_) == list(model.pending_) and found.pending_.dropped == 21
    kept = found.pending_.take(1.5)
    assert str(kept) == str({name: odd[name] for name in odd} | {"a": odd["a"].item()})
    assert type(kept["bad"]).__name__ == "list"
    model.pending_.take(1.5)
    for one in (model, found):
        for i in range(25, 30):
            one.learn_one(id=(i, "id"), y=bool(score[i] > 0))
        with pytest.raises(KeyError, match="was dropped"):
            one.learn_one(id=(20, "id"), y=True)
    same(found, model)
