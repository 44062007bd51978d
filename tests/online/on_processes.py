"""One of two processes that play together over loopback; the tests start both, and read what each
finds as JSON.

    python -m tests.online.on_processes INDEX PORT FOLDER PART ...

A signal USR1 writes what every thread is at to stderr. A process that fails ends at once, without
the minutes that JAX waits at the exit for the others.
"""

import faulthandler
import os
import signal
import sys

os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=2"
faulthandler.register(signal.SIGUSR1)

import json
import time
import traceback
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

import obax
from obax._support import files
from obax._support.sharding import exchange
from obax.online.mesh import collect
from tests.online.mesh_cases import START, algorithm, apart, first, stream, unstacked

jax.config.update("jax_enable_x64", True)
TARGETS = np.arange(24.0).reshape(6, 4)


class Pair:
    """What one of the two processes sees; `where` is how to call a driver."""

    def __init__(self, index, folder):
        # The batch lies over the two processes, the window over the two devices of each.
        mesh = jax.sharding.Mesh(np.array(jax.devices()).reshape(2, 2), ("b", "w"))
        self.index, self.folder, self.mesh = index, Path(folder), mesh
        self.where = {"mesh": mesh, "window_axis": "w", "batch_axis": "b"}

    def half(self, rounds):
        return jax.tree.map(lambda leaf: np.split(leaf, 2, axis=1)[self.index], rounds)

    def trajectory(self, name):
        """A method with two processes, and alone."""
        rounds, method = stream(), algorithm(name, 4)
        state = method.init(*START, first(rounds))
        alone, history = obax.run(method, state, rounds)
        spread, spread_history = obax.run(method, state, self.half(rounds), **self.where)
        return {
            "history": apart(history, spread_history),
            "state": apart(alone, collect(method, spread)),
        }

    def checkpoints(self):
        """Written by the first process, read by both, and without a mesh."""
        rounds, method = stream(), algorithm("sobow", 4)
        half = self.half(rounds)
        state = method.init(*START, first(rounds))
        alone, history = obax.run(method, state, rounds)
        if self.index == 1:
            kept, files.write_bytes = files.write_bytes, None
        found = {}
        saved = {"checkpoint_dir": self.folder / "play", "checkpoint_every": 3} | self.where
        for _ in obax.play(method, state, unstacked(half)[:7], **saved):
            pass
        rest = [*obax.play(method, state, unstacked(half), **saved)]
        end = rest[-1][0]
        found["play"] = {"rounds": len(rest), "state": apart(alone, collect(method, end))}
        # A run is longer the second time: the rounds must be those of before as far as they went.
        saved = {"checkpoint_dir": self.folder / "run", "checkpoint_every": 3} | self.where
        obax.run(method, state, jax.tree.map(lambda leaf: leaf[:7], half), **saved)
        spread, again = obax.run(method, state, half, **saved)
        found["run"] = {
            "history": apart(history, again),
            "state": apart(alone, collect(method, spread)),
        }
        obax.save(self.folder / "whole.obax", spread)
        back = obax.load(self.folder / "whole.obax", like=spread)
        found["saved"] = apart(collect(method, back), collect(method, spread))
        if self.index == 1:
            files.write_bytes = kept
        # Each process goes on alone, with the whole rounds and from its own copy of the folder.
        mine = self.folder / f"alone-{self.index}"
        mine.mkdir()
        file = "000000000006.obax"
        (mine / file).write_bytes((self.folder / "play" / file).read_bytes())
        there = {"checkpoint_dir": mine, "checkpoint_every": 3}
        *_, (on, _) = obax.play(method, state, unstacked(rounds), **there)
        found["alone"] = {
            "state": apart(alone, on),
            "files": sorted(file.name for file in mine.iterdir()),
        }
        return found

    def sweep(self):
        """Settings x seeds over all devices of both."""
        _, state = tracking(0.5)
        settings = [tracking(size)[0] for size in (0.1, 0.2, 0.3, 0.4)]
        _, alone = obax.sweep(settings, state, TARGETS)
        mesh = jax.sharding.Mesh(np.array(jax.devices()), ("s",))
        _, history = obax.sweep(settings, state, TARGETS, mesh=mesh, axis="s")
        whole = jax.experimental.multihost_utils.process_allgather(history, tiled=True)
        return apart(alone, whole)

    def faults(self):
        """Each stops one process; what both are told."""
        return {name: self.told(fault) for name, fault in self.all_faults().items()}

    def told(self, fault):
        try:
            fault()
        except Exception as error:
            return [type(error).__name__, str(error)]
        return None

    def all_faults(self):
        one = self.index == 1
        method, state = tracking(0.5)
        half = self.half(TARGETS)
        where = {"mesh": self.mesh, "batch_axis": "b"}

        def play(source=half, with_method=method, start=state, **more):
            for _ in obax.play(with_method, start, [*source], **where, **more):
                pass

        def breaks(source):
            yield from source[:2]
            if one:
                raise OSError("the line went dead")
            yield from source[2:]

        def live(source):
            for _ in obax.play(method, state, source, **where):
                pass

        def failing(state, info):
            if one and info.t == 3:
                raise OSError("no space left for a callback")

        def with_fault(module, name, fault, do):
            kept = getattr(module, name)
            setattr(module, name, fault if not one else kept)
            try:
                do()
            finally:
                setattr(module, name, kept)

        def full(*_):
            raise OSError(28, "No space left on device")

        def locked(*_):
            raise files.LockedError("another process writes to the folder")

        saved = {"checkpoint_dir": self.folder / "full", "checkpoint_every": 2}
        elsewhere = {"checkpoint_dir": self.folder / f"own-{self.index}", "checkpoint_every": 2}
        wrong = [*half[:3], half[3][:1] if one else half[3], *half[4:]]
        spoiled = half.copy()
        spoiled[3, 0] = np.nan if one else 0.0
        other, _ = tracking(0.25)
        step = other if one else method
        apart_start = eqx.tree_at(lambda s: s.outer_var, state, jnp.asarray(float(one)))
        whole = {"checkpoint_dir": self.folder / "run full", "checkpoint_every": 2}
        return {
            "fewer rounds": lambda: play(half[: 5 - one]),
            "a source that fails": lambda: live(breaks(half)),
            "another shape": lambda: play(wrong),
            "NaN": lambda: play(spoiled),
            "a callback": lambda: play(on_round=failing),
            "a full disk": lambda: with_fault(files, "write_bytes", full, lambda: play(**saved)),
            "a lock": lambda: with_fault(files, "lock_folder", locked, lambda: play(**saved)),
            "own folders": lambda: self.own_folders(method, state, half, elsewhere | where),
            "another algorithm": lambda: play(with_method=step),
            "another start": lambda: play(start=apart_start),
            "run: fewer rounds": lambda: obax.run(method, state, half[: 5 - one], **where),
            "run: another shape": lambda: obax.run(method, state, half[:, : 2 - one], **where),
            "run: a callback": lambda: obax.run(method, state, half, on_round=failing, **where),
            "run: a full disk": lambda: with_fault(
                files,
                "write_bytes",
                full,
                lambda: obax.run(method, state, half, **whole, **where),
            ),
            "run: NaN": lambda: obax.run(method, state, spoiled, **where),
            "a mesh of others": lambda: obax.run(
                method, state, half, mesh=jax.sharding.Mesh(self.others(), "b")
            ),
            "nothing": play,
        }

    def others(self):
        return [device for device in jax.devices() if device.process_index != self.index]

    def own_folders(self, method, state, half, saved):
        """Both have begun, but only the first one can have written."""
        for _ in obax.play(method, state, [*half], **saved):
            pass
        for _ in obax.play(method, state, [*half], **saved):
            pass

    def stuck(self):
        """Nobody tells the other: the tests must."""
        if self.index == 1:
            time.sleep(600)
        return self.trajectory("sobow")

    def fails(self):
        """One stops outside of obax."""
        if self.index == 1:
            raise ZeroDivisionError("on purpose")
        return self.trajectory("sobow")


def tracking(step_size):
    problem = obax.Problem(outer=lambda x, y, round: jnp.mean((x - round) ** 2) / 2)
    method = obax.OGD(problem, outer_step_size=step_size)
    return method, method.init(0.0, None, jnp.zeros(TARGETS.shape[1]))


def main(index, port, folder, *parts):
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.distributed.initialize(f"127.0.0.1:{port}", 2, index, initialization_timeout=60)
    # At the first meeting gloo waits for half a minute only.
    exchange("here")
    pair = Pair(index, folder)
    own = ("checkpoints", "sweep", "faults", "stuck", "fails")
    return {part: getattr(pair, part)() if part in own else pair.trajectory(part) for part in parts}


if __name__ == "__main__":
    index, port, folder, *parts = sys.argv[1:]
    try:
        print(json.dumps(main(int(index), port, folder, *parts)), flush=True)
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
        os._exit(1)
