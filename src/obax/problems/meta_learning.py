"""Online meta-learning: tasks arrive one by one, the leader holds where adaptation starts.

The leader x is a model, the follower y adapts it to the round's task: it learns from the support,
and the leader is judged by the adapted model's loss on the query (the paper's Section 4.3),

    f(x, y) = L(y; query),    and of the follower one of

    prox-linear   g(x, y) = <y, grad L(x; support)> + |y - x|^2 / (2 beta)
    implicit      g(x, y) = L(y; support) + (lambda / 2) |y - x|^2
    plain         g(x, y) = L(y; support)

with L the mean cross-entropy. The first has the answer y* = x - beta grad L(x), one gradient step,
and dy*/dx = I - beta Hessian L(x). The last is what MAML (Finn et al., 2017), ANIL (Raghu et al.,
2020: only the head adapts) and ITD-BiO (Ji et al., 2021: only the head adapts, and the leader moves
only the features) take K steps on. BatchNorm uses the statistics of the batch at hand throughout.
"""

import dataclasses
import inspect
from collections.abc import Callable
from typing import Annotated, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .._support import trees
from .._support.checks import Positive, checked, function_of, one_of
from .._support.trees import PyTree
from ..models import ConvolutionalFeatures, DenseFeatures, Statistics
from ..problem import Problem
from .loss_tuning import cross_entropy

Adaptation = Annotated[str, one_of("prox-linear", "implicit", "plain")]
Part = Annotated[str, one_of("all", "head")]
Leader = Annotated[str, one_of("all", "features")]
Features = Annotated[
    Callable[[PyTree, PyTree], Float[Array, "n features"]],
    function_of("(model.features, inputs) -> [n, d]"),
]


def batch_features(features: PyTree, inputs: PyTree) -> Float[Array, "n features"]:
    """Return the features of `inputs`, with the `features` of a model of `obax.models`.

    BatchNorm uses the statistics of this batch, and there is no dropout. Any other object is called
    as `features(inputs)`.
    """
    if isinstance(features, ConvolutionalFeatures):
        # Training mode does not use the running statistics, but the argument must be given.
        running = tuple(
            Statistics(jnp.zeros_like(block.shift), jnp.ones_like(block.scale))
            for block in features.blocks
        )
        return features(inputs, running, training=True)[0]
    if isinstance(features, DenseFeatures):
        return features(inputs, training=False)
    return features(inputs)


@checked
def meta_learning(
    adaptation: Adaptation = "prox-linear",
    *,
    part: Part = "all",
    leader: Leader = "all",
    step_size: Positive | None = None,
    proximity: Positive | None = None,
    features: Features = batch_features,
    unit_curvature: bool = False,
) -> Problem:
    """Return the bilevel problem of online meta-learning, for models with `.features` and `.head`.

    x is a model; its logits are `model.head(features(model.features, inputs))`. A round is a task
    `{"support": (inputs, labels), "query": (inputs, labels)}`, labels 0..ways-1, as
    `obax.datasets.fewshot.TaskStream` gives them. The follower starts in each round from x, so
    `inner_var` at `algorithm.init` is `problem.inner_start(x)`.

    A label outside 0..ways-1 makes the round's loss NaN, and the guard rejects the round.

    **Arguments:**

    - `adaptation`: which g, see above. `obax.prox_linear` is the ready algorithm for
      `"prox-linear"`, `OAGD` with an implicit estimator for `"implicit"`, `ITD` for `"plain"`.
    - `part`: what adapts to a task. `"all"`: y is a model; `"head"`: y is a head, and the features
      are those of x.
    - `leader`: what the leader moves. `"features"`: x keeps its head, where each adaptation starts:
      the head's hypergradient is zero. Needs `part="head"`.
    - `step_size`: beta of `"prox-linear"`; give the algorithm the same `inner_step_size`.
    - `proximity`: lambda of `"implicit"`.
    - `features`: `(model.features, inputs) -> [n, d]`.
    - `unit_curvature`: divide g by a bound C on its curvature on the task at hand, held constant in
      the derivatives, so that `inner_step_size` counts in units of 1 / C: below 2 no task
      diverges, however large training makes the features. For a head that is linear in features
      a_i and a bias, C = mu / 2 + lambda with mu the largest eigenvalue of the mean of
      (a_i, 1) (a_i, 1)^T, because the Hessian of the cross-entropy in the logits is at most 1/2.
      Needs `part="head"` and not `"prox-linear"`.

    Equal arguments make equal problems, which share compiled functions.
    """
    if leader == "features" and part != "head":
        raise ValueError(
            "part must be 'head' with leader='features', but is 'all': a head that the leader "
            "does not move has to adapt, and features that it moves must not."
        )
    number = 0.0
    numbers = {"step_size": (step_size, "prox-linear"), "proximity": (proximity, "implicit")}
    for name, (value, needed_by) in numbers.items():
        if (value is not None) != (adaptation == needed_by):
            raise ValueError(
                f"{name} must be given if and only if adaptation is {needed_by!r}, but adaptation "
                f"is {adaptation!r} and {name} is {value!r}."
            )
        if value is not None:
            number = float(value)
    if unit_curvature and (part != "head" or adaptation == "prox-linear"):
        raise ValueError(
            f"unit_curvature needs part='head' and adaptation 'implicit' or 'plain', whose "
            f"curvature in a linear head is bounded, but they are {part!r} and {adaptation!r}."
        )
    chosen = (part, leader, features)
    return Problem(
        _Outer(*chosen),
        _INNER[adaptation](*chosen, number, unit_curvature),
        inner_argmin=_OneStep(*chosen, number) if adaptation == "prox-linear" else None,
        inner_start=_Start(*chosen),
    )


@checked
def task_logits(
    problem: Problem, outer_var: PyTree, inner_var: PyTree, inputs: PyTree
) -> Float[Array, "n ways"]:
    """Return the logits of the adapted model (x, y) of a `meta_learning` problem."""
    outer = inspect.unwrap(problem.outer)
    if not isinstance(outer, _Outer):
        raise ValueError(f"problem must come from meta_learning, but got {problem!r}.")
    return outer.logits(outer_var, inner_var, inputs)


class Embedded(NamedTuple):
    """Features that were computed already, in place of inputs."""

    features: Float[Array, "n features"]


@checked
def embed_task(problem: Problem) -> Callable[[PyTree, PyTree], PyTree]:
    """Return a function that replaces the inputs of a task by the features of x.

    The function is `(x, round) -> round`, for problems with `part="head"`.

    Given to `ITD(prepare=...)`, the network runs once for a task and not in each of the K steps.
    """
    outer = inspect.unwrap(problem.outer)
    if not isinstance(outer, _Outer) or outer.part != "head":
        raise ValueError("problem must come from meta_learning with part='head'.")
    return _Embed("head", outer.leader, outer.features)


# Compared by value, so that equal problems share compiled functions.
@dataclasses.dataclass(frozen=True)
class _Losses:
    """The part of the model that adapts, its start, and the loss of an adapted model on a batch.

    The functions of a problem derive from it; `number` is beta or lambda where there is one, `unit`
    whether the inner loss is divided by the bound on its curvature.
    """

    part: str
    leader: str
    features: Features
    number: float = 0.0
    unit: bool = False

    def start(self, x: PyTree) -> PyTree:
        """Return where the follower starts."""
        if self.part == "all":
            return x
        return jax.lax.stop_gradient(x.head) if self.leader == "features" else x.head

    def embed(self, model: PyTree, inputs: PyTree) -> Float[Array, "n features"]:
        """Return the features, which may have been computed already."""
        if isinstance(inputs, Embedded):
            return inputs.features
        return self.features(model.features, inputs)

    def logits(self, x: PyTree, y: PyTree, inputs: PyTree) -> Float[Array, "n ways"]:
        """Return the logits of the adapted model."""
        model, head = (y, y.head) if self.part == "all" else (x, y)
        return head(self.embed(model, inputs))

    def in_units(self, loss: Array, x: PyTree, round: PyTree) -> Array:
        """Return the inner loss, divided by the bound on its curvature with `unit_curvature`."""
        if not self.unit:
            return loss
        features = jax.lax.stop_gradient(self.embed(x, round["support"][0]))
        # Of n x n products, which have the eigenvalues of the mean of squares; the bias is a
        # feature that is always 1.
        products = (features @ features.T + 1) / features.shape[0]
        return loss / (0.5 * jnp.linalg.eigvalsh(products)[-1] + self.number)

    def loss(self, x: PyTree, y: PyTree, round: PyTree, batch: str) -> Float[Array, ""]:
        """Return the mean cross-entropy on the support or the query."""
        if not (isinstance(round, dict) and {"support", "query"} <= round.keys()):
            raise ValueError(
                "round must be a task {'support': (inputs, labels), 'query': (inputs, labels)}, "
                f"but is {jax.tree.map(jnp.shape, round)!r}."
            )
        inputs, labels = round[batch]
        logits = self.logits(x, y, inputs)
        return jnp.mean(cross_entropy(logits, labels, logits.shape[-1]))


class _Start(_Losses):
    def __call__(self, x: PyTree) -> PyTree:
        return self.start(x)


class _Embed(_Losses):
    def __call__(self, x: PyTree, round: PyTree) -> PyTree:
        return {
            name: (Embedded(self.features(x.features, inputs)), labels)
            for name, (inputs, labels) in round.items()
        }


class _Outer(_Losses):
    """f: the loss on the query."""

    def __call__(self, x: PyTree, y: PyTree, round: PyTree) -> Array:
        return self.loss(x, y, round, "query")


class _Plain(_Losses):
    """g: the loss on the support."""

    def __call__(self, x: PyTree, y: PyTree, round: PyTree) -> Array:
        return self.in_units(self.loss(x, y, round, "support"), x, round)


class _Implicit(_Losses):
    """g: the loss on the support, and the distance from the start."""

    def __call__(self, x: PyTree, y: PyTree, round: PyTree) -> Array:
        moved = trees.squared_norm(trees.difference(y, self.start(x)))
        loss = self.loss(x, y, round, "support") + 0.5 * self.number * moved
        return self.in_units(loss, x, round)


class _ProxLinear(_Losses):
    """g: the loss on the support, linearised at the start, and the distance from the start."""

    def __call__(self, x: PyTree, y: PyTree, round: PyTree) -> Array:
        start = self.start(x)
        moved = trees.squared_norm(trees.difference(y, start))
        # <y, grad L> as the derivative of L along y, so that no gradient is differentiated: its
        # gradient in y is one of L, and that in x one Hessian-vector product.
        _, slope = jax.jvp(lambda z: self.loss(x, z, round, "support"), (start,), (y,))
        return slope + moved / (2 * self.number)


class _OneStep(_Losses):
    """y*(x) of the prox-linear problem."""

    def __call__(self, x: PyTree, round: PyTree) -> PyTree:
        start = self.start(x)
        gradient = jax.grad(lambda z: self.loss(x, z, round, "support"))(start)
        return trees.scaled_add(start, -self.number, gradient)


_INNER: dict[str, Callable[..., Callable]] = {"prox-linear": _ProxLinear, "implicit": _Implicit}
_INNER |= {"plain": _Plain}
