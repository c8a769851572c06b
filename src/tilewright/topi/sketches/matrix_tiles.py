"""Convolutions and products of bfloat16 and of bytes on a CPU that multiplies tiles: AMX.

The stages are those of :mod:`~tilewright.topi.nn.matrix_tiles`. A task takes a band of results of
an image, whose pixels it stores with their padding, and a part of the channels. Of some tiles of
channels at a time it computes all results of the band, ``down`` by ``across`` tiles of sums in
registers over all taps, and then their epilogue, from a cache. A constant filter is packed ahead.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from tilewright.ir.errors import ScheduleError
from tilewright.ir.itervar import IterVar
from tilewright.schedule import Schedule, Stage
from tilewright.target.instructions import (
    amx_bf16,
    amx_load_bf16,
    amx_load_s8,
    amx_load_u8,
    amx_s8,
    amx_store_f32,
    amx_store_s32,
    amx_u8_s8,
)
from tilewright.topi.nn.images import Images
from tilewright.topi.nn.matrix_tiles import ACROSS, DOWN, SIDE, TileCut, TileDeclaration
from tilewright.topi.stages import scheduled

#: Tile registers.
_REGISTERS = 8
#: By the type of images: the product, loads of its left and right factors, the store of sums.
_INSTRUCTIONS = {
    "bfloat16": (amx_bf16, amx_load_bf16, amx_load_bf16, amx_store_f32),
    "int8": (amx_s8, amx_load_s8, amx_load_s8, amx_store_s32),
    "uint8": (amx_u8_s8, amx_load_u8, amx_load_s8, amx_store_s32),
}


@dataclass(frozen=True)
class BandTile:
    """``down`` by ``across`` tiles of sums are held in registers: divisors of 12 and of 4. A task
    takes ``band`` rows of results, or more that are whole tiles, or of windows of single pixels
    times ``down`` tiles of these; and one of ``parts`` of a group's channels."""

    down: int = 2
    across: int = 2
    band: int = 4
    parts: int = 1


def schedule_matrix_tiles(d: TileDeclaration, tile: BandTile) -> Schedule:
    """The schedule of :func:`~tilewright.topi.nn.matrix_tiles.declare_matrix_tiles`.

    Raises :class:`ScheduleError` for tiles that registers do not hold, or groups of them that there
    are not.
    """
    cut, taken = d.cut, tile.down * tile.across + min(tile.down, tile.across) + 1
    if DOWN % tile.down or ACROSS % tile.across or taken > _REGISTERS:
        raise ScheduleError(
            f"{tile.down} by {tile.across} tiles of sums take {taken} registers with their factors",
            mend=f"There are {_REGISTERS}; down divides {DOWN}, across {ACROSS}",
        )
    multiply, load_left, load_right, store = _INSTRUCTIONS[d.problem.dtype]
    s = scheduled(d.output, d.sum, d.stored, d.packed, d.left, d.right)
    total = s.cache_write(d.sum, "local")
    out, kept, sums = s[d.output], s[d.sum], s[total]
    task, f = _tasks(out, cut, tile)

    kept.compute_at(out, f)
    *_, at, channels, r, j = kept.op.axis
    for axis, count in ((at, tile.down), (channels, tile.across), (r, SIDE), (j, SIDE)):
        kept.align_bounds(axis, count)
    at, within = kept.split(at, factor=tile.down)
    kept.unroll(within, channels)
    kept.tensorize(r, store)

    sums.compute_at(kept, at)
    *whole, at, channels, r, j = sums.op.axis
    *taps, block, word, k = sums.op.reduce_axis
    for axis, count in ((at, tile.down), (channels, tile.across), (r, SIDE), (j, SIDE)):
        sums.align_bounds(axis, count)
    # Of the side that is held in registers all tiles are loaded, of the other one at a time.
    sides = ((d.right, load_right, channels), (d.left, load_left, at))
    held, single = sides if tile.down >= tile.across else sides[::-1]
    sums.reorder(*whole, *taps, block, single[2], held[2], r, j, word, k)
    sums.unroll(at, channels)
    sums.tensorize(r, multiply)
    for (tensor, load, _), where in ((held, block), (single, single[2])):
        stage = s[tensor]
        stage.set_scope("local")
        stage.compute_at(sums, where)
        first = -2 if tensor is d.left else -3
        stage.unroll(*stage.op.axis[:first])
        stage.tensorize(stage.op.axis[first], load)

    stored, packed = s[d.stored], s[d.packed]
    stored.compute_at(out, task)
    *_, line, vector = stored.op.axis
    if cut.windows is not None:  # row by row: what guards a row stands outside of it
        row, at = (cut.row_of_numbers, vector) if cut.joined > 1 else (cut.row_of_pixels, line)
        stored.align_bounds(at, row)
        _, at = stored.split(at, factor=row)
        vector = at if cut.joined > 1 else vector
    stored.vectorize(stored.split(vector, factor=cut.depth)[1])
    packed.parallel(packed.fuse(*packed.op.axis[:2]))
    return s


def _tasks(out: Stage, cut: TileCut, tile: BandTile) -> tuple[IterVar, IterVar]:
    """The loops of the result: over tasks, which are parallel, and in one over the tiles of
    channels that are held at a time; inside are the results of a band."""
    layout, last = cut.problem.layout, cut.problem.layout.endswith("C")
    before: list[IterVar] = []
    rest: list[IterVar] = []
    if len(layout) == 2:  # a matrix, whose columns are channels
        row, c = out.op.axis
    else:
        n, c, space = Images(layout).meaning(out.op.axis)
        before = [n]
        if cut.windows is None:
            out.reorder(n, *space, c)
            row = out.fuse(*space) if len(space) > 1 else space[0]
        elif len(cut.windows.kernel) > len(space):  # one row
            row, *rest = [*out.split(space[0], nparts=1), *space[1:]]
        else:
            row, *rest = space
    phases = (1,) if cut.windows is None else cut.windows.phases
    per, every = cut.groups[1], math.prod(phases)
    g, f = out.split(c, factor=per // every)
    f, inner = out.split(f, factor=min(per, tile.across * SIDE) // every)
    part, f = out.split(f, nparts=tile.parts)
    band, row = out.split(row, factor=cut.rows_of(tile.band, tile.down) * phases[0])
    out.reorder(*before, band, g, part, f, *((row, *rest, inner) if last else (inner, row, *rest)))
    task = out.fuse(*before, band, g, part)
    out.parallel(task)
    if last:
        vector, lane = out.split(inner, factor=SIDE)
        out.unroll(vector)
        out.vectorize(lane)
    return task, f
