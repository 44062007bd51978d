"""Online tuning of a classifier's training loss, for streams whose classes are not balanced.

The follower is a classifier y that learns from a training batch with a *parametric* cross-entropy;
the leader holds one scale gamma_j and one offset Delta_j for each class and is judged by the
*balanced* cross-entropy of the plain logits on a validation batch (the paper's Section 4.2; Li et
al.: *AutoBalance: Optimized Loss Functions for Imbalanced Data*, NeurIPS 2021):

    g(x, y; a, b) = -log softmax(gamma * y(a) + Delta)_b,    f(y; a, b) = -u_b log softmax(y(a))_b,

with u_j the reciprocal of the share of class j. f does not depend on x: the leader changes it only
through the follower.
"""

import dataclasses
from collections.abc import Callable
from typing import Annotated

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int
from numpy.typing import ArrayLike

from .._support.checks import Count, Kind, Number, checked, function_of, is_integer, one_of
from .._support.trees import PyTree
from ..domain import Box
from ..problem import Problem

Link = Annotated[str, one_of("identity", "sigmoid")]
Predict = Annotated[
    Callable[..., tuple[Float[Array, "n classes"], PyTree]],
    function_of("(y, inputs, buffers, *, training, key) -> (logits, buffers)"),
]


def predict_with_model(
    model: PyTree, inputs: PyTree, buffers: PyTree, *, training: bool, key: Array
) -> tuple[Float[Array, "n classes"], PyTree]:
    """Return the logits of a model of `obax.models`, or of anything that is called like one."""
    return model(inputs, buffers, training=training, key=key)


@checked
def loss_tuning(
    classes: Annotated[int, Kind("at least 2", lambda v: is_integer(v) and v >= 2, int)],
    *,
    predict: Predict = predict_with_model,
    link: Link = "identity",
    gamma_bounds: tuple[float, float] | None = None,
    delta_bounds: tuple[float, float] = (-10.0, 10.0),
    outer_training: bool = False,
) -> Problem:
    """Return the bilevel problem of loss tuning, for any classifier and any number of classes.

    x is `{"gamma": [J], "delta": [J]}`, see `loss_tuning_start`. A round is `{"train": (inputs,
    labels), "valid": (inputs, labels), "class_weights": [J], "key": uint32[2]}`: labels are
    integers, `class_weights` are u_j (see `balanced_weights`), `key` is for dropout. The problem
    has buffers, such as BatchNorm statistics: give the first ones to `algorithm.init`, and `()`
    for a model without any.

    A label outside 0..J-1 makes the round's loss NaN, and the guard rejects the round.

    **Arguments:**

    - `predict`: `(y, inputs, buffers, *, training, key) -> (logits, buffers)`; by default y is a
      model of `obax.models` and is called.
    - `link`: logits are multiplied by gamma itself (`"identity"`, the paper's text) or by
      sigmoid(gamma) (the released code).
    - `gamma_bounds`, `delta_bounds`: the leader's domain, a box. gamma stays positive under
      `"identity"`: by default in [0.05, 20], and in [-10, 10] under `"sigmoid"`.
    - `outer_training`: whether the leader's loss is that of the follower in training mode (dropout
      on, statistics of the validation batch) instead of as it would predict.
    """
    if gamma_bounds is None:
        gamma_bounds = (0.05, 20.0) if link == "identity" else (-10.0, 10.0)
    if link == "identity" and not gamma_bounds[0] > 0:
        raise ValueError(
            f"gamma_bounds must be positive with link='identity', but got {gamma_bounds}; a scale "
            f"of zero or below turns a class's logit off or round."
        )
    low, high = zip(gamma_bounds, delta_bounds, strict=True)
    domain = Box({"gamma": low[0], "delta": low[1]}, {"gamma": high[0], "delta": high[1]})
    outer, inner = _Outer(classes, predict, outer_training), _Inner(classes, predict, link)
    return Problem(outer, inner, domain, has_buffers=True)


@checked
def loss_tuning_start(classes: Count, gamma: Number = 1.0, delta: Number = 0.0) -> PyTree:
    """Return x_1: gamma_j = 1 and Delta_j = 0, which is the plain cross-entropy."""
    return {"gamma": jnp.full(classes, float(gamma)), "delta": jnp.full(classes, float(delta))}


@checked
def balanced_weights(labels: ArrayLike, classes: Count) -> Float[np.ndarray, " classes"]:
    """Return u_j = 1 / (share of class j in these labels), the weights of the balanced loss.

    Raises a `ValueError` for labels outside the classes and for a class that does not appear.

    >>> print(balanced_weights([0, 0, 0, 1], 2))
    [1.3333334 4.       ]
    """
    labels = np.asarray(labels)
    if not np.issubdtype(labels.dtype, np.integer):
        raise ValueError(f"labels must be integers, but their dtype is {labels.dtype}.")
    wrong = np.unique(labels[(labels < 0) | (labels >= classes)])
    if wrong.size:
        raise ValueError(
            f"labels must be in 0..{classes - 1}, but {wrong[:5].tolist()} "
            f"{'are' if wrong.size > 1 else 'is'} among them; set classes, or correct the labels."
        )
    counts = np.bincount(labels.ravel(), minlength=classes)
    if not counts.all():
        missing = np.flatnonzero(counts == 0).tolist()
        raise ValueError(
            f"every class must appear in the validation labels, but {missing} "
            f"{'do' if len(missing) > 1 else 'does'} not: the weight of a class is 1 / its share, "
            f"which would be infinite. Add rows of these classes or leave them out of `classes`."
        )
    return (labels.size / counts).astype(np.float32)


# Compared by value, so that equal problems share compiled functions.
@dataclasses.dataclass(frozen=True)
class _Inner:
    """g: the parametric cross-entropy on the training batch."""

    classes: int
    predict: Predict
    link: str

    def __call__(
        self, x: PyTree, y: PyTree, round: PyTree, buffers: PyTree
    ) -> tuple[Array, PyTree]:
        inputs, labels = round["train"]
        logits, buffers = self.predict(y, inputs, buffers, training=True, key=round["key"])
        if logits.shape[-1] != self.classes:
            raise ValueError(
                f"the classifier must return {self.classes} logits for each row, one for each "
                f"class, but returns {logits.shape[-1]}."
            )
        scale = x["gamma"] if self.link == "identity" else jax.nn.sigmoid(x["gamma"])
        adjusted = scale.astype(logits.dtype) * logits + x["delta"].astype(logits.dtype)
        return jnp.mean(cross_entropy(adjusted, labels, self.classes)), buffers


@dataclasses.dataclass(frozen=True)
class _Outer:
    """f: the balanced cross-entropy of the plain logits on the validation batch."""

    classes: int
    predict: Predict
    training: bool

    def __call__(self, x: PyTree, y: PyTree, round: PyTree, buffers: PyTree) -> Array:
        inputs, labels = round["valid"]
        logits, _ = self.predict(y, inputs, buffers, training=self.training, key=round["key"])
        weights = round["class_weights"].astype(logits.dtype)[labels]
        return jnp.mean(weights * cross_entropy(logits, labels, self.classes))


def cross_entropy(
    logits: Float[Array, "n classes"], labels: Int[Array, " n"], classes: int
) -> Float[Array, " n"]:
    """Return -log softmax of each row at its label; NaN for a label outside the classes."""
    own = jnp.take_along_axis(jax.nn.log_softmax(logits), labels[:, None], axis=1, mode="clip")
    # Instead of the loss of some other class, a factor NaN, so that the gradient is NaN too.
    is_class = (labels >= 0) & (labels < classes)
    return -own[:, 0] * jnp.where(is_class, 1, jnp.nan).astype(logits.dtype)
