"""3x3 convolutions that are quick to differentiate twice on CPU."""

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

CONVOLUTIONS = ("auto", "native", "patches", "winograd")

Images = Float[Array, "batch height width channels"]
Kernel = Float[Array, "3 3 channels filters"]


def resolve(method: str, channels: int) -> str:
    """What `"auto"` stands for on the backend that JAX would use now."""
    if method != "auto":
        return method
    if jax.default_backend() != "cpu":
        return "native"
    return "patches" if channels < 8 else "winograd"


def convolve(inputs: Images, kernel: Kernel, method: str) -> Images:
    """3x3 convolution with padding 1 and stride 1, NHWC."""
    if method == "patches":
        return _of_patches(_patches(inputs), kernel)
    return (_native if method == "native" else _winograd)(inputs, kernel)


def convolve_and_measure(
    inputs: Images, kernel: Kernel, method: str
) -> tuple[Images, Float[Array, " filters"], Float[Array, " filters"]]:
    """The convolution, and mean and variance of each filter's outputs."""
    if method != "patches":
        images = convolve(inputs, kernel, method)
        return images, *_moments(images)
    # The moments of a linear map from those of its few inputs: the outputs, 64 times as many
    # numbers as an image has, need not be looked at, here and in both derivatives.
    patches = _patches(inputs)
    flat = patches.reshape(-1, patches.shape[-1])
    weights = kernel.reshape(flat.shape[1], -1)
    average = jnp.mean(flat, 0)
    centred = flat - average
    covariance = centred.T @ centred * (1 / len(flat))
    # A filter that cancels nearly all there is can come out at minus a rounding error.
    variance = jnp.maximum(jnp.sum(weights * (covariance @ weights), 0), 0)
    return _of_patches(patches, kernel), average @ weights, variance


def _moments(images: Images) -> tuple[Float[Array, " filters"], Float[Array, " filters"]]:
    mean = jnp.mean(images, (0, 1, 2))
    return mean, _mean_square(images, mean)


@jax.custom_jvp
def _mean_square(images: Images, mean: Float[Array, " filters"]) -> Float[Array, " filters"]:
    """The variance, `mean` being the mean of `images`."""
    return jnp.mean(jnp.square(images - mean), (0, 1, 2))


@_mean_square.defjvp
def _mean_square_jvp(primals: tuple[Array, Array], tangents: tuple[Array, Array]) -> Any:
    images, mean = primals
    centred = images - mean
    # The mean's own tangent meets a sum of zero.
    slope = 2 * jnp.mean(centred * tangents[0], (0, 1, 2))
    return jnp.mean(jnp.square(centred), (0, 1, 2)), slope


def _native(inputs: Images, kernel: Kernel) -> Images:
    return jax.lax.conv_general_dilated(
        inputs, kernel, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
    )


def _patches(inputs: Images) -> Images:
    """The nine neighbours of a pixel as its channels."""
    height, width = inputs.shape[1:3]
    padded = jnp.pad(inputs, ((0, 0), (1, 1), (1, 1), (0, 0)))
    shifted = [padded[:, i : i + height, j : j + width] for i in range(3) for j in range(3)]
    return jnp.concatenate(shifted, -1)


def _of_patches(patches: Images, kernel: Kernel) -> Images:
    *shape, size = patches.shape
    product = patches.reshape(-1, size) @ kernel.reshape(size, -1)
    return product.reshape(*shape, -1)


def _winograd(inputs: Images, kernel: Kernel) -> Images:
    """F(2x2, 3x3) of Lavin and Gray (2016): 16 matrix products for 4 outputs in place of 36.

    Input tiles d of 4x4 that overlap by two and the kernel g are transformed, V = B^T d B and
    U = G g G^T; of the products V U over channels, one for each of the 16 entries, A^T (V U) A are
    the tiles of 2x2 outputs. Derivatives stay between the transforms: a linearised gradient keeps V
    and U and pays for four transforms and six products.
    """
    batch, height, width, channels = inputs.shape
    filters = kernel.shape[-1]
    rows, columns = -(-height // 2), -(-width // 2)
    ends = (1, 2 * rows + 1 - height), (1, 2 * columns + 1 - width)
    padded = jnp.pad(inputs, ((0, 0), *ends, (0, 0)))
    pairs = padded.reshape(batch, rows + 1, 2, columns + 1, 2, channels)
    half = jnp.stack(_input_transform(_tile_lines(pairs, 1)))
    tiles = jnp.stack(_input_transform(_tile_lines(half, 3)), 1).reshape(16, -1, channels)
    half = jnp.stack(_kernel_transform(_unstack(kernel, 0)))
    weights = jnp.stack(_kernel_transform(_unstack(half, 1)), 1).reshape(16, channels, filters)
    products = (tiles @ weights).reshape(4, 4, batch, rows, columns, filters)
    half = jnp.stack(_output_transform(_unstack(products, 0)), 3)
    outputs = jnp.stack(_output_transform(_unstack(half, 0)), 4)
    images = outputs.reshape(batch, 2 * rows, 2 * columns, filters)
    return images[:, :height, :width]


def _unstack(array: Array, axis: int) -> list[Array]:
    """The entries along an axis. By a split and not by indices: its derivative is a concatenation,
    where that of an index is a sum of arrays that are mostly zero (10 against 40 ms a layer)."""
    parts = jnp.split(array, array.shape[axis], axis)
    return [jnp.squeeze(part, axis) for part in parts]


def _tile_lines(pairs: Array, axis: int) -> list[Array]:
    """Lines 0 to 3 of tiles that overlap by two, from lines in pairs along `axis`, `axis + 1`."""
    even, odd = _unstack(pairs, axis + 1)
    size = pairs.shape[axis] - 1
    return [
        jax.lax.slice_in_dim(lines, start, start + size, axis=axis)
        for start in (0, 1)
        for lines in (even, odd)
    ]


def _input_transform(d: list[Array]) -> list[Array]:
    return [d[0] - d[2], d[1] + d[2], d[2] - d[1], d[1] - d[3]]


def _kernel_transform(g: list[Array]) -> list[Array]:
    half = jnp.asarray(0.5, g[0].dtype)
    return [g[0], half * (g[0] + g[1] + g[2]), half * (g[0] - g[1] + g[2]), g[2]]


def _output_transform(m: list[Array]) -> list[Array]:
    return [m[0] + m[1] + m[2], m[1] - m[2] - m[3]]
