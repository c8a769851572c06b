"""Threads and scratch memory for compiled programs: C functions, kept as LLVM IR.

A compiled loop hands its body to ``tw_parallel``, which gives every thread one contiguous range.
Each worker waits at a mailbox of its own: it spins for a while, as the next loop usually comes at
once, then sleeps on a condition variable. The pool serves one loop at a time; a loop that finds it
busy (nested, or from another thread of Python) runs in its caller alone. A dispatch to a spinning
worker takes about a microsecond. A range is carried out in four chunks; those that a worker has not
begun when the caller is done with its own, because it sleeps or lost its core, the caller does too.

``tw_alloc`` keeps blocks that were given back, so that a large scratch array costs its page faults
once and not at every call.

Programs may run on the threads of an OpenMP runtime instead: :mod:`tilewright.runtime.llvm_openmp`.
"""

from __future__ import annotations

import ctypes
import os
import platform
import signal
from functools import cache

from tilewright.codegen.llvm import host
from tilewright.ir.errors import TargetError
from tilewright.runtime import cache as disk
from tilewright.runtime.llvm_host import available_cores, compile_object, named_threads, processor
from tilewright.runtime.llvm_link import address, forever, link

#: Turns of waiting before a worker sleeps: some hundred microseconds.
_SPIN = 1 << 13
_EXPORTS = (
    "tw_parallel", "tw_alone", "tw_alloc", "tw_free", "tw_repeat", "tw_sequence", "tw_reset",
    "tw_configure",
)  # fmt: skip
_OPENMP = ("tw_openmp", "tw_openmp_use")  # where threads are POSIX's


def alone() -> dict[str, int]:
    """:func:`symbols`, of which ``tw_parallel`` runs every loop in its caller."""
    return {**symbols(), "tw_parallel": symbols()["tw_alone"]}


@cache
def symbols() -> dict[str, int]:
    """The addresses of the pool's functions; compiles it where the cache does not have it."""
    machine, posix = platform.machine().lower(), os.name == "posix"
    code = host.linked(host.pool(posix), machine)
    cpu = processor("baseline" if machine in ("x86_64", "amd64") else "")
    key = disk.digest("pool", code.text, *code.linked, cpu.tag, disk.compiler_tag())
    files = disk.get(key, "pool.o")
    if files is None:
        files = {"pool.o": compile_object(code, cpu)}
        disk.put(key, files)
    try:
        imports = {name: address(name) for name in host.imports(code)}
    except TargetError as error:
        raise TargetError(f"the C library is not what the thread pool expects: {error}") from None
    exports = (*_EXPORTS, *_OPENMP) if posix else _EXPORTS
    tracker, found = link(files["pool.o"], exports, imports)
    forever(tracker)
    _configure(found)
    return found


def _configure(found: dict[str, int]) -> None:
    threads = named_threads() or available_cores()
    _set_threads(found, threads)
    if hasattr(os, "register_at_fork"):
        # the child of a fork has none of its parent's threads, also of those of OpenMP
        os.register_at_fork(after_in_child=ctypes.CFUNCTYPE(None)(found["tw_reset"]))


def set_num_threads(threads: int) -> None:
    """How many threads PARALLEL loops use in programs whose target does not say."""
    if threads < 1:
        raise ValueError(f"threads={threads}: at least one is needed")
    _set_threads(symbols(), threads)


def _set_threads(found: dict[str, int], threads: int) -> None:
    call = ctypes.CFUNCTYPE(None, *[ctypes.c_int32] * 3)(found["tw_configure"])
    spin = _SPIN if threads <= available_cores() else 16
    call(min(threads, 2**31 - 1), spin, getattr(signal, "SIG_SETMASK", 0))
