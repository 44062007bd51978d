"""Methods that classifier and regressor share, around one `Model`."""

import dataclasses
import itertools
from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from .._support.messages import counted, nearest
from . import compat, report, serialise
from .inputs.table import Features, Rows, as_dict, reordered
from .inputs.targets import Targets, Weights, many_weights, one_weight, targets_of
from .model import Model, Outcome
from .options import Options
from .pending import Pending
from .rejected import Rejected, warn_caller
from .report import Hyperparameters

if TYPE_CHECKING:
    from matplotlib.figure import Figure


OTHER_NAMES = dict.fromkeys(("l2", "alpha", "C", "lambda_", "reg_lambda"), "penalty")
OTHER_NAMES |= dict.fromkeys(("forgetting", "forgetting_factor", "window", "decay"), "memory")
OTHER_NAMES |= dict.fromkeys(("lr", "learning_rate", "eta0"), "step_size")
"""Options as other libraries name them."""
ROWS_OF_BLOCK = 10
"""Rows of a block of equal labels, on average, before `fit` warns of blocks."""


@dataclasses.dataclass(frozen=True)
class Played:
    """Predictions for rows before they were learned, and what became of the rows: see `play`."""

    predictions: np.ndarray
    """Regression: one number per row. Classes: probabilities, a column for each of `classes`."""
    classes: tuple[Hashable, ...]
    """The classes seen so far, in the order of their first appearance; empty for regression."""
    loss: np.ndarray
    """The loss of each prediction; it has no meaning for rows without a target."""
    hyperparameters: Hyperparameters
    """`hyperparameters_` after each row, as arrays with an entry for each row."""
    rejected: list[str | None]
    """The reason why each row was rejected; `None` for the others."""
    intervals: Sequence[Any] | None = None
    """Low and high, or the set of classes, of each row, if a coverage was asked for."""


class StreamingEstimator(Options, serialise.Saved):
    """The base of both estimators. The constructor only stores its arguments; they are checked,
    and the model is created, with the first row."""

    def __new__(cls, *_: object, **options: object) -> Self:
        compat.add_bases()
        known = [field.name for field in dataclasses.fields(cls)]
        for name in options.keys() - known:
            words = f" Did you mean {OTHER_NAMES[name]!r}?" if name in OTHER_NAMES else ""
            raise TypeError(
                f"{cls.__name__} has no option {name!r}.{words or nearest(name, known)}"
            )
        return super().__new__(cls)

    def __repr__(self) -> str:
        changed = [
            f"{field.name}={getattr(self, field.name)!r}"
            for field in dataclasses.fields(self)
            if getattr(self, field.name) != field.default
        ]
        return f"{type(self).__name__}({', '.join(changed)})"

    def __dir__(self) -> list[str]:
        inner = vars(Options).keys() - {field.name for field in dataclasses.fields(self)}
        return [name for name in super().__dir__() if name[0] != "_" and name not in inner]

    # ---- what was learned ------------------------------------------------------------------

    @property
    def hyperparameters_(self) -> Hyperparameters:
        """The present hyperparameters of the tuned member: penalty, forgetting, memory (the same in
        rows) and inertia; a dict by feature or by class where there is one for each. `members` has
        the share of each member in the prediction."""
        return report.hyperparameters(self._fitted)

    @property
    def hyperparameter_history_(self) -> dict[str, Any]:
        """The history of the hyperparameters, at most 1,024 points: `row`, `loss` (the mean over
        the rows since the last point) and an array for each hyperparameter."""
        return report.history(self._fitted)

    @property
    def rejected_(self) -> Rejected:
        """Rows that were rejected: `rejected_.count`, and the last 100 with their reasons."""
        return self._fitted.rejected

    @property
    def pending_(self) -> Pending:
        """Rows that were predicted under an id and wait for their labels: `len(pending_)`, their
        ids, and `pending_.dropped`, how many were dropped because more than `max_pending`
        waited."""
        return self._fitted.pending

    @property
    def ignored_(self) -> int:
        """Values of features beyond `max_features` in rows that were learned without them."""
        return self._fitted.ignored

    @property
    def learned_(self) -> int:
        """The number of rows learned."""
        return int(self._fitted.engine.learned)

    @property
    def mean_loss_(self) -> float:
        """The mean loss of predicting a row before it was learned, over all of them."""
        return report.mean_loss(self._fitted)

    @property
    def coverage_(self) -> dict[float, float]:
        """The observed coverage of intervals or sets, for each coverage that was asked for: the
        share of the targets since then that were inside."""
        model = self._fitted
        with model.lock:
            return dict(model.engine.coverages())

    @property
    def feature_names_(self) -> list[Hashable]:
        """The features seen so far, in the order of their first appearance."""
        return list(self._fitted.engine.names)

    @property
    def coef_(self) -> np.ndarray:
        """The tuned member's weights of standardised features, one row for each output."""
        model = self._fitted
        with model.lock:
            return np.array(model.engine.centre[:, : len(model.names)])

    @property
    def intercept_(self) -> np.ndarray:
        """The tuned member's outputs of an average row."""
        model = self._fitted
        with model.lock:
            return np.array(model.engine.centre[:, len(model.names)])

    def explain(self) -> str:
        """Return a few sentences about what was learned."""
        return report.explain(self._fitted)

    def plot(self) -> "Figure":
        """Return a matplotlib figure of the learning curve, drift, every hyperparameter and the
        members' shares over time."""
        return report.plot(self._fitted)

    # ---- River -----------------------------------------------------------------------------

    def learn_one(
        self,
        x: Features | None = None,
        y: object = ...,
        w: float = 1.0,
        *,
        id: Hashable | None = None,
    ) -> None:
        """Learn one row, a dict of features; or, with `id` instead of `x`, the row that was
        predicted under that id and whose label has now arrived. `w` is the weight of its loss; a
        row of weight 0 is not learned."""
        if y is ...:
            raise TypeError("learn_one needs a target, y.")
        weight = w if w == 1.0 else one_weight(w)
        if id is None:
            model = self.__dict__.get("model_") or self._made
            model.learn_one(x if type(x) is dict else as_dict(x), y, weight)
        elif x is None:
            self._made.learn_late(id, y, weight)
        else:
            raise ValueError("learn_one takes a row, x, or the id of one that was kept, not both.")

    def learn_many(self, X: Rows, y: Targets, w: Weights = None) -> None:
        """Learn rows in their order, in compiled code; the result is that of `learn_one` on each.

        `X` is a frame of pandas or polars, a `Table`, a list of dicts, an array or a sparse matrix;
        `w` is a weight for all rows or one for each.
        """
        targets = targets_of(y)
        self._made.play(X, targets, weights=many_weights(w, len(targets)))

    # ---- scikit-learn ----------------------------------------------------------------------

    def fit(self, X: Rows, y: Targets, sample_weight: Weights = None) -> Self:
        """Forget everything and learn these rows, in their order and once unless the options
        `shuffle` and `passes` say otherwise. `sample_weight` multiplies the loss of a row; one of
        weight 2 is not two rows, see `docs/estimators.md`."""
        if sample_weight is not None and not np.any(np.asarray(sample_weight)):
            raise ValueError("sample_weight must not be zero in every row: nothing is learned.")
        self.__dict__.pop("model_", None)
        rows, targets, heavy = self._read_array(X, y, sample_weight, first=True)
        model, rng, count = self._made, np.random.default_rng(0), len(targets)
        for _ in range(model.options.passes):
            if model.options.shuffle:
                order = rng.permutation(count)
                own = None if heavy is None else heavy[order]
                model.play(reordered(rows, order), [targets[i] for i in order], weights=own)
            else:
                model.play(rows, targets, weights=heavy)
        if not self.learned_ and model.rejected.count:
            often = model.rejected.most_often()
            raise ValueError(f"fit learned none of {counted(count, 'row')}, {often}.")
        if model.options.classify and not model.options.shuffle:
            self._warn_of_blocks(targets)
        return self

    def _warn_of_blocks(self, targets: Any) -> None:
        """Warn if the rows of each class come together: a model of a stream forgets the first."""
        classes = len(self.model_.labels)
        blocks = 1 + sum(a != b for a, b in itertools.pairwise(targets))
        if classes > 1 and blocks <= 2 * classes and len(targets) >= ROWS_OF_BLOCK * blocks:
            warn_caller(
                f"labels arrive in {blocks} blocks of equal ones, and a model of a stream forgets "
                f"the first of them: pass shuffle=True to {type(self).__name__} (and passes=5 for "
                f"few rows), unless rows are in the order of time."
            )

    def __sklearn_is_fitted__(self) -> bool:
        return "model_" in self.__dict__

    def __sklearn_tags__(self) -> Any:
        compat.add_bases()  # A model that was made before scikit-learn was imported.
        tags = super().__sklearn_tags__()  # type: ignore[misc]
        tags.input_tags.allow_nan = True
        tags.input_tags.sparse = True
        return tags

    # ---- both ------------------------------------------------------------------------------

    def prepare(self) -> Self:
        """Check the arguments and create the model now, instead of with the first row."""
        if "model_" not in self.__dict__:
            self.model_ = Model(self.checked())
        return self

    def set_params(self, **params: Any) -> Self:
        """Change options. After learning has begun, those that can take effect do so at once. The
        others, which determine how a model starts or what it consists of, wait for the next `fit`,
        and a warning says so."""
        before = self.get_params(deep=False)  # type: ignore[attr-defined]
        super().set_params(**params)  # type: ignore[misc]
        if "model_" not in self.__dict__ or not params:
            return self
        try:
            options = self.checked()
        except ValueError:
            for name, value in before.items():
                setattr(self, name, value)
            raise
        waiting = self.model_.take(options, params)
        if waiting:
            words = ", ".join(f"{name} (it stays {was!r})" for name, was in waiting.items())
            warn_caller(f"no effect on a model that has begun, only on the next fit: {words}.")
        return self

    def play(self, X: Rows, y: Targets, *, coverage: float | None = None) -> Played:
        """Predict each row in order, then learn it if it has a target; return all that is known of
        each row, with intervals or sets if a `coverage` is given. This is what `obax stream`
        writes."""
        model = self._made
        with model.lock:
            within = 0.0 if coverage is None else model.checked_coverage(coverage)
            found = model.play(X, targets_of(y), reject_missing=False, trace=True, coverage=within)
            return Played(
                found.predictions,
                tuple(model.labels),
                found.loss,
                found.hyperparameters,
                [found.rejected.get(i) for i in range(len(found.loss))],
                None if coverage is None else self._ranges(found),
            )

    def progressive(self, X: Rows, y: Targets) -> np.ndarray:
        """Learn rows in their order and return the prediction for each, made before it was learned:
        the same as calling `predict_one` (or `predict_proba_one`) and `learn_one` for each row."""
        return self._ordered(self._made.play(X, targets_of(y)).predictions)

    def _learn_array(
        self,
        X: Rows,
        y: Targets,
        classes: Targets | None,
        weights: Weights,
        *,
        first: bool,
    ) -> Self:
        rows, targets, heavy = self._read_array(X, y, weights, first)
        model = self._made
        if classes is not None:
            named = np.asarray(classes)
            most = self.checked().max_classes
            if named.ndim != 1 or not 1 <= len(np.unique(named)) <= most:
                raise ValueError(
                    f"classes must be a list of 1 to {most} labels (max_classes), but got "
                    f"{classes!r}."
                )
            model.add_classes([serialise.plain_option(label) for label in np.unique(named)])
        model.play(rows, targets, weights=heavy)
        return self

    def _read_array(self, X: Rows, y: Targets, weights: Weights, first: bool) -> tuple[Any, ...]:
        if y is None:
            raise ValueError("learning requires y to be passed, but the target y is None.")
        rows, targets = self._validated(X, y, first)
        assert targets is not None
        return rows, targets, many_weights(weights, len(targets), "sample_weight")

    def _validated(
        self, X: Rows, y: Targets | None = None, first: bool = False
    ) -> tuple[Any, list[object] | np.ndarray | None]:
        """Check rows and targets by scikit-learn's conventions, if it is installed."""
        if compat.scikit_learn() is None:
            return X, None if y is None else targets_of(y)
        from sklearn.utils.validation import check_consistent_length

        rows = compat.validated(self, X, first)
        if y is None:
            return rows, None
        targets = self._validated_targets(y)
        check_consistent_length(X, targets)
        return rows, targets

    def _validated_targets(self, y: Targets) -> np.ndarray:
        raise NotImplementedError

    def _progressive_ranges(self, X: Rows, y: Targets, coverage: float) -> Sequence[Any]:
        model = self._made
        with model.lock:
            within = model.checked_coverage(coverage)
            return self._ranges(model.play(X, targets_of(y), coverage=within))

    def _ranges(self, found: Outcome) -> Sequence[Any]:
        """Return the interval or set of each row."""
        raise NotImplementedError

    def _ordered(self, predictions: np.ndarray) -> np.ndarray:
        return predictions

    @property
    def _made(self) -> Model:
        """The model, made if there is none yet."""
        return self.prepare().model_

    @property
    def _fitted(self) -> Model:
        """The model; an error if nothing was learned yet."""
        if "model_" not in self.__dict__:
            raise compat.not_fitted(f"This {type(self).__name__} has not learned from any row yet.")
        return self.model_

    @property
    def _trained(self) -> Model:
        """The model; an error unless it has learned a row."""
        model = self._fitted
        if not model.engine.learned:
            why = f", {model.rejected.most_often()}" if model.rejected.count else ""
            raise compat.not_fitted(f"This {type(self).__name__} has not learned any row{why}.")
        return model

    def __obax_save__(self) -> tuple[serialise.Arrays, dict[str, Any]]:
        """Return arrays and plain values for `obax.save`."""
        params = self.get_params(deep=False)  # type: ignore[attr-defined]
        model = self.__dict__.get("model_")
        # `set_params` may have been given options that the model in mid-stream has not taken over.
        own = self if model is None else model.options
        arrays, plain = ({}, None) if model is None else model.to_plain()
        return {f"state.{name}": array for name, array in arrays.items()}, {
            "version": serialise.VERSION,
            "params": {name: serialise.plain_option(value) for name, value in params.items()},
            "options": {name: serialise.plain_option(getattr(own, name)) for name in params},
            # Width and names as scikit-learn notes them.
            "width": self.__dict__.get("n_features_in_"),
            "columns": np.asarray(self.__dict__.get("feature_names_in_", [])).tolist(),
            "model": plain,
        }

    def __obax_load__(self, arrays: serialise.Arrays, extra: dict[str, Any]) -> Self:
        """Return a new estimator from what `__obax_save__` gave; raise a `ValueError` for anything
        else."""
        serialise.check_version(extra)
        with serialise.described_by(type(self).__name__):
            estimator, made = (
                type(self)(**{n: serialise.untagged_option(v) for n, v in extra[which].items()})
                for which in ("params", "options")
            )
            if extra["model"] is not None:
                state = serialise.part_of(arrays, "state.")
                estimator.model_ = Model.from_plain(made.checked(), state, extra["model"])
            if extra["width"] is not None:
                estimator.__dict__["n_features_in_"] = serialise.whole("width", extra["width"])
            if extra["columns"]:
                estimator.__dict__["feature_names_in_"] = np.array(extra["columns"], dtype=object)
            return estimator
