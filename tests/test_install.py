"""Installations as people make them: from a clone, with and without a compiler.

They need a package index, and some minutes.
"""

import os
import shutil
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest

from obax._support.native import MISSING

ROOT = Path(__file__).parent.parent
PARTS = ("pyproject.toml", "CMakeLists.txt", "README.md", "LICENSE", "build_backend", "src", ".ci")
pytestmark = [pytest.mark.slow, pytest.mark.skipif(sys.platform == "win32", reason="uses a shell")]


@pytest.fixture
def clone(tmp_path):
    """The sources, without anything that was built."""
    folder = tmp_path / "clone"
    folder.mkdir()
    built = shutil.ignore_patterns("__pycache__", "*.so")
    for name in PARTS:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, folder / name, ignore=built)
        else:
            shutil.copy(ROOT / name, folder / name)
    return folder


@pytest.fixture
def python(tmp_path):
    """A fresh environment, which sees the dependencies of this one: `python(word, ...)` runs it."""
    venv.create(tmp_path / "fresh", with_pip=True)
    here = Path(sysconfig.get_path("purelib"))
    packages = tmp_path / "fresh" / here.relative_to(sys.prefix)
    (packages / "beside.pth").write_text(f"{here}\n")

    def run(*words, fails=False, **variables):
        environment = {**os.environ, **variables}
        for name in ("PYTHONPATH", "OBAX_ENGINE", "CXX"):
            if name not in variables:
                environment.pop(name, None)
        command = [tmp_path / "fresh" / "bin" / "python", *map(str, words)]
        done = subprocess.run(
            command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False
        )
        assert bool(done.returncode) == fails, done.stdout + done.stderr
        return done.stdout + done.stderr

    return run


def without_compilers(folder):
    """The PATH of a machine that has none, and no other tool either."""
    (folder / "nothing").mkdir()
    return str(folder / "nothing")


def test_an_editable_install_says_when_it_must_be_built_again(clone, python, tmp_path):
    install = ("-m", "pip", "install", "--no-deps", "-e", clone)
    engine = ("-W", "always", "-c", "from obax._support.native import engine as e; print(e())")
    python(*install, OBAX_ENGINE="native")
    assert str(clone / "src" / "obax" / "_engine.") in (said := python(*engine))
    assert "changed" not in said
    # PYTHONPATH names another checkout, which has no engine yet.
    other = shutil.copytree(clone, tmp_path / "other", ignore=shutil.ignore_patterns("*.so"))
    assert MISSING in python(*engine, fails=True, PYTHONPATH=str(other / "src"))

    source = clone / "src" / "engine" / "module.cpp"
    source.write_text(source.read_text() + "\n// changed\n")
    assert (
        f"changed after obax's engine was built: build it again with `pip install -e {clone}`"
        in (python(*engine))
    )
    python(*install, OBAX_ENGINE="native")
    assert "changed" not in python(*engine)
    assert "the streaming models work" in python(clone / ".ci" / "installed.py")

    source.write_text("not C++")
    assert "error:" in python(*install, fails=True, OBAX_ENGINE="native")


def test_zig_builds_where_there_is_no_compiler(clone, python, tmp_path):
    path = without_compilers(tmp_path)
    said = python("-m", "pip", "install", "-v", "--no-deps", clone, PATH=path)
    assert f"{clone}/build/zig/c++" in said and "WITHOUT" not in said
    assert "the streaming models work" in python(clone / ".ci" / "installed.py")


def test_without_any_compiler_the_bilevel_half_is_installed(clone, python, tmp_path):
    """Neither a compiler nor a zig that works."""
    path = without_compilers(tmp_path)
    kind = "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    broken = {
        "ziglang/__init__.py": "",
        "ziglang-99.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: ziglang\nVersion: 99.0\n",
        "ziglang-99.0.dist-info/WHEEL": kind,
        "ziglang-99.0.dist-info/RECORD": "",
    }
    with zipfile.ZipFile(tmp_path / "ziglang-99.0-py3-none-any.whl", "w") as wheel:
        for name, text in broken.items():
            wheel.writestr(name, text)
    links = f"{os.environ.get('PIP_FIND_LINKS', '')} {tmp_path}"
    variables = {"PATH": path, "PIP_FIND_LINKS": links}
    for words in ((clone,), ("-e", clone)):
        install = ("-m", "pip", "install", "-v", "--no-deps", *words)
        assert "WITHOUT the engine" in python(*install, **variables)
        said = python(clone / ".ci" / "installed.py", fails=True)
        assert "the bilevel half works" in said and "streaming models work" not in said
        assert said.splitlines()[-1].startswith(f"ImportError: {MISSING}")
    for mode in ("native", "zig"):
        python(*install, fails=True, OBAX_ENGINE=mode, **variables)
