"""What epilogues of products of boxes read beside sums: TMA brings it before it is needed, or
threads hold it in registers, each what its own results take."""

from __future__ import annotations

from tilewright.ir.dtype import dtype
from tilewright.ir.itervar import IterVar
from tilewright.schedule import Schedule, Stage
from tilewright.target.devices import WARP
from tilewright.te import Tensor
from tilewright.topi.gpu.machine import most_registers
from tilewright.topi.nn.box_sums import BoxDeclaration
from tilewright.topi.pieces.block_tiles import BlockTile
from tilewright.topi.pieces.box_blocks import wide_of
from tilewright.topi.pieces.box_products import load
from tilewright.topi.pieces.box_results import extents_of
from tilewright.topi.pieces.box_tiles import LANES, ROWS, BoxProductTile
from tilewright.topi.pieces.thread_order import leaves_directly
from tilewright.topi.pieces.tiling import extent_of
from tilewright.topi.problem import Problem

#: Registers of a thread beside its sums and what is added to them, and beside all that it holds,
#: the most of the latter of which the compiler spills none, and threads that have a row of results.
_OTHERS, _BESIDE, _MOST, _ROW = 30, 40, 168, 4
#: Bytes that a thread loads at once of what lies in the order of its channels.
_VECTOR = 16


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


def holds(p: Problem, rows: int, channels: int, producer: bool) -> tuple[int, int]:
    """Registers that a thread of a tile, whose rows are results, takes to hold what is added to its
    results while these are multiplied, and numbers of its channels besides; 0 of what it has none
    for, or not to gain by it."""
    if not p.epilogue_shapes:
        return 0, 0
    every = p.inputs()
    sizes = {"output": 0, "channel": 0}
    for step in p.epilogue:
        for name, shape in step.tensors:
            sizes[shape] += dtype(every[name].dtype).bytes
    sums = channels * ROWS // LANES
    most = most_registers(rows // ROWS * (LANES // WARP) + producer)
    results = -(-sums * sizes["output"] // 4)
    results = results if sums + results + _OTHERS <= most else 0
    numbers = -(-channels // _ROW * sizes["channel"] // 4)
    held = sums + results + numbers
    return results, numbers if held <= min(most - _BESIDE, _MOST) else 0


def hold(
    s: Schedule, d: BoxDeclaration, tile: BoxProductTile, block: IterVar, at: tuple[Stage, IterVar],
    alike: bool, brought: bool,
) -> None:  # fmt: skip
    """Hold what an epilogue reads in registers where threads have some: numbers of channels, which
    boxes of a ``block`` have ``alike``, from before its first one on, and what is added to results,
    unless TMA has ``brought`` it, from before ``at`` sums are computed. What several threads hold
    alike, they load alike."""
    # Elsewhere, or of fewer channels than a tile has, who holds what does not follow.
    turned = bool(tile.turned) and tile.boxes == 1 and (d.boxes.whole or bool(tile.kept))
    if d.numbers or not (leaves_directly(d, tile) or turned) or wide_of(d) % tile.channels:
        return
    results, numbers = holds(d.problem, tile.groups * ROWS, tile.channels, bool(tile.staged))
    results = 0 if turned else results
    early = bool(results) and len(d.added) == 1 and not brought
    for step in d.problem.epilogue:
        for name, shape in step.tensors:
            tensor = d.inputs[name]
            if shape == "channel" and numbers and (alike or early):
                place = (s[d.output], block) if alike else at
            elif shape == "output" and early:
                place = at
                (tensor,) = s[d.added[0]].op.inputs
            else:
                continue
            readers = [x.op for x in s.consumers(s[tensor])]
            own = s[s.cache_read(tensor, "fragment", readers, before=d.sum)]
            own.compute_at(*place)
            *rest, c = own.op.axis
            size = dtype(tensor.dtype).bytes
            if turned:  # whose rows are channels, apart from one another
                own.unroll(*rest, c)
                continue
            c, lane = own.split(c, factor=_VECTOR // size)
            own.unroll(*rest, c)
            own.vectorize(lane)
