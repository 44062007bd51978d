"""Double precision everywhere; strict promotion while a test of this folder runs.

Strict promotion is a fixture and not a global switch, because the doctests of `src` run in the same
processes and are written the way users write.
"""

import functools
import gc
import http.server
import os
import sys
import tempfile
import threading
from importlib import metadata
from pathlib import Path

import jax
import pytest

# The newer CPU emitters of XLA take twice as long to compile what tests compile. A flag that XLA
# does not know ends the process, so it is given only to versions that were tried, and early.
if (0, 8) <= tuple(map(int, metadata.version("jaxlib").split(".")[:2])) <= (0, 10):
    os.environ.setdefault("XLA_FLAGS", "--xla_cpu_use_fusion_emitters=false")

# Compilation is what tests wait for. Without most of XLA's optimisations it takes two thirds of the
# time, and what one process of this session has compiled is not compiled again by another one.
SETTINGS = {
    "jax_disable_most_optimizations": True,
    "jax_persistent_cache_min_compile_time_secs": 0,
    "jax_persistent_cache_min_entry_size_bytes": -1,
}
if "JAX_COMPILATION_CACHE_DIR" not in os.environ:
    _cache = tempfile.TemporaryDirectory(prefix="obax-tests-", ignore_cleanup_errors=True)
    SETTINGS["jax_compilation_cache_dir"] = _cache.name
for name, value in SETTINGS.items():
    jax.config.update(name, value)
    os.environ[name.upper()] = str(value)

jax.config.update("jax_enable_x64", True)

# Linux gives a process 65,530 memory mappings, every program takes some hundred of them, and a
# process that has used them up dies.
MAPPINGS, MOST = Path("/proc/self/maps"), 40_000


def pytest_runtest_teardown():
    if MAPPINGS.exists() and MAPPINGS.read_bytes().count(b"\n") > MOST:
        jax.clear_caches()
        gc.collect()


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


@pytest.fixture
def certify_command(monkeypatch, capsys, tmp_path):
    """Calls `obax certify` with words; exit code, output and errors."""
    from obax import cli

    monkeypatch.chdir(tmp_path)

    def call(*words):
        monkeypatch.setattr(sys, "argv", ["obax", "certify", *map(str, words)])
        with pytest.raises(SystemExit) as stop:
            cli.main()
            raise SystemExit(0)
        out, err = capsys.readouterr()
        return stop.value.code or 0, out, err

    return call


class QuietHandler(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_):
        """Print nothing."""


@pytest.fixture
def web_server(tmp_path):
    """The address of a server on this machine, and the folder whose files it serves."""
    folder = tmp_path / "publisher"
    folder.mkdir()
    handler = functools.partial(QuietHandler, directory=folder)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}", folder
        server.shutdown()
        thread.join()
