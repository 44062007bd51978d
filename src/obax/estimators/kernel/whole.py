"""A kernel compiled as one piece: in about half the time or less.

Numba compiles each function that a compiled one calls for itself: optimised, made into machine code
and wrapped for callers in Python, none of which is used where the caller has it inlined. Here
functions other than the one that is asked for are left as they come, to be optimised with it once.

This reaches into numba. Where it is built otherwise than in the versions that were tried, every
function is compiled for itself and all works the same.
"""

import contextlib
from collections.abc import Iterator
from typing import Any


@contextlib.contextmanager
def as_one(entry: str, *, compact: bool) -> Iterator[None]:
    """While this lasts, only what is defined inside the function with this qualified name is made
    ready to be called. A `compact` kernel has short loops, and says in `lanes` what is worth it:
    vectorised and unrolled by LLVM, it is twice as long and was a fifth slower."""
    from llvmlite import binding
    from numba.core import codegen, dispatcher, lowering, registry
    from numba.core.compiler_lock import global_compiler_lock

    places: list[tuple[Any, str]] = [
        (codegen.JITCodeLibrary, "_optimize_final_module"),
        (codegen.JITCodeLibrary, "_finalize_final_module"),
        (codegen.JITCPUCodegen, "set_env"),
        (dispatcher.Dispatcher, "add_overload"),
        (lowering.Lower, "create_cpython_wrapper"),
        (lowering.Lower, "create_cfunc_wrapper"),
        (codegen, "create_pass_builder"),
    ]
    if not all(hasattr(owner, name) for owner, name in places):
        yield
        return
    old: list[Any] = [getattr(owner, name) for owner, name in places]
    optimise, finish, set_env, add, wrap, wrap_for_c, build = old
    touched: set[Any] = set()
    environments: list[tuple[Any, str, Any]] = []

    def is_entry(library: Any) -> bool:
        return library.name.startswith(f"{entry}.<locals>.")

    def optimise_entry(library: Any) -> None:
        if is_entry(library):
            optimise(library)

    def finish_entry(library: Any) -> None:
        if is_entry(library):
            finish(library)
            return
        library._finalize_dynamic_globals()
        library._finalized = True

    def set_env_later(engine: Any, name: str, environment: Any) -> None:
        environments.append((engine, name, environment))

    def add_noted(owner: Any, compiled: Any) -> None:
        touched.add(owner)
        add(owner, compiled)

    def wrap_entry(lower: Any, *arguments: Any) -> None:
        if is_entry(lower.library):
            wrap(lower, *arguments)

    def wrap_entry_for_c(lower: Any) -> None:
        if is_entry(lower.library):
            wrap_for_c(lower)

    def build_compact(machine: Any, opt: int = 2, **_: bool) -> Any:
        options = binding.create_pipeline_tuning_options()
        options.speed_level = opt
        options.loop_vectorization = options.slp_vectorization = options.loop_unrolling = False
        return binding.create_pass_builder(machine, options)

    new: list[Any] = [optimise_entry, finish_entry, set_env_later, add_noted]
    new += [wrap_entry, wrap_entry_for_c, build_compact if compact else build]
    with global_compiler_lock:
        # What numba itself has to be able to call.
        registry.cpu_target.target_context.refresh()
        for (owner, name), function in zip(places, new, strict=True):
            setattr(owner, name, function)
        try:
            yield
        finally:
            for (owner, name), function in zip(places, old, strict=True):
                setattr(owner, name, function)
            for engine, name, environment in environments:
                if engine._engine.get_global_value_address(name):
                    set_env(engine, name, environment)
            for one in touched:
                # They cannot be called from Python: whoever does so compiles them anew.
                function = one.py_func
                ready = function.__qualname__.startswith(f"{entry}.<locals>.")
                if not ready and not function.__module__.startswith("numba."):
                    one._reset_overloads()
