"""Gradients by the filter on Hopper, of images with channels last, whose taps share what is read.

A block computes some filters by some channels of all taps. Step by step TMA brings a box of pixels
of dy, and of x all that the taps see there; from shared memory, where channels lie side by side,
warps load fragments of both, those of dy once for all of their taps. ``splits`` blocks take boxes
in turn, so that all read what lies near at a time, and sum a part of the pixels each; another
kernel adds these in a fixed order.
"""

from __future__ import annotations

from tilewright import te
from tilewright.ir.itervar import IterVar
from tilewright.schedule import Schedule, Stage
from tilewright.target import instructions as found
from tilewright.target.instruction import Instruction
from tilewright.te import Tensor
from tilewright.topi.nn.box_problems import widths
from tilewright.topi.nn.tap_gradients import TapDeclaration
from tilewright.topi.pieces.box_parts import add_parts
from tilewright.topi.pieces.box_products import innermost, load
from tilewright.topi.pieces.operand_copies import copy
from tilewright.topi.pieces.pixel_fragments import load_fragments
from tilewright.topi.pieces.step_sums import are_apart
from tilewright.topi.pieces.tap_tiles import TapGradientTile
from tilewright.topi.stages import scheduled

#: By type: the product, and the loads of its operands.
_INSTRUCTIONS: dict[str, tuple[Instruction, ...]] = {
    "float16": (found.mma_f16, found.ldmatrix_a_trans_blocks_f16,
                found.ldmatrix_b_trans_blocks_f16),
    "bfloat16": (found.mma_bf16, found.ldmatrix_a_trans_blocks_bf16,
                 found.ldmatrix_b_trans_blocks_bf16),
    "float32": (found.mma_tf32,),
}  # fmt: skip


def schedule_tap_gradient(d: TapDeclaration, tile: TapGradientTile) -> Schedule:
    """The schedule of a gradient by the filter that is declared with the same ``tile``."""
    s = scheduled(d.output, d.sum, d.seen, *d.copies)
    copy(s, d.copies)
    writer, total, apart = d.output, d.sum, are_apart(d.problem)
    added = tile.splits > 1 or d.placed
    if total is writer:
        total = s.cache_write(writer, "local" if added else "fragment")
    parts = list(s.in_tf32(total, 3)) if apart else []
    at = _steps(s[total], d)
    if added:
        writer = s.rfactor(total, s[total].split(at, factor=tile.splits)[1])
        add_parts(s, d.output, total)
        total = s.cache_write(writer, "fragment")
        at = s[total].op.reduce_axis[0]
    products = s.rfactor(total, at) if apart else total
    readers = [[part] for part in parts] or [[products], [products]]
    boxes, loaded = list[Tensor](), list[Tensor]()
    for tensor, own, seen in zip((d.left, d.right), readers, (None, d.seen), strict=True):
        boxes.append(s.cache_read(tensor, "shared", own if seen is None else [seen]))
        loaded.append(s.cache_read(boxes[-1], "fragment", own) if seen is None else seen)

    out, (own_m, own_n) = s[writer], tile.own
    *part, m, r, t, c = out.op.axis
    blocks, m = out.split(m, factor=tile.filters)
    beside, c = out.split(c, factor=tile.channels)
    wm, m = out.split(m, factor=own_m)
    wn, c = out.split(c, factor=own_n)
    if tile.rows:
        above, r = out.split(r, factor=tile.rows)
        part = [*part, above]
    wr, r = out.split(r, nparts=tile.warps_r)
    wt, t = out.split(t, nparts=tile.warps_t)
    out.reorder(*part, blocks, beside, wr, wt, wm, wn, m, r, t, c)
    out.bind(out.fuse(*part, blocks, beside), te.thread_axis("blockIdx.x"))
    warp = out.fuse(wr, wt, wm, wn)
    out.bind(warp, te.thread_axis((0, tile.warps), "threadIdx.y"))
    out.vectorize(out.split(c, factor=2)[1])

    sums = s[total]
    sums.compute_at(out, warp)
    sums.set_scope("fragment")
    if apart:
        *part, m, r, t, c = sums.op.axis
        (at,) = sums.op.reduce_axis
        sums.align_bounds(m, own_m)
        sums.align_bounds(c, own_n)
        sums.reorder(*part, at, r, t, m, c)
        sums.unroll(r, t)
        sums.vectorize(sums.split(c, factor=2)[1])
        s[products].set_scope("fragment")
        s[products].compute_at(sums, at)
    whole, tap = _multiply(s[products], d, tile, None if apart else at)
    for k, tensor in enumerate(loaded):
        stages = [s[tensor], *(s[x] for x in parts[k : k + 1])]
        for stage in stages:
            stage.set_scope("fragment")
            stage.compute_at(s[products], tap if k else whole)
            loads = _INSTRUCTIONS[d.problem.dtype][1:]
            if loads and not (k and d.anywhere):
                *others, n, y, x, c = stage.op.axis
                load_fragments(stage, others, (n, y, x), c, d.boxes.pixels, loads[k], turned=True)
            else:
                stage.unroll(*stage.op.axis)
    for tensor, box in zip(boxes, d.boxes_of(tile.filters, tile.channels, tile.rows), strict=True):
        stage = s[tensor]
        rows = tensor is boxes[-1] and d.seen is not None  # of few channels, as they lie
        if rows:  # of whole 16 bytes
            stage.align_bounds(stage.op.axis[-1], widths(d.problem.dtype).chunk)
        load(
            stage, sums, at, -len(box), box, tile.stages, apart=False, swizzled=not rows,
            producer=bool(tile.producer),
        )  # fmt: skip
    return s


def _steps(sums: Stage, d: TapDeclaration) -> IterVar:
    """The loop over boxes of pixels, inside of which are the others."""
    *terms, n, y, x = sums.op.reduce_axis
    axes = zip((n, y, x), d.boxes.pixels, strict=True)
    pairs = [sums.split(a, factor=e) for a, e in axes]
    steps, pixels = ([pair[k] for pair in pairs] for k in range(2))
    sums.reorder(*steps, *terms, *pixels)
    return sums.fuse(*steps)


def _multiply(
    products: Stage, d: TapDeclaration, tile: TapGradientTile, at: IterVar | None
) -> tuple[IterVar, IterVar]:
    """Products of a step of the loop ``at``, or of one that is over the stage; returns the loops in
    which an operand's fragments are those of all taps, and those of one."""
    kind = d.problem.dtype
    *part, m, r, t, c = products.op.axis
    own_m, own_n = tile.own
    products.align_bounds(m, own_m)
    products.align_bounds(c, own_n)
    leaves = [x for x in products.leaf_iter_vars if x.kind == "reduce"]
    *terms, n, y, x = [leaf for leaf in leaves if leaf is not at]
    # Of TF32, rows that four threads read at once are two apart: no two of them conflict in a bank.
    counts = (8, 2) if kind != "float32" else (2, 4)
    whole, extents, first = innermost(products, (n, y, x), d.boxes.pixels, counts[0])
    whole, _, second = innermost(products, whole, extents, counts[1])
    inner = [*second, *first] if kind != "float32" else [*first, *second]
    mo, m = products.split(m, factor=16)
    co, c = products.split(c, factor=8)
    outer = [] if at is None else [at]
    products.reorder(*part, *outer, *whole, r, t, *terms, mo, co, m, c, *inner)
    products.unroll(*whole, r, t, *terms, mo, co)
    products.tensorize(m, _INSTRUCTIONS[kind][0])
    return whole[-1], t
