"""The tiles worth trying for products with diagonals, in both forms, best guess first.

The guess is a time, of what tensor cores multiply, what shared memory is read for, what comes
through the second-level cache and what memory moves. Its numbers are those of an H200; which of
these tiles is taken there, records and the trees of the choice decide.
"""

from __future__ import annotations

import functools
import heapq
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import product

from tilewright.target.instructions.tma_load import LARGEST
from tilewright.target.target import Target
from tilewright.topi.gpu.depthwise_diagonal import diagonal_cut
from tilewright.topi.gpu.depthwise_sparse_diagonal import sparse_cut
from tilewright.topi.gpu.diagonal_blocks import DiagonalTile
from tilewright.topi.gpu.window import MULTIPROCESSORS
from tilewright.topi.nn.depthwise_diagonal import CHANNELS, Cut, Diagonal
from tilewright.topi.nn.depthwise_forward import whole
from tilewright.topi.nn.depthwise_sparse_diagonal import PAIR, SparseDiagonal
from tilewright.topi.problem import Problem

#: Registers of a thread beside what it multiplies, and at most.
_OTHERS, _MOST_REGISTERS = 36, 250
#: Products written out at most, and tiles that are worth trying.
_CODE, _MOST = 1024, 160


class Machine:
    """An H200, as these guesses see it: cycles of a multiprocessor in a microsecond, bytes that the
    second-level cache and memory move in one; of a multiprocessor, bytes of shared memory,
    registers, warps and blocks; bytes that a block takes beside its tiles."""

    CYCLES, CACHE, MEMORY = 1755.0, 6.5e6, 4.2e6
    SHARED, REGISTERS, WARPS, BLOCKS, OWN = 227 * 1024, 65536, 64, 32, 1100
    #: Cycles of a multiprocessor for one product, one load of operands, one instruction.
    PRODUCT, LOAD, ISSUE = 1.65, 4.0, 0.25

    @classmethod
    def resident(cls, warps: int, registers: int, space: int) -> int:
        """Blocks of so many warps, registers a thread and bytes that a multiprocessor holds."""
        room = min(cls.REGISTERS // (warps * 32 * registers), cls.WARPS // warps, cls.BLOCKS)
        return min(cls.SHARED // space, room)

    @classmethod
    def busy(cls, products: int, loads: int, eights: int, others: int) -> float:
        """Cycles of a multiprocessor for what a warp does, with so many ``others`` instructions.
        Pixels of even eights of channels meet the same banks, unless they are swizzled."""
        passes = 1 if eights in (2, 4, 8) else math.gcd(eights, 8)
        pipes = products * cls.PRODUCT, loads * passes * cls.LOAD
        issued = (products + loads + others) * cls.ISSUE
        return math.pow(pipes[0] ** 2 + pipes[1] ** 2 + issued**2, 0.5)


@dataclass(frozen=True)
class _Warp:
    """What a warp does in a turn: products, loads of operands and other instructions; and its
    diagonals, in registers."""

    products: int
    loads: int
    others: int
    diagonals: int


@dataclass(frozen=True)
class _Form:
    """A form of the products: how a tile cuts a problem, and the rows that a warp may have."""

    cut: Callable[[Problem, DiagonalTile], Cut]
    rows: tuple[int, ...]


_DENSE = _Form(diagonal_cut, (1, 2, 4, 5, 7, 8, 14, 16))
_SPARSE = _Form(sparse_cut, (2, 4, 6, 8, 10, 12, 14, 16, 28))


def diagonal_tiles(p: Problem, target: Target) -> list[DiagonalTile]:
    """Tiles that fit, of products of two taps."""
    return list(_ranked(p, _DENSE))


def sparse_tiles(p: Problem, target: Target) -> list[DiagonalTile]:
    """Tiles that fit, of products of four rows with two."""
    return list(_ranked(p, _SPARSE))


def suits_diagonal(p: Problem) -> bool:
    """Whether products of two taps are for a problem: one of 16 bits, whose pixels begin at
    multiples of 16 bytes, with filters that fit registers."""
    return p.pass_ != "wgrad" and has_eights(p) and bool(_ranked(p, _DENSE))


def suits_sparse(p: Problem) -> bool:
    """The same of products of four rows with two."""
    return p.pass_ != "wgrad" and has_eights(p) and bool(_ranked(p, _SPARSE))


def has_eights(p: Problem) -> bool:
    """Whether a problem, of any pass, is of 16 bits and of eights of channels."""
    return (
        p.rank == 2
        and p.dtype in ("float16", "bfloat16")
        and p.accumulate == "float32"
        and p.multiplier == 1
        and p.channels % CHANNELS == 0
        and (p.pass_ != "dgrad" or p.stride == (1, 1))
    )


def eights_of(p: Problem) -> list[int]:
    """Eights of channels that blocks may have without much waste, one at least."""
    few = (1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 12)
    return [n for n in few if whole(p.channels, n * CHANNELS) <= 1.15 * p.channels]


@functools.lru_cache(64)
def _ranked(p: Problem, form: _Form) -> tuple[DiagonalTile, ...]:
    found = heapq.nsmallest(_MOST, _tiles(p, form), key=lambda pair: pair[0])
    return tuple(dict.fromkeys(tile for cost, tile in found if cost < math.inf))


def _tiles(p: Problem, form: _Form) -> Iterator[tuple[float, DiagonalTile]]:
    """Tiles, with the microseconds that they are thought to take."""
    height, width = p.result_image
    groups = -(-width // form.cut(p, DiagonalTile()).columns)
    across = sorted({-(-groups // parts) for parts in (1, 2, 3, 4, 7)})
    rows = [n for n in form.rows if whole(height, n) <= 1.2 * height] or list(form.rows[:1])
    for r, down, x, e in product(rows, (1, 2, 4), across, eights_of(p)):
        if not 2 <= down * x * e <= 24 or r * down >= 2 * height:
            continue
        tile, turns = DiagonalTile(r, down, x, e), -(-height // (r * down))
        yield _micros(p, form, tile), tile
        for t in sorted({2, 4, turns} - {1}):
            if t <= turns:
                made = replace(tile, turns=t, stages=2)
                yield _micros(p, form, made), made
        yield from _going_on(p, form, replace(tile, turns=turns, stages=2))


def _going_on(p: Problem, form: _Form, tile: DiagonalTile) -> Iterator[tuple[float, DiagonalTile]]:
    """The same from image to image, in so many blocks as multiprocessors hold at once."""
    cut, width = form.cut(p, tile), p.result_image[1]
    each = -(-width // cut.tile[1]) * -(-p.channels // cut.tile[2])
    for blocks in (2, 3, 4, 6, 8):
        images = -(-p.batch * each // (blocks * MULTIPROCESSORS))
        if 1 < images <= p.batch:
            made = replace(tile, images=images)
            yield _micros(p, form, made), made


def _warp(cut: Cut) -> _Warp:
    if isinstance(cut, SparseDiagonal):
        each = cut.groups * cut.kernel[1]
        products, loads = cut.rows // PAIR * each, cut.loaded * cut.kernel[1]
        return _Warp(products, loads, 8 * cut.rows + 40, 4 * each)
    assert isinstance(cut, Diagonal)
    each = cut.kernel[0] * cut.pairs
    return _Warp(cut.rows * each, cut.seen_rows * cut.pairs, 12 * cut.rows + 40, 2 * each)


def _micros(p: Problem, form: _Form, tile: DiagonalTile) -> float:
    """The microseconds that a tile is thought to take, infinite where it does not fit."""
    cut, (height, width) = form.cut(p, tile), p.result_image
    rows, columns = cut.seen(tile.rows * tile.down, cut.columns * tile.across)
    warp, warps = _warp(cut), tile.down * tile.across * tile.eights
    registers = tile.rows * cut.columns // 4 + warp.diagonals + _OTHERS
    results = tile.rows * tile.down * cut.columns * tile.across * (tile.channels + CHANNELS)
    space = (tile.stages * rows * columns * tile.channels + results) * 2 + Machine.OWN
    if max(rows, columns) > LARGEST or warp.products > _CODE or registers > _MOST_REGISTERS:
        return math.inf
    resident = Machine.resident(warps, registers, space)
    if not resident:
        return math.inf
    down, across, beside = (
        -(-extent // size)
        for extent, size in zip((height, width, p.channels), cut.tile, strict=True)
    )
    blocks = -(-p.batch // tile.images) * down * across * beside
    waves = blocks / (resident * MULTIPROCESSORS)
    turns = blocks * tile.turns * tile.images
    work = Machine.busy(warp.products, warp.loads, tile.eights, warp.others)
    made = 2 * warp.diagonals  # instructions that make a warp's diagonals
    busy = warps * (turns * work + blocks * made) / Machine.CYCLES / MULTIPROCESSORS
    busy *= 1 + 7 / (resident * warps)
    written = p.batch * height * width * p.channels * 2
    box = rows * columns * max(tile.channels * 2 + 12, 80)  # short rows take as long as longer ones
    cache = (turns * box + written) / Machine.CACHE
    read = p.batch * math.prod(cut.image) * p.channels * 2
    memory = (read + written) / Machine.MEMORY * (1.24 if beside > 1 else 1.0)
    slowest = math.pow(busy**4 + cache**4 + memory**4, 0.25)
    tail = math.ceil(waves) / waves if waves < 2 else 1.0
    waits = math.ceil(waves) * (1.5 if tile.stages == 1 else 1.0) / math.sqrt(resident)
    return slowest * tail + waits
