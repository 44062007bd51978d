"""The build backend of obax: scikit-build-core, and what to do where there is no compiler.

The engine of the streaming models (src/engine) is C++20. The environment variable OBAX_ENGINE says
how it is built:

- unset: with the compiler of this machine. Where none is found, ziglang becomes a requirement of
  the build and compiles. If the engine cannot be built, obax is installed without it: the bilevel
  half works, and the streaming models say what is missing.
- `native`: with the compiler of this machine, or the build fails. For CI and for released wheels.
- `zig`: with ziglang, or the build fails.
- `none`: without the engine.

An editable install puts the engine into src/obax. So does

    python build_backend/obax_build.py [--into FOLDER] [-D NAME=VALUE ...]

with the packages of the environment that it runs in (scikit-build-core and nanobind), or into
another folder and with other options of CMakeLists.txt. It compiles only what has changed.
"""

import argparse
import contextlib
import functools
import os
import runpy
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

from scikit_build_core import build as skbuild
from scikit_build_core.build import (
    build_sdist as build_sdist,
    get_requires_for_build_sdist as get_requires_for_build_sdist,
)

ROOT = Path(__file__).resolve().parent.parent
MODES = ("", "native", "zig", "none")
# On Windows CMake would ask for Visual Studio if there were no ninja.
ZIG = ["ziglang>=0.13", "ninja>=1.5"]
Settings = dict[str, str | list[str]]

# A C++20 compiler with its standard library and a linker builds this.
PROBE = """
#include <concepts>
#include <span>
#include <thread>
template <std::integral T> T sum(std::span<const T> values) {
    T total = 0;
    for (T value : values) total += value;
    return total;
}
int main() {
    const int values[] = {1, 2};
    int total = 0;
    std::thread([&] { total = sum(std::span<const int>(values)); }).join();
    return total - 3;
}
"""
WITHOUT = """
********************************************************************************
obax is installed WITHOUT the engine of its streaming models: {error}

The bilevel half works. For StreamingClassifier, StreamingRegressor and Pool
install a C++20 compiler (g++, clang or Visual C++) and the headers of Python,
then install obax again.
********************************************************************************
"""


def mode() -> str:
    """Return how the engine is to be built."""
    chosen = os.environ.get("OBAX_ENGINE", "")
    if chosen not in MODES:
        raise SystemExit(f"OBAX_ENGINE must be unset, native, zig or none, but is {chosen!r}.")
    return chosen


def use_zig() -> bool:
    """Return whether zig compiles."""
    return mode() == "zig" or (mode() == "" and not compiler())


def get_requires_for_build_wheel(config_settings: Settings | None = None) -> list[str]:
    """Return what a wheel needs beyond the requirements of pyproject.toml."""
    if mode() == "none":
        return []
    tools = skbuild.get_requires_for_build_wheel(config_settings)
    if not use_zig():
        return tools
    # A requirement that cannot be had would end the installation.
    return [*tools, *ZIG] if mode() == "zig" or _zig_is_published() else []


get_requires_for_build_editable = get_requires_for_build_wheel


def prepare_metadata_for_build_wheel(
    metadata_directory: str, config_settings: Settings | None = None
) -> str:
    """Write the metadata, which do not depend on the engine."""
    return skbuild.prepare_metadata_for_build_wheel(metadata_directory, _without(config_settings))


prepare_metadata_for_build_editable = prepare_metadata_for_build_wheel


def build_wheel(
    wheel_directory: str,
    config_settings: Settings | None = None,
    metadata_directory: str | None = None,
) -> str:
    """Build a wheel, without the engine where it cannot be built and need not be."""
    name = _if_possible(lambda: skbuild.build_wheel(wheel_directory, config_settings))
    return name or skbuild.build_wheel(wheel_directory, _without(config_settings))


def build_editable(
    wheel_directory: str,
    config_settings: Settings | None = None,
    metadata_directory: str | None = None,
) -> str:
    """Build the engine into src/obax, and a wheel that only points to src.

    It points by a path and not by an import hook, so that PYTHONPATH can name another checkout.
    """
    _if_possible(lambda: build_engine(ROOT / "src" / "obax", config_settings))
    with tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch) / "path"
        path.write_text(f"{ROOT / 'src'}\n", encoding="utf-8")
        pointer: Settings = {"wheel.packages": [], f"wheel.force-include.{path}": "obax.pth"}
        return skbuild.build_wheel(wheel_directory, {**_without(config_settings), **pointer})


def build_engine(folder: Path, config_settings: Settings | None = None) -> str:
    """Build the extension module from the sources as they are, and put it into a folder."""
    checksum = runpy.run_path(str(ROOT / "src/obax/_support/native.py"))["digest"](ROOT)
    settings = {**(config_settings or {}), "cmake.define.OBAX_SOURCES": checksum}
    with tempfile.TemporaryDirectory() as scratch:
        wheel = Path(scratch) / skbuild.build_wheel(scratch, settings)
        with zipfile.ZipFile(wheel) as archive:
            (name,) = (it for it in archive.namelist() if it.startswith("obax/_engine."))
            content = archive.read(name)
    target = folder / Path(name).name
    # A process that has loaded the old file keeps it.
    fresh = target.with_name(f".{target.name}.{os.getpid()}")
    fresh.write_bytes(content)
    fresh.replace(target)
    return str(target)


def _without(config_settings: Settings | None) -> Settings:
    """Return the settings of a build without the engine."""
    return {**(config_settings or {}), "wheel.cmake": "false"}


def _if_possible(build: Callable[[], str]) -> str | None:
    """Build with the engine, or return None where it cannot be built and need not be."""
    if mode() == "none":
        return None
    try:
        with zig() if use_zig() else native():
            return build()
    except (Exception, SystemExit) as error:
        if mode():
            raise
        print(WITHOUT.format(error=repr(error)), file=sys.stderr, flush=True)
        return None


@functools.cache
def compiler() -> str | None:
    """Return the command of a working C++20 compiler, `cmake` where CMake finds it, or None."""
    arguments = os.environ.get("CMAKE_ARGS", "")
    if "CMAKE_CXX_COMPILER" in arguments or os.environ.get("CMAKE_TOOLCHAIN_FILE"):
        return "cmake"
    named = os.environ.get("CXX") or os.environ.get("CMAKE_CXX_COMPILER")
    if sys.platform == "win32" and not named:
        return "cmake" if shutil.which("cl") or _visual_studio() else None
    candidates = [named] if named else [shutil.which(it) for it in ("c++", "g++", "clang++")]
    return next((it for it in candidates if it and _compiles(it)), None)


def _compiles(command: str) -> bool:
    """Return whether a command compiles and links C++20."""
    if sys.platform == "darwin" and command.startswith("/usr/bin/"):
        # Without Apple's tools these are placeholders that open a window.
        if subprocess.run(["xcode-select", "-p"], capture_output=True).returncode:
            return False
    with tempfile.TemporaryDirectory() as scratch:
        source = Path(scratch) / "probe.cpp"
        source.write_text(PROBE)
        words = [*shlex.split(command), "-std=c++20", "-pthread", str(source)]
        try:
            done = subprocess.run([*words, "-o", str(source.with_suffix(""))], capture_output=True)
        except OSError:
            return False
    return done.returncode == 0


def _visual_studio() -> bool:
    """Return whether Visual Studio is installed with a C++ compiler."""
    programs = Path(os.environ.get("PROGRAMFILES(X86)", ""))
    where = programs / "Microsoft Visual Studio" / "Installer" / "vswhere.exe"
    if not where.exists():
        return False
    words = [str(where), "-products", "*", "-requiresAny", "-property", "installationPath"]
    for tools in ("x86.x64", "ARM64"):
        words += ["-requires", f"Microsoft.VisualStudio.Component.VC.Tools.{tools}"]
    return bool(subprocess.run(words, capture_output=True).stdout.strip())


def _zig_is_published() -> bool:
    """Return whether ziglang has wheels for this platform."""
    system, _, machine = sysconfig.get_platform().rpartition("-")
    machines = ("x86_64", "aarch64", "amd64", "arm64", "universal2")
    return system.startswith(("linux", "macosx", "win")) and machine in machines


@contextlib.contextmanager
def _environment(**variables: str) -> Iterator[None]:
    """Set environment variables for a while."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def native() -> contextlib.AbstractContextManager[None]:
    """Let CMake use the compiler that was found."""
    command = compiler()
    return _environment(CXX=command) if command not in (None, "cmake") else _environment()


def zig() -> contextlib.AbstractContextManager[None]:
    """Let CMake use zig, through scripts that stand for a compiler and its archiver."""
    import ziglang

    windows = sys.platform == "win32"
    program = Path(ziglang.__file__).parent / ("zig.exe" if windows else "zig")
    # CMake remembers these places for the next build.
    folder = ROOT / "build" / "zig"
    folder.mkdir(parents=True, exist_ok=True)

    def script(name: str, words: str) -> str:
        path = folder / (f"{name}.cmd" if windows else name)
        if windows:
            path.write_text(f'@"{program}" {words} %*\n')
        else:
            path.write_text(f'#!/bin/sh\nexec {shlex.quote(str(program))} {words} "$@"\n')
            path.chmod(0o755)
        return path.as_posix()

    # By default zig compiles for this very processor, and its library once more for each -O.
    compile = script("c++", "c++ -mcpu=baseline -O3")
    archive = [f"-DCMAKE_{tool}={script(tool.lower(), tool.lower())}" for tool in ("AR", "RANLIB")]
    arguments = [os.environ.get("CMAKE_ARGS", ""), shlex.join([*archive, "-DOBAX_LTO=OFF"])]
    return _environment(CXX=compile, CMAKE_ARGS=" ".join(arguments), CMAKE_GENERATOR="Ninja")


def main() -> None:
    """Build the engine with the packages of this environment."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    package = ROOT / "src" / "obax"
    parser.add_argument("--into", type=Path, default=package, help="default: src/obax")
    parser.add_argument("-D", dest="defines", action="append", default=[], metavar="NAME=VALUE")
    given = parser.parse_args()
    into = given.into.resolve()
    into.mkdir(parents=True, exist_ok=True)
    os.chdir(ROOT)
    settings: Settings = {}
    for define in given.defines:
        name, _, value = define.partition("=")
        settings[f"cmake.define.{name}"] = value
    if settings:
        # CMake remembers options, and other builds must not get them.
        settings["build-dir"] = f"build/{'-'.join(sorted(given.defines))}"
    with zig() if use_zig() else native():
        print(build_engine(into, settings))


if __name__ == "__main__":
    main()
