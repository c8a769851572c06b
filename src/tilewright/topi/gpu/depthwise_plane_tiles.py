"""Depthwise convolution on Hopper, channels first, of tiles of planes in shared memory.

A block has tiles of some channels, of one image after another. What a tile sees, halo and padding
included, comes into shared memory as one box, by TMA, while the tile before it is computed: no
thread has a guard or computes an address, rows are read as vectors wherever the image's begin, and
neighbours share what both of them see. A thread has the filter of its channel in registers, and
computes rows of a few columns, one below the other; a row of the image that it read and converted
serves all rows of results whose windows hold it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from tilewright.ir.dtype import dtype
from tilewright.schedule import Schedule
from tilewright.target.devices import BANKS, WARP, WORD
from tilewright.target.instructions import tma_load
from tilewright.topi.columns import Array, number
from tilewright.topi.cut import CutDeclaration, declare_images
from tilewright.topi.gpu.banks import bank_conflicts
from tilewright.topi.nn.depthwise_plane_tiles import (
    PlaneCut,
    PlaneTiles,
    depthwise_plane_tiles,
    element_of,
)
from tilewright.topi.operators.conv import Conv
from tilewright.topi.pieces.loop_order import ROLLING, place_loads
from tilewright.topi.pieces.tiling import bind
from tilewright.topi.pieces.windows import load_vectors
from tilewright.topi.stages import image_axes, scheduled

#: Bytes that rows of boxes are multiples of, and that a thread reads at once at most.
CHUNK = 16


PlaneDeclaration = CutDeclaration[PlaneCut, PlaneTiles]


@dataclass(frozen=True)
class PlaneBoxTile:
    """A thread computes ``rows`` by ``columns`` pixels; a block has ``threads_y`` by ``threads_x``
    threads in each of ``channels`` channels, and goes through such tiles of ``turns`` images, one
    after another, of which ``stages`` are in shared memory."""

    rows: int = 7
    columns: int = 4
    threads_y: int = 4
    threads_x: int = 7
    channels: int = 4
    turns: int = 4
    stages: int = 2

    @property
    def size(self) -> tuple[int, int, int]:
        """Channels, rows and columns of results of a tile."""
        return self.channels, self.rows * self.threads_y, self.columns * self.threads_x


def plane_cut(p: Conv, tile: PlaneBoxTile) -> PlaneCut:
    """How ``tile`` cuts a problem: as many chunks of 16 bytes are from one row to the next as let
    the fewest lanes conflict in a bank."""
    vector = CHUNK // dtype(p.dtype).bytes
    bare = PlaneCut(p, tile.size, 0, 0)
    margin = -bare.before[1] % vector
    least = -(-(margin + bare.sees(1, tile.size[2])) // vector)
    options = [least + more for more in range(4)]
    passes = [_passes(p, tile, bare, n * CHUNK) for n in options]
    row_stride = least + np.argmin(passes, axis=0)
    return PlaneCut(p, tile.size, number(row_stride * vector), margin)


def read_at_once(p: Conv, tile: PlaneBoxTile, cut: PlaneCut) -> Any:
    """Elements of a thread's reads: as many as 16 bytes have, where columns of all threads begin
    alike."""
    return number(np.gcd(CHUNK // dtype(p.dtype).bytes, tile.columns * cut.stride[1]))


def _passes(p: Conv, tile: PlaneBoxTile, cut: PlaneCut, row: Any) -> Array:
    """Passes over the banks that a warp's reads take, whose rows are ``row`` bytes apart."""
    size, (sh, sw) = dtype(p.dtype).bytes, cut.stride
    high, step, apart, row, across, down = (
        np.asarray(n)[..., None]
        for n in (
            cut.sees(0, tile.size[1]), tile.rows * sh, tile.columns * sw * size, row,
            tile.threads_x, tile.threads_y,
        )
    )  # fmt: skip
    part = np.arange(WARP) // across
    line = part // down * high + part % down * step
    address = line * row + np.arange(WARP) % across * apart
    # Threads whose bytes the banks pass together, of which the first word conflicts as others do.
    width, found = read_at_once(p, tile, cut) * size, np.zeros(address.shape[:-1], "int64")
    for together in (8, 16, 32):
        some = np.clip(BANKS * WORD // width, 8, 32) == together
        lanes = address[some].reshape(-1, WARP // together, together)
        found[some] = bank_conflicts(lanes, 4).sum(axis=-1)
    return found


def declare_plane_tiles(p: Conv, tile: PlaneBoxTile, batch: Any = None) -> PlaneDeclaration:
    """The program of a problem, cut as ``tile`` says; ``batch`` as in :func:`declare`."""
    return declare_images(plane_cut(p, tile), depthwise_plane_tiles, batch, element_of)


def schedule_plane_tiles(d: PlaneDeclaration, tile: PlaneBoxTile = PlaneBoxTile()) -> Schedule:
    """The schedule of what :func:`declare_plane_tiles` makes with the same ``tile``."""
    p, cut, made = d.problem, d.cut, d.stages
    s = scheduled(d.output, made.image, made.sum)
    out, sums = s[d.output], s[made.sum]
    sums.set_scope("local")
    data = s.cache_read(made.image, "local", [made.sum], p.accumulate)
    taps = s.cache_read(list(d.inputs.values())[1], "local", [made.sum], p.accumulate)

    n, c, h, w = image_axes(out, p.layout)
    w, lane = out.split(w, factor=tile.columns)
    across, tx = out.split(w, factor=tile.threads_x)
    h, row = out.split(h, factor=tile.rows)
    down, ty = out.split(h, factor=tile.threads_y)
    along, tz = out.split(c, factor=tile.channels)
    n, turn = out.split(n, factor=tile.turns)
    out.reorder(n, along, down, across, tz, ty, tx, turn, row, lane)
    bind(out, out.fuse(n, along, down, across), tz, ty, tx)
    out.unroll(row)
    (out.unroll if p.result_shape[-1] % tile.columns else out.vectorize)(lane)

    sums.compute_at(out, row)
    sums.unroll(*sums.op.reduce_axis, *sums.op.axis)
    loads = s[data]
    place_loads(loads, ROLLING, out, row, turn, sums, sums.op.reduce_axis[0])
    load_vectors(loads, read_at_once(p, tile, cut))
    kept = s[taps]
    kept.compute_at(out, tx)
    kept.unroll(*kept.op.axis)

    box = s[made.image]
    box.set_scope("shared")
    box.compute_at(out, turn)
    if tile.stages > 1:
        box.pipeline(tile.stages)
    *_, plane, _, column = box.op.axis
    box.align_bounds(column, cut.row_stride)
    box.tensorize(plane, tma_load(cut.box, p.dtype))
    return s
