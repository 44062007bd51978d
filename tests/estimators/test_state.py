"""Checkpoints of estimators: what does not fit is named."""

import numpy as np
import pytest

from obax.estimators import StreamingClassifier


@pytest.fixture(scope="module")
def saved():
    model = StreamingClassifier()
    model.learn_many(np.arange(40.0).reshape(20, 2), [i % 3 for i in range(20)])
    arrays, extra = model.__obax_save__()
    # As `obax.load` hands them over.
    return model, {f"['{name}']": array for name, array in arrays.items()}, extra


def test_a_model_comes_back(saved):
    model, arrays, extra = saved
    found = StreamingClassifier().__obax_load__(arrays, extra)
    np.testing.assert_array_equal(found._core.vector, model._core.vector)
    np.testing.assert_array_equal(found._core.record.data, model._core.record.data)
    assert found.predict_proba_one({0: 1.0, 1: 2.0}) == model.predict_proba_one({0: 1.0, 1: 2.0})


def test_a_checkpoint_of_the_first_version_is_rejected_in_words(saved):
    _, arrays, extra = saved
    old = {name: value for name, value in extra.items() if name != "version"}
    old["params"] = old["params"] | {"dtype": "float32"}
    with pytest.raises(ValueError, match="estimator of version 1, but this obax reads version 3"):
        StreamingClassifier().__obax_load__(arrays, old)


def test_an_array_that_does_not_fit_is_named(saved):
    _, arrays, extra = saved
    short = arrays | {"['state.weights']": np.zeros((3, 2))}
    with pytest.raises(ValueError, match=r"state\.weights of the checkpoint is float64\[3, 2\]"):
        StreamingClassifier().__obax_load__(short, extra)
    gone = {name: array for name, array in arrays.items() if "frequency" not in name}
    with pytest.raises(ValueError, match=r"state\.frequency of the checkpoint is missing"):
        StreamingClassifier().__obax_load__(gone, extra)
