"""Locks that no other thread holds while this process forks.

The child of a fork has one thread. What another one had locked in the parent stays locked there for
ever, and what it was in the middle of is half done. So whoever forks waits for these locks, in the
order in which threads take them: the outer ones first, LLVM's, which each call of the compiler
takes, last.
"""

from __future__ import annotations

import os
from typing import Any

#: By rank: threads that take several of them take those of a lower rank first.
CHOOSING, ANSWERS, COMPILER = range(3)

_held: list[tuple[int, Any]] = []


def hold(lock: Any, rank: int) -> None:
    """Take ``lock``, which lives as long as the process, around each fork from now on."""
    if not _held and hasattr(os, "register_at_fork"):
        os.register_at_fork(before=_acquire, after_in_parent=_release, after_in_child=_release)
    _held.append((rank, lock))
    _held.sort(key=lambda item: item[0])


def _acquire() -> None:
    for _, lock in _held:
        lock.acquire()


def _release() -> None:
    for _, lock in reversed(_held):
        lock.release()
