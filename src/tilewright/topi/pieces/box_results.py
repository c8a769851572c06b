"""Results of products of boxes in shared memory, and what is added to them."""

from __future__ import annotations

from dataclasses import replace

from tilewright.ir.itervar import IterVar
from tilewright.schedule import Schedule, Stage
from tilewright.te import Tensor
from tilewright.topi.nn.box_problems import ROW, widths
from tilewright.topi.nn.box_sums import BoxDeclaration
from tilewright.topi.pieces.block_tiles import BlockTile
from tilewright.topi.pieces.box_blocks import wide_of
from tilewright.topi.pieces.box_products import by_groups, over_threads
from tilewright.topi.pieces.box_tiles import BoxProductTile
from tilewright.topi.stages import image_axes

#: By the number of dimensions, how results with channels last lie.
_LAST = {2: "NC", 3: "NWC", 4: "NHWC", 5: "NDHWC"}


def staged(s: Schedule, d: BoxDeclaration) -> Tensor:
    """Results of a block, in shared memory."""
    found = d.phased if d.by_pixels is None else d.by_pixels
    found = d.before or found
    if found is None:
        found = s.cache_write(d.output, "shared")
    s[found].set_scope("shared")
    return found


def share(numbers: Stage, tile: BlockTile, block: IterVar, out: Stage) -> None:
    """What is the same for a channel, computed once for a block."""
    numbers.set_scope("shared")
    numbers.compute_at(out, block)
    over_threads(numbers, numbers.op.axis[0], tile)


def stage_results(
    staged: Stage, d: BoxDeclaration, tile: BlockTile, block: IterVar, out: Stage,
    together: bool = False, thread: IterVar | None = None,
) -> IterVar:  # fmt: skip
    """Results of a block in shared memory, the epilogue included; returns the loop over groups,
    each of which has its results of all phases ``together``, or of one phase after the other. The
    ``thread`` axis of groups may be that of a loop around."""
    staged.compute_at(out, block)
    axes, blocks = list(staged.op.axis), list[IterVar]()
    if isinstance(tile, BoxProductTile) and tile.stores:
        blocks = [axes.pop(0)]
        staged.align_bounds(blocks[0], tile.channels // ROW)
        tile = replace(tile, channels=ROW)
    phase = [] if d.phased is None else [axes.pop(-2)]
    for axis, extent in zip(axes, (*extents_of(tile, len(axes) - 1), tile.channels), strict=True):
        staged.align_bounds(axis, extent)
    if phase or blocks:  # channels last
        n, *space, c = axes
        if blocks and not space:  # rows of a matrix are images of one pixel
            n, h = staged.split(n, factor=1)
            space = list(staged.split(h, factor=1))
        elif blocks and len(space) == 1:
            space = list(staged.split(space[0], nparts=1))
    else:
        layout = d.problem.result_layout
        n, c, *space = image_axes(staged, layout if d.by_pixels is None else _LAST[len(axes)])
    stored = widths(d.output.dtype)
    row = min(stored.row, max(tile.channels, stored.chunk))
    if blocks:
        staged.swizzle(2 * ROW)
    else:
        staged.storage_align(staged.op.axis[-2], row, stored.chunk)  # no bank twice
        if together and phase:  # nor by neighbours, between which all phases lie
            staged.storage_align(staged.op.axis[-3], 2 * stored.chunk, stored.chunk)
    outside, inside = ([], phase) if together else (phase, blocks)
    if together:
        staged.unroll(*phase)
    pairs = wide_of(d) % 2 == 0 or together
    return by_groups(staged, tile, outside, (n, *space), c, pairs, inside, thread)


def extents_of(tile: BlockTile, rank: int) -> tuple[int, ...]:
    """Those of a tile along the dimensions that results have but channels."""
    images, *space = tile.box
    return images, *space[len(space) + 1 - rank :]
