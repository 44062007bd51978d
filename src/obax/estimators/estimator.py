"""What classifier and regressor share: both faces, around one `Core`."""

import dataclasses
import sys
from collections.abc import Hashable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from . import faces, show, state
from .core import Core
from .history import Rejected
from .options import Options
from .outcome import Hyperparameters
from .sparse import Sparse, from_matrix
from .table import Features, Rows, Table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Targets = Iterable[object]
"""One target per row: a list, a series, an array."""


@dataclasses.dataclass(frozen=True)
class Played:
    """Rows after test and train, see `play`: what was said of each before it was learned."""

    predictions: np.ndarray
    """Regression: one number per row. Classes: probabilities, a column for each of `classes`."""
    classes: tuple[Hashable, ...]
    """The classes seen so far, in the order of their first appearance; empty for regression."""
    loss: np.ndarray
    """Of the prediction; of no meaning where there is no target."""
    hyperparameters: Hyperparameters
    """After the row: as `hyperparameters_`, with an entry per row."""
    rejected: list[str | None]
    """Why a row was rejected; `None` where it was not."""


class StreamingEstimator(Options):
    """A model of a stream. The constructor only notes its arguments; they are checked, and the
    model made, when the first row comes."""

    def __new__(cls, *_: object, **__: object) -> Self:
        faces.meet()
        return super().__new__(cls)

    # ---- what was learned ------------------------------------------------------------------

    @property
    def hyperparameters_(self) -> Hyperparameters:
        """The hyperparameters of the tuned member now: penalty, forgetting (and the same as memory,
        in rows), inertia; a dict by feature or by class where there is one for each. And `members`,
        the share of each member in the prediction."""
        return self._fitted.hyperparameters()

    @property
    def hyperparameter_history_(self) -> dict[str, Any]:
        """How they got there: `row`, `loss` (mean of the rows since the point before) and an array
        for each hyperparameter. At most 1,024 points, whatever the length of the stream."""
        core = self._fitted
        rows, loss, x = core.record.arrays()
        return {"row": rows, "loss": loss} | core.hyperparameters(x)

    @property
    def rejected_(self) -> Rejected:
        """Rows that were rejected: `rejected_.count`, and the last 100 with their reasons."""
        return self._fitted.rejected

    @property
    def ignored_(self) -> int:
        """Values of features beyond `max_features` in rows that were learned without them."""
        return self._fitted.ignored

    @property
    def mean_loss_(self) -> float:
        """The mean loss of predicting a row before it was learned, over all of them."""
        record = self._fitted.record
        return record.total / max(record.seen, 1)

    @property
    def feature_names_(self) -> list[Hashable]:
        """The features seen so far, in the order of their first appearance."""
        return list(self._fitted.names)

    @property
    def coef_(self) -> np.ndarray:
        """The tuned member's weights of standardised features, one row for each output."""
        core = self._fitted
        return core.centre[:, : len(core.names)]

    @property
    def intercept_(self) -> np.ndarray:
        """The tuned member's outputs of an average row."""
        return self._fitted.centre[:, -1]

    def explain(self) -> str:
        """What was learned, in words."""
        return show.explain(self._fitted)

    def plot(self) -> "Figure":
        """Learning curve, drift, every hyperparameter and the members' shares over time, as one
        matplotlib figure."""
        return show.plot(self._fitted)

    # ---- River -----------------------------------------------------------------------------

    def learn_one(self, x: Features, y: object) -> None:
        """Learn one row, a dict of features."""
        self._made.learn_one(as_dict(x), y)

    def learn_many(self, X: Rows, y: Targets) -> None:
        """Learn rows in their order: the same as `learn_one` on each, in compiled code. A frame of
        pandas or polars, a `Table`, a list of dicts or an array."""
        self._made.play(X, _targets(y))

    # ---- scikit-learn ----------------------------------------------------------------------

    def fit(self, X: Rows, y: Targets) -> Self:
        """Forget everything and learn these rows in their order, once."""
        self.__dict__.pop("_core", None)
        return self._learn_array(X, y, None, first=True)

    def __sklearn_is_fitted__(self) -> bool:
        return "_core" in self.__dict__

    def __sklearn_tags__(self) -> Any:
        faces.meet()  # A model that was made before scikit-learn was imported.
        tags = super().__sklearn_tags__()  # type: ignore[misc]
        tags.input_tags.allow_nan = True
        tags.input_tags.sparse = True
        return tags

    # ---- both ------------------------------------------------------------------------------

    def prepare(self) -> Self:
        """Check the arguments and make the model now, instead of when the first row comes."""
        if "_core" not in self.__dict__:
            self._core = Core(self.checked())
        return self

    def play(self, X: Rows, y: Targets) -> Played:
        """Test on every row in its order, then learn it if it has a target: `progressive` for a
        stream in which targets may be missing, with all that is known of each row. This is what
        `obax stream` writes."""
        core = self._made
        found = core.play(X, _targets(y), unlabelled="predict", trace=True)
        return Played(
            found.predictions,
            tuple(core.classes),
            found.loss,
            core.hyperparameters(found.x),
            [found.rejected.get(i) for i in range(len(found.loss))],
        )

    def progressive(self, X: Rows, y: Targets) -> np.ndarray:
        """Learn rows in their order and return what was predicted for each *before* it was learned:
        what `learn_one` after `predict_one` (or `predict_proba_one`) would have said."""
        return self._ordered(self._made.play(X, _targets(y)).predictions)

    def _learn_array(self, X: Rows, y: Targets, classes: Targets | None, *, first: bool) -> Self:
        table, targets = self._validated(X, y, first)
        core = self._made
        if classes is not None:
            core.add_classes([_plain(label) for label in np.unique(np.asarray(classes))])
        core.play(table, targets)
        return self

    def _validated(
        self, X: Rows, y: Targets | None = None, first: bool = False
    ) -> tuple[Rows | Sparse, list[object] | np.ndarray | None]:
        """Rows and targets by scikit-learn's conventions: errors for what is malformed as a whole;
        single NaN and Inf are left to the rule of `table`."""
        if faces.scikit_learn() is None:
            return X, None if y is None else _targets(y)
        from sklearn.utils.validation import check_consistent_length, validate_data

        checks = {"ensure_all_finite": False, "dtype": "numeric", "accept_sparse": "csr"}
        array = validate_data(self, X, reset=first, **checks)
        names = getattr(self, "feature_names_in_", range(array.shape[1]))
        table: Rows | Sparse
        if hasattr(array, "tocsr") and self.wide(array.shape[1]):
            table = from_matrix(array, list(names))
        else:
            full = array.toarray() if hasattr(array, "tocsr") else array
            table = Table(list(names), np.asarray(full, np.float64))
        if y is None:
            return table, None
        targets = self._validated_targets(y)
        check_consistent_length(array, targets)
        return table, targets

    def _validated_targets(self, y: Targets) -> np.ndarray:
        raise NotImplementedError

    def _ordered(self, predictions: np.ndarray) -> np.ndarray:
        return predictions

    @property
    def _made(self) -> Core:
        """The model, made if there is none yet."""
        return self.prepare()._core

    @property
    def _fitted(self) -> Core:
        """The model; an error if nothing was learned yet."""
        if "_core" not in self.__dict__:
            text = f"This {type(self).__name__} has not learned from any row yet."
            if "sklearn" not in sys.modules:
                raise AttributeError(text)
            from sklearn.exceptions import NotFittedError

            raise NotFittedError(text)
        return self._core

    def __obax_save__(self) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """Arrays and plain values for `obax.save`."""
        params = self.get_params(deep=False)  # type: ignore[attr-defined]
        extra: dict[str, Any] = {"version": state.VERSION}
        extra["params"] = {name: _plain(v) for name, v in params.items()}
        # What scikit-learn notes of the arrays it has seen.
        extra["width"] = self.__dict__.get("n_features_in_")
        extra["columns"] = np.asarray(self.__dict__.get("feature_names_in_", [])).tolist()
        if "_core" not in self.__dict__:
            return {}, extra | {"core": None}
        arrays, core = state.to_plain(self._core)
        return arrays, extra | {"core": core}

    def __obax_load__(self, arrays: dict[str, np.ndarray], extra: dict[str, Any]) -> Self:
        """A new estimator from what `__obax_save__` gave."""
        state.check_version(extra)
        params = {
            name: tuple(value) if isinstance(value, list) else value
            for name, value in extra["params"].items()
        }
        model = type(self)(**params)
        if extra["core"] is not None:
            model._core = state.from_plain(model.checked(), arrays, extra["core"])
        if extra["width"] is not None:
            model.n_features_in_ = extra["width"]  # type: ignore[attr-defined]
        if extra["columns"]:
            names = np.array(extra["columns"], dtype=object)
            model.feature_names_in_ = names  # type: ignore[attr-defined]
        return model


def as_dict(row: Features) -> Features:
    """The row itself; an error for what is not a dict."""
    if type(row) is dict or isinstance(row, Mapping):
        return row
    raise ValueError(
        f"x must be a dict of features, but is {type(row).__name__}; use learn_many or partial_fit "
        f"for arrays and frames."
    )


def _targets(y: Targets) -> list[object] | np.ndarray:
    """One target per row: an array as it is, anything else as Python's own types."""
    if isinstance(y, np.ndarray):
        return y.ravel()
    if hasattr(y, "to_list"):
        return y.to_list()
    if isinstance(y, Iterable) and not isinstance(y, str | bytes | Mapping):
        return list(y)
    raise ValueError(f"y must be one target per row, but is {type(y).__name__}.")


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value
