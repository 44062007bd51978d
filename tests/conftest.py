"""Double precision everywhere; strict promotion while a test of this folder runs.

Strict promotion is a fixture and not a global switch, because the doctests of `src` run in the same
processes and are written the way users write.
"""

import os
from importlib import metadata

import jax
import pytest

# The newer CPU emitters of XLA take twice as long to compile what tests compile. A flag that XLA
# does not know ends the process, so it is given only to versions that were tried, and early.
if (0, 8) <= tuple(map(int, metadata.version("jaxlib").split(".")[:2])) <= (0, 10):
    os.environ.setdefault("XLA_FLAGS", "--xla_cpu_use_fusion_emitters=false")

jax.config.update("jax_enable_x64", True)


@pytest.fixture(scope="module", autouse=True)
def strict_promotion():
    with jax.numpy_dtype_promotion("strict"):
        yield


@pytest.fixture(scope="module")
def quick_compilation():
    """Without most of XLA's optimisations compilation, which is what tests wait for, takes half."""
    before = jax.config.read("jax_disable_most_optimizations")
    jax.config.update("jax_disable_most_optimizations", True)
    yield
    jax.config.update("jax_disable_most_optimizations", before)
