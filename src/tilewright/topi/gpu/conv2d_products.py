"""What GPU schedules of convolutions as products of matrices have in common.

The matrices are those of :func:`~tilewright.schedule.matmul.as_matmul`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import gcd
from typing import Protocol

from tilewright import te
from tilewright.ir.itervar import IterVar
from tilewright.schedule import Schedule, Stage
from tilewright.schedule.matmul import Whole
from tilewright.target.instructions import copy_async
from tilewright.te import Tensor
from tilewright.topi.fusion import find_products
from tilewright.topi.nn.padding import static
from tilewright.topi.pieces.tiling import bind_all, extent_of, spread

#: Threads of a block that stores columns, of one that adds parts, and bytes of the widest copy.
_THREADS, _ADDERS, _VECTOR = 256, 64, 16


class Tile(Protocol):
    """What a block computes, as in :class:`~tilewright.topi.gpu.conv2d_mma.MmaTile`."""

    @property
    def rows(self) -> int: ...

    @property
    def columns(self) -> int: ...

    @property
    def whole(self) -> Whole: ...

    @property
    def down(self) -> int: ...

    @property
    def implicit(self) -> int: ...


@dataclass(frozen=True)
class ProductSchedule:
    """A schedule whose blocks are bound.

    Attributes
    ----------
    out : the stage that blocks store, the result or parts of its sums; ``tile`` are its axes
        within a block: rows and columns.
    block : the innermost axis outside of them.
    weights, columns, product : the matrices; ``columns`` as the product reads them.
    source : the columns as they are declared.
    rows, pixels : output channels of a tile, at most, and windows whose results are contiguous.
    contiguous : whether a row of the weights is so in memory, and not filled up.
    run, width : columns that are contiguous in memory, and of a tile.
    """

    schedule: Schedule
    out: Stage
    block: IterVar
    tile: tuple[IterVar, IterVar]
    weights: Tensor
    columns: Tensor
    product: Tensor
    source: Tensor
    rows: int
    pixels: int
    contiguous: bool
    run: int
    width: int

    def copy(
        self, tensor: Tensor, threads: Sequence[IterVar], step: int = 0, turned: bool = False
    ) -> None:
        """Fill the tiles of one of the matrices in shared memory, with the threads of a block,
        the last of which are along x: ``step`` products at a time, those that are contiguous as
        vectors, or 0 for number by number. Those of the weights may lie ``turned``, a product's
        rows side by side."""
        stage = self.schedule[tensor]
        if tensor is self.columns:
            stored = self.columns is not self.source
            vector = gcd(self.run, _VECTOR // tensor.dtype.bytes) if step else 1
            # Threads beyond a row of the tile have rows far apart: each goes on with the next.
            apart = max(1, extent_of(*threads) * vector // self.width)
            part = step // apart if step % apart == 0 else 0
            _copy(stage, threads, stored, vector, 0 if stored else part)
            return
        if turned:
            g, k, m = stage.transform_layout(lambda g, m, k: (g, k, m))
            stage.reorder(g, m, k)
        # A row of the filter is contiguous in memory, where it is not filled up.
        depth, kind = static(tensor.shape[2], "taps"), tensor.dtype
        vector = gcd(depth, step, _VECTOR // kind.bytes) if self.contiguous else 1
        _copy(stage, threads, vector=vector)


def begin_products(output: Tensor, tile: Tile, chunks: int = 1) -> ProductSchedule:
    """The schedule of a convolution, and of what is fused to it, but for the product.

    Of several ``chunks`` each is summed by blocks of its own, and another kernel adds them in
    order: so few results as leave a GPU idle have more blocks then.

    Raises :class:`ScheduleError` as :func:`~tilewright.topi.fusion.find_products`.
    """
    whole = find_products(output, tile.whole, tile.down)
    s, found = whole.schedule, whole.matmul
    product, weights, columns = found.product, found.weights, found.columns
    out, outer = s[output], list[IterVar]()
    # A tile of a group ends with it, so that it is of one group for certain.
    alone = found.groups == 1 or found.apart is not None
    rows = tile.rows if alone else min(tile.rows, found.height)
    if chunks > 1:
        chunk, _ = s[product].split(s[product].op.reduce_axis[0], nparts=chunks)
        part = s.rfactor(product, chunk)
        thread = spread(out, out.op.axis, _ADDERS)
        s[product].set_scope("local")
        s[product].compute_at(out, thread)
        s[product].unroll(*s[product].op.reduce_axis)
        product, out, rows = s.cache_write(part, "local"), s[part], tile.rows
        *outer, g, m, p = out.op.axis
    else:
        g, m, p = whole.axes(out)
    read = columns
    if not tile.implicit:
        _store(s[columns])
        read = s.cache_read(columns, "shared", [product])
    mo, m = out.split(m, factor=rows)
    po, p = out.split(p, factor=tile.columns)
    # Blocks of the output channels of a group are neighbours: they read the same windows.
    out.reorder(*outer, g, po, mo, m, p)
    block = out.fuse(*outer, g, po, mo)
    out.bind(block, te.thread_axis("blockIdx.x"))
    pixels = tile.columns if chunks > 1 else whole.contiguous(output)
    return ProductSchedule(
        s,
        out,
        block,
        (m, p),
        weights,
        read,
        product,
        columns,
        rows,
        pixels,
        found.contiguous and found.depth == static(weights.shape[2], "taps"),
        found.run,
        tile.columns,
    )


def filled(extent: int, tile: int) -> float:
    """What is computed by what is wanted, where whole tiles are."""
    return -(-extent // tile) * tile / extent


def _store(stage: Stage) -> None:
    """Columns in memory: neighbouring threads store neighbouring windows."""
    block, thread = stage.split(stage.fuse(*stage.op.axis), factor=_THREADS)
    stage.bind(block, te.thread_axis("blockIdx.x"))
    stage.bind(thread, te.thread_axis("threadIdx.x"))


def _copy(
    stage: Stage,
    threads: Sequence[IterVar],
    stored: bool = False,
    vector: int = 1,
    part: int = 0,
) -> None:
    """Fill a tile in shared memory: neighbouring threads fetch neighbouring elements, or vectors
    of them, or, of what is ``stored``, 16 bytes each in the background.

    ``threads`` are those of a block, the last one along x. Of ``part`` rows side by side each has
    all, where that is not 0.
    """
    kind = stage.op.outputs[0].dtype
    *outer, column = stage.leaf_iter_vars
    if part:
        far, row = stage.split(outer.pop(), factor=part)
        stage.reorder(row, far, column)
        outer += [row, far]
    if stored:
        column, lane = stage.split(column, factor=_VECTOR // kind.bytes)
        stage.tensorize(lane, copy_async(_VECTOR // kind.bytes, str(kind)))
    elif vector > 1:
        column, lane = stage.split(column, factor=vector)
        stage.vectorize(lane)
    rest = bind_all(stage, stage.fuse(*outer, column), threads)
    if not stored:
        stage.unroll(rest)  # so that all are under way at once
