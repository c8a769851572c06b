"""Memory of scope "warp" as parts of the memory of a block, one for every 32 threads of a row."""

from __future__ import annotations

from collections.abc import Callable

from tilewright.ir.buffer import WARP
from tilewright.ir.expr import IntImm
from tilewright.ir.func import Func


def warp_part(func: Func, index: Callable[[str], str]) -> str:
    """The number of a thread's copy, by its indices along "x", "y" and "z"; to be multiplied."""
    extents = [func.extent(f"threadIdx.{d}") for d in "xyz"]
    x, y, _ = (e.value if isinstance(e, IntImm) else 1 for e in extents)
    row = "" if extents[1] is None else index("y")
    if extents[2] is not None:
        row = f"({row} + {y} * {index('z')})" if row else index("z")
    if not row:
        return f"{index('x')} / {WARP}"
    return row if x <= WARP else f"({row} * {-(-x // WARP)} + {index('x')} / {WARP})"
