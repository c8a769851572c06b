"""What a GPU of each architecture has, as far as the speed of a kernel depends on it.

A choice is made without asking the device, so that an architecture stands for its large GPUs.
"""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.ir.errors import TargetError
from tilewright.target import Target
from tilewright.target.target import MULTIPROCESSORS, compute_capability


@dataclass(frozen=True)
class Gpu:
    """A GPU's multiprocessors, what each holds at once, and what they do together.

    Attributes
    ----------
    warps : threads of a multiprocessor by 32.
    blocks : of a multiprocessor.
    shared : bytes of shared memory of a multiprocessor.
    bandwidth, cache : bytes a microsecond from memory, and from the second-level cache.
    clock : cycles a microsecond.
    lanes : multiplications of 32 bits a cycle of a multiprocessor.
    products : those of 16 bits on its tensor cores.
    """

    multiprocessors: int
    warps: int
    blocks: int
    shared: int
    bandwidth: float
    cache: float
    clock: float = 1500.0
    lanes: int = 128
    products: int = 512

    @property
    def rate(self) -> float:
        """Multiplications and additions a microsecond."""
        return self.multiprocessors * self.lanes * self.clock


_KB = 1024
#: Registers of a multiprocessor, of all architectures here.
REGISTERS = 65536
#: By compute capability: V100, T4, A100, A40, Orin, L40, H200, B200, B300, Thor, RTX 5090, Spark
#: (CUDA programming guide, "Technical specifications per compute capability"; data sheets).
_GPUS = {
    70: Gpu(MULTIPROCESSORS[70], 64, 32, 96 * _KB, 0.85e6, 2.1e6, lanes=64),
    75: Gpu(MULTIPROCESSORS[75], 32, 16, 64 * _KB, 0.29e6, 1.1e6, lanes=64),
    80: Gpu(MULTIPROCESSORS[80], 64, 32, 164 * _KB, 1.4e6, 3.6e6, lanes=64, products=1024),
    86: Gpu(MULTIPROCESSORS[86], 48, 16, 100 * _KB, 0.65e6, 2.2e6),
    87: Gpu(MULTIPROCESSORS[87], 48, 16, 164 * _KB, 0.18e6, 0.5e6),
    89: Gpu(MULTIPROCESSORS[89], 48, 24, 100 * _KB, 0.8e6, 3.5e6),
    90: Gpu(MULTIPROCESSORS[90], 64, 32, 228 * _KB, 4.3e6, 7.0e6, 1750.0, products=2048),
    100: Gpu(MULTIPROCESSORS[100], 64, 32, 228 * _KB, 7.0e6, 10.0e6, 1800.0, products=4096),
    103: Gpu(MULTIPROCESSORS[103], 64, 32, 228 * _KB, 7.0e6, 10.0e6, 1800.0, products=4096),
    110: Gpu(MULTIPROCESSORS[110], 48, 24, 228 * _KB, 0.25e6, 1.0e6),
    120: Gpu(MULTIPROCESSORS[120], 48, 24, 100 * _KB, 1.6e6, 6.0e6, 2000.0),
    121: Gpu(MULTIPROCESSORS[121], 48, 24, 100 * _KB, 0.25e6, 1.5e6, 2000.0),
}


def gpu(target: Target) -> Gpu:
    """That which a target stands for; for an unknown architecture, the nearest older one."""
    try:
        capability = compute_capability(target.arch)
    except TargetError:
        capability = 90
    return _GPUS[max((c for c in _GPUS if c <= capability), default=70)]
