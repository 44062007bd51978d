"""Locks that survive a fork: models in the child process are consistent and usable.

A fork copies one thread and every lock as it stands: one that another thread holds stays locked in
the child for ever, and what that thread was writing stays half written. So a fork waits until no
row is in any model, and the child gets new locks.
"""

import os
import threading
import weakref
from typing import Protocol


class Locked(Protocol):
    """An object that is used by one thread at a time."""

    lock: threading.RLock


_known: "weakref.WeakSet[Locked]" = weakref.WeakSet()
_gate = threading.Lock()
_held: list[tuple[Locked, threading.RLock]] = []


def add_lock(owner: Locked) -> None:
    """Give `owner` a lock, here and in every process that is forked from this one."""
    owner.lock = threading.RLock()
    with _gate:
        _known.add(owner)


def _before() -> None:
    with _gate:
        owners = list(_known)
    for owner in owners:
        owner.lock.acquire()
        _held.append((owner, owner.lock))


def _in_parent() -> None:
    while _held:
        _held.pop()[1].release()


def _in_child() -> None:
    global _gate
    _gate = threading.Lock()
    while _held:
        _held.pop()[0].lock = threading.RLock()


if hasattr(os, "register_at_fork"):  # not on Windows, where nothing forks
    os.register_at_fork(before=_before, after_in_parent=_in_parent, after_in_child=_in_child)
