"""The tiles worth trying for products of boxes on Hopper, best guess first.

The guess is a time, of what tensor cores and stores of results take, what comes through the
second-level cache and what memory moves (:mod:`.box_times`).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import chain, product

from tilewright.target.windows import Window, most_offset
from tilewright.topi.gpu.box_sizes import CHANNELS, Sizes, added_bytes, each_image, suited
from tilewright.topi.gpu.box_times import (
    ADDED,
    ADDED_THERE,
    READERS,
    arithmetic,
    reads_results,
)
from tilewright.topi.gpu.first_filters import turned_tiles
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
from tilewright.topi.nn.box_factors import BESIDE, PAIR
from tilewright.topi.nn.box_phases import all_phases, is_phased
from tilewright.topi.nn.box_problems import widths
from tilewright.topi.nn.convolved import Convolved
from tilewright.topi.operators.gemm import Gemm
from tilewright.topi.pieces.box_tiles import ROWS, BoxProductTile
from tilewright.topi.problem import Problem

#: Microseconds that a cluster with producers waits for constants, which others ask for before the
#: kernel before has ended.
_LATE = 0.4
#: How many times as long as predicted tiles without a producer take whose rows several taps see.
_MOVED = 1.15


def is_product(problem: Problem) -> bool:
    """Whether rows of a product are pixels: of a forward pass or a gradient by the input, or
    several products of matrices."""
    p = suited(problem) or each_image(problem)
    return p is not None and p.pass_ != "wgrad"


def is_sooner(found: Mapping[BoxProductTile, float], problem: Problem) -> bool:
    """Whether tiles are predicted to be faster than those that have nothing special."""
    return bool(found) and min(found.values()) < least_time(problem)


def least_time(problem: Problem) -> float:
    """What the best of tiles that have nothing special is predicted to take, in microseconds."""
    return min(product_times(problem).values(), default=math.inf)


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


def _has_rows(problem: Problem) -> bool:
    """Whether a row of shared memory may have several pixels of a block of channels."""
    p = suited(problem)
    single = p is not None and p.pass_ == "forward" and p.groups == 1
    return p is not None and single and p.block > 0 and max(p.stride) == 1


@functools.lru_cache(maxsize=64)
def product_times(
    problem: Problem, *, split: bool = False, windows: bool = False, beside: int = 1,
    pooled: bool = False,
) -> dict[BoxProductTile, float]:  # fmt: skip
    """For :func:`~tilewright.topi.sketches.box_products.schedule_box_products`, or ``split`` in
    parts for :func:`~tilewright.topi.sketches.box_splits.schedule_box_splits`: tiles, and what they
    are predicted to take, in microseconds; none of other problems than these are for. Of
    ``windows`` results follow one another, over rows and images; where pixels of a row lie
    ``beside`` one another, neighbours are results of different groups of threads; none that are
    ``pooled`` leave from registers."""
    special = split or windows or beside > 1
    if not is_product(problem) or (special and suited(problem) is None):
        return {}
    if (windows and not has_windows(problem)) or (beside > 1 and not _has_rows(problem)):
        return {}
    g = given(problem, split, windows, beside)
    g = replace(g, direct=[]) if pooled else g
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
    plain = beside == 1 and not pooled and g.steps > g.of.parts  # of several taps
    if plain and (windows or not has_windows(problem)):
        found |= {x: g.before + cost for x, cost in turned_tiles(problem, g.p, g.of, False)}
    return found


def row_times(problem: Problem) -> dict[BoxProductTile, float]:
    """The same of images in blocks, of which a row of shared memory has several pixels: as many as
    a tile has groups of threads."""
    found, p = (product_times(problem, beside=n) for n in (PAIR, BESIDE)), suited(problem)
    moved = _MOVED if p is not None and max(p.kernel) > 1 else 1.0
    return {x: cost if x.staged else moved * cost for y in found for x, cost in y.items()}


def row_form(problem: Problem, tile: BoxProductTile) -> str:
    """The declaration that such a tile is of, by name."""
    return "block pairs" if tile.groups == PAIR else "block rows"


def _produced(g: Given, shapes: list[Shape]) -> Iterator[tuple[BoxProductTile, float]]:
    """Tiles whose boxes a producer copies, and what they are predicted to take."""
    # Of blocks results leave from registers alone.
    every = g.every if g.last else g.direct
    if g.several or g.slices > 1 or not every:
        return
    problem, p, of = g.problem, g.p, g.of
    after, behind = functools.partial(_after, problem), behind_one_another if g.alike else in_turn
    made = produced(
        problem, p, of, g.own, list(chain(*g.boxes.values())), every, after, behind,
        functools.partial(_brought, problem), g.direct, None if g.alike else behind_one_another,
        g.beside,
    )  # fmt: skip
    turned = (shape[:4] for shape in shapes if shape.turned)
    more = produced_turned(problem, p, of, g.own, turned, after, behind)
    alone = _LATE if problem.constants else 0.0
    for tile, cost in chain(made, more):
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
