"""Parallel loops on the threads of an OpenMP runtime that the process has loaded already.

The threads of OpenMP spin for milliseconds after each region, in case another one follows. Loops of
ours in a pool of their own, between operators of PyTorch's, would wait for the cores that those
hold; as regions of the same runtime they run on these very threads, at once.

A region is begun by ``GOMP_parallel``: GCC's runtime has it, and so do Intel's and LLVM's. Only
what is loaded is used, never a second copy of a runtime. A compiled kernel stays the same: it is
linked to ``tw_openmp`` where it asks for ``tw_parallel``. There are as many threads as the runtime
has for its caller (``omp_get_max_threads``), unless the target or ``TILEWRIGHT_NUM_THREADS`` says
how many.

The child of a fork has none of its parent's threads, and GCC's runtime would wait for them for
ever, so loops there run in our own pool.

``TILEWRIGHT_OPENMP=0`` leaves every loop to our own pool; with ``1`` all programs, and not only
those that PyTorch calls, run on the runtime of PyTorch, or the one that is global in the process.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from tilewright.runtime import llvm_pool
from tilewright.runtime.llvm_host import named_threads

_NAMES = ("GOMP_parallel", "omp_get_thread_num", "omp_get_max_threads")
#: Linux's mark of a process that was forked and runs no other program since.
_FORKED = 0x40

#: The runtime that loops run on, once there is one.
_used: list[tuple[int, ...]] = []
_children: list[int] = []
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=lambda: _children.append(os.getpid()))


def allowed() -> bool:
    """Whether ``TILEWRIGHT_OPENMP`` leaves it open."""
    return os.environ.get("TILEWRIGHT_OPENMP", "") != "0"


def everywhere() -> Mapping[str, int] | None:
    """The pool's functions for all programs, where ``TILEWRIGHT_OPENMP=1`` asks for it."""
    if os.environ.get("TILEWRIGHT_OPENMP", "") != "1":
        return None
    torch = sys.modules.get("torch")
    return functions(torch._C.__file__ if torch else "")


def functions(library: str) -> Mapping[str, int] | None:
    """The pool's functions by name, of which ``tw_parallel`` runs on OpenMP's threads.

    Parameters
    ----------
    library : the path of a loaded library that is linked to the runtime; its own look-ups, like
        these, see first what is global in the process.

    None where no runtime is found, or another one than before; where this process was forked; and
    where it is switched off.
    """
    if not allowed() or _is_forked():
        return None
    found, pool = _addresses(library), llvm_pool.symbols()
    if found is None or "tw_openmp" not in pool:
        return None
    if not _used:
        use = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * len(_NAMES), ctypes.c_int32)
        use(pool["tw_openmp_use"])(*found, named_threads())
        _used.append(found)
    return {**pool, "tw_parallel": pool["tw_openmp"]} if found in _used else None


@cache
def _addresses(library: str) -> tuple[int, ...] | None:
    """Where the runtime's functions are, all of one library."""
    if not hasattr(os, "RTLD_NOLOAD"):
        return None
    for path in (None, library):
        if path == "":
            continue
        try:
            loaded: Any = ctypes.CDLL(path, mode=os.RTLD_NOLOAD | os.RTLD_LAZY)
            return tuple(
                ctypes.cast(getattr(loaded, name), ctypes.c_void_p).value or 0 for name in _NAMES
            )
        except (OSError, AttributeError):  # it is not loaded, or not linked to a runtime
            continue
    return None


def _is_forked() -> bool:
    if _children:
        return True
    try:
        fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
        return bool(int(fields[6]) & _FORKED)
    except (OSError, ValueError, IndexError):  # no Linux
        return False
