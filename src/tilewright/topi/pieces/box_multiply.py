"""How tensor cores multiply boxes: results, or channels, are the rows of an instruction."""

from __future__ import annotations

import math
from collections.abc import Sequence

from tilewright.ir.itervar import IterVar
from tilewright.schedule import Stage
from tilewright.target.instructions import wgmma
from tilewright.topi.nn.box_problems import ROW, widths
from tilewright.topi.nn.box_sums import BoxDeclaration
from tilewright.topi.pieces.box_products import innermost, step_of
from tilewright.topi.pieces.box_tiles import BoxProductTile, columns_of
from tilewright.topi.pieces.thread_order import columns_in_order, leaves_directly


def multiply(
    sums: Stage, d: BoxDeclaration, tile: BoxProductTile, result: Sequence[IterVar], at: IterVar,
    k: IterVar,
) -> None:  # fmt: skip
    """Sum products in the registers of a warpgroup: of a step ``k``, which the loop ``at`` is over,
    for the axes of the ``result``, channels last."""
    w, step = widths(d.problem.dtype), step_of(d)
    own, slices, beside = tile.of_groups, d.boxes.slices, d.boxes.beside
    if beside > 1:
        own = (*tile.box[:-1], tile.columns // beside, 1)
    for axis, extent in zip(result, (*own, tile.own_channels), strict=True):
        sums.align_bounds(axis, extent)
    if tile.turned:
        _multiply_turned(sums, d, tile, result, at, k)
        return
    *pixel, f = result
    parts, own_columns = [], columns_of(tile.channels // slices, d.problem.dtype)
    if own_columns < tile.channels:  # groups of a row that is brought, or columns, one by one
        group, f = sums.split(f, factor=own_columns)
        parts = [group]
    part, k = sums.split(k, factor=w.deep)
    parts.append(part)
    turned = d.boxes.turned
    outer, _, inner = innermost(sums, pixel, own)
    if leaves_directly(d, tile):
        columns = columns_in_order(sums, f, d, tile)
    else:
        columns = list(sums.split(f, factor=8))
    if turned:
        columns = [*sums.split(columns[0], factor=ROW // 8), columns[1]]
    sums.reorder(at, *parts, *outer, *inner, *columns, *sums.split(k, factor=w.chunk))
    sums.unroll(*parts)
    row, taps = (128 * (block or step) // w.row for block in d.boxes.blocks)
    kind = "tf32" if d.problem.dtype == "float32" else d.problem.dtype
    sums.tensorize(
        outer[0],
        wgmma(own_columns, kind, left="k", right="j" if turned else "k",
              swizzles=(slices * beside * row, 2 * ROW if turned else taps)),
    )  # fmt: skip


def _multiply_turned(
    sums: Stage, d: BoxDeclaration, tile: BoxProductTile, result: Sequence[IterVar], at: IterVar,
    k: IterVar,
) -> None:  # fmt: skip
    """The same, where channels are the rows of an instruction and results its columns."""
    w, step = widths(d.problem.dtype), step_of(d)
    *pixel, f = result
    part, k = sums.split(k, factor=w.deep)
    outer, _, inner = innermost(sums, pixel, tile.box)
    rows = sums.split(f, factor=8)
    sums.reorder(at, part, *rows, *outer, *inner, *sums.split(k, factor=w.chunk))
    sums.unroll(part)
    row, taps = (128 * (block or step) // w.row for block in d.boxes.blocks)
    kind = "tf32" if d.problem.dtype == "float32" else d.problem.dtype
    left, swizzle = ("i", 2 * ROW) if d.boxes.turned else ("k", taps)
    sums.tensorize(
        rows[0], wgmma(math.prod(tile.box), kind, left=left, right="k", swizzles=(swizzle, row))
    )
