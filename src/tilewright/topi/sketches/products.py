"""Sums of products as products of matrices: convolutions, their gradients, and ``gemm``.

The matrices are found in the declaration (:meth:`~tilewright.schedule.Schedule.as_matmul`). Of a
convolution each column is a window; columns are stored first, which is im2col, or made in tiles
where they are multiplied.
"""

from __future__ import annotations

import functools
import math

from tilewright.ir.dtype import FLOAT8
from tilewright.ir.errors import ScheduleError
from tilewright.schedule import Schedule
from tilewright.schedule.matmul import Matmul
from tilewright.target.target import Target
from tilewright.topi.cpu.candidates import lanes
from tilewright.topi.cpu.conv2d_im2col import ColumnTile, schedule_conv2d_columns
from tilewright.topi.declared import Declared
from tilewright.topi.fusion import find_products
from tilewright.topi.gpu.conv2d_lanes import LaneTile, conv2d_lanes_tiles, schedule_conv2d_lanes
from tilewright.topi.gpu.conv2d_mma import MmaTile, conv2d_mma_tiles, schedule_conv2d_mma
from tilewright.topi.nn.padding import static
from tilewright.topi.opencl.candidates import machine
from tilewright.topi.pieces.counts import Counts, of_products
from tilewright.topi.problem import Problem
from tilewright.topi.template import DEPTHWISE

#: Rows of a matrix that has few.
_FEW = 32
#: Bytes of columns that are stored, at most.
STORED = 2**28


def schedule_mma(d: Declared, tile: MmaTile) -> Schedule:
    """:func:`~tilewright.topi.gpu.conv2d_mma.schedule_conv2d_mma` of a problem."""
    return schedule_conv2d_mma(d.output, tile)


def schedule_lanes(d: Declared, tile: LaneTile) -> Schedule:
    """:func:`~tilewright.topi.gpu.conv2d_lanes.schedule_conv2d_lanes` of a problem."""
    return schedule_conv2d_lanes(d.output, tile)


def schedule_columns(d: Declared, tile: ColumnTile) -> Schedule:
    """:func:`~tilewright.topi.cpu.conv2d_im2col.schedule_conv2d_columns` of a problem."""
    return schedule_conv2d_columns(d.output, tile)


@functools.lru_cache(512)
def _matmul(p: Problem) -> Matmul | None:
    """The matrices of a problem, if its declaration is a sum of products of two."""
    try:
        return find_products(p.declare().output, (1, 1, 1)).matmul
    except ScheduleError:
        return None


def matrices(p: Problem) -> Matmul:
    """Those of a problem that :func:`is_product`."""
    found = _matmul(p)
    assert found is not None
    return found


def is_product(p: Problem, kinds: tuple[str, ...] = ("float32", "float64")) -> bool:
    """Whether matrices are multiplied, with sums of a type that schedules have."""
    found = None if p.is_relaid or p.operator in DEPTHWISE else _matmul(p)
    return found is not None and str(found.product.dtype) in kinds


def is_mma_product(p: Problem) -> bool:
    """Whether tensor cores multiply these matrices, in tiles that a group is not too high for."""
    kinds = {"float16", "bfloat16", *FLOAT8}
    if not is_product(p) or p.accumulate != "float32":
        return False
    return str(matrices(p).weights.dtype) in kinds and bool(conv2d_mma_tiles(*_tiled(p)))


def is_dots(p: Problem) -> bool:
    """Whether both matrices lie along the sum, and one has few rows: of more, turning one costs
    little beside the products."""
    if not is_product(p) or p.channels_last is not None:  # of windows the sum has several axes
        return False
    return matrices(p).dots and min(p.result.shape[-2:]) <= _FEW


def mma_tiles(p: Problem, target: Target) -> list[MmaTile]:
    """For :func:`schedule_mma`."""
    may_store = stored_bytes(p) <= STORED and not p.is_float8
    return [t for t in conv2d_mma_tiles(*_tiled(p)) if t.implicit or may_store]


def lane_tiles(p: Problem, target: Target) -> list[LaneTile]:
    """For :func:`schedule_lanes`."""
    (rows, groups, columns), found = _tiled(p), matrices(p)
    columns *= found.groups if found.apart is not None else 1
    units = machine(target).units
    tiles = conv2d_lanes_tiles(rows, groups, columns, found.depth, units, found.taps, found.run)
    if target.kind == "opencl":  # which cannot copy in the background
        fits = [t for t in tiles if t.shared <= machine(target).local]
        return [t for t in fits if t.implicit and t.stages == 1]
    may_store = stored_bytes(p) <= STORED and p.dtype == p.accumulate
    return [t for t in tiles if t.implicit or may_store]


def column_tiles(p: Problem, target: Target) -> list[ColumnTile]:
    """For :func:`schedule_columns`."""
    filters, groups = filters_of(p)
    wide, own = lanes(p, target), filters // groups
    apart = matrices(p).apart is not None  # so that rows of a tile are of one matrix
    return [
        ColumnTile(rows, vectors, wide, implicit)
        for rows, vectors in ((8, 2), (4, 4), (6, 2), (4, 2), (8, 1))
        if groups == 1 or own % rows == 0 or (apart and rows < own)
        for implicit in (1, 0)
        if implicit or stored_bytes(p) <= STORED
    ] or [ColumnTile(own, 1, wide, 1)]


def mma_counts(p: Problem, tile: MmaTile) -> Counts:
    """Of :func:`schedule_mma`."""
    return of_products(matrices(p), tile, 32 * tile.down * tile.across)


def lane_counts(p: Problem, tile: LaneTile) -> Counts:
    """Of :func:`schedule_lanes`."""
    return of_products(matrices(p), tile, tile.down * tile.across, tile.chunks)


def filters_of(p: Problem) -> tuple[int, int]:
    """Rows of the result's matrix, of all groups, and groups."""
    found = matrices(p)
    return found.height * found.groups, found.groups


def _tiled(p: Problem) -> tuple[int, int, int]:
    """Rows of all groups that one dimension has, those groups, and columns of a matrix: matrices
    that have a dimension apart are tiled as one of them is."""
    found = matrices(p)
    groups = found.groups if found.apart is None else 1
    return found.height * groups, groups, static(found.product.shape[2], "columns")


def stored_bytes(p: Problem) -> int:
    """Bytes of all columns."""
    columns = matrices(p).columns
    count = math.prod(static(e, "columns") for e in columns.shape)
    return count * columns.dtype.bytes
