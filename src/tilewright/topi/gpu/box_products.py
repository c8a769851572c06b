"""The tiles worth trying for products of boxes on Hopper, best guess first.

The guess is a time, of what tensor cores and stores of results take, what comes through the
second-level cache and what memory moves (:mod:`.box_times`).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import chain, product
from operator import itemgetter
from typing import TypeVar

from tilewright.target.target import Target
from tilewright.target.windows import Window, most_offset
from tilewright.topi.gpu.box_sizes import CHANNELS, Sizes, added_bytes, each_image, suited
from tilewright.topi.gpu.box_times import (
    ADDED,
    ADDED_THERE,
    READERS,
    arithmetic,
    reads_results,
)
from tilewright.topi.gpu.machine import MACHINE
from tilewright.topi.gpu.plain_boxes import (
    Given,
    Shape,
    at_once,
    behind_one_another,
    given,
    in_parts,
)
from tilewright.topi.gpu.produced_boxes import in_turn, produced, produced_turned
from tilewright.topi.nn.box_copies import widths
from tilewright.topi.nn.box_factors import BESIDE
from tilewright.topi.nn.box_phases import all_phases, is_phased
from tilewright.topi.nn.convolved import Convolved
from tilewright.topi.operators.gemm import Gemm
from tilewright.topi.pieces.box_tiles import ROWS, BoxProductTile
from tilewright.topi.problem import Problem

#: Microseconds that a cluster with producers waits for constants, which others ask for before the
#: kernel before has ended.
_LATE = 0.4
#: How many tiles are worth trying.
MOST = 40

TileT = TypeVar("TileT")


def suits(problem: Problem) -> bool:
    """Whether it is a convolution in 16 or 8 bits or TF32, dense or in groups, whose images TMA can
    bring, or copies of them: channels last. Or one product of matrices that is one."""
    return suited(problem) is not None


def suits_products(problem: Problem) -> bool:
    """Whether rows of the product are pixels, and an SM has room for some tile."""
    p = suited(problem) or each_image(problem)
    return p is not None and p.pass_ != "wgrad" and bool(product_times(problem, split=False))


def price(
    *, split: bool = False, windows: bool = False, beside: int = 1
) -> Callable[[Problem, BoxProductTile, Target], float]:
    """What a template's tiles of a problem are predicted to take, in microseconds."""

    def of_tile(problem: Problem, tile: BoxProductTile, target: Target) -> float:
        return product_times(problem, split=split, windows=windows, beside=beside)[tile]

    return of_tile


def product_tiles(problem: Problem, target: Target) -> list[BoxProductTile]:
    """For :func:`~tilewright.topi.sketches.box_products.schedule_box_products`."""
    return best_of(product_times(problem, split=False))


def split_tiles(problem: Problem, target: Target) -> list[BoxProductTile]:
    """For :func:`~tilewright.topi.sketches.box_splits.schedule_box_splits`."""
    return best_of(product_times(problem, split=True))


def window_split_tiles(problem: Problem, target: Target) -> list[BoxProductTile]:
    """For the same where tiles have results that follow one another, over rows and images."""
    return best_of(product_times(problem, split=True, windows=True))


def suits_window_splits(problem: Problem) -> bool:
    """Whether such tiles, in parts, are predicted to be faster."""
    p = suited(problem)
    if p is None or p.pass_ == "wgrad" or not has_windows(problem):
        return False
    return is_sooner(product_times(problem, split=True, windows=True), problem)


def suits_splits(problem: Problem) -> bool:
    """Whether a pass with few results is predicted to be faster in parts."""
    p = suited(problem)
    if p is None or p.pass_ == "wgrad":
        return False
    return is_sooner(product_times(problem, split=True), problem)


def is_sooner(found: dict[BoxProductTile, float], problem: Problem) -> bool:
    """Whether tiles are predicted to be faster than those that have nothing special."""
    return bool(found) and min(found.values()) < least_time(problem)


def least_time(problem: Problem) -> float:
    """What the best of tiles that have nothing special is predicted to take."""
    return min(product_times(problem, split=False).values(), default=math.inf)


def window_tiles(problem: Problem, target: Target) -> list[BoxProductTile]:
    """For the same where tiles have results that follow one another, also over rows and images."""
    return best_of(product_times(problem, split=False, windows=True))


def suits_windows(problem: Problem) -> bool:
    """Whether tiles of results that follow one another are predicted to be faster than boxes."""
    if not has_windows(problem) or problem.pass_ == "wgrad":
        return False
    return is_sooner(product_times(problem, split=False, windows=True), problem)


def has_windows(problem: Problem) -> bool:
    """Whether TMA can copy windows of a problem."""
    p = suited(problem)
    if p is None or isinstance(problem, Gemm) or p.rank == 1 or p.block:
        return False
    w = Convolved(p)
    taps = [(k - 1) * d for k, d in zip(w.kernel, w.dilation, strict=True)]
    window = Window(tuple(w.result), tuple(w.stride), tuple(-x for x in w.before))
    if p.pass_ == "wgrad":  # whose results are taps
        taps = [(k - 1) * d for k, d in zip(w.result, w.stride, strict=True)]
        window = replace(window, grid=tuple(w.kernel), steps=tuple(w.dilation))
    if is_phased(p):
        cut = all_phases(p)
        taps, grid = [c.taps - 1 for c in cut], Sizes.of(p, p.dtype).extents[1:]
        window = Window(grid, (1,) * len(cut), tuple(c.first for c in cut))
    far = max(taps) > most_offset(p.rank)
    return min(window.grid) > 1 and not far and not window.limits(w.image)


def row_tiles(problem: Problem, target: Target) -> list[BoxProductTile]:
    """For the same where a row of shared memory has several pixels of a block of channels."""
    return best_of(product_times(problem, split=False, beside=BESIDE))


def suits_rows(problem: Problem) -> bool:
    """Whether tiles of such rows are predicted to be faster."""
    p = suited(problem)
    if p is None or p.pass_ != "forward" or not p.block or max(p.stride) > 1 or p.groups > 1:
        return False
    return is_sooner(product_times(problem, split=False, beside=BESIDE), problem)


def best_of(found: dict[TileT, float]) -> list[TileT]:
    """Tiles worth trying, the best guess first."""
    return [tile for tile, _ in sorted(found.items(), key=itemgetter(1))[:MOST]]


def product_times(
    problem: Problem, *, split: bool, windows: bool = False, beside: int = 1
) -> dict[BoxProductTile, float]:
    """Tiles, and what they are predicted to take. Where pixels of a row lie ``beside`` one another,
    neighbours are results of different groups of threads."""
    return _priced(problem, split, windows, beside)


@functools.lru_cache(maxsize=64)
def _priced(
    problem: Problem, split: bool, windows: bool, beside: int
) -> dict[BoxProductTile, float]:  # fmt: skip
    g = given(problem, split, windows, beside)
    shapes = list(g.shapes())
    if split:
        return {tile: cost for shape in shapes for tile, cost in in_parts(g, shape)}
    found = dict(_produced(g, shapes))
    # Where a block has several tiles, a producer makes them faster in 16 bits.
    plain = g.of.phases == 1 and widths(g.p.dtype).chunk == 8
    better = {(tile.box, tile.channels) for tile in found if plain and not tile.turned}
    for shape, late in product(shapes, (False, True) if reads_results(problem) else (False,)):
        large = shape.tiles > MACHINE.sms or shape.rows * shape.channels > ROWS * CHANNELS[0]
        if (shape.box, shape.channels) in better and large and not (shape.turned or late):
            continue
        found.update(at_once(g, shape, late, bool(better)))
    return found


def _produced(g: Given, shapes: list[Shape]) -> Iterator[tuple[BoxProductTile, float]]:
    """Tiles whose boxes a producer copies, and what they are predicted to take."""
    if g.several or g.slices > 1 or g.beside > 1 or not g.last:
        return
    problem, p, of = g.problem, g.p, g.of
    after, behind = functools.partial(_after, problem), behind_one_another if g.alike else in_turn
    made = produced(
        problem, p, of, g.own, list(chain(*g.boxes.values())), g.every, after, behind,
        functools.partial(_brought, problem), g.direct,
    )  # fmt: skip
    turned = (shape[:4] for shape in shapes if shape.turned)
    more = produced_turned(problem, p, of, g.own, turned, after, behind)
    alone = _LATE if problem.constants else 0.0
    for tile, cost in made if g.direct else chain(made, more):
        yield tile, g.before + cost + alone * (tile.boxes_to * tile.filters_to > 1)


def _after(problem: Problem, rows: int, columns: int, there: bool) -> float:
    """Microseconds that the epilogue of a tile takes where an SM has no other block, and what is
    added may be ``there`` in shared memory."""
    if not problem.epilogue:
        return 0.0
    read = max(rows, READERS) * columns * reads_results(problem)
    return arithmetic(problem, rows, columns, 1) + read / (ADDED_THERE if there else ADDED)


def _brought(problem: Problem, rows: int, channels: int) -> int:
    """Bytes of what is added to the results of a box where TMA brings all of it."""
    brought, read = added_bytes(problem, rows, channels)
    return 0 if read else brought
