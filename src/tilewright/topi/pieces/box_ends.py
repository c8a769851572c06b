"""From where results of products of boxes leave: shared memory, whole or by parts, or registers."""

from __future__ import annotations

from tilewright.ir.itervar import IterVar
from tilewright.schedule import Schedule, Stage
from tilewright.te import Tensor
from tilewright.topi.nn.box_problems import ROW
from tilewright.topi.nn.box_sums import BoxDeclaration
from tilewright.topi.pieces.box_results import stage_results
from tilewright.topi.pieces.box_stores import store, store_directly
from tilewright.topi.pieces.box_tiles import BoxProductTile
from tilewright.topi.pieces.thread_order import leaves_directly


def finish(
    s: Schedule, d: BoxDeclaration, tile: BoxProductTile, results: Tensor, one_by_one: bool,
    alike: bool = True,
) -> tuple[IterVar, IterVar, tuple[Stage, IterVar]]:  # fmt: skip
    """Schedule the ``results`` that a block has, and where it stores them. Returns the loops over
    blocks and over the boxes of each, as :func:`~tilewright.topi.pieces.box_blocks.blocks_of`, and
    the stage and the loop at which sums are computed."""
    out = s[d.output]
    if leaves_directly(d, tile):
        block, box, group = store_directly(out, d, tile, one_by_one, alike)
        return block, box, (s[results], group)
    if tile.stores:
        s[results].transform_layout(lambda *at: (at[-1] // ROW, *at[:-1], at[-1] % ROW))
    block, box, own = store(out, d, tile, one_by_one, alike)
    if own is None:
        return block, box, (s[results], stage_results(s[results], d, tile, box, out))
    group, part = own
    stage_results(s[results], d, tile.part, part, out, thread=out.marks[group].thread)
    return block, box, (out, group)
