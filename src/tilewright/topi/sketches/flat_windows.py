"""Windows on a CPU as products in registers: vectors along one factor, single numbers of the other.

A task takes some rows of results of an image, and channels of it, and copies what they see, row
behind row (:mod:`~tilewright.topi.nn.flat_windows`): a vector of neighbouring pixels is then
contiguous for every tap, whatever rows it belongs to. Where vectors lie along pixels, the filter is
read as it lies; where they lie across channels, images are, if windows are single pixels. No column
of im2col is stored.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from tilewright.schedule import Schedule
from tilewright.topi.nn.flat_sums import FlatDeclaration
from tilewright.topi.nn.flat_windows import FlatWindows
from tilewright.topi.parameters import flag
from tilewright.topi.pieces.tiling import extent_of
from tilewright.topi.pieces.vector_products import multiply, store_tiles
from tilewright.topi.stages import scheduled, space_axes

#: Pixels that are a multiple of ``_PLACES`` bytes apart compete for few places of a first-level
#: cache: each is then a line, of ``_LINE`` numbers, further.
_PLACES, _LINE = 1024, 16


@dataclass(frozen=True)
class FlatTile:
    """Tiles of ``rows`` single numbers by ``vectors`` vectors of ``lanes``, which lie ``across``
    channels or along pixels. A task takes ``band`` rows of results, and of a group's channels one
    of ``parts``. A filter across channels is prefetched ``ahead`` numbers before it is multiplied,
    unless 0. Of a tile within a row, taps that see padding alone are ``trimmed``. With ``stream``
    results of whole sums go past the caches."""

    rows: int = 8
    vectors: int = 2
    lanes: int = 16
    band: int = 8
    parts: int = 1
    across: int = flag()
    ahead: int = 0
    trimmed: int = 0
    stream: int = 0

    @property
    def channels(self) -> int:
        """Channels of the result in a tile."""
        return self.vectors * self.lanes if self.across else self.rows


def form(p: object, tile: FlatTile) -> str:
    """The declaration whose factors lie as a tile reads them."""
    return "trimmed" if tile.trimmed else "across" if tile.across else "flat"


def schedule_flat(d: FlatDeclaration, tile: FlatTile) -> Schedule:
    """The schedule of either declaration of :mod:`~tilewright.topi.nn.flat_sums`.

    Where vectors lie across channels that are last, a tile is one of results: its sums go from
    registers through the epilogue. Others are stored by themselves, and turned by the epilogue.
    """
    last, phases = d.problem.channels_last, math.prod(d.phases)
    s = scheduled(d.output, d.sum, d.padded, d.packed, d.partial)
    whole = d.across and last and phases == 1 and d.partial is None
    acc = d.sum if whole else s.cache_write(d.sum, "local")
    out, sums = s[d.output], s[d.sum]
    windows = FlatWindows(d.problem)
    per = windows.filters[0]
    # Of whole tiles the last may have channels that there are not.
    step = min(per if not whole else extent_of(sums.op.axis[3]), tile.channels)

    n, c, h, *w = space_axes(out, d.problem.layout)
    g, f = out.split(c, factor=per // phases)
    f, inner = out.split(f, factor=step if windows.by_phase(d.across) else step // phases)
    part, f = out.split(f, nparts=tile.parts)
    band, h = out.split(h, factor=tile.band * d.phases[0])
    out.reorder(n, band, g, part, f, *((h, *w, inner) if last else (inner, h, *w)))
    task = out.fuse(n, band, g, part)
    out.parallel(task)

    if whole:
        pixel, row = out.split(out.fuse(h, *w), factor=tile.rows)
        vector, lane = out.split(inner, factor=tile.lanes)
        out.unroll(row, vector)
        out.vectorize(lane)
        if tile.stream:
            out.pragma(task, "stream_stores", True)
        out.pragma(pixel, "partition", True)  # the last tile sums no more than there is
        sums.set_scope("local")
        sums.compute_at(out, pixel)
        sums.align_bounds(sums.op.axis[3], step)
    else:
        if last and d.across:
            out.vectorize(inner)
        by_phase = windows.by_phase(bool(d.across))
        sums.compute_at(out, task if by_phase else f)
        tiles = store_tiles(sums, d.across, tile, step, phases if by_phase else 1)
        s[acc].compute_at(sums, tiles)
    planar = windows.planar(bool(d.across))
    inner = multiply(s[acc], not (d.across or last), tile.lanes)
    if planar:  # turns written out share numbers of neighbouring pixels, more than registers hold
        s[acc].pragma(inner, "auto_unroll_max_step", 1)
    if tile.ahead and d.packed is not None:
        s[acc].prefetch(d.packed, inner, tile.ahead)
    if d.partial is not None:
        s[d.partial].set_scope("local")
        s[d.partial].compute_at(s[acc], inner)
        multiply(s[d.partial], False, tile.lanes)
    if d.padded is not None:
        rows = s[d.padded]
        rows.compute_at(out, task)
        deep = d.across and not planar and len(rows.op.axis) > 2
        if deep:
            if 4 * windows.filters[1] * windows.stride[-1] % _PLACES == 0:
                rows.storage_align(rows.op.axis[1], 2 * _LINE, _LINE)
        pixel = rows.op.axis[-2 if deep else -1]
        rows.align_bounds(pixel, d.row_stride)  # row by row: what guards a row stands outside of it
        _, within = rows.split(pixel, factor=d.row_stride)
        if last and not d.across:  # what lies in a line of the caches is read at once
            rows.reorder(within, rows.op.axis[1])
            rows.storage_align(rows.op.axis[1], 2 * _LINE, _LINE)  # and written to all places
    if d.packed is not None:
        packed = s[d.packed]
        *others, c, f = packed.op.axis
        if d.across and last:  # turned a line of the caches at a time
            c, line = packed.split(c, factor=tile.lanes)
            packed.reorder(*others, c, f, line)
        packed.parallel(packed.fuse(*others, c))
    return s
