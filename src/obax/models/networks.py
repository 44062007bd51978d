"""A convolutional network and a perceptron."""

import math
from typing import Annotated, Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .._support.checks import Count, Kind, check, checked, within
from .._support.trees import PyTree
from .convolution import (
    Convolution,
    Images,
    convolve,
    convolve_and_measure,
    extreme_of_windows,
    resolve,
)

EPSILON = 1e-5
Dropout = Annotated[float, within("a number in [0, 1)", lambda value: 0 <= value < 1)]
ImageShape = Annotated[
    tuple[int, int, int],
    Kind("(height, width, channels)", lambda v: isinstance(v, tuple | list) and len(v) == 3),
]
Momentum = Annotated[float, within("a number in [0, 1]", lambda value: 0 <= value <= 1)]


class Statistics(NamedTuple):
    """Running mean and variance of one BatchNorm, one number for each channel."""

    mean: Float[Array, " channels"]
    variance: Float[Array, " channels"]


Buffers = tuple[Statistics, ...]
Rows = Float[Array, "batch features"]
Logits = Float[Array, "batch classes"]


class Linear(eqx.Module):
    """inputs @ weight + bias."""

    weight: Float[Array, "features outputs"]
    bias: Float[Array, " outputs"]

    def __init__(self, key: Array, features: int, outputs: int):
        key_weight, key_bias = jax.random.split(key)
        self.weight = _uniform(key_weight, (features, outputs), features)
        self.bias = _uniform(key_bias, (outputs,), features)

    def __call__(self, inputs: Rows) -> Float[Array, "batch outputs"]:
        return inputs @ self.weight + self.bias


class Block(eqx.Module):
    """3x3 convolution, BatchNorm, ReLU, 2x2 max pooling.

    The convolution has no bias: BatchNorm would take it away again.
    """

    kernel: Float[Array, "3 3 channels filters"]
    scale: Float[Array, " filters"]
    shift: Float[Array, " filters"]
    batch_norm_momentum: float = eqx.field(static=True)
    convolution: str = eqx.field(static=True)

    def __init__(self, key: Array, channels: int, filters: int, momentum: float, convolution: str):
        self.kernel = _uniform(key, (3, 3, channels, filters), 9 * channels)
        self.scale = jnp.ones(filters)
        self.shift = jnp.zeros(filters)
        self.batch_norm_momentum = momentum
        self.convolution = resolve(convolution, channels)

    def __call__(
        self, inputs: Images, running: Statistics, training: bool
    ) -> tuple[Images, Statistics]:
        if training:
            convolved, *moments = convolve_and_measure(inputs, self.kernel, self.convolution)
            now = Statistics(*moments)
            running = self._blended(running, now, convolved.size // convolved.shape[-1])
        else:
            convolved, now = convolve(inputs, self.kernel, self.convolution), running
        slope = self.scale * jax.lax.rsqrt(now.variance + EPSILON)
        # Pooling first leaves a quarter of the work to what follows, with the same values: ReLU is
        # monotone, and so is BatchNorm in each channel, upwards or downwards as its slope says.
        pooled = extreme_of_windows(convolved, slope < 0)
        return jax.nn.relu(slope * (pooled - now.mean) + self.shift), running

    def _blended(self, running: Statistics, batch: Statistics, size: int) -> Statistics:
        """Return (1 - m) running + m batch, with the unbiased variance as in PyTorch."""
        m = self.batch_norm_momentum
        unbiased = batch._replace(variance=batch.variance * (size / max(size - 1, 1)))
        return jax.tree.map(
            lambda old, new: (1 - m) * old + m * jax.lax.stop_gradient(new).astype(old.dtype),
            running,
            unbiased,
        )


class ConvolutionalFeatures(eqx.Module):
    """The blocks of a `CNN`: images to flat features."""

    blocks: tuple[Block, ...]
    image_shape: tuple[int, int, int] = eqx.field(static=True)

    def __call__(
        self, inputs: Images, buffers: Buffers, *, training: bool = True
    ) -> tuple[Rows, Buffers]:
        """Return features, and the buffers after this batch (the same ones without `training`)."""
        if inputs.ndim != 4 or inputs.shape[1:] != self.image_shape:
            raise ValueError(
                f"inputs must be images of shape (batch, {', '.join(map(str, self.image_shape))}), "
                f"but have shape {inputs.shape}."
            )
        after = []
        for block, running in zip(self.blocks, buffers, strict=True):
            inputs, running = block(inputs, running, training)
            after.append(running)
        return inputs.reshape(inputs.shape[0], -1), tuple(after)


class DenseFeatures(eqx.Module):
    """The hidden layer of an `MLP`: linear, ReLU, dropout."""

    hidden: Linear
    dropout: float = eqx.field(static=True)

    def __call__(
        self, inputs: Rows, *, training: bool = True, key: Array | None = None
    ) -> Float[Array, "batch hidden"]:
        """Return hidden units; in training each is dropped with probability `dropout`."""
        features = self.hidden.weight.shape[0]
        if inputs.ndim != 2 or inputs.shape[1] != features:
            raise ValueError(
                f"inputs must have shape (batch, {features}), but have shape {inputs.shape}."
            )
        units = jax.nn.relu(self.hidden(inputs))
        if not training or self.dropout == 0:
            return units
        if key is None:
            raise ValueError(
                "key must be given for training with dropout, but got None; pass the round's "
                "uint32[2] key, or training=False to evaluate."
            )
        kept = jax.random.bernoulli(_typed(key), 1 - self.dropout, units.shape)
        return jnp.where(kept, units / (1 - self.dropout), jnp.zeros_like(units))


class CNN(eqx.Module):
    """Blocks of 3x3 convolution, BatchNorm, ReLU and 2x2 max pooling, then a linear head.

    `model(inputs, buffers, training=True)` gives (logits, buffers); images are NHWC. In training
    BatchNorm uses the statistics of the batch and is differentiated through them; the new buffers
    are moved towards them and are not differentiated. In evaluation it uses the buffers.
    """

    features: ConvolutionalFeatures
    head: Linear

    def __call__(
        self, inputs: Images, buffers: Buffers, *, training: bool = True, key: Array | None = None
    ) -> tuple[Logits, Buffers]:
        """Return logits, and the buffers after this batch. `key` is not used."""
        features, buffers = self.features(inputs, buffers, training=training)
        return self.head(features), buffers


class MLP(eqx.Module):
    """One hidden layer with ReLU and dropout, then a linear head; its buffers are `()`.

    `model(inputs, buffers, training=True, key=key)` gives (logits, buffers).
    """

    features: DenseFeatures
    head: Linear

    def __call__(
        self,
        inputs: Rows,
        buffers: tuple[()] = (),
        *,
        training: bool = True,
        key: Array | None = None,
    ) -> tuple[Logits, tuple[()]]:
        """Return logits and the empty buffers.

        Dropout in training is drawn from `key`, a uint32[2] or typed key; the same key drops the
        same units.
        """
        return self.head(self.features(inputs, training=training, key=key)), buffers


@checked
def cnn(
    key: Any,
    image_shape: ImageShape = (28, 28, 1),
    classes: Count = 10,
    *,
    filters: Count = 64,
    blocks: Count = 4,
    batch_norm_momentum: Momentum = 1.0,
    convolution: Convolution = "auto",
) -> tuple[CNN, Buffers]:
    """Return the paper's convolutional network and its first buffers (means 0, variances 1).

    **Arguments:**

    - `key`: uint32[2] or a typed key. Weights start uniform in +-1 / sqrt(fan-in), as PyTorch's.
    - `image_shape`: height, width, channels. Each block halves height and width, rounding down.
    - `classes`, `filters`, `blocks`: the size of the network.
    - `batch_norm_momentum`: m in running = (1 - m) running + m batch. At 1, the value of the
      paper's released code, evaluation uses the statistics of the last batch alone.
    - `convolution`: `"native"` is XLA's; `"patches"` and `"winograd"` are made of matrix products.
      `"auto"` takes what is quickest to differentiate twice: on CPU patches for images of few
      channels and Winograd for the other layers, `"native"` elsewhere.

    Ties in max pooling go to the first of the window, in value and derivative.

    >>> model, buffers = cnn(jax.random.key(0), (4, 4, 1), classes=3, filters=2, blocks=1)
    >>> logits, buffers = model(jnp.ones((5, 4, 4, 1)), buffers)
    >>> logits.shape, count_parameters(model)
    ((5, 3), 49)
    """
    height, width, channels = (
        check(size, f"image_shape[{i}]", Count) for i, size in enumerate(image_shape)
    )
    momentum = float(batch_norm_momentum)
    if min(height, width) < 2**blocks:
        fitting = int(math.log2(min(height, width)))
        raise ValueError(
            f"image_shape must be at least {2**blocks} x {2**blocks} for blocks={blocks}, each of "
            f"which halves the image, but got {height} x {width}; "
            + (f"use at most blocks={fitting}." if fitting else "pad the images.")
        )
    *key_blocks, key_head = jax.random.split(_typed(key), blocks + 1)
    layers = tuple(
        Block(key_block, filters if i else channels, filters, momentum, convolution)
        for i, key_block in enumerate(key_blocks)
    )
    flat = (height >> blocks) * (width >> blocks) * filters
    features = ConvolutionalFeatures(layers, (height, width, channels))
    model = CNN(features, Linear(key_head, flat, classes))
    return model, tuple(Statistics(jnp.zeros(filters), jnp.ones(filters)) for _ in layers)


@checked
def mlp(
    key: Any, features: Count, classes: Count, *, hidden: Count = 200, dropout: Dropout = 0.5
) -> tuple[MLP, tuple[()]]:
    """Return a perceptron with one hidden layer, and its empty buffers `()`.

    **Arguments:**

    - `key`: uint32[2] or a typed key. Weights start uniform in +-1 / sqrt(fan-in), as PyTorch's.
    - `features`, `classes`, `hidden`: the widths.
    - `dropout`: the probability that a hidden unit is dropped in training; the others are scaled
      by 1 / (1 - dropout).

    >>> model, buffers = mlp(jax.random.key(0), features=11, classes=2)
    >>> logits, buffers = model(jnp.zeros((3, 11)), buffers, training=False)
    >>> logits.shape, buffers, count_parameters(model)
    ((3, 2), (), 2802)
    """
    key_hidden, key_head = jax.random.split(_typed(key))
    layer = DenseFeatures(Linear(key_hidden, features, hidden), float(dropout))
    return MLP(layer, Linear(key_head, hidden, classes)), ()


def count_parameters(model: PyTree) -> int:
    """Return how many numbers a model (or any pytree of arrays) has."""
    return sum(leaf.size for leaf in jax.tree.leaves(model))


def _uniform(key: Array, shape: tuple[int, ...], fan_in: int) -> Array:
    bound = 1 / math.sqrt(fan_in)
    return jax.random.uniform(key, shape, minval=-bound, maxval=bound)


def _typed(key: Array) -> Array:
    """Return a typed key, also for the raw numbers of one, which a round can hold."""
    if jnp.issubdtype(jnp.result_type(key), jax.dtypes.prng_key):
        return key
    key = jnp.asarray(key)
    if key.dtype != jnp.uint32 or key.shape != (2,):
        raise ValueError(
            f"key must be a uint32[2] key or a typed one, but is {key.dtype}{list(key.shape)}."
        )
    return jax.random.wrap_key_data(key, impl="threefry2x32")
