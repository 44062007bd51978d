"""Others on the same streams: River, scikit-learn, Vowpal Wabbit. Test, then train, row by row.

None of them is tuned by us: they run in fixed settings, and the best of a stream is chosen in
hindsight.
"""

import time
import warnings
from collections.abc import Callable

import numpy as np

from .data import Stream

SETTINGS = {
    "classes": (
        *((rate, 0.0) for rate in (0.003, 0.03, 0.1, 0.3, 1.0)),
        *((rate, 1e-3) for rate in (0.01, 0.1, 0.3)),
    ),
    "regression": (
        *((rate, 0.0) for rate in (0.001, 0.003, 0.03, 0.1, 0.3)),
        *((rate, 1e-3) for rate in (0.003, 0.01, 0.03)),
    ),
}
"""Step size of SGD and weight of the L2 penalty of River's linear models: eight of each kind,
beside River's own default, which is (0.01, 0). Larger steps for regression diverge."""
Say = Callable[[dict, float], object]
"""What a model says of a row, which it then learns."""


def _linear(rate: float | None, ridge: float = 0.0):
    """River's linear model behind its scaler; the intercept learns at the same rate."""

    def make(data: Stream):
        from river import linear_model, optim

        mine = {} if rate is None else {"optimizer": optim.SGD(rate), "l2": ridge}
        if data.classes > 2:
            return _scaled(data, linear_model.SoftmaxRegression(**mine))
        if rate is not None:
            mine["intercept_lr"] = rate
        kind = "LogisticRegression" if data.kind == "classes" else "LinearRegression"
        return _scaled(data, getattr(linear_model, kind)(**mine))

    return make


def _scaled(data: Stream, model):
    """Behind River's scaler; bags of words as they are, because the scaler, which sees a word only
    where it is there, would make zeros of them."""
    from river import preprocessing

    return model if data.sparse else preprocessing.StandardScaler() | model


def _passive_aggressive(data: Stream):
    from river import linear_model, multiclass

    if data.kind == "regression":
        return _scaled(data, linear_model.PARegressor())
    model = linear_model.PAClassifier()
    return _scaled(data, multiclass.OneVsRestClassifier(model) if data.classes > 2 else model)


def _with_constant(row: dict) -> dict:
    return row | {"constant": 1.0}


def _bayesian(smoothing: float | None):
    """It has no intercept of its own, so it gets a constant."""

    def make(data: Stream):
        from river import compose, linear_model, preprocessing

        if data.kind == "classes":
            return None
        columns = preprocessing.StandardScaler() | compose.FuncTransformer(_with_constant)
        return columns | linear_model.BayesianLinearRegression(smoothing=smoothing)

    return make


def _tree(name: str, scaled: bool = False, **options):
    """Trees need no scaler, but the linear models in the leaves of regression trees do: on some
    streams they diverge without it, on others they are better off."""

    def make(data: Stream):
        from river import forest, tree

        room = forest if hasattr(forest, f"{name}Classifier") else tree
        if data.kind == "classes":
            plain = not (data.sparse or scaled)
            return getattr(room, f"{name}Classifier")(seed=0, **options) if plain else None
        model = getattr(room, f"{name}Regressor")(seed=0, **options)
        return _scaled(data, model) if scaled else model

    return make


def river(make) -> Callable[[Stream], Say | None]:
    """River's own loop: predict, then learn."""

    def begin(data: Stream) -> Say | None:
        model = make(data)
        if model is None:
            return None
        regression, binary = data.kind == "regression", data.classes == 2

        def say(row, target):
            said = model.predict_one(row) if regression else model.predict_proba_one(row)
            model.learn_one(row, bool(target) if binary else target)
            return said

        return say

    return begin


def scikit(**options):
    """scikit-learn's SGD behind its scaler, one row at a time."""

    def begin(data: Stream) -> Say | None:
        from sklearn import config_context
        from sklearn.linear_model import SGDClassifier, SGDRegressor
        from sklearn.preprocessing import StandardScaler

        if data.sparse:
            return None
        scaler, classes = StandardScaler(), np.arange(data.classes)
        if data.kind == "classes":
            model = SGDClassifier(loss="log_loss", random_state=0, **options)
        else:
            model = SGDRegressor(random_state=0, **options)

        # Its checks of every call would take most of the time.
        @config_context(assume_finite=True, skip_parameter_validation=True)
        def say(row, target):
            array = np.array([list(row.values())])
            said = None
            if hasattr(model, "coef_"):
                known = scaler.transform(array)
                if data.kind == "classes":
                    said = dict(enumerate(model.predict_proba(known)[0]))
                else:
                    said = model.predict(known)[0]
            known = scaler.partial_fit(array).transform(array)
            more = {"classes": classes} if data.kind == "classes" else {}
            model.partial_fit(known, [target], **more)
            return said

        return say

    return begin


def wabbit(options: str):
    """Vowpal Wabbit, which scales for itself."""

    def begin(data: Stream) -> Say | None:
        try:
            import vowpalwabbit
        except ImportError:
            return None
        if data.kind == "regression":
            kind = ""
        elif data.classes == 2:
            kind = "--loss_function logistic --link logistic"
        else:
            kind = f"--oaa {data.classes} --loss_function logistic --probabilities"
        model = vowpalwabbit.Workspace(f"--quiet -b 22 {kind} {options}")
        names: dict[str, int] = {}

        def say(row, target):
            text = " ".join(f"{names.setdefault(k, len(names))}:{v!r}" for k, v in row.items())
            said = model.predict(f"| {text}")
            if data.classes == 2:
                said, target = {0: 1 - said, 1: said}, 2 * target - 1
            elif data.classes:
                said, target = dict(enumerate(said)), target + 1
            model.learn(f"{target} | {text}")
            return said

        return say

    return begin


OTHERS: dict[str, Callable[[Stream], Say | None]] = {
    "River PA": river(_passive_aggressive),
    "River Bayesian": river(_bayesian(None)),
    "River Bayesian, smoothing 0.95": river(_bayesian(0.95)),
    "River Bayesian, smoothing 0.99": river(_bayesian(0.99)),
    "Vowpal Wabbit": wabbit(""),
    "Vowpal Wabbit -l 2": wabbit("-l 2"),
    "scikit-learn SGD": scikit(),
    "scikit-learn SGD, rate 0.01": scikit(learning_rate="constant", eta0=0.01),
    "River HAT": river(_tree("HoeffdingAdaptiveTree")),
    "River HAT, scaled": river(_tree("HoeffdingAdaptiveTree", scaled=True)),
    "River ARF(10)": river(_tree("ARF", n_models=10)),
    "River ARF(10), scaled": river(_tree("ARF", scaled=True, n_models=10)),
}


def linear(kind: str) -> dict[str, Callable[[Stream], Say | None]]:
    """River's linear model in its default and in eight settings."""
    some = {f"River rate {a:g}, l2 {b:g}": river(_linear(a, b)) for a, b in SETTINGS[kind]}
    return {"River default": river(_linear(None)), **some}


def play(data: Stream, begin: Callable[[Stream], Say | None]) -> dict[str, float] | None:
    """The scores of a rival and its time per row; `None` where it does not play."""
    say = begin(data)
    if say is None:
        return None
    shape = (len(data.y), data.classes) if data.classes else len(data.y)
    told = np.full(shape, 1 / max(1, data.classes) if data.classes else 0.0)
    targets = data.y.tolist()
    started = time.process_time()
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        for i, (row, target) in enumerate(zip(data.rows, targets, strict=True)):
            try:
                said = say(row, target)
            except np.linalg.LinAlgError:  # River's Bayesian regression on columns that add up.
                told[i:] = np.nan
                break
            if isinstance(said, dict):
                if said:
                    told[i] = [said.get(k, 0.0) for k in range(data.classes)]
            elif said is not None:
                told[i] = said
    micro = 1e6 * (time.process_time() - started) / len(targets)
    return data.score(told) | {"microseconds": micro}
