"""PoCL's wheel on a processor that is newer than its compiler.

The wheel (`pyopencl[pocl]`, PoCL 3.0) brings LLVM 14. A processor that this LLVM does not know is
"generic" to it, and clang then refuses every kernel: ``unknown target CPU 'generic'``. PoCL has no
option to name another one. So that the OpenCL target is tested on such machines too, CI's among
them, the tests put the name of an older processor with the same vector instructions in its place,
in the description of the device that PoCL keeps in this process's memory. A program that uses
Tilewright gets an error that says what to install instead.
"""

from __future__ import annotations

import contextlib
import os
import platform
import struct
from pathlib import Path
from typing import Any

#: Instructions by which an older processor can stand for this one, the widest first.
_STAND_INS = [
    (b"skx", {"avx512f", "avx512dq", "avx512cd", "avx512bw", "avx512vl"}),
    (b"haswell", {"avx2", "fma", "bmi1", "bmi2", "movbe", "f16c"}),
    (b"x86-64", set[str]()),
]


def name_processor(device: Any) -> None:
    """Let PoCL compile for ``device``, a ``pyopencl.Device``, where it calls it "generic".

    Call it before the first kernel is compiled. Does nothing for other devices and processors.
    """
    if "Portable Computing Language" not in device.platform.name:
        return
    if platform.system() != "Linux" or platform.machine() != "x86_64":
        return
    flags = _processor_flags()
    name = next(name for name, needed in _STAND_INS if needed <= flags)
    memory = os.open("/proc/self/mem", os.O_RDWR)  # an address of nothing is an error, no crash
    try:
        for (address,) in struct.iter_unpack("Q", os.pread(memory, 2048, device.int_ptr)):
            if 4096 < address < 2**47:
                with contextlib.suppress(OSError):
                    if os.pread(memory, 8, address) == b"generic\0":
                        os.pwrite(memory, name.ljust(8, b"\0"), address)
                        return
    finally:
        os.close(memory)


def _processor_flags() -> set[str]:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("flags"):
            return set(line.split())
    return set()
