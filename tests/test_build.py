"""How the engine is built, and what happens where it cannot be."""

import importlib.util
import os
import subprocess
import sys
import types
import warnings
from pathlib import Path

import pytest

from obax._support import native

ROOT = Path(__file__).parent.parent
WORKS, FAILS = "#!/bin/sh\nexit 0\n", "#!/bin/sh\necho 'unknown: -std=c++20' >&2\nexit 1\n"


def script(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return path


@pytest.fixture
def backend(monkeypatch, tmp_path):
    """The build backend on a machine without any tool, fresh for each test."""
    for name in ("OBAX_ENGINE", "CXX", "CMAKE_CXX_COMPILER", "CMAKE_ARGS", "CMAKE_TOOLCHAIN_FILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.chdir(ROOT)
    found = importlib.util.spec_from_file_location(
        "obax_build", ROOT / "build_backend/obax_build.py"
    )
    loaded = importlib.util.module_from_spec(found)
    found.loader.exec_module(loaded)
    return loaded


def names(requirements):
    return {line.partition(">")[0] for line in requirements}


def test_zig_is_required_where_there_is_no_compiler(backend):
    assert backend.compiler() is None
    for hook in (backend.get_requires_for_build_wheel, backend.get_requires_for_build_editable):
        assert names(hook()) == {"ziglang", "cmake", "ninja"}


def test_a_compiler_that_is_too_old_does_not_count(backend, tmp_path):
    script(tmp_path / "bin/c++", FAILS)
    assert "ziglang" in names(backend.get_requires_for_build_wheel())


def test_the_first_compiler_that_works_is_used(backend, tmp_path):
    script(tmp_path / "bin/c++", FAILS)
    script(tmp_path / "bin/clang++", WORKS)
    assert names(backend.get_requires_for_build_wheel()) == {"cmake", "ninja"}
    with backend.native():
        assert os.environ["CXX"] == str(tmp_path / "bin/clang++")
    assert "CXX" not in os.environ


@pytest.mark.parametrize("name", ["CXX", "CMAKE_CXX_COMPILER"])
@pytest.mark.parametrize("text", [WORKS, FAILS])
def test_a_compiler_that_is_named_is_the_only_one(backend, tmp_path, monkeypatch, name, text):
    script(tmp_path / "bin/c++", WORKS)
    monkeypatch.setenv(name, f"'{script(tmp_path / 'my own/compiler', text)}' -O1")
    assert ("ziglang" in names(backend.get_requires_for_build_wheel())) == (text == FAILS)


@pytest.mark.parametrize(
    "name, value",
    [("CMAKE_ARGS", "-DCMAKE_CXX_COMPILER=mine"), ("CMAKE_TOOLCHAIN_FILE", "mine.cmake")],
)
def test_what_cmake_is_told_is_left_alone(backend, monkeypatch, name, value):
    monkeypatch.setenv(name, value)
    assert names(backend.get_requires_for_build_wheel()) == {"cmake", "ninja"}
    with backend.native():
        assert "CXX" not in os.environ


@pytest.mark.parametrize(
    "mode, required",
    [("native", {"cmake", "ninja"}), ("zig", {"ziglang", "cmake", "ninja"}), ("none", set())],
)
def test_the_environment_says_how(backend, monkeypatch, mode, required):
    monkeypatch.setenv("OBAX_ENGINE", mode)
    assert names(backend.get_requires_for_build_wheel()) == required


def test_a_way_that_does_not_exist_is_refused(backend, monkeypatch):
    monkeypatch.setenv("OBAX_ENGINE", "gcc")
    with pytest.raises(SystemExit, match=r"native, zig or none, but is 'gcc'"):
        backend.get_requires_for_build_wheel()


def test_nothing_is_required_that_cannot_be_had(backend, monkeypatch):
    monkeypatch.setattr(backend.sysconfig, "get_platform", lambda: "freebsd-14.1-release-amd64")
    assert backend.get_requires_for_build_wheel() == []


def test_without_an_engine_the_build_goes_on_and_says_so(backend, monkeypatch, capsys):
    def build():
        raise SystemExit("no Python.h")

    monkeypatch.setattr(backend, "compiler", lambda: "c++")
    assert backend._if_possible(build) is None
    assert "WITHOUT the engine" in capsys.readouterr().err
    monkeypatch.setenv("OBAX_ENGINE", "native")
    with pytest.raises(SystemExit, match=r"no Python\.h"):
        backend._if_possible(build)
    monkeypatch.setenv("OBAX_ENGINE", "none")
    assert backend._if_possible(lambda: pytest.fail("it was built")) is None


def test_zig_stands_for_the_compiler_and_its_tools(backend, tmp_path, monkeypatch):
    program = script(tmp_path / "a folder/zig", '#!/bin/sh\necho "$@"\n')
    package = types.SimpleNamespace(__file__=str(program.with_name("__init__.py")))
    monkeypatch.setitem(sys.modules, "ziglang", package)
    monkeypatch.setattr(backend, "ROOT", tmp_path)
    with backend.zig():
        words = dict(it.split("=") for it in os.environ["CMAKE_ARGS"].split())
        for command, said in (
            (os.environ["CXX"], "c++ -mcpu=baseline -O3 a.cpp"),
            (words["-DCMAKE_AR"], "ar a.cpp"),
            (words["-DCMAKE_RANLIB"], "ranlib a.cpp"),
        ):
            assert subprocess.check_output([command, "a.cpp"], text=True).strip() == said
    assert not {"CXX", "CMAKE_ARGS"} & {*os.environ}


def test_a_missing_engine_is_one_sentence(monkeypatch):
    monkeypatch.setitem(sys.modules, "obax._engine", None)
    with pytest.raises(ImportError) as raised:
        native.engine()
    text = str(raised.value)
    assert "install a C++20 compiler" in text and text.endswith(").") and text.count(". ") == 0


def checkout(folder):
    """Sources of an engine, as in a clone."""
    for name in ("CMakeLists.txt", "src/engine/module.cpp", "src/engine/model.hpp"):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    return folder


def a_change(path):
    path.write_text(path.read_text() + "\n")


@pytest.mark.parametrize(
    "change, noticed",
    [
        (lambda folder: None, False),
        (lambda folder: a_change(folder / "src/engine/model.hpp"), True),
        (lambda folder: a_change(folder / "CMakeLists.txt"), True),
        (lambda folder: (folder / "src/engine/new.cpp").touch(), True),
        (lambda folder: (folder / "src/engine/model.hpp").unlink(), True),
        (lambda folder: (folder / "src/engine/notes.txt").touch(), False),
        (lambda folder: (folder / "CMakeLists.txt").unlink(), False),
    ],
)
def test_an_engine_that_is_older_than_its_sources_is_noticed(
    tmp_path, monkeypatch, change, noticed
):
    folder = checkout(tmp_path)
    built = types.SimpleNamespace(sources=native.digest(folder))
    monkeypatch.setitem(sys.modules, "obax._engine", built)
    monkeypatch.setattr(native, "CHECKOUT", folder)
    change(folder)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        assert native.engine() is built
    assert [f"pip install -e {folder}`" in str(it.message) for it in seen] == [True] * noticed


def test_an_engine_of_a_wheel_has_no_sources_to_compare_with(monkeypatch):
    monkeypatch.setitem(sys.modules, "obax._engine", types.SimpleNamespace(sources=""))
    native.engine()
