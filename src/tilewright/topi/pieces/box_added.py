"""What epilogues of products of boxes add to sums: TMA brings it before it is needed."""

from __future__ import annotations

from tilewright.ir.itervar import IterVar
from tilewright.schedule import Stage
from tilewright.te import Tensor
from tilewright.topi.nn.box_sums import BoxDeclaration
from tilewright.topi.pieces.block_tiles import BlockTile
from tilewright.topi.pieces.box_products import load
from tilewright.topi.pieces.box_results import extents_of
from tilewright.topi.pieces.tiling import extent_of


def parted(d: BoxDeclaration, tile: BlockTile) -> tuple[Tensor, ...]:
    """What TMA brings of what is added to results: all of it where a tile has whole rows of it."""
    rows = (extent_of(t.op.axis[-1]) for t in d.added)
    return d.added if all(tile.channels % row == 0 for row in rows) else ()


def bring_added(
    added: Stage, tile: BlockTile, block: IterVar, out: Stage, stages: int, producer: bool = False
) -> None:
    """What is added to results, in shared memory before it is needed: ``stages - 1`` boxes of it
    ahead, which a ``producer`` may copy, or with one stage while its own is multiplied."""
    added.set_scope("shared")
    _, *pixel, c = added.op.axis
    box = (*extents_of(tile, len(pixel)), extent_of(c))
    load(added, out, block, 1, box, stages, producer=producer, late=stages == 1 or producer)
