"""The tiles worth trying for products of matrices of which nothing is shared, the best guess
first, as for :mod:`~tilewright.topi.opencl.packing_tiles`."""

from __future__ import annotations

import math
from itertools import product

from tilewright.ir.dtype import dtype
from tilewright.target.devices import OpenCLDevice
from tilewright.target.target import Target
from tilewright.topi.cpu.candidates import power
from tilewright.topi.nn.padding import static
from tilewright.topi.opencl.candidates import machine
from tilewright.topi.problem import Problem
from tilewright.topi.sketches.dots import SHAPES, DotTile
from tilewright.topi.sketches.item_products import ItemTile
from tilewright.topi.sketches.products import STORED, is_product, matrices, stored_bytes

#: Work-items of a group, and of them along columns, at most; on a CPU, those along rows, which
#: take turns with the same columns.
_GROUP, _ACROSS, _TURNS = 128, 16, 16


def suits(p: Problem) -> bool:
    """Whether matrices are multiplied, with sums of a type that OpenCL has."""
    return is_product(p, ("float16", "float32", "float64"))


def item_product_times(p: Problem, target: Target) -> dict[ItemTile, float]:
    """For :func:`~tilewright.topi.sketches.item_products.schedule_item_products`."""
    place, found = machine(target), matrices(p)
    rows, columns = found.height, static(found.product.shape[2], "columns")
    windows = p.channels_last is not None
    size = dtype(p.accumulate).bytes
    most = min(place.vector // size, power(2 * columns - 1))
    depth = next(d for d in (4, 2, 1) if found.depth % d == 0)
    tiles: dict[ItemTile, float] = {}
    for high, vectors, lanes in product((8, 4, 6, 2, 1), (1, 2, 3, 4), (most, most // 2 or 1)):
        if high >= 2 * rows or (found.groups > 1 and rows % high):
            continue
        if vectors > 1 and vectors * lanes >= 2 * columns:
            continue
        across, along = _group(place, -(-rows // high))
        for implicit in (0, 1) if windows else (1, 0):
            if not implicit and stored_bytes(p) > STORED:
                continue
            tile = ItemTile(
                high, vectors, lanes, depth, across, along, implicit, int(not place.host)
            )
            kept = tile.rows * depth * tile.kept + tile.columns
            if (tile.rows * tile.columns + kept) * size <= place.registers:
                tiles[tile] = _cost(p, tile, place) * (4.0 if implicit and windows else 1.0)
    return tiles or {ItemTile(1, 1, 1, 1, 16, 1): 0.0}


def item_dot_times(p: Problem, target: Target) -> dict[DotTile, float]:
    """For :func:`~tilewright.topi.sketches.dots.schedule_item_dots`."""
    place, size = machine(target), dtype(p.accumulate).bytes
    *_, m, n = p.result.shape
    lanes = min(place.vector // size, power(matrices(p).depth))
    found = {}
    for rows, columns in SHAPES:
        kept = (rows * columns + rows + columns) * lanes * size
        if (kept > place.registers and rows * columns > 1) or rows > m or columns > n:
            continue
        items = -(-m // rows) * -(-n // columns)
        waste = rows * columns * items / (m * n) * math.sqrt(max(1.0, place.busy / items))
        panel = min(_GROUP, place.group, power(-(-n // columns)))
        for group in (1,) if place.host else (panel, max(1, panel // 4)):
            found[DotTile(rows, columns, lanes, group)] = waste * (1 / rows + 1 / columns + 1)
    return found


def _group(place: OpenCLDevice, tiles: int) -> tuple[int, int]:
    """Work-items of a group, along columns and along rows of as many tiles."""
    if place.host:
        return 1, min(_TURNS, power(tiles))
    along = min(4, power(tiles))
    return min(_ACROSS, min(_GROUP, place.group) // along), along


def _cost(p: Problem, t: ItemTile, place: OpenCLDevice) -> float:
    found = matrices(p)
    columns = static(found.product.shape[2], "columns")
    down, across = -(-found.height // t.rows), -(-columns // t.columns)
    beyond = down * t.rows * across * t.columns / (found.height * columns)
    idle = math.sqrt(max(1.0, place.busy / (found.groups * down * across)))
    wide = place.vector / dtype(p.accumulate).bytes / t.lanes
    read = t.rows / (t.depth if t.kept else 1) + t.vectors
    return beyond * idle * wide * (1 + read / (t.rows * t.vectors))
