"""A time-varying bilevel problem, stated as two functions of one round.

    min_{x in X} f_t(x, y*_t(x))    subject to    y*_t(x) = argmin_{y in Y} g_t(x, y)

The functions are fixed and the *round* moves: `f_t(x, y)` is `outer(x, y, round_t)` and `g_t(x, y)`
is `inner(x, y, round_t)`. x, y and the round are any pytrees; x and y may be whole Equinox modules,
which the functions get as they were given.
"""

import inspect
from collections.abc import Callable
from typing import Annotated, Any

import equinox as eqx
import jax
from jaxtyping import Array, Float

from ._support import messages, trees
from ._support.checks import check, function_of, instance_of
from ._support.trees import PyTree, on_whole
from .domain import Domain, Unconstrained

SIGNATURES = {
    "outer": "(x, y, round) -> scalar",
    "inner": "(x, y, round) -> scalar",
    "inner_argmin": "(x, round) -> y",
    "outer_argmin": "(round) -> x",
    "inner_start": "x -> y",
}


def _domain(name: str) -> Callable[[Domain | None], Domain]:
    def convert(given: Domain | None) -> Domain:
        domain = Unconstrained() if given is None else given
        kind = instance_of(Domain, "an obax domain such as Box(-1.0, 1.0)")
        return check(domain, name, Annotated[Any, kind])

    return convert


class Problem(eqx.Module):
    """The losses of the leader and of the follower in a round, and the sets that they are kept in.

    **Arguments:**

    - `outer`: f(x, y, round) -> scalar, the leader's loss.
    - `inner`: g(x, y, round) -> scalar, the follower's loss, or `None` for a problem without a
      follower: then y is `None` wherever it is asked for.
    - `domain`: the convex set X of the leader.
    - `inner_argmin`: `(x, round) -> y*(x)` and `outer_argmin`: `(round) -> x*`, closed forms where
      they are known. Only regret and checks look at them, never an algorithm.
    - `inner_start`: `x -> y`, where the follower starts in each round; without it, it goes on from
      where it was. Meta-learning starts at the leader's own x.
    - `inner_domain`: the convex set Y of the follower, such as `Simplex()`. Its steps are projected
      onto Y, and the hypergradient is that of a minimiser over Y: it moves along the face of Y
      that it is on (see `obax.domain.Face`).
    - `has_buffers`: the losses carry state that is not differentiated, such as the statistics of a
      BatchNorm. Then they are called as `inner(x, y, round, buffers) -> (loss, buffers)` and
      `outer(x, y, round, buffers) -> loss`; the first buffers are given to `algorithm.init`.

    >>> problem = Problem(
    ...     outer=lambda x, y, round: (y - round) ** 2,
    ...     inner=lambda x, y, round: (y - x) ** 2,
    ... )
    >>> problem.outer(0.0, 1.0, 3.0)
    4.0
    """

    outer: Callable[..., Any] = eqx.field(converter=on_whole(2), static=True)
    inner: Callable[..., Any] | None = eqx.field(converter=on_whole(2), default=None, static=True)
    domain: Domain = eqx.field(converter=_domain("domain"), default=None)
    inner_argmin: Callable[[PyTree, PyTree], PyTree] | None = eqx.field(
        converter=on_whole(1, answers=True), default=None, static=True
    )
    outer_argmin: Callable[[PyTree], PyTree] | None = eqx.field(
        converter=on_whole(0, answers=True), default=None, static=True
    )
    inner_start: Callable[[PyTree], PyTree] | None = eqx.field(
        converter=on_whole(1, answers=True), default=None, static=True, kw_only=True
    )
    inner_domain: Domain = eqx.field(converter=_domain("inner_domain"), default=None, kw_only=True)
    has_buffers: bool = eqx.field(
        converter=lambda value: check(value, "has_buffers", bool),
        default=False,
        static=True,
        kw_only=True,
    )

    def __check_init__(self) -> None:
        for name, signature in SIGNATURES.items():
            value = getattr(self, name)
            if value is not None or name == "outer":
                check(value, name, Annotated[Any, function_of(signature)])
        for name in ("inner_argmin", "inner_start", "has_buffers"):
            if self.inner is None and getattr(self, name):
                raise ValueError(f"{name} needs a follower, but inner is None.")
        if self.inner is None and self.constrains_follower:
            raise ValueError("inner_domain needs a follower, but inner is None.")
        if type(self.inner_domain).face is Domain.face:
            raise ValueError(
                f"inner_domain must be a set that knows its faces (Box, NonNegative, Simplex, "
                f"Ball), but {type(self.inner_domain).__name__} has no method face."
            )

    @property
    def constrains_follower(self) -> bool:
        """Whether Y is not all of R^d."""
        return not isinstance(self.inner_domain, Unconstrained)

    def __repr__(self) -> str:
        named = [
            f"{name}={messages.format_value(inspect.unwrap(value) if callable(value) else value)}"
            for name, value in messages.changed_fields(self)
            if not isinstance(value, Unconstrained)
        ]
        return f"Problem({', '.join(named)})"

    def outer_loss(
        self, outer_var: PyTree, inner_var: PyTree, round: PyTree, buffers: PyTree = None
    ) -> Float[Array, ""]:
        """Return f_t(x, y), whether the problem has buffers or not."""
        if self.has_buffers:
            return self.outer(outer_var, inner_var, round, buffers)
        return self.outer(outer_var, inner_var, round)

    def inner_loss(
        self, outer_var: PyTree, inner_var: PyTree, round: PyTree, buffers: PyTree = None
    ) -> tuple[Float[Array, ""], PyTree]:
        """Return g_t(x, y) and the buffers after it, whether the problem has buffers or not."""
        assert self.inner is not None
        if self.has_buffers:
            return self.inner(outer_var, inner_var, round, buffers)
        return self.inner(outer_var, inner_var, round), buffers

    def inner_slope(
        self, outer_var: PyTree, inner_var: PyTree, round: PyTree, buffers: PyTree = None
    ) -> tuple[PyTree, PyTree]:
        """Return grad_y g_t(x, y) and the buffers after it."""
        return jax.grad(self.inner_loss, 1, has_aux=True)(outer_var, inner_var, round, buffers)

    def check(
        self, outer_var: PyTree, inner_var: PyTree, round: PyTree, buffers: PyTree = None
    ) -> None:
        """Raise a `ValueError` if functions, variables and rounds do not fit together; only shapes
        are evaluated."""
        self.domain.check_matches(outer_var)
        if self.inner is not None and inner_var is not None:
            self.inner_domain.check_matches(inner_var, "inner_var")
        if (self.inner is None) != (inner_var is None):
            state = "None" if self.inner is None else "a function"
            raise ValueError(
                f"inner_var must be None if and only if the problem has no follower, but "
                f"problem.inner is {state} and inner_var is {inner_var!r}."
            )
        if self.has_buffers != (buffers is not None):
            raise ValueError(
                f"buffers must be given if and only if the problem has_buffers, but has_buffers "
                f"is {self.has_buffers} and buffers is {'None' if buffers is None else 'given'}."
            )
        arguments = (outer_var, inner_var, round, buffers)
        if self.inner is not None:
            called = jax.eval_shape(self.inner, *(arguments if self.has_buffers else arguments[:3]))
            if self.has_buffers:
                if not (isinstance(called, tuple) and len(called) == 2):
                    raise ValueError(
                        "inner must return (loss, buffers) when the problem has_buffers."
                    )
                called, new = called
                like = jax.eval_shape(lambda: buffers)
                trees.check_same_structure(new, like, "inner's new buffers", "buffers")
            trees.check_scalar_loss(called, "inner")
        trees.check_scalar_loss(jax.eval_shape(self.outer_loss, *arguments), "outer")
        answers = [
            (self.inner_argmin, (outer_var, round), "inner_argmin(x, round)", "inner_var"),
            (self.inner_start, (outer_var,), "inner_start(x)", "inner_var"),
            (self.outer_argmin, (round,), "outer_argmin(round)", "outer_var"),
        ]
        shapes = jax.eval_shape(lambda: {"inner_var": inner_var, "outer_var": outer_var})
        for function, given, name, like in answers:
            if function is not None:
                trees.check_same_structure(
                    jax.eval_shape(function, *given), shapes[like], name, like
                )
