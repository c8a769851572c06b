"""The gradient of a depthwise convolution by its filter on Hopper, channels last.

The sums of :mod:`~tilewright.topi.nn.depthwise_wgrad_tiles`. A block has some channels and goes
through the tiles of a chunk, which TMA brings to shared memory, zeros around images
included, so that no thread computes addresses or looks at borders. A thread has neighbouring
channels of one part of each tile: it goes down the rows of x and keeps in registers, converted,
the rows of dy that see one of them; or, where the stride leaves rows out, down those of dy, and
keeps the rows of x that one of them sees. What its threads have summed a block adds up in shared
memory, in a fixed order, and so does a second kernel with the chunks, where there are several.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tilewright import te
from tilewright.schedule import Schedule
from tilewright.target.instructions import tma_load
from tilewright.topi.declare import Declaration, finished, placeholders
from tilewright.topi.nn.depthwise_wgrad_tiles import (
    GradientTiles,
    TileSums,
    depthwise_wgrad_tiles,
)
from tilewright.topi.operators.conv import Conv
from tilewright.topi.pieces.chunk_sums import add_in_block, chunk_stage
from tilewright.topi.stages import scheduled


@dataclass(frozen=True)
class GradientPixelTile:
    """A thread sums over ``rows`` rows of x, of dy where the stride leaves rows out, by ``columns``
    columns of dy of ``vector`` neighbouring channels. A block has ``lanes`` such vectors of
    channels and tiles of ``images`` by ``down`` by ``across`` such parts, in ``stages`` copies.
    ``chunks`` blocks share the tiles of a group of channels."""

    rows: int = 8
    columns: int = 4
    vector: int = 2
    lanes: int = 16
    images: int = 1
    down: int = 1
    across: int = 8
    stages: int = 2
    chunks: int = 32

    @property
    def threads(self) -> tuple[tuple[str, int], ...]:
        """The axes of the threads of a block, with their extents, the outermost first."""
        down = self.images * self.down
        return ("threadIdx.z", down), ("threadIdx.y", self.across), ("threadIdx.x", self.lanes)


@dataclass(frozen=True)
class TileDeclaration(Declaration):
    """A gradient by the filter as sums over tiles, cut as ``cut`` says."""

    cut: GradientTiles
    stages: TileSums


def declare_pixel_sums(p: Conv, tile: GradientPixelTile, batch: Any = None) -> Declaration:
    """The program of a problem, cut as ``tile`` says; ``batch`` as in :func:`declare`."""
    inputs = placeholders(p, batch)
    cut = cut_of(p, tile)
    made = depthwise_wgrad_tiles(cut, inputs["data"], inputs["grad"])
    result = finished(p, made.sums, inputs)
    return TileDeclaration(p, inputs, result, made.sums, None, None, cut, made)


def cut_of(p: Conv, tile: GradientPixelTile) -> GradientTiles:
    """How ``tile`` cuts a problem."""
    return GradientTiles(
        p, tile.images, tile.down, tile.across, tile.rows, tile.columns,
        tile.lanes, tile.vector, tile.chunks,
    )  # fmt: skip


def schedule_pixel_sums(d: Declaration, tile: GradientPixelTile = GradientPixelTile()) -> Schedule:
    """The schedule of what :func:`declare_pixel_sums` makes of a problem with the same ``tile``."""
    assert isinstance(d, TileDeclaration)
    cut, made, kind = d.cut, d.stages, d.problem.accumulate
    s = scheduled(d.output, made.x, made.dy, made.own, made.parts, made.sums)
    chunks = chunk_stage(s, d, made.parts)
    given = s.cache_read(made.own, "shared", [chunks.total])
    pixels = [s.cache_read(t, "local", [made.own], kind) for t in (made.x, made.dy)]
    threads = [te.thread_axis((0, extent), tag) for tag, extent in tile.threads]

    parts = chunks.stage
    extents = [extent for _, extent in tile.threads]
    block, ky = add_in_block(chunks, cut.channels, list(zip(threads, extents, strict=True)))
    s[given].compute_at(parts, ky)

    sums = s[made.own]
    sums.set_scope("local")
    sums.compute_at(parts, block)
    step, row, column = sums.op.reduce_axis
    for stage in (s[given], sums):
        *_, i, down, across, ky, kx, lane, v = stage.op.axis
        over = [step, row, column] if stage is sums else []
        stage.reorder(i, down, across, lane, *over, ky, kx, v)
        for axis, thread in zip((stage.fuse(i, down), across, lane), threads, strict=True):
            stage.bind(axis, thread)
        stage.unroll(*over[1:], ky, kx, v)

    for tensor in pixels:
        loads = s[tensor]
        loads.compute_at(sums, row)
        *outer, channel = loads.op.axis
        loads.unroll(*outer)
        loads.vectorize(channel)
    # Each row of dy sees as many rows of x as the filter has.
    s[pixels[0 if cut.sees else 1]].rolling_buffer()
    for tensor, shape in ((made.x, cut.x_tile), (made.dy, cut.dy_tile)):
        stage = s[tensor]
        stage.set_scope("shared")
        stage.compute_at(sums, step)
        if tile.stages > 1:
            stage.pipeline(tile.stages)
        stage.tensorize(stage.op.axis[1], tma_load(shape, d.problem.dtype))
    return s
