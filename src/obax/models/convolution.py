"""3x3 convolutions and 2x2 max pooling that are fast to differentiate twice on CPU."""

import math
from typing import Annotated, Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from .._support.checks import one_of

CONVOLUTIONS = ("auto", "native", "patches", "winograd")
Convolution = Annotated[str, one_of(*CONVOLUTIONS)]

Images = Float[Array, "batch height width channels"]
Kernel = Float[Array, "3 3 channels filters"]


def resolve(method: str, channels: int) -> str:
    """Return the method, with `"auto"` replaced by the best one for the backend of JAX."""
    if method != "auto":
        return method
    if jax.default_backend() != "cpu":
        return "native"
    return "patches" if channels < 8 else "winograd"


def convolve(inputs: Images, kernel: Kernel, method: str) -> Images:
    """Return a 3x3 convolution with padding 1 and stride 1, NHWC."""
    if method == "patches":
        return _of_patches(_patches(inputs), kernel)
    return (_native if method == "native" else _winograd)(inputs, kernel)


def convolve_and_measure(
    inputs: Images, kernel: Kernel, method: str
) -> tuple[Images, Float[Array, " filters"], Float[Array, " filters"]]:
    """Return the convolution, and mean and variance of each filter's outputs."""
    if method != "patches":
        images = convolve(inputs, kernel, method)
        mean = jnp.mean(images, (0, 1, 2))
        return images, mean, _mean_square(images, mean)
    # The moments of a linear map from those of its few inputs: the outputs, 64 times as many
    # numbers as an image has, need not be read, here and in both derivatives.
    patches = _patches(inputs)
    flat = patches.reshape(-1, patches.shape[-1])
    weights = kernel.reshape(flat.shape[1], -1)
    average = jnp.mean(flat, 0)
    centred = flat - average
    covariance = centred.T @ centred * (1 / len(flat))
    # For a filter whose terms nearly cancel, rounding can make this slightly negative.
    variance = jnp.maximum(jnp.sum(weights * (covariance @ weights), 0), 0)
    return _of_patches(patches, kernel), average @ weights, variance


@jax.custom_jvp
def _mean_square(images: Images, mean: Float[Array, " filters"]) -> Float[Array, " filters"]:
    """Return the variance, `mean` being the mean of `images`."""
    return jnp.mean(jnp.square(images - mean), (0, 1, 2))


@_mean_square.defjvp
def _mean_square_jvp(primals: tuple[Array, Array], tangents: tuple[Array, Array]) -> Any:
    images, mean = primals
    centred = images - mean
    # The tangent of the mean is multiplied by a sum that is zero.
    slope = 2 * jnp.mean(centred * tangents[0], (0, 1, 2))
    return jnp.mean(jnp.square(centred), (0, 1, 2)), slope


def _native(inputs: Images, kernel: Kernel) -> Images:
    return jax.lax.conv_general_dilated(
        inputs, kernel, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
    )


def _patches(inputs: Images) -> Images:
    """Return images with the nine neighbours of a pixel as its channels."""
    height, width = inputs.shape[1:3]
    padded = jnp.pad(inputs, ((0, 0), (1, 1), (1, 1), (0, 0)))
    shifted = [padded[:, i : i + height, j : j + width] for i in range(3) for j in range(3)]
    return jnp.concatenate(shifted, -1)


def _of_patches(patches: Images, kernel: Kernel) -> Images:
    *shape, size = patches.shape
    filters = kernel.shape[-1]
    product = patches.reshape(math.prod(shape), size) @ kernel.reshape(size, filters)
    return product.reshape(*shape, filters)


# F(4x4, 3x3) interpolates at 0, +-R, +-1/R and infinity. In single precision that rounds half as
# much as the 0, +-1, +-2 of the literature.
_R = math.sqrt(2)
_KERNEL_TRANSFORM = (
    (1, 0, 0),
    (1 / 6, _R / 6, 1 / 3),
    (1 / 6, -_R / 6, 1 / 3),
    (-2 / 3, -_R / 3, -1 / 3),
    (-2 / 3, _R / 3, -1 / 3),
    (0, 0, 1),
)
# With this many tiles (an image of 16 x 16 has 16), the products are faster on two cores.
_MANY_TILES = 256


def _winograd(inputs: Images, kernel: Kernel) -> Images:
    """F(4x4, 3x3) of Lavin and Gray (2016): 36 matrix products for 16 outputs in place of 144.

    Input tiles d of 6x6 that overlap by two and the kernel g are transformed, V = B^T d B and
    U = G g G^T; of the products V U over channels, one for each of the 36 entries, A^T (V U) A are
    the tiles of 4x4 outputs. Derivatives stay between the transforms: a linearised gradient keeps V
    and U and pays for four transforms and six products.
    """
    batch, height, width, channels = inputs.shape
    filters = kernel.shape[-1]
    rows, columns = -(-height // 4), -(-width // 4)
    ends = (1, 4 * rows + 3 - height), (1, 4 * columns + 3 - width)
    padded = jnp.pad(inputs, ((0, 0), *ends, (0, 0)))
    fours = padded.reshape(batch, rows + 1, 4, columns + 1, 4, channels)
    half = jnp.stack(_input_transform(_tile_lines(fours, 1)))
    transform = jnp.asarray(_KERNEL_TRANSFORM, kernel.dtype)
    weights = jnp.kron(transform, transform) @ kernel.reshape(9, channels * filters)
    # XLA gives six groups of six products to all cores, and one of 36 to a single one.
    groups = 6 if batch * rows * columns >= _MANY_TILES else 1
    size = 6 // groups
    products = []
    for lines, chosen in zip(jnp.split(half, groups), jnp.split(weights, groups), strict=True):
        tiles = jnp.stack(_input_transform(_tile_lines(lines, 3)), 1)
        tiles = tiles.reshape(6 * size, batch * rows * columns, channels)
        product = tiles @ chosen.reshape(6 * size, channels, filters)
        products += _unstack(product.reshape(size, 6, batch, rows, columns, filters), 0)
    half = jnp.stack(_output_transform(products), 3)
    outputs = jnp.stack(_output_transform(_unstack(half, 0)), 4)
    images = outputs.reshape(batch, 4 * rows, 4 * columns, filters)
    return images[:, :height, :width]


def _unstack(array: Array, axis: int) -> list[Array]:
    """Return the entries along an axis.

    They are made by a split, because its derivative is a concatenation; that of an index is a sum
    of arrays that are mostly zero, which is several times slower.
    """
    parts = jnp.split(array, array.shape[axis], axis)
    return [jnp.squeeze(part, axis) for part in parts]


def _tile_lines(fours: Array, axis: int) -> list[Array]:
    """Return lines 0 to 5 of tiles that overlap by two.

    They come from lines in groups of four along `axis` and `axis + 1`.
    """
    lines = _unstack(fours, axis + 1)
    size = fours.shape[axis] - 1
    own = [jax.lax.slice_in_dim(line, 0, size, axis=axis) for line in lines]
    return own + [jax.lax.slice_in_dim(line, 1, size + 1, axis=axis) for line in lines[:2]]


def _input_transform(d: list[Array]) -> list[Array]:
    """Return B^T d."""
    even, odd = d[4] - 0.5 * d[2], _R * (d[3] - 0.5 * d[1])
    even_inverse, odd_inverse = d[4] - 2 * d[2], (d[3] - 2 * d[1]) / _R
    return [
        d[0] - 2.5 * d[2] + d[4],
        even + odd,
        even - odd,
        even_inverse + odd_inverse,
        even_inverse - odd_inverse,
        d[1] - 2.5 * d[3] + d[5],
    ]


def _output_transform(m: list[Array]) -> list[Array]:
    """Return A^T m."""
    even, odd, even_inverse, odd_inverse = m[1] + m[2], m[1] - m[2], m[3] + m[4], m[3] - m[4]
    return [
        m[0] + even + even_inverse,
        _R * odd + odd_inverse / _R,
        2 * even + 0.5 * even_inverse,
        2 * _R * odd + odd_inverse / (2 * _R) + m[5],
    ]


def extreme_of_windows(images: Images, smallest: Bool[Array, " channels"]) -> Images:
    """Return the largest entry of each 2x2 window, or the smallest where `smallest` is true.

    Ties go to the first in the order of rows. An odd last row or column is left out. The result is
    linear in `images` for given positions, so that a derivative is one selection and the second
    derivative zero; the derivative of XLA's window reduction is a scatter, which is slow on CPU.
    """
    batch, height, width, channels = images.shape
    rows, columns = height // 2, width // 2
    even = images[:, : 2 * rows, : 2 * columns]
    windows = even.reshape(batch, rows, 2, columns, 2, channels)
    compared = jax.lax.stop_gradient(jnp.where(smallest, -windows, windows))
    best, position = compared[:, :, 0, :, 0], jnp.zeros((), jnp.int8)
    for index, (i, j) in enumerate(((0, 1), (1, 0), (1, 1)), start=1):
        other = compared[:, :, i, :, j]
        # A NaN is the result, so that it is noticed.
        better = (other > best) | jnp.isnan(other)
        best = jnp.where(better, other, best)
        position = jnp.where(better, jnp.asarray(index, jnp.int8), position)
    place = jnp.arange(4, dtype=jnp.int8).reshape(2, 1, 2, 1)
    chosen = place == position[:, :, None, :, None]
    return jnp.sum(jnp.where(chosen, windows, jnp.zeros_like(windows)), (2, 4))
