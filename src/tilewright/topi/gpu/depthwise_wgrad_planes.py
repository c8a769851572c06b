"""The gradient of a depthwise convolution by its filter on Hopper in float32, channels first.

The sums of :mod:`~tilewright.topi.nn.depthwise_wgrad_planes`. A block has some channels and goes
through the tiles of a chunk, which the copying unit brings to shared memory, zeros around images
included, so that no thread computes addresses or looks at borders, and begins at multiples of 16
bytes: four columns are one load. A thread has one part of each tile: it goes down the rows of x and
keeps the rows of dy that see one of them in registers. What its threads have summed a block adds up
in shared memory, in a fixed order, and so does a second kernel with the chunks, where there are
several.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import cache
from typing import Any

from tilewright import te
from tilewright.schedule import Schedule
from tilewright.target.instructions import tma_load
from tilewright.topi.declare import Declaration, finished, placeholders
from tilewright.topi.gpu.chunk_sums import chunk_stage
from tilewright.topi.nn.depthwise_wgrad_planes import (
    GradientPlanes,
    PlaneSums,
    depthwise_wgrad_planes,
)
from tilewright.topi.problem import Problem
from tilewright.topi.stages import scheduled

#: Elements of a load, and lanes whose loads pass the banks of shared memory together.
VECTOR, _TOGETHER = 4, 8


@dataclass(frozen=True)
class GradientPlaneTile:
    """A thread sums over ``rows`` rows of x by ``columns`` columns of dy. A block has tiles of
    ``images`` images of ``channels`` channels by ``down`` by ``across`` such parts, in ``stages``
    copies. ``chunks`` blocks share the tiles of a group of channels."""

    rows: int = 7
    columns: int = 4
    down: int = 4
    across: int = 7
    channels: int = 4
    images: int = 1
    stages: int = 2
    chunks: int = 16

    @property
    def threads(self) -> tuple[tuple[str, int], ...]:
        """The axes of the threads of a block, with their extents, the outermost first."""
        planes = self.images * self.channels
        return ("threadIdx.z", planes), ("threadIdx.y", self.down), ("threadIdx.x", self.across)


@dataclass(frozen=True)
class PlaneSumsDeclaration(Declaration):
    """A gradient by the filter as sums over tiles of planes, cut as ``cut`` says."""

    cut: GradientPlanes
    stages: PlaneSums


def declare_plane_sums(
    p: Problem, tile: GradientPlaneTile, batch: Any = None
) -> PlaneSumsDeclaration:
    """The program of a problem, cut as ``tile`` says; ``batch`` as in :func:`declare`."""
    inputs = placeholders(p, batch)
    cut = planes_of(p, tile)
    made = depthwise_wgrad_planes(cut, inputs["data"], inputs["grad"])
    result = finished(p, made.sums, inputs)
    return PlaneSumsDeclaration(p, inputs, result, made.sums, None, None, cut, made)


def planes_of(p: Problem, tile: GradientPlaneTile) -> GradientPlanes:
    """How ``tile`` cuts a problem."""
    width, height = tile.across * tile.columns, tile.down * tile.rows
    margin = margin_of(p)
    pitch = (
        pitch_of(tile, margin + width + p.kernel_w - 1, height),
        pitch_of(tile, width, height + p.kernel_h - 1),
    )
    return GradientPlanes(
        p, tile.images, tile.channels, tile.down, tile.across, tile.rows, tile.columns,
        tile.chunks, pitch, margin,
    )  # fmt: skip


def margin_of(p: Problem) -> int:
    """So many columns before the first one that its dy sees a tile of x begins: where the copying
    unit can, at a multiple of 16 bytes."""
    return -p.padding[1] % VECTOR


def pitch_of(tile: GradientPlaneTile, columns: int, rows: int) -> int:
    """So many elements, at least ``columns``, from one row of a tile to the next that fewest lanes
    meet in a bank; a tile has so many ``rows`` of a plane."""
    return _pitch(columns, rows, tile.rows, tile.columns, tile.down, tile.across)


@cache
def _pitch(columns: int, rows: int, high: int, wide: int, down: int, across: int) -> int:
    least = -(-columns // VECTOR) * VECTOR

    def cost(pitch: int) -> tuple[int, int]:
        found = 0
        for first in range(0, 32, _TOGETHER):
            vectors = set()
            for lane in range(first, first + _TOGETHER):
                part, x = divmod(lane, across)
                plane, y = divmod(part, down)
                vectors.add(((plane * rows + y * high) * pitch + x * wide) // VECTOR)
            found += max(Counter(v % _TOGETHER for v in vectors).values())
        return found, pitch

    return min(range(least, least + _TOGETHER * VECTOR, VECTOR), key=cost)


def schedule_plane_sums(d: Declaration, tile: GradientPlaneTile = GradientPlaneTile()) -> Schedule:
    """The schedule of what :func:`declare_plane_sums` makes of a problem with the same ``tile``."""
    assert isinstance(d, PlaneSumsDeclaration)
    cut, made = d.cut, d.stages
    s = scheduled(d.output, made.x, made.dy, made.own, made.parts, made.sums)
    chunks = chunk_stage(s, d, made.parts)
    given = s.cache_read(made.own, "shared", [chunks.total])
    pixels = [s.cache_read(t, "local", [made.own]) for t in (made.x, made.dy)]
    threads = [te.thread_axis((0, extent), tag) for tag, extent in tile.threads]

    parts = chunks.stage
    group, c = parts.split(chunks.channel, factor=cut.channels)
    parts.reorder(*chunks.outer, group, chunks.row, chunks.column, c)
    block = parts.fuse(*chunks.outer, group)
    parts.bind(block, te.thread_axis("blockIdx.x"))
    # All taps at once: a block has few channels, and threads for them.
    rest = parts.fuse(chunks.row, chunks.column, c)
    for thread, (_, extent) in zip(reversed(threads), reversed(tile.threads), strict=True):
        rest, lane = parts.split(rest, factor=extent)
        parts.bind(lane, thread)
        if thread is threads[-1]:
            chunks.keep_at(lane)
    total = s[chunks.total]
    total.unroll(total.op.reduce_axis[-1])  # so that shared memory is read at once
    s[given].compute_at(parts, block)

    sums = s[made.own]
    sums.set_scope("local")
    sums.compute_at(parts, block)
    step, row, column = sums.op.reduce_axis
    for stage in (s[given], sums):
        *_, i, c, down, across, ky, kx = stage.op.axis
        over = [step, row, column] if stage is sums else []
        stage.reorder(i, c, down, across, *over, ky, kx)
        for axis, thread in zip((stage.fuse(i, c), down, across), threads, strict=True):
            stage.bind(axis, thread)
        for axis in (*over[1:], ky, kx):
            stage.unroll(axis)

    for tensor in pixels:
        loads = s[tensor]
        loads.compute_at(sums, row)
        *outer, column = loads.op.axis
        loads.align_bounds(column, VECTOR)
        vectors, lane = loads.split(column, factor=VECTOR)
        for axis in (*outer, vectors):
            loads.unroll(axis)
        loads.vectorize(lane)
    s[pixels[1]].rolling_buffer()
    for tensor, shape in ((made.x, cut.x_tile), (made.dy, cut.dy_tile)):
        stage = s[tensor]
        stage.set_scope("shared")
        stage.compute_at(sums, step)
        stage.align_bounds(stage.op.axis[-1], shape[-1])
        if tile.stages > 1:
            stage.pipeline(tile.stages)
        stage.tensorize(stage.op.axis[1], tma_load(shape, d.problem.dtype))
    return s
