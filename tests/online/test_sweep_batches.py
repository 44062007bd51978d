"""Sweeps that are cut into batches for workers, here without any: jobs run in this process."""

import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import obax
from obax.integrations import job_queue

pytestmark = pytest.mark.usefixtures("quick_compilation")

PROBLEM = obax.Problem(
    lambda x, y, round: 0.5 * jnp.mean((round["a"] @ y - round["b"]) ** 2),
    lambda x, y, round: (
        0.5 * jnp.mean((round["a"] @ y - round["b"]) ** 2) + 0.5 * jnp.exp(x) * jnp.sum(y**2)
    ),
)
SIZES = (0.1, 0.2, 0.3, 0.4, 0.5)


class Client:
    """A client whose one worker is this process."""

    status = "running"

    def nthreads(self):
        return {"here": 1}

    def run(self, function, *arguments, workers=("here",), on_error=None):
        return {address: function(*arguments) for address in workers}


@pytest.fixture
def batches(monkeypatch):
    """Run jobs here, and return what was asked of each."""
    jobs_run = []

    def results(client, function, jobs, *, welcome):
        assert welcome(["here"]) == {}
        for name, job in jobs.items():
            jobs_run.append(types.SimpleNamespace(settings=job[1], seeds=job[2]))
            yield name, function(*job)

    monkeypatch.setattr(job_queue, "results", results)
    return jobs_run


@pytest.fixture(scope="module")
def work():
    rng = np.random.default_rng(0)
    rounds = {"a": rng.standard_normal((3, 6, 7, 5)), "b": rng.standard_normal((3, 6, 7))}
    algorithms = [obax.OAGD(PROBLEM, 0.1, size, 2) for size in SIZES]
    one = jax.tree.map(lambda leaf: leaf[0, 0], rounds)
    state = algorithms[0].init(0.0, jnp.zeros(5), one)
    return algorithms, state, jax.tree.map(jnp.asarray, rounds)


@pytest.fixture(scope="module")
def local(work):
    return obax.sweep(*work, seeds=True)


def test_one_batch_of_everything_is_the_sweep_bit_for_bit(work, local, batches):
    shared = obax.sweep(*work, seeds=True, client=Client(), batch=15)
    assert len(batches) == 1
    jax.tree.map(np.testing.assert_array_equal, shared, local)


@pytest.mark.parametrize("batch", [2, 7])
def test_smaller_batches_are_the_sweep_to_rounding(work, local, batches, batch):
    shared = obax.sweep(*work, seeds=True, client=Client(), batch=batch)
    # One setting with two of three seeds, or two settings with all seeds; all batches are full.
    shapes = {(len(job.settings), len(job.seeds)) for job in batches}
    assert shapes == {{2: (1, 2), 7: (2, 3)}[batch]}
    close = lambda one, other: np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-12)  # noqa: E731
    jax.tree.map(close, shared, local)
    # The mutant: a batch that is put in another place.
    with pytest.raises(AssertionError):
        jax.tree.map(close, jax.tree.map(lambda leaf: leaf[::-1], shared), local)
    # Once more in batches of the same size: the same bits.
    again = obax.sweep(*work, seeds=True, client=Client(), batch=batch)
    jax.tree.map(np.testing.assert_array_equal, again, shared)
