"""Pytrees: norms, finiteness, names of leaves, and Equinox modules as variables.

The floating-point arrays of a module are its leaves as a variable. All else in it (activations,
sizes, rates of dropout, integer arrays) is in the *structure* of the tree, so that gradients,
optimisers, the guard and buffers do not see it; the losses get the module as it was.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, TypeAlias, TypeVar, cast

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.custom_batching import custom_vmap
from jaxtyping import Array, ArrayLike, Bool, Float

from .checks import Positive, check, is_numeric
from .function_identity import interned

# Any nesting of tuples, lists, dicts and modules, with arrays as leaves.
PyTree: TypeAlias = Any
T = TypeVar("T")


def standard_promotion() -> AbstractContextManager[None]:
    """Return a context for calls into optax, which is not written for strict dtype promotion."""
    return jax.numpy_dtype_promotion("standard")


def leaf_name(path: tuple[Any, ...], root: str) -> str:
    """Return the name of a leaf as in code: `round['a']`, `outer_var.scale`, `round`."""
    return root + jax.tree_util.keystr(path)


def structure(tree: PyTree) -> Any:
    """Return `jax.tree.structure`, whose type mypy cannot compare."""
    return jax.tree.structure(tree)


def is_float(leaf: ArrayLike) -> bool:
    """Return whether a leaf has a floating dtype: it can be differentiated and can be NaN."""
    return jnp.issubdtype(jnp.result_type(leaf), jnp.floating)


def is_concrete(value: PyTree) -> bool:
    """Return whether a value can be tested with `if`: nothing in it is a JAX tracer."""
    return not any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree.leaves(value))


def norm(tree: PyTree) -> Float[Array, ""]:
    """Return the Euclidean norm of all leaves taken together."""
    return jnp.sqrt(vdot(tree, tree))


def squared_norm(tree: PyTree) -> Float[Array, ""]:
    """Return the squared Euclidean norm of all leaves taken together."""
    return vdot(tree, tree)


def vdot(left: PyTree, right: PyTree) -> Float[Array, ""]:
    """Return the inner product of two trees of one structure."""
    products = [
        jnp.sum(a * b) for a, b in zip(jax.tree.leaves(left), jax.tree.leaves(right), strict=True)
    ]
    if not products:
        return jnp.zeros(())
    dtype = jnp.result_type(*(product.dtype for product in products))
    return sum((product.astype(dtype) for product in products[1:]), products[0].astype(dtype))


def difference(left: PyTree, right: PyTree) -> PyTree:
    """Return `left - right`, leaf by leaf."""
    return jax.tree.map(jnp.subtract, left, right)


def scaled_add(tree: PyTree, scale: ArrayLike, direction: PyTree) -> PyTree:
    """Return `tree + scale * direction`, in the dtype of `tree` whatever that of `scale` is."""
    return jax.tree.map(
        lambda leaf, step: leaf + jnp.asarray(scale, leaf.dtype) * step, tree, direction
    )


def scaled(tree: PyTree, scale: ArrayLike) -> PyTree:
    """Return `scale * tree`, in the dtype of `tree` whatever that of `scale` is."""
    return jax.tree.map(lambda leaf: jnp.asarray(scale, leaf.dtype) * leaf, tree)


def inverse(value: Array) -> Array:
    """Return 1 / value, and 0 for 0."""
    return jnp.where(value == 0, 0, 1 / jnp.where(value == 0, 1, value))


def all_finite(tree: PyTree) -> Bool[Array, ""]:
    """Return whether no floating leaf has NaN or Inf; leaves of other dtypes cannot."""
    finite = [jnp.all(jnp.isfinite(leaf)) for leaf in jax.tree.leaves(tree) if is_float(leaf)]
    return jnp.asarray(True) if not finite else jnp.all(jnp.stack(finite))


def finite_entries(stacked: PyTree) -> Bool[Array, " n"]:
    """Return which of the entries stacked on axis 0 have neither NaN nor Inf."""
    finite = jnp.asarray(True)
    for leaf in jax.tree.leaves(stacked):
        if is_float(leaf):
            finite &= jnp.all(jnp.isfinite(leaf), axis=tuple(range(1, leaf.ndim)))
    return finite


def select(condition: Bool[Array, ""], if_true: PyTree, if_false: PyTree) -> PyTree:
    """Return one of two trees of one structure, chosen at run time."""
    return jax.tree.map(lambda a, b: jnp.where(condition, a, b), if_true, if_false)


def map_with_name(function: Callable[[str, Any], Any], tree: PyTree, root: str) -> PyTree:
    """Return a tree with `function(name, leaf)` of each leaf."""
    return jax.tree_util.tree_map_with_path(
        lambda path, leaf: function(leaf_name(path, root), leaf), tree
    )


def finite_or(result: T, again: Callable[[], T]) -> T:
    """Return `result`, or `again()` where that is not finite.

    Under `vmap` JAX would turn the branch into a selection and evaluate both sides in every round;
    here the branch is taken if one entry of the batch needs it.
    """
    numbers, rest = eqx.partition(eqx.filter_closure_convert(again), eqx.is_array)
    evaluate = lambda numbers: eqx.combine(numbers, rest)()  # noqa: E731

    @custom_vmap
    def branch(result: T, numbers: PyTree) -> T:
        return jax.lax.cond(all_finite(result), lambda: result, lambda: evaluate(numbers))

    @branch.def_vmap
    def _(size: int, batched: list, result: T, numbers: PyTree) -> tuple[T, PyTree]:
        def broadcast(leaf: jax.Array, has_batch: bool) -> jax.Array:
            return leaf if has_batch else jnp.broadcast_to(leaf, (size, *leaf.shape))

        entries = jax.tree.map(broadcast, result, batched[0])
        axes = jax.tree.map(lambda has_batch: 0 if has_batch else None, batched[1])

        def again() -> T:
            new = jax.vmap(evaluate, in_axes=(axes,), axis_size=size)(numbers)
            return jax.vmap(select)(jax.vmap(all_finite)(entries), entries, new)

        # Of a batch of batches, the same.
        out = finite_or(entries, again)
        return out, jax.tree.map(lambda _: True, out)

    return cast(T, branch(result, numbers))


def strong(array: Array) -> Array:
    """Return the array without JAX's weak type, which would be compiled for a second time."""
    return jax.lax.convert_element_type(array, array.dtype)


def float_array(value: Any, name: str) -> Array:
    """Return numbers as a floating-point array, checked to be finite where they are known."""
    if not is_numeric(value):
        is_plain = isinstance(value, bool | str | None)
        of = "" if is_plain else f" of type {type(value).__name__}"
        raise ValueError(f"{name} must be a number, but got {value!r}{of}.")
    array = jnp.asarray(value)
    array = strong(array if is_float(array) else array.astype(jnp.result_type(float)))
    if is_concrete(array) and not np.all(np.isfinite(np.asarray(array))):
        raise ValueError(f"{name} must be finite, but got {value!r}.")
    return array


def positive_array(value: Any, name: str) -> Array:
    """Return a number > 0 as a floating array."""
    return float_array(check(value, name, Positive), name)


def check_same_structure(tree: PyTree, expected: PyTree, name: str, expected_name: str) -> None:
    """Check that two trees have one structure, and their leaves the same shapes and dtypes."""
    if (actual := structure(tree)) != (required := structure(expected)):
        raise ValueError(
            f"{name} must have the structure of {expected_name}, {required}, but has {actual}."
        )
    leaves = jax.tree_util.tree_leaves_with_path(tree)
    for (path, actual), required in zip(leaves, jax.tree.leaves(expected), strict=True):
        if (actual.shape, actual.dtype) != (required.shape, required.dtype):
            raise ValueError(
                f"{leaf_name(path, name)} must match {expected_name}: expected "
                f"{required.dtype}{list(required.shape)}, but got {actual.dtype}"
                f"{list(actual.shape)}."
            )


def check_scalar_loss(value: PyTree, name: str) -> None:
    """Check that the abstract value of a loss is one floating-point number."""
    leaves = jax.tree.leaves(value)
    if len(leaves) != 1 or leaves[0].shape != () or not is_float(leaves[0]):
        actual = ", ".join(f"{leaf.dtype}{list(leaf.shape)}" for leaf in leaves) or "nothing"
        raise ValueError(
            f"{name} must return a scalar loss (one floating-point number of shape ()), "
            f"but returns {actual}; take a mean or a sum."
        )


def check_has_values(round: PyTree) -> None:
    """Check that a round holds arrays, and not only shapes as an `example_round` may."""
    if any(isinstance(leaf, jax.ShapeDtypeStruct) for leaf in jax.tree.leaves(round)):
        raise ValueError(
            "round must hold numbers, but has shapes alone, as an example_round may: those are for "
            "init; here it takes a round of the stream."
        )


@jax.tree_util.register_static
class StaticLeaf:
    """A part of a module that is not a variable. Arrays are compared by value."""

    def __init__(self, value: Any):
        self.value = value

    @property
    def _key(self) -> object:
        if not eqx.is_array_like(self.value) or isinstance(self.value, bool | int | float):
            return type(self.value), self.value
        array = np.asarray(jax.random.key_data(self.value) if _is_key(self.value) else self.value)
        return str(self.value.dtype), array.shape, array.tobytes()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, StaticLeaf) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)

    def __repr__(self) -> str:
        return f"StaticLeaf({self.value!r})"


def _is_key(value: Any) -> bool:
    return isinstance(value, jax.Array) and jax.dtypes.issubdtype(value.dtype, jax.dtypes.prng_key)


def hold_static(tree: PyTree) -> PyTree:
    """Return the tree with all that is not a floating array in an Equinox module as `StaticLeaf`.

    Leaves outside of modules are left as they are.
    """

    def hold(node: PyTree) -> PyTree:
        if not isinstance(node, eqx.Module):
            return node
        return jax.tree.map(lambda leaf: leaf if _moves(leaf) else StaticLeaf(leaf), node)

    return jax.tree.map(hold, tree, is_leaf=lambda node: isinstance(node, eqx.Module))


def as_variable(tree: PyTree, name: str) -> PyTree:
    """Return a variable as a pytree of floating-point arrays, from arrays or Python floats.

    Of an Equinox module the floating-point arrays are leaves and the rest is static.
    """

    def leaf_as_array(name: str, leaf: ArrayLike) -> Array:
        try:
            array = jnp.asarray(leaf)
        except (TypeError, ValueError) as error:
            raise ValueError(
                f"{name} must be a floating-point array, but got {type(leaf).__name__}."
            ) from error
        if not is_float(array):
            raise ValueError(
                f"{name} must be a floating-point array, but its dtype is {array.dtype}; "
                f"write 0.0 instead of 0, or convert it with .astype(float)."
            )
        if is_concrete(array) and not np.all(np.isfinite(np.asarray(array))):
            raise ValueError(f"{name} must be finite, but holds NaN or Inf: {array}.")
        return strong(array)

    converted = map_with_name(leaf_as_array, hold_static(tree), name)
    if not jax.tree.leaves(converted):
        raise ValueError(
            f"{name} must have at least one array leaf, but got {tree!r}; the numbers of an "
            f"Equinox module move only where they are floating-point arrays."
        )
    return converted


def _moves(leaf: Any) -> bool:
    # Arrays of NumPy too, and shapes, which stand for the arrays that they will be.
    return hasattr(leaf, "dtype") and jnp.issubdtype(leaf.dtype, jnp.inexact)


def whole(tree: PyTree) -> PyTree:
    """Return the module of a state or a history as it was given, with the arrays that it has now.

    >>> import equinox as eqx, jax
    >>> import obax
    >>> problem = obax.Problem(
    ...     outer=lambda x, net, round: (net(round)[0] - 1.0) ** 2,
    ...     inner=lambda x, net, round: (net(round)[0] - x) ** 2,
    ... )
    >>> algorithm = obax.OAGD(problem, 0.1, 0.1)
    >>> net = eqx.nn.MLP(2, 1, 8, 1, key=jax.random.key(0))
    >>> state = algorithm.init(0.0, net, jax.numpy.ones(2))
    >>> obax.whole(state.inner_var)(jax.numpy.ones(2)).shape
    (1,)
    """
    return jax.tree.map(
        lambda node: node.value if isinstance(node, StaticLeaf) else node,
        tree,
        is_leaf=lambda node: isinstance(node, StaticLeaf),
    )


class OnWhole:
    """A function of a problem that is called with modules as they were given.

    Its first `variables` arguments are x and y. With `returns_variable` its result is a variable
    too. It equals another of the same function, so that equal problems share programs.
    """

    def __init__(
        self, function: Callable[..., Any], variables: int, returns_variable: bool = False
    ):
        self.__wrapped__ = interned(function)
        self.variables = variables
        self.returns_variable = returns_variable

    def __call__(self, *arguments: PyTree) -> Any:
        """Call the function with whole modules."""
        variables = map(whole, arguments[: self.variables])
        result = self.__wrapped__(*variables, *arguments[self.variables :])
        return hold_static(result) if self.returns_variable else result

    def __eq__(self, other: object) -> bool:
        return isinstance(other, OnWhole) and (
            (self.__wrapped__, self.variables) == (other.__wrapped__, other.variables)
        )

    def __hash__(self) -> int:
        return hash((self.__wrapped__, self.variables))

    def __repr__(self) -> str:
        return repr(self.__wrapped__)


def on_whole(variables: int, answers: bool = False) -> Callable[[Any], Any]:
    """Return a converter of fields that hold a function of variables."""

    def convert(function: Any) -> Any:
        if not callable(function) or isinstance(function, OnWhole):
            return function
        return OnWhole(function, variables, answers)

    return convert
