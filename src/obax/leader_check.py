"""Does the leader reach the follower? What the structure of the losses says, before any round.

For each leaf of x the program of g is read once, as a jaxpr, without running it. A value in it is

    constant | of x alone | of y alone | a(x) + s(x) b(y) with one number s | mixed,

where only what can be differentiated counts: comparisons, rounding and `stop_gradient` cut. If g as
a whole is a(x) + b(y), its cross derivative is zero. If it is a(x) + s(x) b(y), as with a learning
rate that multiplies the loss, the *optimum* y*(x) does not depend on x, and what an estimator that
differentiates the optimum sees of J = grad_y g s'/s is only how far the follower still is from it.
Where the program does not show one of these forms, nothing is said: no false alarm, but for
instance a learning rate in one array with a weight decay is not found.
"""

import warnings
from collections.abc import Hashable, Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp

from ._support import trees
from ._support.trees import PyTree
from .problem import Problem

# What has the derivative zero everywhere.
CUTS = {"stop_gradient", "floor", "ceil", "round", "sign", "nextafter"}
# Linear in the one operand that is not constant, entry by entry or as a rearrangement or a sum.
LINEAR = {
    "neg", "reduce_sum", "broadcast_in_dim", "reshape", "transpose", "slice", "squeeze", "rev",
    "pad", "convert_element_type", "copy", "gather", "dynamic_slice", "expand_dims", "mul",
    "dot_general", "concatenate", "cumsum", "reduce_precision", "select_n",
}  # fmt: skip
# Rearrangements that leave a number that was repeated the same everywhere.
REPEATS = {"broadcast_in_dim", "reshape", "convert_element_type", "squeeze", "copy"}
CALLS = {"jit", "pjit", "closed_call", "core_call", "remat", "checkpoint", "custom_jvp_call"}
CALLS |= {"custom_vjp_call", "custom_vjp_call_jaxpr", "custom_lin"}


class LeaderWarning(UserWarning):
    """The leader, or a part of it, cannot reach the follower with this estimator."""


class Form(NamedTuple):
    """What a value is as a function of one leaf of x, and of y.

    `kind` is "constant", "x", "y", "split" or "mixed". Constants and values of x alone have a
    `name` that says how they were made, and are `one` number, or one repeated, or not. `scale` is
    the name of s(x) of a split value, `None` where s is 1.
    """

    kind: str
    name: Hashable = None
    one: bool = False
    scale: Hashable = None


Y, MIXED = Form("y"), Form("mixed")


def warn_unreached(
    problem: Problem,
    outer_var: PyTree,
    inner_var: PyTree,
    round: PyTree,
    buffers: PyTree,
    who: str,
    through_steps: bool,
) -> None:
    """Warn of each leaf of x that cannot reach the follower; shapes are all that is looked at.

    `through_steps` says whether the follower's steps are differentiated, as `Unrolled`, `RTHO` and
    `ITD` do, or its optimum.
    """
    for name, reason in unreached(
        problem, outer_var, inner_var, round, buffers, through_steps
    ).items():
        # The caller of `init`.
        warnings.warn(f"{name} {reason.format(who=who)}", LeaderWarning, stacklevel=4)


def unreached(
    problem: Problem,
    outer_var: PyTree,
    inner_var: PyTree,
    round: PyTree,
    buffers: PyTree = None,
    through_steps: bool = False,
) -> dict[str, str]:
    """The leaves of x that cannot reach the follower, by name, and why."""
    arguments = (outer_var, inner_var, round, buffers)
    inner = forms(lambda *given: problem.inner_loss(*given)[0], *arguments)
    found = {}
    starts: set[str] | None = None
    outer: dict[str, Form] = {}
    for name, form in inner.items():
        scales = form.kind == "split" and form.scale is not None
        if form.kind == "mixed" or (scales and through_steps):
            continue
        if scales:
            found[name] = SCALES
            continue
        if starts is None:
            starts, outer = _starts(problem, outer_var), forms(problem.outer_loss, *arguments)
        if name in starts:
            if not through_steps:
                found[name] = ONLY_START
        elif outer[name].kind in ("constant", "y"):
            found[name] = NOWHERE
    # A network may have parts that a problem leaves alone, such as the head in ANIL's kin: of a
    # module only the whole is missed.
    for whole, parts in _modules(outer_var).items():
        dead = [part for part in parts if found.get(part) == NOWHERE]
        if len(dead) < len(parts):
            found = {name: why for name, why in found.items() if name not in dead}
        elif whole not in found:
            found = {name: why for name, why in found.items() if name not in dead}
            found[whole] = NOWHERE
    return found


def _modules(outer_var: PyTree) -> dict[str, list[str]]:
    """The Equinox modules of x by name, each with the names of its leaves."""
    is_module = lambda node: isinstance(node, eqx.Module)  # noqa: E731
    nodes = jax.tree_util.tree_leaves_with_path(outer_var, is_leaf=is_module)
    return {
        trees.leaf_name(path, "outer_var"): [
            trees.leaf_name((*path, *rest), "outer_var")
            for rest, _ in jax.tree_util.tree_leaves_with_path(node)
        ]
        for path, node in nodes
        if is_module(node)
    }


DOCS = "see docs/leaders.md"
STEPS = "OAGD with hypergradient=Unrolled(), obax.RTHO or obax.ITD"
SCALES = (
    "only multiplies the inner loss, as a learning rate does: the follower's optimum does not "
    "depend on it, and {who} differentiates the optimum, so that it would run away in silence. "
    f"Take a method that differentiates the follower's steps: {STEPS}; {DOCS}."
)
ONLY_START = (
    "reaches the follower only by where it starts (inner_start): its optimum does not depend on "
    "that, and {who} differentiates the optimum. Take a method that differentiates the follower's "
    f"steps: {STEPS}; or tie the inner loss to the start, as |y - x|^2 does; {DOCS}."
)
NOWHERE = (
    "reaches neither the follower (the derivative of inner in it and in y is zero) nor outer, so "
    f"that {{who}} will never move it: let inner or outer depend on it; {DOCS}."
)


def _starts(problem: Problem, outer_var: PyTree) -> set[str]:
    """The leaves of x that the follower's start depends on."""
    if problem.inner_start is None:
        return set()
    begin = problem.inner_start

    def total(x: PyTree, _: PyTree) -> Any:
        return trees.squared_norm(begin(x))

    return {name for name, form in forms(total, outer_var, ()).items() if form.kind == "x"}


def forms(loss: Any, outer_var: PyTree, inner_var: PyTree, *rest: PyTree) -> dict[str, Form]:
    """What a loss is as a function of each leaf of x, and of y."""
    program = jax.make_jaxpr(loss)(outer_var, inner_var, *rest).jaxpr
    leaves = jax.tree_util.tree_leaves_with_path(outer_var)
    of_y = range(len(leaves), len(leaves) + len(jax.tree.leaves(inner_var)))
    found = {}
    for index, (path, leaf) in enumerate(leaves):
        given = [
            Y if place in of_y else Form("constant", place, value.aval.size == 1)
            for place, value in enumerate(program.invars)
        ]
        given[index] = Form("x", index, jnp.size(leaf) == 1)
        (found[trees.leaf_name(path, "outer_var")],) = _Reader().read(program, given)
    return found


class _Reader:
    """Reads a program, line by line, for one leaf of x."""

    def __init__(self) -> None:
        # Numbers for what values are made of: two values with one number are the same.
        self.names: dict[Hashable, int] = {}

    def name(self, *parts: Hashable) -> Hashable:
        return "made", self.names.setdefault(parts, len(self.names))

    def read(self, program: Any, given: Sequence[Form]) -> list[Form]:
        """The forms of the outputs."""
        known = {
            value: Form("constant", self.name("constant", id(value)), value.aval.size == 1)
            for value in program.constvars
        }
        known |= dict(zip(program.invars, given, strict=True))

        def form_of(value: Any) -> Form:
            if hasattr(value, "val"):
                return Form("constant", self.name("number", str(value)), value.aval.size == 1)
            return known[value]

        for line in program.eqns:
            came = [form_of(value) for value in line.invars]
            inside = _called(line, len(came))
            if inside is None:
                outs = [self.combined(line, came, place) for place in range(len(line.outvars))]
            else:
                outs = self.read(inside, came)
            known |= dict(zip(line.outvars, outs, strict=True))
        return [form_of(value) for value in program.outvars]

    def combined(self, line: Any, came: list[Form], place: int) -> Form:
        """What an operation makes of the forms of its operands."""
        name, out = line.primitive.name, line.outvars[place].aval
        moving = [form for form in came if form.kind != "constant"]
        kinds = {form.kind for form in moving}
        # What is not floating cannot be differentiated.
        cut = name in CUTS or not jnp.issubdtype(getattr(out, "dtype", bool), jnp.inexact)
        if cut or kinds <= {"x"}:
            kind = "constant" if cut or not kinds else "x"
            return self.plain(kind, line, came, place)
        if kinds == {"y"}:
            return Y
        if name in ("add", "sub", "add_any"):
            return _sum(moving)
        if name in ("mul", "div") and len(moving) == 2:
            return self.product(name, *came)
        if len(moving) == 1 and (name in LINEAR or (name == "div" and came[0] is moving[0])):
            return moving[0]
        return MIXED

    def plain(self, kind: str, line: Any, came: list[Form], place: int) -> Form:
        """A value without y. A cut one may have come from y, and is then like no other."""
        name, out = line.primitive.name, line.outvars[place].aval
        if name in REPEATS and came[0].one and kind == came[0].kind:
            return came[0]
        one = getattr(out, "size", 0) == 1 or all(form.one for form in came)
        parts = [form.name for form in came]
        alike = all(form.kind in ("constant", "x") for form in came)
        made = self.name(name, place, str(line.params), *parts) if alike else self.name(id(line))
        return Form(kind, made, one and len(line.outvars) == 1)

    def product(self, name: str, left: Form, right: Form) -> Form:
        """One number s(x) times what is split, or that divided by it."""
        if name == "mul" and right.kind == "x":
            left, right = right, left
        factor, other = (right, left) if name == "div" else (left, right)
        if factor.kind != "x" or not factor.one or other.kind not in ("y", "split"):
            return MIXED
        return Form("split", scale=self.name(name, factor.name, other.scale))


def _called(line: Any, count: int) -> Any:
    """The program that a call runs, if it is a plain call."""
    if line.primitive.name not in CALLS:
        return None
    for name in ("jaxpr", "call_jaxpr", "fun_jaxpr"):
        found = line.params.get(name)
        if found is not None:
            found = getattr(found, "jaxpr", found)
            return found if len(found.invars) == count else None
    return None


def _sum(moving: list[Form]) -> Form:
    """a(x) + s(x) b(y) stays so under sums if there is one s."""
    scales = {form.scale for form in moving if form.kind != "x"}
    mixed = any(form.kind == "mixed" for form in moving)
    return MIXED if mixed or len(scales) != 1 else Form("split", scale=scales.pop())
