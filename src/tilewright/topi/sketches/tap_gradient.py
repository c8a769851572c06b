"""Gradients by the filter on Hopper, of images with channels last, whose taps share what is read.

A block computes some filters by some channels of all taps. Step by step TMA brings a box of pixels
of dy, and of x all that the taps see there; from shared memory, where channels lie side by side,
warps load fragments of both, those of dy once for all of their taps. Each of ``splits`` blocks sums
a part of the pixels; another kernel adds these in a fixed order.
"""

from __future__ import annotations

from tilewright import te
from tilewright.ir.itervar import IterVar
from tilewright.schedule import Schedule, Stage
from tilewright.target import instructions as found
from tilewright.target.instruction import Instruction
from tilewright.topi.nn.box_windows import BoxDeclaration
from tilewright.topi.nn.tap_gradients import reach, taps_of
from tilewright.topi.pieces.box_products import innermost, load
from tilewright.topi.pieces.box_results import add_parts
from tilewright.topi.pieces.tap_tiles import TapGradientTile
from tilewright.topi.pieces.tiling import extent_of
from tilewright.topi.stages import scheduled

#: By type: the product, and the loads of its operands.
_INSTRUCTIONS: dict[str, tuple[Instruction, ...]] = {
    "float16": (found.mma_f16, found.ldmatrix_a_trans_blocks_f16,
                found.ldmatrix_b_trans_blocks_f16),
    "bfloat16": (found.mma_bf16, found.ldmatrix_a_trans_blocks_bf16,
                 found.ldmatrix_b_trans_blocks_bf16),
    "float32": (found.mma_tf32,),
}  # fmt: skip


def schedule_tap_gradient(d: BoxDeclaration, tile: TapGradientTile) -> Schedule:
    """The schedule of a gradient by the filter that is declared with the same ``tile``."""
    s = scheduled(d.output, d.sum)
    writer, total, pixel = d.output, d.sum, list(d.sum.op.reduce_axis)
    added = tile.splits > 1 or d.placed
    if added:
        if total is writer:
            total = s.cache_write(writer, "local")
        step, pixel = _steps(s[total], d)
        writer = s.rfactor(total, s[total].split(step, nparts=tile.splits)[0])
        add_parts(s, d.output, total)
        total = s.cache_write(writer, "fragment")
    elif total is writer:
        total = s.cache_write(writer, "fragment")
    else:
        s[total].set_scope("fragment")
    boxes = [s.cache_read(t, "shared", [total]) for t in (d.left, d.right)]
    fragments = [s.cache_read(t, "fragment", [total]) for t in boxes]

    out, (own_m, own_n) = s[writer], tile.own
    *part, m, r, t, c = out.op.axis
    blocks, m = out.split(m, factor=tile.filters)
    parts, c = out.split(c, factor=tile.channels)
    warps = [out.split(m, factor=own_m), out.split(c, factor=own_n), out.split(r, nparts=tile.warps_r)]
    (wm, m), (wn, c), (wr, r) = warps
    out.reorder(*part, blocks, parts, wr, wm, wn, m, r, t, c)
    out.bind(out.fuse(*part, blocks, parts), te.thread_axis("blockIdx.x"))
    warp = out.fuse(wr, wm, wn)
    out.bind(warp, te.thread_axis((0, tile.warps), "threadIdx.y"))
    out.vectorize(out.split(c, factor=2)[1])

    sums = s[total]
    sums.compute_at(out, warp)
    *part, m, r, t, c = sums.op.axis
    sums.align_bounds(m, own_m)
    sums.align_bounds(c, own_n)
    if added:
        at, *pixel = sums.op.reduce_axis
    else:
        at, pixel = _steps(sums, d)
    wide = d.problem.dtype != "float32"
    # Of TF32, rows that four threads read at once are two apart: no two of them conflict in a bank.
    counts = (8, 2) if wide else (2, 4)
    whole, extents, first = innermost(sums, pixel, d.boxes.pixels, counts[0])
    whole, _, second = innermost(sums, whole, extents, counts[1])
    inner = [*second, *first] if wide else [*first, *second]
    mo, m = sums.split(m, factor=16)
    co, c = sums.split(c, factor=8)
    sums.reorder(*part, at, *whole, r, t, mo, co, m, c, *inner)
    sums.unroll(*whole, r, t, mo, co)
    multiply, *loads = _INSTRUCTIONS[d.problem.dtype]
    sums.tensorize(m, multiply)
    for k, (tensor, where) in enumerate(zip(fragments, (whole[-1], t), strict=True)):
        stage = s[tensor]
        stage.compute_at(sums, where)
        if wide:
            _load(stage, d, loads[k])
        else:
            stage.unroll(*stage.op.axis)
    made = taps_of(d.problem)
    assert made is not None
    for tensor, box in zip(boxes, (tile.box, reach(made, tile.box)), strict=True):
        stage, row = s[tensor], extent_of(tensor.op.axis[-1])
        load(stage, sums, at, len(stage.op.axis) - 4, (*box, row), tile.stages, apart=False)
    return s


def _load(stage: Stage, d: BoxDeclaration, instruction: Instruction) -> None:
    """Load fragments of sixteen pixels."""
    *others, n, y, x, c = stage.op.axis
    c, eight = stage.split(c, factor=8)
    c, pair = stage.split(c, factor=2)
    whole, extents, inner = innermost(stage, (n, y, x), d.boxes.pixels)
    whole, _, pairs = innermost(stage, whole, extents, 2)
    stage.reorder(*others, c, *whole, pair, eight, *pairs, *inner)
    stage.unroll(*others, c, *whole)
    stage.tensorize(pair, instruction)


def _steps(sums: Stage, d: BoxDeclaration) -> tuple[IterVar, list[IterVar]]:
    """The loop over boxes of pixels, and those within one."""
    axes = zip(sums.op.reduce_axis, d.boxes.pixels, strict=True)
    pairs = [sums.split(a, factor=e) for a, e in axes]
    sums.reorder(*(outer for outer, _ in pairs), *(inner for _, inner in pairs))
    return sums.fuse(*(outer for outer, _ in pairs)), [inner for _, inner in pairs]
