"""The tiles worth trying for products whose large matrix goes from memory into registers, and what
they are predicted to take."""

from __future__ import annotations

import functools

from tilewright.ir.dtype import dtype
from tilewright.target.devices import WIDEST
from tilewright.topi.gpu.machine import MACHINE, MEMORY
from tilewright.topi.operators.gemm import Gemm
from tilewright.topi.problem import Problem
from tilewright.topi.sketches.products import is_product, matrices
from tilewright.topi.sketches.streamed_products import FEW, PRODUCTS, StreamTile

#: Rows of a tile, warps of a block and what each loads at once, with how many times as long as
#: memory the fastest take.
_TILES = {
    (16, 8, 2): 1.0, (32, 8, 2): 1.03, (16, 4, 2): 1.05, (16, 8, 4): 1.06, (32, 8, 1): 1.1,
    (16, 4, 4): 1.12,
}  # fmt: skip
#: How much of what memory could bring comes, and microseconds: of a kernel beside that, of one that
#: waits for what it loads, and of each wait of a warp. Fitted to 40 tiles of five products on an
#: H200, of up to 8 rows: more are read too often, and boxes are faster.
_RATE, _BEGIN, _ALONE, _LATENCY = 0.815, 1.25, 2.0, 0.9


@functools.lru_cache(maxsize=64)
def stream_times(p: Problem) -> dict[StreamTile, float]:
    """For :func:`~tilewright.topi.sketches.streamed_products.schedule_streamed`: tiles, and what
    they are predicted to take, in microseconds; none of other problems than it is for: products of
    matrices that lie along the sum, in whole vectors, one of which has few rows."""
    if not isinstance(p, Gemm) or p.dtype not in PRODUCTS or min(p.result.shape[-2:]) > FEW:
        return {}
    depth = p.factors({}).depth
    if depth % (WIDEST // dtype(p.dtype).bytes) or not is_product(p, ("float32", "int32")):
        return {}
    found = dict[StreamTile, float]()
    for (rows, warps, deep), longer in _TILES.items() if matrices(p).dots else ():
        tile = StreamTile(rows, warps, deep)
        blocks = p.batch * -(-max(p.result.shape[-2:]) // rows)
        steps = -(-depth // tile.step(p.dtype))
        waves = -(-blocks // (MACHINE.sms * (MACHINE.warps // (2 * warps))))
        memory = _BEGIN + longer * p.bytes / (_RATE * MEMORY)
        found[tile] = max(memory, _ALONE + waves * steps * _LATENCY)
    return found
