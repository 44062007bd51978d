"""An estimator as named arrays and plain values, for checkpoints, and back."""

from typing import Any, TypeVar

import numpy as np

from . import state
from .tags import plain_option, untagged_option

E = TypeVar("E")


def save(model: Any) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Arrays and plain values."""
    params = model.get_params(deep=False)
    extra: dict[str, Any] = {"version": state.VERSION}
    extra["params"] = {name: plain_option(v) for name, v in params.items()}
    # What `set_params` was given and the model in mid-stream has not taken over.
    made = model._core.options if "_core" in model.__dict__ else model
    extra["options"] = {name: plain_option(getattr(made, name)) for name in params}
    # What scikit-learn notes of the arrays it has seen.
    extra["width"] = model.__dict__.get("n_features_in_")
    extra["columns"] = np.asarray(model.__dict__.get("feature_names_in_", [])).tolist()
    if "_core" not in model.__dict__:
        return {}, extra | {"core": None}
    arrays, core = state.to_plain(model._core)
    return arrays, extra | {"core": core}


def load(kind: type[E], arrays: dict[str, np.ndarray], extra: dict[str, Any]) -> E:
    """A new estimator from what `save` gave."""
    state.check_version(extra)
    model: Any
    model, made = (
        kind(**{name: untagged_option(value) for name, value in extra[which].items()})
        for which in ("params", "options")
    )
    if extra["core"] is not None:
        model._core = state.from_plain(made.checked(), arrays, extra["core"])  # type: ignore[attr-defined]
    if extra["width"] is not None:
        model.n_features_in_ = extra["width"]
    if extra["columns"]:
        model.feature_names_in_ = np.array(extra["columns"], dtype=object)
    return model
