"""Runs over the devices of a mesh: 8 simulated ones, in a process of their own (`on_devices.py`),
and what can be seen with one device. Two real processes: test_processes.py."""

import json
import os
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import obax
from obax.online.mesh import Axes, check_divides, on_mesh

ROOT = Path(__file__).parents[2]
REQUIRED = ("own", "current", "each", "sobow", "itd")
MORE = (
    "own, warm start",
    "own, in chunks",
    "current, in chunks",
    "window",
    "average",
    "itd, some",
    "cut",
    "replay",
)
MUTANTS = (
    "mutant: term by term",
    "mutant: a wrong mean over devices",
    "mutant: buffer on every device",
)


def start(*arguments):
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path), "JAX_PLATFORMS": "cpu"}
    command = [sys.executable, "-m", "tests.online.on_devices", *map(str, arguments)]
    return subprocess.Popen(
        command,
        cwd=ROOT,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def answer(child, seconds=300):
    try:
        out, error = child.communicate(timeout=seconds)
    finally:
        child.kill()
        child.wait()
    assert child.returncode == 0, error
    return json.loads(out.splitlines()[-1])


@pytest.fixture(scope="module")
def quick():
    return answer(start("current", "sharded follower", "sweep"))


@pytest.fixture(scope="module")
def found():
    return answer(start(*REQUIRED, *MORE, *MUTANTS), 1800)


def agrees(one):
    """The trajectory of one device, to rounding."""
    return max(one["history"], one["state"], one["live"]) < 1e-12


def holds_its_part(one):
    """4 devices of the window's axis, of which each holds 2 of 8 rounds and half of their batch; or
    2 of 8 past hypergradients, which SOBOW keeps instead."""

    def part(shape):
        return [2] if len(shape) == 1 else [2, 4, *shape[2:]]

    pairs = [*zip(one["shapes"], one["shards"], strict=True)]
    return len(pairs) in (1, 4) and all(
        shape in ([8], [8, 8], [8, 8, 3]) and shards == [part(shape)] * 8 for shape, shards in pairs
    )


def does_not_grow(one):
    """As many collectives with w = 16 as with w = 8."""
    few, many = one["collectives"]
    return 0 < few == many


def test_eight_devices_in_short(quick):
    assert agrees(quick["current"])
    assert holds_its_part(quick["current"])
    assert does_not_grow(quick["current"])
    # Both leaves of y in one sum.
    assert quick["current"]["in the solver's loop"] == [1, 1]


def test_a_follower_stays_where_its_owner_put_it(quick):
    found = quick["sharded follower"]
    assert max(found["history"], found["state"]) < 1e-12
    assert found["shards"] == [[2]] * 8


def test_a_sweep_over_devices_is_the_sweep(quick):
    assert quick["sweep"]["apart"] < 1e-12
    assert "settings x seeds" in quick["sweep"]["told"]
    assert "is 12; 8 or 16 would do" in quick["sweep"]["told"]


@pytest.mark.slow
@pytest.mark.parametrize("name", [*REQUIRED, *MORE])
def test_the_trajectory_is_that_of_one_device(found, name):
    assert agrees(found[name])


@pytest.mark.slow
@pytest.mark.parametrize("name", [*REQUIRED, *MORE])
def test_each_device_holds_its_part_and_collectives_do_not_grow_with_the_window(found, name):
    assert holds_its_part(found[name])
    assert does_not_grow(found[name])


@pytest.mark.slow
def test_faults_of_sharding_are_found(found):
    loop, mean, whole = (found[name] for name in MUTANTS)
    assert not does_not_grow(loop)
    assert not agrees(mean)
    assert agrees(whole) and not holds_its_part(whole)


# With one device.


@pytest.fixture(scope="module")
def small():
    problem = obax.Problem(
        outer=lambda x, y, round: 0.5 * jnp.mean((y - round["target"]) ** 2),
        inner=lambda x, y, round: 0.5 * (y - x) ** 2 + 0.5 * round["scale"] * y**2,
    )
    rounds = {"target": np.arange(20.0).reshape(5, 4), "scale": np.ones(5)}
    method = obax.OAGD(problem, 0.1, 0.1, 2, obax.Window(3, curvature="current"))
    state = method.init(0.0, 0.0, jax.tree.map(lambda leaf: leaf[0], rounds))
    return method, state, rounds


@pytest.fixture(scope="module")
def mesh():
    return jax.sharding.Mesh(np.array(jax.devices()[:1]).reshape(1, 1), ("w", "b"))


@pytest.fixture(scope="module")
def one_device(small, mesh):
    method, state, rounds = small
    batch_axis = {"target": "b", "scale": None}
    return obax.run(method, state, rounds, mesh=mesh, window_axis="w", batch_axis=batch_axis)


def test_a_mesh_of_one_device_is_no_mesh(small, one_device):
    method, state, rounds = small
    plain, history = obax.run(method, state, rounds)
    spread, spread_history = one_device
    collected = obax.online.collect(method, spread)
    assert jax.tree.structure(collected) == jax.tree.structure(plain)
    for ours, theirs in (spread_history, history), (collected, plain):
        for a, b in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-12)


def test_a_state_of_a_mesh_without_one(small, one_device):
    method, _, rounds = small
    with pytest.raises(ValueError, match=r"obax\.online\.collect"):
        obax.run(method, one_device[0], rounds)


def test_checkpoints_do_not_depend_on_the_mesh(small, mesh, tmp_path):
    method, state, rounds = small
    source = [jax.tree.map(lambda leaf, t=t: leaf[t], rounds) for t in range(5)]
    where = {"mesh": mesh, "window_axis": "w", "batch_axis": "b"}
    saved = {"checkpoint_dir": tmp_path, "checkpoint_every": 1}
    *_, (_, with_mesh) = obax.play(method, state, source[:4], **saved, **where)
    last, info = next(obax.play(method, state, source, **saved))
    assert (int(with_mesh.t), int(info.t)) == (4, 5)
    np.testing.assert_allclose(last.outer_var, obax.run(method, state, rounds)[0].outer_var)


def test_a_run_goes_on_with_a_mesh_and_without(small, mesh, tmp_path):
    method, state, rounds = small
    where = {"mesh": mesh, "window_axis": "w", "batch_axis": {"target": "b", "scale": None}}
    saved = {"checkpoint_dir": tmp_path, "checkpoint_every": 2}
    some = lambda n: jax.tree.map(lambda leaf: leaf[:n], rounds)  # noqa: E731
    obax.run(method, state, some(2), **saved)
    obax.run(method, state, some(4), **saved, **where)
    _, history = obax.run(method, state, rounds, **saved, **where)
    _, plain = obax.run(method, state, rounds)
    np.testing.assert_allclose(history.outer_var, plain.outer_var, rtol=1e-12)


def test_axes_that_the_mesh_does_not_have(small, mesh):
    method, state, rounds = small
    for given in ({"window_axis": "v"}, {"batch_axis": "v"}):
        (name,) = given
        with pytest.raises(ValueError, match=f"{name} must be one of the axes .*'w', 'b'.*'v'"):
            obax.run(method, state, rounds, mesh=mesh, **given)
        with pytest.raises(ValueError, match=f"{name} needs mesh"):
            obax.play(method, state, [], **given)
    with pytest.raises(ValueError, match=r"mesh must be a jax\.sharding\.Mesh"):
        obax.run(method, state, rounds, mesh=4)
    with pytest.raises(ValueError, match="axis must be one of the axes"):
        obax.sweep([method], state, rounds, mesh=mesh, axis="v")
    with pytest.raises(ValueError, match="mesh and axis must be given together"):
        obax.sweep([method], state, rounds, mesh=mesh)


def axes_of_four(window, batch):
    return Axes(jax.sharding.AbstractMesh((4, 4), ("w", "b")), window, batch)


def test_what_does_not_divide(small):
    method, state, _ = small
    with pytest.raises(
        ValueError, match=r"window.size.* 4 devices of window_axis 'w'.* is 3; 4 would"
    ):
        on_mesh(method, state, axes_of_four("w", None))
    with pytest.raises(ValueError, match="is 10; 8 or 12 would do"):
        check_divides(10, 4, "axis 's'", "settings x seeds")
    example = state.round_spec.of({"rows": np.zeros((6, 2)), "scale": np.zeros(())})
    with pytest.raises(
        ValueError, match=r"batch of round\['rows'\], axis 0 of \[6, 2\].* 4 or 8 would"
    ):
        axes_of_four(None, "b").round_specs(example)
    # A leaf that is no batch is left whole when asked for.
    specs = axes_of_four(None, {"rows": None, "scale": "b"}).round_specs(example)
    assert all(not spec for spec in specs.values())
    alone = obax.OAGD(method.problem, 0.1, 0.1, 2)
    without = alone.init(0.0, 0.0, state.round_spec.example())
    with pytest.raises(ValueError, match="keeps no past rounds; take a window of 4"):
        on_mesh(alone, without, axes_of_four("w", None))


def test_meshes_with_explicit_axes_are_an_error(small):
    """They are the default of `jax.make_mesh`, and fine where the mesh is given to the driver."""
    method, state, rounds = small
    mesh = jax.make_mesh((1,), ("d",), (jax.sharding.AxisType.Explicit,))
    batch = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec(None, "d"))
    there = rounds | {"target": jax.device_put(rounds["target"], batch)}
    words = r"must have axes of the type Auto, but \('d',\) are Explicit"
    with pytest.raises(ValueError, match=words):
        obax.run(method, state, there)
    with pytest.raises(ValueError, match=words):
        obax.sweep([method], state, there)
    with jax.set_mesh(mesh):
        with pytest.raises(ValueError, match=words):
            obax.run(method, state, rounds)
        with pytest.raises(ValueError, match=words):
            obax.play(method, state, [])
        with pytest.raises(ValueError, match=words):
            obax.run(method, state, rounds, mesh=mesh, batch_axis="d")
    _, history = obax.run(method, state, rounds)
    batch_axis = {"target": "d", "scale": None}
    _, placed = obax.run(method, state, rounds, mesh=mesh, batch_axis=batch_axis)
    np.testing.assert_allclose(placed.outer_var, history.outer_var, rtol=1e-12)
