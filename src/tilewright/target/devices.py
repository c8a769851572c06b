"""What machines have and what they do in a microsecond: the one place with such numbers.

A choice, and code, are made without asking a device, so that an architecture stands for one of its
large GPUs, the one with which the models of the choice were fitted. Limits are those of the CUDA
programming guide ("Technical specifications per compute capability"), SMs those of data sheets;
bandwidths are what copies reach, nine tenths of what data sheets say where nothing was measured.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Any

from tilewright.ir.errors import TargetError

#: Threads of a warp; banks of shared memory, and bytes of a word of one; bytes that an instruction
#: of a thread moves at most; bytes that memory moves at once, and of a line of caches.
WARP, BANKS, WORD, WIDEST, SECTOR, LINE = 32, 32, 4, 16, 32, 128
#: 32-bit registers of an SM, and those that a thread has at most; threads of a block at most.
REGISTERS, THREAD_REGISTERS, BLOCK_THREADS = 65536, 255, 1024
#: Warps of an SM that issue an instruction each in a cycle.
SCHEDULERS = 4
#: Bytes of shared memory of a block on every GPU, without asking for more; those that the system
#: takes for each block where it may have more, and what shared memory is handed out in.
STATIC_SHARED, RESERVED, GRAIN = 48 * 1024, 1024, 128
#: Bytes that a block may have, and a few more, on every GPU of compute capability 8.0 and newer.
COMMON_SHARED = 96 * 1024


@dataclass(frozen=True)
class Gpu:
    """A GPU's SMs, what each holds at once, and what they do together.

    Attributes
    ----------
    warps, blocks : that an SM holds.
    shared : bytes of shared memory of an SM.
    block_shared : what one block may have of it.
    bandwidth, cache : bytes a microsecond from memory, and from the second-level cache.
    clock : cycles a microsecond.
    lanes : multiplications of 32 bits a cycle of an SM.
    products : those of 16 bits on its tensor cores.
    """

    name: str
    sms: int
    warps: int
    blocks: int
    shared: int
    block_shared: int
    bandwidth: float
    cache: float
    clock: float = 1500.0
    lanes: int = 128
    products: int = 512

    @property
    def rate(self) -> float:
        """Multiplications and additions a microsecond."""
        return self.sms * self.lanes * self.clock


def _gpu(name: str, sms: int, holds: tuple[int, int], kilobytes: tuple[int, int],
         moves: tuple[float, float], *more: Any, **others: Any) -> Gpu:  # fmt: skip
    shared, block = kilobytes
    return Gpu(name, sms, *holds, shared * 1024, block * 1024, *moves, *more, **others)


H200 = _gpu("NVIDIA H200", 132, (64, 32), (228, 227), (4.3e6, 7.0e6), 1750.0, products=2048)
_B200 = _gpu("NVIDIA B200", 148, (64, 32), (228, 227), (7.0e6, 10.0e6), 1800.0, products=4096)
#: By compute capability, the GPU that an architecture stands for.
ARCHITECTURES = {
    70: _gpu("Tesla V100", 80, (64, 32), (96, 96), (0.85e6, 2.1e6), lanes=64),
    72: _gpu("Xavier", 8, (64, 32), (96, 96), (0.12e6, 0.4e6), lanes=64),
    75: _gpu("Tesla T4", 40, (32, 16), (64, 64), (0.29e6, 1.1e6), lanes=64),
    80: _gpu("NVIDIA A100", 108, (64, 32), (164, 163), (1.4e6, 3.6e6), lanes=64, products=1024),
    86: _gpu("NVIDIA A40", 84, (48, 16), (100, 99), (0.65e6, 2.2e6)),
    87: _gpu("Orin", 16, (48, 16), (164, 163), (0.18e6, 0.5e6)),
    89: _gpu("NVIDIA L40", 142, (48, 24), (100, 99), (0.8e6, 3.5e6)),
    90: H200,
    100: _B200,
    103: replace(_B200, name="NVIDIA B300"),
    110: _gpu("NVIDIA Thor", 20, (48, 24), (228, 227), (0.25e6, 1.0e6)),
    120: _gpu("NVIDIA GeForce RTX 5090", 170, (48, 24), (100, 99), (1.6e6, 6.0e6), 2000.0),
    121: _gpu("NVIDIA GB10", 48, (48, 24), (100, 99), (0.25e6, 1.5e6), 2000.0),
}
#: Others of these architectures, by what they call themselves.
_OTHERS = (
    replace(H200, name="NVIDIA H100", bandwidth=3.0e6),
    replace(H200, name="NVIDIA H100 PCIe", sms=114, bandwidth=1.8e6),
)


@dataclass(frozen=True)
class OpenCLDevice:
    """What a work-item of an OpenCL device has.

    Attributes
    ----------
    name : part of what it calls itself.
    vector : bytes of the vectors with which it computes, and that one access moves.
    registers : bytes of them that a work-item may have without others losing theirs.
    group : work-items of a group, at most.
    busy : work-items that keep it busy.
    units : compute units, each of which has its groups.
    local : bytes of memory that a group shares, at most.
    shared : whether what a group shares is faster than global memory.
    host : whether it is a CPU, whose compiler chooses what registers hold, and where the items of
        a group take turns.
    half : whether it computes in float16.
    """

    name: str
    vector: int
    registers: int
    group: int
    busy: int
    units: int
    shared: bool = False
    host: bool = False
    local: int = 32 * 1024
    half: bool = False

    def of(
        self, units: int, group: int = BLOCK_THREADS, local: int = STATIC_SHARED
    ) -> OpenCLDevice:
        """The same with as many compute units, and groups of at most ``group`` items that share
        ``local`` bytes."""
        busy, group = self.busy * units // self.units, min(group, self.group)
        return replace(self, units=units, group=group, local=local, busy=busy)


#: Arm's GPUs: 16 registers of 128 bits (Midgard), or 64 of 32 (Bifrost and Valhall), of a thread;
#: memory that work-groups share is main memory (Arm Mali GPU OpenCL Developer Guide, "Memory").
MALI = OpenCLDevice("mali", 16, 256, 256, 4096, 16, half=True)
#: A GPU and a CPU of which nothing else is known: a GPU moves vectors of 128 bits, and has several
#: warps for each scheduler of a unit; LLVM, with which drivers for CPUs compile, prefers vectors of
#: 256 bits.
OPENCL_GPU = OpenCLDevice("", WIDEST, 512, BLOCK_THREADS, 256 * 16, 16, True)
OPENCL_CPU = OpenCLDevice("", 32, 1152, BLOCK_THREADS, 16, 16, host=True)
#: Those known by name.
OPENCL = (
    MALI,
    *(
        replace(OPENCL_GPU.of(g.sms), name=g.name.lower())
        for g in (*ARCHITECTURES.values(), *_OTHERS)
    ),
)


def opencl_device(name: str) -> OpenCLDevice | None:
    """The device that a name speaks of, None where it is none that is known by name.

    >>> opencl_device("Mali-T860").vector
    16
    >>> opencl_device("NVIDIA H100 PCIe").units
    114
    """
    found = [d for d in OPENCL if d.name in name.lower()]
    return max(found, key=lambda d: len(d.name), default=None)


def compute_capability(arch: str) -> int:
    """90 for "sm_90a"; raises :class:`TargetError` for anything that is not such a name."""
    digits = arch.removeprefix("sm_").rstrip("af")
    if not arch.startswith("sm_") or not digits.isdigit():
        raise TargetError(f"unknown CUDA architecture {arch!r}: it is written like sm_80 or sm_90a")
    return int(digits)


def known(arch: str) -> Gpu | None:
    """The GPU that an architecture stands for; of an unknown one, that of the nearest older one,
    None where there is none. Raises :class:`TargetError` for what is no architecture."""
    capability = compute_capability(arch)
    return ARCHITECTURES.get(max((c for c in ARCHITECTURES if c <= capability), default=0))


def gpu(arch: str, name: str = "") -> Gpu:
    """The GPU of that ``name``, or the one that an architecture stands for; where there is none,
    the oldest, and for what is no architecture an H200.

    >>> gpu("sm_90a", "NVIDIA H100 80GB HBM3").bandwidth < gpu("sm_90a").bandwidth
    True
    """
    named = [g for g in (*ARCHITECTURES.values(), *_OTHERS) if name.startswith(g.name)]
    if name and named:
        return max(named, key=lambda g: len(g.name))
    try:
        return known(arch) or ARCHITECTURES[min(ARCHITECTURES)]
    except TargetError:
        return H200


#: By a feature that tells kinds of processors apart, the bytes that a core reads of the last-level
#: cache while it multiplies a vector, by what layers took whose transformed filters are larger than
#: a second-level one. Servers with AMX share a cache by a mesh, and multiply two vectors a cycle.
_LAST_LEVEL = (("amx-tile", 4.0), ("", 32.0))


def last_level_bytes(features: Collection[str]) -> float:
    """How many bytes a core reads of its last-level cache in the time of a vector of products."""
    return next(rate for name, rate in _LAST_LEVEL if not name or name in features)
