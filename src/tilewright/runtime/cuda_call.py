"""Calling the driver's ``cuLaunchKernelEx`` in a fraction of a microsecond.

The bindings of Python wrap every handle and make an object of the status: a launch through them
costs the host several times what the driver takes. Here one builtin function is given the stream
and the addresses, fills the driver's structures on its stack, where no other thread sees them, and
launches all kernels of a call: ``codegen/llvm/host/launch.c``.
"""

from __future__ import annotations

import platform
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache

from tilewright.codegen.llvm import host
from tilewright.ir.errors import TargetError
from tilewright.runtime import cache as disk
from tilewright.runtime.builtin import binder, python_function
from tilewright.runtime.cuda_driver import check, load_driver
from tilewright.runtime.llvm_host import compile_object, processor
from tilewright.runtime.llvm_link import forever, link

#: What launch.c says of a plan: addresses of a call, or parameters of a kernel, at most; words
#: before its scalars; and what the code of a parameter says beside its place.
MOST, HEAD = 512, 5
OF_PLAN, ITSELF = 1, 2
#: The first version of CUDA whose driver has the function.
_VERSION = 11080

#: Of a stream's handle and a tuple of addresses: 0 where all kernels were launched,
#: :data:`UNALIGNED` where none was, else what :func:`failure` reads. Other threads run meanwhile.
Call = Callable[[int, tuple[int, ...]], int]
UNALIGNED = -1


@dataclass(frozen=True, slots=True)
class Kernel:
    """A kernel of a call.

    Attributes
    ----------
    function : its handle.
    sizes : of the grid, then of a block.
    shared : bytes of dynamic shared memory.
    parameters : which addresses and scalars it takes, by number; scalars are behind addresses.
    structures : which addresses those of further parameters are, of any size.
    overlaps : whether its blocks may take their places as those of the kernel before it leave
        theirs (CUDA programming guide, "Programmatic Dependent Launch").
    """

    function: int
    sizes: tuple[int, ...]
    shared: int
    parameters: Sequence[int]
    structures: Sequence[int] = ()
    overlaps: bool = False


def make_call(
    kernels: Sequence[Kernel], addresses: int, scalars: Sequence[int], alignment: int
) -> Call:
    """A function that launches ``kernels`` in this order.

    Parameters
    ----------
    addresses : how many it will be given.
    scalars : values of 64 bits, of which a kernel may take the first bytes.
    alignment : what every address has to be a multiple of, a power of two.

    Raises :class:`TargetError` where there are more arguments than can be passed on.
    """
    words = [addresses, alignment - 1, len(kernels), _driver_function(), len(scalars), *scalars]
    plan = struct.pack(f"={len(words)}Q", *words)
    for kernel in kernels:
        codes = [
            4 * p if p < addresses else 4 * (HEAD + p - addresses) + OF_PLAN
            for p in kernel.parameters
        ]
        codes += [4 * s + ITSELF for s in kernel.structures]
        if max(addresses, len(codes)) > MOST:
            raise TargetError(f"a CUDA kernel takes {len(codes)} arguments: {MOST} at most")
        # The stream and the attributes come with the call.
        plan += struct.pack("=7I4x16xI4x", *kernel.sizes, kernel.shared, int(kernel.overlaps))
        plan += struct.pack(f"={2 + len(codes)}Q", kernel.function, len(codes), *codes)
    return _binder()(plan)


def failure(answer: int) -> tuple[int, int]:
    """The status that a call met, and the number of the kernel that met it."""
    return answer & 0xFFFFFFFF, (answer >> 32) - 1


@cache
def _driver_function() -> int:
    return int(check(load_driver().cuGetProcAddress(b"cuLaunchKernelEx", _VERSION, 0)))


@cache
def _binder() -> Callable[[object], Call]:
    """Compiles the builtin where the cache does not have it."""
    cpu = processor("")
    code = host.linked(host.LAUNCH, platform.machine().lower())
    key = disk.digest("cuda_launch", code.text, cpu.tag, disk.compiler_tag())
    files = disk.get(key, "launch.o")
    if files is None:
        files = {"launch.o": compile_object(code, cpu)}
        disk.put(key, files)
    imports = {name: python_function(name) for name in host.imports(code)}
    tracker, found = link(files["launch.o"], ("tw_launch",), imports)
    forever(tracker)
    return binder("launch", found["tw_launch"])
