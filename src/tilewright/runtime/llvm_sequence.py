"""Programs for the CPU that follow one another, called as one: nothing of Python's is between."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright.runtime import llvm_pool
from tilewright.runtime.llvm import LLVMProgram

_SEQUENCE = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p, ctypes.c_int64)


class LLVMSequence:
    """Programs in their order, the places of the arguments of each among some addresses, how many
    bytes behind these all of them are, and the scalars of each.

    One thread at a time may call it: addresses are written into memory
    of its own. Raises :class:`TargetError` for a program that cannot run on this machine.
    """

    def __init__(
        self,
        programs: Sequence[LLVMProgram],
        places: Sequence[Sequence[int]],
        offsets: Sequence[int] = (),
        scalars: Sequence[Sequence[int]] = (),
    ) -> None:
        self._names = [p.module.name for p in programs]
        self._places = np.array([k for found in places for k in found], np.intp)
        self._offsets = np.array(offsets or [0] * len(self._places), np.uint64)
        self._arrays = np.zeros(len(self._places), np.uint64)
        counts = np.array([len(found) for found in places], np.uint64)
        begins = np.cumsum(counts) - counts
        self._calls = np.zeros((len(programs), 3), np.uint64)  # Call of host/loops.c
        self._calls[:, 0] = [p.address for p in programs]
        self._calls[:, 1] = self._arrays.ctypes.data + self._arrays.itemsize * begins
        self._scalars = [np.array(found, np.int64) for found in scalars]
        if scalars:
            self._calls[:, 2] = [found.ctypes.data for found in self._scalars]
        self._run = _SEQUENCE(llvm_pool.symbols()["tw_sequence"])
        self._first = self._calls.ctypes.data

    def place(self, pointers: Sequence[int] | np.ndarray[Any, Any]) -> None:
        """Take the addresses that :meth:`__call__` runs on."""
        self._arrays[:] = np.asarray(pointers, np.uint64)[self._places] + self._offsets

    def __call__(self) -> None:
        """Run all. Raises :class:`MemoryError` where a program has no room for its scratch
        memory."""
        failed = self._run(self._first, len(self._names))
        if failed:
            name = self._names[failed - 1]
            raise MemoryError(f"kernel {name} could not allocate its scratch memory")
