"""Object files are linked wherever the system has memory for them."""

from __future__ import annotations

import subprocess
import sys

import pytest

#: Leaves room for one small section within 2 GiB, and for all others only further below.
_FAR_APART = """
import ctypes
from tilewright.runtime import llvm_link, llvm_pool

llvm_link._linker(0)
libc = ctypes.CDLL(None)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
reserve = 0x4022  # private, anonymous, no swap space


def take(size):
    found = libc.mmap(None, size, 0, reserve, -1, 0)
    assert found not in (None, 2**64 - 1)
    return found


def link(*args):
    holes = []
    for _ in range(3):
        below = take(3 << 30)
        while take(4096) > below:  # what is free above it
            pass
        holes.append(take(4 * 4096))
        take(4096)
    for hole in holes:
        libc.munmap(hole, 4 * 4096)
    return llvm_link.link(*args)


llvm_pool.link = link
print(len(llvm_pool.symbols()), "functions")
"""


@pytest.mark.skipif(sys.platform != "linux", reason="it takes blocks of memory as Linux gives them")
def test_sections_that_do_not_fit_beside_each_other_are_linked() -> None:
    done = subprocess.run(
        [sys.executable, "-c", _FAR_APART], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr[-400:]
    assert "functions" in done.stdout
