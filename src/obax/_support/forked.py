"""Processes that were forked after JAX had been used: an error in words instead of a wait for ever.

A fork copies one thread, and JAX computes with several: a compiled program that is called in the
child waits for threads that are not there. (Models of `obax.estimators` compute without JAX and go
on in a fork, see `estimators.forks`.)
"""

import os

from jax._src import xla_bridge

child = False
"""Whether this process is such a child."""


def check() -> None:
    """Raise a `RuntimeError` in a process that cannot compute."""
    if child:
        raise RuntimeError(
            "this process was forked from one in which JAX had been used, and the threads that "
            "compute are not in it: a round would wait for ever. Start processes with "
            "multiprocessing.get_context('spawn'), or fork before JAX is used."
        )


def _in_child() -> None:
    global child
    # Without what tells, nobody is kept from trying.
    used = getattr(xla_bridge, "backends_are_initialized", lambda: False)
    child = child or used()


if hasattr(os, "register_at_fork"):  # not on Windows, where nothing forks
    os.register_at_fork(after_in_child=_in_child)
