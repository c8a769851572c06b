"""PoCL's wheel on a processor that is newer than its compiler.

The wheel (`pyopencl[pocl]`, PoCL 3.0) brings LLVM 14. A processor that this LLVM does not know is
"generic" to it, and clang then refuses every kernel: ``unknown target CPU 'generic'``. PoCL has no
option to name another one. So that the OpenCL target is tested on such machines too, CI's among
them, the tests put the name of an older processor with the same vector instructions in its place,
in the description of the device that PoCL keeps in this process's memory. A program that uses
Tilewright gets an error that says what to install instead.

Zen 4 is "znver3" to LLVM 14, which has no AVX-512, while PoCL counts on the 512-bit vectors that
the processor has: compiling them crashes or does not end. It gets another name for this reason.

Kernels for whose compilation PoCL takes too long are left out; see :func:`takes_too_long`.
"""

from __future__ import annotations

import contextlib
import os
import platform
import struct
from pathlib import Path
from typing import Any

from tilewright.ir.expr import IntImm
from tilewright.ir.func import Module
from tilewright.ir.stmt import For, ForKind, Stmt, Sync
from tilewright.ir.visit import indexes, statements

#: The names that were put in place of others, which other processes do not have.
renamed: list[bytes] = []
#: Barriers of one loop that PoCL unrolls within a second.
_BARRIERS = 6

#: What LLVM 14 calls processors that it does not know, or takes for ones without AVX-512.
_UNKNOWN, _WITHOUT_512 = b"generic", b"znver3"
#: Instructions by which an older processor can stand for this one, the widest first.
_STAND_INS = [
    (b"skx", {"avx512f", "avx512dq", "avx512cd", "avx512bw", "avx512vl"}),
    (b"haswell", {"avx2", "fma", "bmi1", "bmi2", "movbe", "f16c"}),
    (b"x86-64", set[str]()),
]


def name_processor(device: Any) -> None:
    """Let PoCL compile for ``device``, a ``pyopencl.Device``, where it knows it by a wrong name.

    Call it before the first kernel is compiled. Does nothing for other devices and processors.
    """
    if "Portable Computing Language" not in device.platform.name:
        return
    if platform.system() != "Linux" or platform.machine() != "x86_64":
        return
    flags = _processor_flags()
    name = next(name for name, needed in _STAND_INS if needed <= flags)
    wrong = [_UNKNOWN] + [_WITHOUT_512] * (name == b"skx")
    memory = os.open("/proc/self/mem", os.O_RDWR)  # an address of nothing is an error, no crash
    try:
        for (address,) in struct.iter_unpack("Q", os.pread(memory, 2048, device.int_ptr)):
            if 4096 < address < 2**47:
                with contextlib.suppress(OSError):
                    found = os.pread(memory, 8, address).split(b"\0")[0]
                    if found in wrong:
                        os.pwrite(memory, name.ljust(len(found), b"\0"), address)
                        renamed.append(name)
                        return
    finally:
        os.close(memory)


def name_processors() -> None:
    """:func:`name_processor` for every device of OpenCL."""
    import pyopencl

    for system in pyopencl.get_platforms():
        for device in system.get_devices():
            name_processor(device)


def takes_too_long(module: Module) -> bool:
    """Whether PoCL unrolls a loop with many barriers, since it is asked to or since the loop
    indexes registers.

    The time that it takes for the regions between them is exponential in their number where each
    ends in a branch: 0.3, 0.6, 3 and more than 60 seconds for 2, 4, 6 and 10 barriers.
    """

    def unrolled(s: Stmt) -> int:
        if not (isinstance(s, For) and isinstance(s.extent, IntImm)):
            return 0
        if s.kind is not ForKind.UNROLLED and not indexes(s, "local"):
            return 0
        return s.extent.value * sum(isinstance(x, Sync) for x in statements(s.body))

    return any(unrolled(s) > _BARRIERS for func in module.funcs for s in statements(func.body))


def _processor_flags() -> set[str]:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("flags"):
            return set(line.split())
    return set()
