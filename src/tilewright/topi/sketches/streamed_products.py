"""Products of a matrix with one of few rows, on tensor cores of any GPU since Ampere.

Such a product takes as long as the large matrix takes to come from memory, so nothing stands
between: threads load it into the registers that tensor cores read. The sum is walked in an order in
which a thread's share of a fragment is 16 neighbouring bytes, and four threads have 64 of a row.
Each warp of a block has a part of the sum, so that many loads are under way; parts lie in shared
memory, and are added in their order.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from tilewright import te
from tilewright.ir.dtype import dtype
from tilewright.ir.itervar import IterVar
from tilewright.schedule import Schedule, Stage
from tilewright.target import instructions as found
from tilewright.target.devices import WARP, WIDEST
from tilewright.te import Tensor
from tilewright.topi.declared import Declared
from tilewright.topi.fusion import Products, find_products
from tilewright.topi.nn.padding import static
from tilewright.topi.pieces.tiling import extent_of, thread_axes

#: By type, what multiplies 16 rows by 8 columns, in fragments of which threads have 4 bytes each.
PRODUCTS = {"float16": found.mma_f16, "bfloat16": found.mma_bf16, "int8": found.mma_s8}
#: Rows and columns of an instruction, and threads that share one of either. What a thread loads at
#: once is for two instructions, each of which takes two registers of a row.
ROWS, FEW, _SHARING, _INSTRUCTIONS, _REGISTERS = 16, 8, 4, 2, 2
#: Results that a thread adds at once; words of a row of parts, and by how many it is longer, so
#: that no bank has two of what a warp stores at once: where it stores down a column, or a row.
_LANES, _WORDS, _DOWN, _ALONG = 4, 32, 4, 8


@dataclass(frozen=True)
class StreamTile:
    """A block has ``rows`` of the larger matrix, a multiple of 16. Each of its ``warps`` loads
    ``deep`` times 64 bytes of a row at once."""

    rows: int = 16
    warps: int = 8
    deep: int = 2

    def step(self, kind: str) -> int:
        """Products of a result, of factors of that type, that a block sums at once."""
        return self.warps * self.deep * _SHARING * WIDEST // dtype(kind).bytes


def schedule_streamed(d: Declared, tile: StreamTile) -> Schedule:
    """The schedule of a product of matrices that lie along the sum, and of what is fused to it."""
    m, n = (static(e, "a matrix") for e in d.output.shape[-2:])
    kind, few = d.problem.dtype, -(-min(m, n) // FEW) * FEW
    whole = (few, tile.rows) if m <= n else (tile.rows, few)
    p = find_products(d.output, (*whole, tile.step(kind)))
    s, sums = p.schedule, p.schedule[p.matmul.product]
    _, k = sums.split(sums.op.reduce_axis[0], factor=tile.step(kind))
    parts = s.rfactor(p.matmul.product, sums.split(k, nparts=tile.warps)[0])
    total = s.cache_write(parts, "fragment")
    out = _store(p, d, tile, m > n)
    kept = s[parts]
    kept.set_scope("shared")
    kept.compute_at(out, out.leaf_iter_vars[0])
    warp, _, *result = kept.op.axis
    kept.bind(warp, thread_axes(tile.warps, WARP)[0])
    for axis, extent in zip(result, whole, strict=True):
        kept.align_bounds(axis, extent)
    kept.storage_align(result[0], _WORDS, _DOWN if m <= n else _ALONG)
    s[total].compute_at(kept, warp)
    at = _multiply(s[total], whole, kind, m <= n)
    for factor in (p.matmul.weights, p.matmul.columns):
        _load(s, factor, s[total], at, factor is p.matmul.columns)
    return s


def _store(p: Products, d: Declared, tile: StreamTile, down: bool) -> Stage:
    """The results of a block among its threads, each of which adds the parts of neighbours."""
    out, sums = p.schedule[d.output], p.schedule[p.matmul.product]
    g, m, n = p.axes(out)
    lanes = math.gcd(extent_of(n), _LANES)
    vectors = -(-extent_of(n if down else m) * tile.rows // lanes)
    block, row = out.split(m if down else n, factor=tile.rows)
    m, n = (row, n) if down else (m, row)
    out.reorder(g, block, m, n)
    block = out.fuse(g, block)
    out.bind(block, te.thread_axis("blockIdx.x"))
    at, lane = out.split(out.fuse(m, n), factor=lanes)
    at, thread = out.split(at, factor=WARP)
    y, x = thread_axes(tile.warps, WARP)
    if vectors > WARP:  # else bounds of what is read would be those of more results
        at, warp = out.split(at, factor=tile.warps)
        out.bind(warp, y)
    out.unroll(at)
    out.bind(thread, x)
    out.vectorize(lane)
    sums.set_scope("local")
    sums.compute_at(out, thread)
    *others, lane = sums.op.axis
    sums.reorder(*sums.op.reduce_axis, *others, lane)
    sums.unroll(*sums.op.reduce_axis)
    sums.vectorize(lane)
    return out


def _multiply(total: Stage, whole: tuple[int, int], kind: str, few: bool) -> IterVar:
    """The products of a warp; returns the loop over what it loads at once. Rows of instructions
    are those of the large matrix, the second of the two where the first is of ``few`` rows."""
    *outer, m, n = total.op.axis
    step, k = total.op.reduce_axis
    vector = WIDEST // dtype(kind).bytes
    turn, k = total.split(k, factor=_SHARING * vector)
    thread, k = total.split(k, factor=vector)
    half, k = total.split(k, factor=vector // _INSTRUCTIONS)
    pair, k = total.split(k, factor=vector // _INSTRUCTIONS // _REGISTERS)
    for axis, extent in zip((m, n), whole, strict=True):
        total.align_bounds(axis, extent)
    down, m = total.split(m, factor=FEW if few else ROWS)
    across, n = total.split(n, factor=ROWS if few else FEW)
    tile = (n, m) if few else (m, n)
    total.reorder(*outer, step, turn, half, down, across, *tile, pair, thread, k)
    total.unroll(turn, half, down, across)
    total.tensorize(tile[0], PRODUCTS[kind])
    return step


def _load(s: Schedule, factor: Tensor, reader: Stage, at: IterVar, turned: bool) -> None:
    """Fragments of a factor from memory, 16 bytes of a thread at once."""
    stage = s[s.cache_read(factor, "fragment", [reader.op.outputs[0]])]
    s[factor].compute_inline()
    stage.compute_at(reader, at)
    g, row, k = stage.op.axis
    if turned:
        g, row, k = stage.transform_layout(lambda g, k, row: (g, row, k))
    k, lane = stage.split(k, factor=WIDEST // factor.dtype.bytes)
    stage.reorder(g, k, row, lane)
    stage.unroll(k, row)
    stage.vectorize(lane)
