"""Parts and sweeps on workers: the same bytes, whoever is killed; and what is refused by name."""

import contextlib
import dataclasses
import json
import os
import pickle
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

pytest.importorskip("distributed")
import toy_on_workers
from toy_on_workers import TOY, Config

import obax
from benchmarks.workers import Measured, verdict
from obax import lab
from obax.integrations import dask as on_dask, job_queue
from obax.integrations.dask import ClusterLost, Seat
from obax.lab import RunFolder, UserError
from obax.lab.framework import workers
from obax.rounds import RoundSpec
from obax.serve.page import read as read_page

# Python warns of files and processes that Dask leaves to the collector.
pytestmark = [
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning"),
]


@pytest.fixture(scope="module")
def client():
    """Two workers that know the toy experiment, also when they have been started again."""
    import dask

    preload = {"distributed.worker.preload": ["toy_on_workers"]}
    with dask.config.set(preload), on_dask.local(2) as client:
        yield client


@pytest.fixture(autouse=True)
def registered(monkeypatch):
    monkeypatch.setitem(lab.EXPERIMENTS, "toy", "toy_on_workers")


@pytest.fixture
def data(tmp_path, monkeypatch):
    """A file that only the driver can find: the workers were started without it."""
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "toy.txt").write_text("0.25")
    monkeypatch.setenv("OBAX_DATA", str(tmp_path / "data"))


def metrics(folder):
    return (folder.path / "metrics.parquet").read_bytes()


def run(path, client=None, **settings):
    return lab.run("toy", out=path, client=client, **settings)


def test_the_same_bytes_with_data_sent_once(client, tmp_path, data):
    seen = []
    alone = run(tmp_path / "alone")
    shared = run(tmp_path / "shared", client, on_part=lambda *now: seen.append(now))
    assert metrics(shared) == metrics(alone)
    assert alone.table().value[4] == 0.25
    for part in alone.info["parts"]:
        assert shared.read_part(part).equals(alone.read_part(part))
    assert seen[-1] == (4, 4, TOY.headline(alone.read_part("p3"))) or seen[-1][0] == 4
    assert any(words.startswith("2 running, 2 workers") for _, _, words in seen)
    assert sum(seat["done"] for seat in shared.info["workers"]) == 4
    facts = dict(read_page(shared.path)["facts"])
    assert facts["workers"] == "2" and "worker 0 on 127.0.0.1" in facts
    # A mutant: one column of one part, changed by the last digit.
    spoilt = run(tmp_path / "spoilt", client, spoilt=2)
    assert metrics(spoilt) != metrics(run(tmp_path / "not spoilt", spoilt=2))


def test_a_worker_that_has_more_data_than_the_driver_is_named(client, tmp_path):
    (tmp_path / "toy.txt").write_text("0.5")
    client.run(set_data, str(tmp_path))
    with pytest.raises(UserError, match=r"data that this machine lacks \(toy.txt\)"):
        run(tmp_path / "r", client)
    client.run(set_data, "")


def set_data(folder):
    os.environ["OBAX_DATA"] = folder


def set_version(version):
    obax.__version__ = sys.modules["obax._support.names"].__version__ = version


def test_another_version_is_named_before_the_first_job(client, tmp_path):
    other = list(client.scheduler_info()["workers"])[1]
    before = obax.__version__
    client.run(set_version, "0.0.9", workers=[other])
    with pytest.raises(UserError, match=rf"obax 0\.0\.9 \({before} here\); install the same"):
        run(tmp_path / "r", client)
    assert RunFolder.open(tmp_path / "r").info["parts"] == {}
    client.run(set_version, before, workers=[other])
    assert run(tmp_path / "r", client, resume=True).info["finished"]


def test_versions_are_compared_one_by_one(monkeypatch):
    ours = on_dask.identity()
    assert ours["python"].count(".") == 1 and len(ours["source"]) == 12
    found = {
        "a": ours,
        "b": ours | {"jax": "0.0"},
        "c": ours | {"source": "x"},
        "d": ModuleNotFoundError("No module named 'obax'"),
    }
    monkeypatch.setattr(on_dask, "on_workers", lambda *args, **kwargs: found)
    troubles = on_dask.troubles(None, list(found))
    assert list(troubles) == ["b", "c", "d"]
    assert f"jax 0.0 ({ours['jax']} here)" in troubles["b"] and "source x" in troubles["c"]
    assert "obax is missing there, or older" in troubles["d"]


class Idle:
    """A client whose workers take jobs and never answer."""

    def submit(self, *words, key, workers):
        return None


def test_neighbours_go_to_one_worker_and_none_is_left_out():
    jobs = job_queue.JobQueue(Idle(), abs, {f"p{i}": (i,) for i in range(8)}, lambda new: {})
    jobs.seats = {name: Seat(name, "here") for name in ("a", "b")}
    given = {"a": [], "b": []}
    # The first is twice as fast, and helps the other when it is through.
    for who in ("ab", "a", "ab", "a", "ab"):
        for name in who:
            jobs.seats[name].job = None
        jobs.assign()
        for name in who:
            given[name].append(jobs.seats[name].job)
    assert given == {"a": ["p0", "p1", "p2", "p3", "p6"], "b": ["p4", "p5", "p7"]}
    assert not jobs.waiting


def test_an_error_on_a_worker_names_part_and_worker(client, tmp_path):
    with pytest.raises(UserError, match=r"p1 on worker \d \(127.0.0.1\): this part cannot be done"):
        run(tmp_path / "r", client, failing=1)
    lone = dataclasses.replace(TOY, name="lone")
    with pytest.raises(UserError, match="'lone' is not one of `obax list`"):
        lab.run(lone, out=tmp_path / "lone", client=client)


def killer(client, kills, done):
    """Kill one worker after the other, `kills` times, each in the middle of a part."""
    killed = set()
    while len(killed) < kills and not done.is_set():
        for worker in client.run(os.getpid, on_error="ignore").values():
            if worker not in killed and not done.is_set():
                os.kill(worker, signal.SIGKILL)
                killed.add(worker)
                break
        done.wait(0.2)
    return killed


def killed_run(client, path, kills, **settings):
    done, found = threading.Event(), []
    thread = threading.Thread(target=lambda: found.append(killer(client, kills, done)))

    def on_part(finished, total, words):
        if finished == 1 and thread.ident is None:
            thread.start()

    folder = run(path, client, on_part=on_part, **settings)
    done.set()
    thread.join()
    assert len(found[0]) == kills
    return folder


def test_a_killed_worker_changes_nothing(client, tmp_path, data):
    settings = {"parts": 8, "milliseconds": 300}
    killed = killed_run(client, tmp_path / "killed", 1, **settings)
    assert metrics(killed) == metrics(run(tmp_path / "alone", **settings))
    client.wait_for_workers(2, timeout=60)


@pytest.mark.slow
def test_ten_kills_change_nothing(client, tmp_path, data):
    settings = {"parts": 60, "milliseconds": 1000}
    killed = killed_run(client, tmp_path / "killed", 10, **settings)
    assert metrics(killed) == metrics(run(tmp_path / "alone", parts=60, milliseconds=1000))
    client.wait_for_workers(2, timeout=60)


def test_a_part_that_kills_every_worker_is_named(client, monkeypatch):
    """Without killing any: the scheduler says that the worker is gone as soon as it has a job."""
    monkeypatch.setattr(job_queue, "MAX_LOSSES", 2)
    present, told = on_dask.present, []

    def gone(client):
        told.append(1)
        return {} if len(told) % 2 == 0 else present(client)

    monkeypatch.setattr(on_dask, "present", gone)
    with pytest.raises(ClusterLost, match="p has lost 3 workers"):
        list(job_queue.results(client, time.sleep, {"p": (0.5,)}))


def test_a_late_worker_with_trouble_is_left_alone(client, monkeypatch):
    present, asked, seen = on_dask.present, [], []

    def late(client):
        asked.append(1)
        found = present(client)
        return dict(list(found.items())[: 1 if len(asked) == 1 else 2])

    monkeypatch.setattr(on_dask, "present", late)
    monkeypatch.setattr(
        on_dask, "troubles", lambda client, new: {new[0]: "other versions"} if seen else {}
    )
    jobs = {f"j{i}": (i,) for i in range(4)}
    found = dict(job_queue.results(client, abs, jobs, on_change=seen.append))
    assert found == {f"j{i}": i for i in range(4)}
    left_alone, used = sorted(seen[-1], key=lambda seat: not seat.trouble)
    assert (left_alone.done, used.done) == (0, 4)
    assert "1 not used: other versions" in workers.describe(seen[-1])


def test_a_run_does_not_wait_for_workers_that_it_cannot_use(client, monkeypatch):
    present, asked = on_dask.present, []

    def only_late_ones(client):
        asked.append(1)
        found = list(present(client).items())
        return dict(found[:1] if len(asked) == 1 else found[1:])

    monkeypatch.setattr(on_dask, "present", only_late_ones)
    monkeypatch.setattr(
        on_dask, "troubles", lambda client, new: {new[0]: "other versions"} if asked[1:] else {}
    )
    with pytest.raises(ClusterLost, match=r"worker \d \(127.0.0.1\): other versions"):
        list(job_queue.results(client, time.sleep, {"p": (0.2,)}))


def quadratic(x, y, round):
    return 0.5 * jnp.sum((x - round) ** 2)


@pytest.mark.parametrize(
    ("seeds", "batch"),
    [
        # One setting and two of three seeds in a batch, or two settings and all seeds.
        (True, 2),
        *(pytest.param(*case, marks=pytest.mark.slow) for case in ((True, 7), (False, None))),
    ],
)
def test_a_sweep_on_workers_is_the_local_sweep(client, seeds, batch):
    problem = obax.Problem(outer=quadratic)
    algorithms = [obax.OGD(problem, outer_step_size=size) for size in (0.1, 0.2, 0.5, 0.7, 1.0)]
    shape = (3, 6, 2) if seeds else (6, 2)
    rounds = jnp.asarray(np.random.default_rng(0).standard_normal(shape))
    state = algorithms[0].init(jnp.zeros(2), None, jnp.zeros(2))
    local = obax.sweep(algorithms, state, rounds, seeds=seeds)
    shared = obax.sweep(algorithms, state, rounds, seeds=seeds, client=client, batch=batch)
    for mine, theirs in zip(*map(jax.tree.leaves, (local, shared)), strict=True):
        assert mine.dtype == theirs.dtype and mine.shape == theirs.shape
        # To rounding: XLA may vectorise a batch of another size in another order.
        np.testing.assert_allclose(mine, theirs, rtol=1e-12, atol=1e-15)


def test_batches_are_checked(client):
    problem = obax.Problem(outer=quadratic)
    algorithm = obax.OGD(problem, outer_step_size=0.1)
    state = algorithm.init(jnp.zeros(2), None, jnp.zeros(2))
    with pytest.raises(ValueError, match="batch must be at least 1, but got 0"):
        obax.sweep(algorithm, state, jnp.zeros((3, 2)), client=client, batch=0)
    with pytest.raises(ValueError, match="batch goes with client"):
        obax.sweep(algorithm, state, jnp.zeros((3, 2)), batch=1)


def command(*words):
    from typer.testing import CliRunner

    from obax import cli

    return CliRunner().invoke(cli.app, ["run", "toy", *map(str, words)])


def test_bad_calls_are_one_readable_line(tmp_path, monkeypatch):
    found = command("--workers", 2, "--scheduler", "tcp://127.0.0.1:1")
    assert "give only one" in str(found.exception)
    assert command("--workers", 0).exit_code == 2
    with pytest.raises(UserError, match="at least 1, but got 0"), on_dask.local(0):
        pass
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        address = f"tcp://127.0.0.1:{closed.getsockname()[1]}"
    monkeypatch.setattr(on_dask, "TIMEOUT", 0.5)
    for bad in (address, "nonsense"):
        found = command("--scheduler", bad, "--out", tmp_path / "r")
        assert isinstance(found.exception, UserError), found.exception
        assert f"no Dask scheduler answers at {bad}" in str(found.exception)
    # Somebody who listens and says nothing is no scheduler either.
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"tcp://127.0.0.1:{silent.getsockname()[1]}"
        found = command("--scheduler", address, "--out", tmp_path / "r")
        assert f"no Dask scheduler answers at {address}" in str(found.exception)
    assert not (tmp_path / "r").exists()
    monkeypatch.setitem(sys.modules, "distributed", None)
    found = command("--workers", 2)
    assert "pip install 'obax[dask]'" in str(found.exception)


def test_words():
    seats = [Seat(str(i), "h", job="p") for i in range(14)]
    assert workers.describe(seats) == "14 running, 14 workers"
    assert workers.describe([]) == "0 running, 0 workers"


def test_the_benchmark_judges_time_and_bytes():
    alone, fast = Measured(170.0, 170.0, b"table"), Measured(100.0, 180.0, b"table")
    assert verdict(alone, fast, 1.7)[1] == 0
    assert verdict(alone, fast._replace(seconds=101.0), 1.7)[1] == 1
    assert verdict(alone, fast._replace(seconds=101.0), None)[1] == 0
    lines, code = verdict(alone, fast._replace(table=b"tablf"), None)
    assert code == 1 and lines[-1] == "tables: DIFFERENT"


def test_nobody_loads_dask_who_does_not_use_it():
    code = """import sys, obax.cli.run, obax.integrations.dask, obax.lab.framework.workers
assert not {"dask", "distributed"} & set(sys.modules)"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_round_spec_that_was_sent_is_the_same_one():
    spec = RoundSpec.of({"a": jnp.zeros(2), "b": (1.0,)})
    assert pickle.loads(pickle.dumps(spec)) is spec


SERVER = """
import asyncio, sys
from distributed import Scheduler, Nanny
async def main():
    async with Scheduler(host="127.0.0.1", port=0, dashboard=False) as scheduler:
        async with Nanny(scheduler.address, nthreads=1, host="127.0.0.1") as nanny:
            print(scheduler.address, flush=True)
            await scheduler.finished()
if __name__ == "__main__":
    asyncio.run(main())
"""


class Gone:
    """A client whose scheduler does not answer any more."""

    status = "connecting"

    def scheduler_info(self, **_):
        raise OSError("Timed out")


def test_a_scheduler_that_is_gone_is_one_line_and_an_exit_code(tmp_path, monkeypatch):
    monkeypatch.setattr(on_dask, "TIMEOUT", 0.2)
    monkeypatch.setattr(on_dask, "local", lambda workers: contextlib.nullcontext(Gone()))
    found = command("--workers", 2, "--out", tmp_path / "r")
    assert found.exit_code == 1
    line = " ".join(found.stderr.split())
    assert line.startswith("obax: the Dask scheduler is gone. Finished parts are saved")
    assert line.endswith("--resume")
    assert RunFolder.open(tmp_path / "r").info["finished"] is None


@pytest.mark.slow
def test_the_scheduler_is_killed_and_nothing_is_lost(tmp_path):
    here = Path(toy_on_workers.__file__).parent
    environment = os.environ | {"DASK_DISTRIBUTED__WORKER__PRELOAD": "toy_on_workers"}
    environment["PYTHONPATH"] = f"{here}:{Path(obax.__file__).parents[1]}"
    (tmp_path / "server.py").write_text(SERVER)
    server = subprocess.Popen(
        [sys.executable, tmp_path / "server.py"],
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment,
    )  # fmt: skip
    try:
        address = server.stdout.readline().strip()
        first = tmp_path / "r" / "checkpoints" / "p0.parquet"

        done = threading.Event()

        def kill_when_a_part_is_there():
            while not first.exists() and not done.wait(0.05):
                pass
            server.kill()

        thread = threading.Thread(target=kill_when_a_part_is_there)
        thread.start()
        settings = ["--set", "parts=6", "--set", "milliseconds=400"]
        found = command("--scheduler", address, "--out", tmp_path / "r", *settings)
        done.set()
        thread.join()
    finally:
        server.kill()
        server.wait()
        server.stdout.close()
    assert found.exit_code == 1, found.output
    assert "the Dask scheduler is gone" in found.stderr
    assert f"obax run toy --out {tmp_path / 'r'} --resume" in " ".join(found.stderr.split())
    info = json.loads((tmp_path / "r" / "run.json").read_text())
    assert "p0" in info["parts"] and info["finished"] is None
    resumed = lab.run("toy", Config(parts=6, milliseconds=400), out=tmp_path / "r", resume=True)
    whole = lab.run("toy", parts=6, milliseconds=400, out=tmp_path / "whole")
    assert metrics(resumed) == metrics(whole) and "workers" not in resumed.info


SMALL = """horizon=60 seeds=2 windows=1,5 decays=1.0 normalisations=seen followers=current
inner_steps=2 outer_step_sizes=0.1 inner_step_sizes=0.1 window_sizes=1,5 offline_points=3
stages=1,2 outer_dims=1""".split()  # noqa: SIM905


@pytest.mark.slow
def test_the_driver_is_killed_and_the_run_goes_on(tmp_path):
    """The real command with real workers; then without, and once more with."""
    cache = {"JAX_COMPILATION_CACHE_DIR": str(tmp_path / "compiled")}
    cache["JAX_PERSISTENT_COMPILATION_CACHE_MIN_COMPILE_TIME_SECS"] = "0"
    cache["JAX_DISABLE_MOST_OPTIMIZATIONS"] = "1"
    settings = [word for setting in SMALL for word in ("--set", setting)]
    begin = [sys.executable, "-m", "obax", "run", "dynamic-regression"]
    alone, shared = tmp_path / "alone", tmp_path / "shared"
    environment = os.environ | cache
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "env": environment}
    subprocess.run([*begin, "--out", str(alone), *settings], check=True, **quiet)
    for more in ([*settings, "--workers", "2"], ["--resume"], ["--resume", "--workers", "2"]):
        process = subprocess.Popen([*begin, "--out", str(shared), *more], **quiet)
        before = parts_of(shared)
        while process.poll() is None and len(parts_of(shared)) < len(before) + 3:
            time.sleep(0.05)
        process.kill()
        process.wait()
    again = [*begin, "--out", str(shared), "--resume", "--workers", "2"]
    subprocess.run(again, check=True, **quiet)
    same = [(folder / "metrics.parquet").read_bytes() for folder in (alone, shared)]
    assert same[0] == same[1]


def parts_of(folder):
    return list(folder.glob("checkpoints/*.parquet"))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("adult", {"rounds": 6, "outer_start": 2, "seeds": 1, "source": "synthetic"}),
        ("fc100", {"rounds": 2, "seeds": 1, "source": "synthetic", "methods": ("oagd-w2-prox",)}),
    ],
)
def test_networks_give_the_same_numbers_on_one_core(client, tmp_path, name, settings):
    """Sums in matrix products keep their order whatever the number of threads."""
    folders = [
        lab.run(name, out=tmp_path / word, client=who, **settings)
        for word, who in (("alone", None), ("shared", client))
    ]
    tables = [folder.table().query("not metric.str.contains('seconds')") for folder in folders]
    assert len(tables[0]) > 10
    assert tables[0].equals(tables[1])
