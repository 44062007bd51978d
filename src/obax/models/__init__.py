"""The small networks of the experiments, as pytrees that can be the follower's variable.

A model is an Equinox module whose array leaves are its trainable parameters; everything else in it
is static. The running statistics of BatchNorm, which are kept but not trained, are its *buffers*,
apart from it:

    model, buffers = obax.models.cnn(key)
    logits, buffers = model(inputs, buffers, training=True)
    state = algorithm.init(x, model, example_round, buffers=buffers)
"""

from .convolution import CONVOLUTIONS as CONVOLUTIONS
from .networks import (
    CNN as CNN,
    MLP as MLP,
    ConvolutionalFeatures as ConvolutionalFeatures,
    DenseFeatures as DenseFeatures,
    Linear as Linear,
    Statistics as Statistics,
    cnn as cnn,
    count_parameters as count_parameters,
    mlp as mlp,
)
