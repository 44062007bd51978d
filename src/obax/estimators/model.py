"""What classifier and regressor share: both faces, around one `Core`."""

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from . import faces, reading, show, state
from .core import Core, Options, Outcome
from .reading import Frame, Rejected


class Streaming:
    """A model of a stream. The constructor only notes its arguments; they are checked, and the
    model made, when the first row comes."""

    # Set by the constructors of the subclasses.
    penalty: float
    memory: float
    inertia: float
    learn: tuple[str, ...]
    per_feature: bool
    step_size: float
    horizon: float
    solver: str
    solver_steps: int
    scale_memory: float
    max_features: int
    dtype: str

    # ---- what was learned ------------------------------------------------------------------

    @property
    def hyperparameters_(self) -> dict[str, Any]:
        """The hyperparameters now: penalty, forgetting (and the same as memory, in rows), inertia;
        a dict by feature or by class where there is one for each."""
        return self._fitted.hyperparameters()

    @property
    def hyperparameter_history_(self) -> dict[str, Any]:
        """How they got there: `row`, `loss` (mean of the rows since the point before) and one array
        a hyperparameter. At most 1,024 points, whatever the length of the stream."""
        core = self._fitted
        rows, loss, x = core.record.arrays()
        return {"row": rows, "loss": loss} | core.hyperparameters(x)

    @property
    def rejected_(self) -> Rejected:
        """Rows that were rejected: `rejected_.count`, and the last 100 with their reasons."""
        return self._fitted.rejected

    @property
    def feature_names_(self) -> list[Any]:
        """The features seen so far, in the order of their first appearance."""
        return list(self._fitted.names)

    @property
    def coef_(self) -> np.ndarray:
        """The weights of standardised features, one row an output."""
        core = self._fitted
        return core.predictor.centre[:, : len(core.names)].copy()

    @property
    def intercept_(self) -> np.ndarray:
        """The outputs of an average row."""
        return self._fitted.predictor.centre[:, -1].copy()

    def explain(self) -> str:
        """What was learned, in words."""
        return show.explain(self._fitted)

    def plot(self) -> Any:
        """Learning curve, drift and every hyperparameter over time, as one matplotlib figure."""
        return show.plot(self._fitted)

    # ---- River -----------------------------------------------------------------------------

    def learn_one(self, x: Mapping[Any, Any], y: Any) -> None:
        """Learn one row, a dict of features."""
        self._made.play(_as_dict(x), [y])

    def learn_many(self, X: Any, y: Any) -> None:
        """Learn rows in their order: the same as `learn_one` on each, in compiled code. A frame of
        pandas or polars, a list of dicts or an array."""
        self._made.play(X, _targets(y))

    # ---- scikit-learn ----------------------------------------------------------------------

    def fit(self, X: Any, y: Any) -> Any:
        """Forget everything and learn these rows in their order, once."""
        self.__dict__.pop("_core", None)
        return self._learn_array(X, y, None, first=True)

    def __sklearn_is_fitted__(self) -> bool:
        return "_core" in self.__dict__

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()  # type: ignore[misc]
        tags.input_tags.allow_nan = True
        return tags

    # ---- both ------------------------------------------------------------------------------

    def progressive(self, X: Any, y: Any) -> np.ndarray:
        """Learn rows in their order and return what was predicted for each *before* it was learned:
        what `learn_one` after `predict_one` (or `predict_proba_one`) would have said."""
        return self._ordered(self._made.play(X, _targets(y)).predictions)

    def _learn_array(self, X: Any, y: Any, classes: Any, *, first: bool) -> Any:
        frame, targets = self._validated(X, y, first)
        core = self._made
        if classes is not None:
            core.add_classes([_plain(label) for label in np.unique(np.asarray(classes))])
        core.play(frame, targets)
        return self

    def _validated(self, X: Any, y: Any = None, first: bool = False) -> tuple[Any, Any]:
        """Rows and targets by scikit-learn's conventions: errors for what is malformed as a whole;
        single NaN and Inf are left to the rule of `_rows`."""
        if faces.sklearn_base is None:
            frame = next(iter(reading.frames(X)))
            return frame, None if y is None else _targets(y)
        from sklearn.utils.validation import check_consistent_length, validate_data

        array = validate_data(self, X, reset=first, ensure_all_finite=False, dtype="numeric")
        names = getattr(self, "feature_names_in_", range(array.shape[1]))
        frame = Frame(list(names), np.asarray(array, np.float64))
        if y is None:
            return frame, None
        y = self._validated_targets(y)
        check_consistent_length(array, y)
        return frame, y.tolist()

    def _validated_targets(self, y: Any) -> np.ndarray:
        raise NotImplementedError

    def _ordered(self, predictions: np.ndarray) -> np.ndarray:
        return predictions

    @property
    def _made(self) -> Core:
        """The model, made if there is none yet."""
        if "_core" not in self.__dict__:
            self._core = Core(self._options())
        return self._core

    @property
    def _fitted(self) -> Core:
        """The model; an error if nothing was learned yet."""
        if "_core" not in self.__dict__:
            text = f"This {type(self).__name__} has not learned from any row yet."
            if faces.sklearn_base is None:
                raise AttributeError(text)
            from sklearn.exceptions import NotFittedError

            raise NotFittedError(text)
        return self._core

    def _options(self) -> Options:
        return Options(
            loss=getattr(self, "loss", "logistic"),
            penalty=self.penalty,
            memory=self.memory,
            inertia=self.inertia,
            learn=tuple(self.learn) if isinstance(self.learn, list) else self.learn,
            per_feature=bool(self.per_feature),
            imbalance=getattr(self, "imbalance", None),
            delta=getattr(self, "delta", 1.345),
            step_size=self.step_size,
            horizon=self.horizon,
            solver=self.solver,
            solver_steps=self.solver_steps,
            scale_memory=self.scale_memory,
            max_features=self.max_features,
            max_classes=getattr(self, "max_classes", 2),
            dtype=self.dtype,
        )

    def __obax_save__(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Arrays and plain values for `obax.save`."""
        params = self.get_params(deep=False)  # type: ignore[attr-defined]
        extra: dict[str, Any] = {"params": {name: _plain(v) for name, v in params.items()}}
        # What scikit-learn notes of the arrays it has seen.
        extra["width"] = self.__dict__.get("n_features_in_")
        extra["columns"] = np.asarray(self.__dict__.get("feature_names_in_", [])).tolist()
        if "_core" not in self.__dict__:
            return {}, extra | {"core": None}
        arrays, core = state.to_plain(self._core)
        return arrays, extra | {"core": core}

    def __obax_load__(self, arrays: dict[str, Any], extra: dict[str, Any]) -> Any:
        """A new estimator from what `__obax_save__` gave."""
        params = extra["params"] | {"learn": tuple(extra["params"]["learn"])}
        model: Any = type(self)(**params)
        if extra["core"] is not None:
            model._core = state.from_plain(model._options(), arrays, extra["core"])
        if extra["width"] is not None:
            model.n_features_in_ = extra["width"]
        if extra["columns"]:
            model.feature_names_in_ = np.array(extra["columns"], dtype=object)
        return model

    def _tested(self, rows: Any, targets: list[Any]) -> Outcome:
        """For `obax stream`: test on every row, train where there is a target."""
        return self._made.play(rows, targets, unlabelled="predict")


def _as_dict(row: Any) -> Mapping[Any, Any]:
    if isinstance(row, Mapping):
        return row
    raise ValueError(
        f"x must be a dict of features, but is {type(row).__name__}; use learn_many or partial_fit "
        f"for arrays and frames."
    )


def _targets(y: Any) -> list[Any]:
    """One target a row, as Python's own types."""
    if hasattr(y, "to_list"):
        return y.to_list()
    if isinstance(y, np.ndarray):
        return y.ravel().tolist()
    if isinstance(y, Iterable) and not isinstance(y, str | bytes | Mapping):
        return list(y)
    raise ValueError(f"y must be one target a row, but is {type(y).__name__}.")


def _plain(label: Any) -> Any:
    return label.item() if isinstance(label, np.generic) else label
