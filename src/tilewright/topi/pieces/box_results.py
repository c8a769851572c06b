"""Results of products of boxes in shared memory, and what is added to them."""

from __future__ import annotations

from tilewright.ir.itervar import IterVar
from tilewright.schedule import Schedule, Stage
from tilewright.te import Tensor
from tilewright.topi.nn.box_copies import widths
from tilewright.topi.nn.box_windows import BoxDeclaration
from tilewright.topi.pieces.block_tiles import BlockTile
from tilewright.topi.pieces.box_products import by_groups, load, over_threads
from tilewright.topi.pieces.tiling import extent_of
from tilewright.topi.stages import image_axes

#: By the number of dimensions, how results with channels last lie.
_LAST = {2: "NC", 3: "NWC", 4: "NHWC", 5: "NDHWC"}


def staged(s: Schedule, d: BoxDeclaration) -> Tensor:
    """Results of a block, in shared memory."""
    found = d.phased if d.by_pixels is None else d.by_pixels
    if found is None:
        found = s.cache_write(d.output, "shared")
    s[found].set_scope("shared")
    return found


def parted(d: BoxDeclaration, tile: BlockTile) -> tuple[Tensor, ...]:
    """What TMA brings of what is added to results: all of it where a tile has whole rows of it."""
    rows = (extent_of(t.op.axis[-1]) for t in d.added)
    return d.added if all(tile.channels % row == 0 for row in rows) else ()


def bring_added(added: Stage, tile: BlockTile, block: IterVar, out: Stage, stages: int) -> None:
    """What is added to results, in shared memory before it is needed, a box of it ahead."""
    added.set_scope("shared")
    _, *pixel, c = added.op.axis
    load(added, out, block, 1, (*_extents(tile, len(pixel)), extent_of(c)), stages)


def share(numbers: Stage, tile: BlockTile, block: IterVar, out: Stage) -> None:
    """What is the same for a channel, computed once for a block."""
    numbers.set_scope("shared")
    numbers.compute_at(out, block)
    over_threads(numbers, numbers.op.axis[0], tile)


def stage_results(
    staged: Stage, d: BoxDeclaration, tile: BlockTile, block: IterVar, out: Stage,
    together: bool = False,
) -> IterVar:  # fmt: skip
    """Results of a block in shared memory, the epilogue included; returns the loop over groups,
    each of which has its results of all phases ``together``, or of one phase after the other."""
    staged.compute_at(out, block)
    axes = list(staged.op.axis)
    phase = [] if d.phased is None else [axes.pop(-2)]
    for axis, extent in zip(axes, (*_extents(tile, len(axes) - 1), tile.channels), strict=True):
        staged.align_bounds(axis, extent)
    if phase:
        n, *space, c = axes
    else:
        layout = d.problem.result_layout
        n, c, *space = image_axes(staged, layout if d.by_pixels is None else _LAST[len(axes)])
    stored = widths(d.output.dtype)
    row = min(stored.row, max(tile.channels, stored.chunk))
    staged.storage_align(staged.op.axis[-2], row, stored.chunk)  # no bank twice
    outside, inside = ([], phase) if together else (phase, [])
    if together:
        staged.unroll(*phase)
    return by_groups(staged, tile, outside, (n, *space), c, _wide(d) % 2 == 0, inside)


def _extents(tile: BlockTile, rank: int) -> tuple[int, ...]:
    """Those of a tile along the dimensions that results have but channels."""
    images, *space = tile.box
    return images, *space[len(space) + 1 - rank :]


def _wide(d: BoxDeclaration) -> int:
    """Channels of the result."""
    return extent_of(d.sum.op.axis[-1])
