"""Estimators as named arrays and plain values, for checkpoints, and back.

A file is checked before any of it is used: the engine checks its arrays, with all shapes, counts
and values that serve as an index; names, labels, counts, words and pending rows are checked here.
"""

import contextlib
from collections.abc import Hashable, Iterator, Sequence
from typing import Any, TypeVar

import numpy as np

from .inputs.columns import Columns
from .json_codec import plain_option, tagged, untagged, untagged_option
from .model import Model
from .options import Options
from .pending import Pending
from .rejected import Rejected

VERSION = 4
"""Of what an estimator writes into a checkpoint."""
E = TypeVar("E")
Arrays = dict[str, np.ndarray]


def check_version(extra: dict[str, Any]) -> None:
    """Raise an error for a checkpoint that this version cannot read."""
    found = extra.get("version", 1)
    if found != VERSION:
        raise ValueError(
            f"the checkpoint holds an estimator of version {found}, but this obax reads version "
            f"{VERSION} (versions 1 to 3 were written by other engines). Learn the stream again "
            f"from its beginning, or use the obax that wrote it."
        )


def save(estimator: Any) -> tuple[Arrays, dict[str, Any]]:
    """Return an estimator as arrays and plain values."""
    params = estimator.get_params(deep=False)
    model = estimator.__dict__.get("_model")
    extra: dict[str, Any] = {"version": VERSION}
    extra["params"] = {name: plain_option(value) for name, value in params.items()}
    # `set_params` may have been given options that the model in mid-stream has not taken over.
    own = estimator if model is None else model.options
    extra["options"] = {name: plain_option(getattr(own, name)) for name in params}
    # Width and names as scikit-learn notes them.
    extra["width"] = estimator.__dict__.get("n_features_in_")
    extra["columns"] = np.asarray(estimator.__dict__.get("feature_names_in_", [])).tolist()
    arrays, extra["model"] = ({}, None) if model is None else model_to_plain(model)
    return {f"state.{name}": array for name, array in arrays.items()}, extra


def load(kind: type[E], arrays: Arrays, extra: dict[str, Any]) -> E:
    """Return a new estimator from what `save` gave; raise a `ValueError` for anything else."""
    check_version(extra)
    with described_by(kind.__name__):
        estimator, made = (options_from(kind, extra[which]) for which in ("params", "options"))
        if extra["model"] is not None:
            state = part_of(arrays, "state.")
            estimator._model = model_from_plain(made.checked(), state, extra["model"])
        if extra["width"] is not None:
            estimator.n_features_in_ = whole("width", extra["width"])
        if extra["columns"]:
            estimator.feature_names_in_ = np.array(extra["columns"], dtype=object)
        found: E = estimator
        return found


def model_to_plain(model: Model) -> tuple[Arrays, dict[str, Any]]:
    """Return a model as it is between two rows: the engine's arrays and the rest."""
    with model._lock:
        arrays = model.engine.state()
        return arrays, {
            "names": [tagged(name) for name in model.names],
            "classes": [tagged(label) for label in model.labels],
            "rows": int(arrays.pop("given")),
            "sparse": model.sparse,
            "ignored": model.ignored,
            "rejected": model.rejected.to_plain(),
            "columns": model.columns.to_plain(),
            "pending": model.pending.to_plain(),
        }


def model_from_plain(options: Options, arrays: Arrays, plain: dict[str, Any]) -> Model:
    """Return the model that `model_to_plain` was called on."""
    names, labels = (
        unique(part, [untagged(one) for one in plain[part]]) for part in ("names", "classes")
    )
    sparse, rows = plain["sparse"], whole("rows", plain["rows"])
    fits = type(sparse) is bool and not (sparse and options.dense)
    require(fits, "sparse", "as the options have it")
    model = Model(options)
    model.put(names, labels, arrays | {"given": rows}, sparse)
    model.ignored = whole("ignored values", plain["ignored"])
    model.rejected = Rejected.from_plain(plain["rejected"])
    model.columns = Columns.from_plain(options.max_categories, plain["columns"])
    model.pending = Pending.from_plain(options.max_pending, plain["pending"])
    return model


def options_from(kind: Any, plain: dict[str, Any]) -> Any:
    """Return an estimator with the options of a checkpoint."""
    return kind(**{name: untagged_option(value) for name, value in plain.items()})


def part_of(arrays: Arrays, begin: str) -> Arrays:
    """Return the arrays whose names begin so, by the rest of their names."""
    paths = {path.removeprefix("['").removesuffix("']"): array for path, array in arrays.items()}
    return {
        path.removeprefix(begin): array for path, array in paths.items() if path.startswith(begin)
    }


def require(condition: object, name: str, expected: str) -> None:
    """Raise an error that says what a part of a checkpoint must be, unless it is."""
    if not condition:
        raise ValueError(f"{name} of the checkpoint must be {expected}; the file is damaged.")


def unique(name: str, values: Sequence[Hashable]) -> list[Hashable]:
    """Return values that are all different; raise an error if one is there twice."""
    require(len(set(values)) == len(values), name, "different from each other")
    return list(values)


def whole(name: str, value: Any) -> int:
    """Return a count; raise an error for anything else."""
    require(type(value) is int and 0 <= value < 2**53, name, "a whole number from 0 on")
    return int(value)


@contextlib.contextmanager
def described_by(name: str) -> Iterator[None]:
    """Turn errors that other contents of a file cause into a `ValueError` that says so."""
    try:
        yield
    except (KeyError, TypeError, IndexError, AttributeError, OverflowError) as error:
        raise ValueError(
            f"the checkpoint does not describe a {name} ({type(error).__name__}: {error})."
        ) from error
