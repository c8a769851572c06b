"""Attention on tensor cores: scores, powers and results of a warp's rows stay in its registers.

A block takes some rows of one head, a warp 16 of them. Keys and values come through shared memory.
Four threads have a row's scores in their registers, and exchange what each of them found largest;
powers are rounded where they lie, which is where the second product reads them. Of many keys some
are taken at a time, and sums rescaled where a larger score comes: an online softmax.
"""

from __future__ import annotations

from tilewright import te
from tilewright.ir.itervar import IterVar
from tilewright.schedule import Schedule, Stage
from tilewright.target.instructions import (
    copy_async,
    ldmatrix_b_bf16,
    ldmatrix_b_f16,
    ldmatrix_b_trans_bf16,
    ldmatrix_b_trans_f16,
    mma_bf16,
    mma_f16,
)
from tilewright.te import Tensor
from tilewright.topi.nn.attention import AttentionDeclaration
from tilewright.topi.pieces.attention import AttentionMmaTile
from tilewright.topi.pieces.tiling import bind_all, thread_axes
from tilewright.topi.pieces.warp_rows import (
    COLUMNS,
    ROWS,
    by_columns,
    hold,
    load_tiles,
    multiply,
    reduce_rows,
    sum_rows_with,
    update_rows,
)
from tilewright.topi.stages import scheduled

#: By type: the product, and the loads of keys and of values.
_INSTRUCTIONS = {
    "float16": (mma_f16, ldmatrix_b_f16, ldmatrix_b_trans_f16),
    "bfloat16": (mma_bf16, ldmatrix_b_bf16, ldmatrix_b_trans_bf16),
}
#: Threads of a warp, and 16-bit numbers of a chunk.
_LANES, _CHUNK = 32, 8


def schedule_attention_mma(d: AttentionDeclaration, tile: AttentionMmaTile) -> Schedule:
    """The schedule of :func:`declare_mma`."""
    mma, load_keys, load_values = _INSTRUCTIONS[d.problem.dtype]
    s = scheduled(d.output, d.q, d.k, d.v, d.scores, d.masked, d.largest, d.powers,
                  d.factors, d.total, d.share, d.weighted)  # fmt: skip
    out = s[d.output]
    axes = list(out.op.axis)
    b, h, i, e = axes if d.problem.layout == "BHSD" else (axes[0], axes[2], axes[1], axes[3])
    block, i = out.split(i, factor=ROWS * tile.rows * tile.warps)
    warp, row = out.split(i, factor=ROWS * tile.rows)
    e, column = out.split(e, factor=COLUMNS)
    column, pair = out.split(column, factor=2)
    out.reorder(b, h, block, warp, row, e, column, pair)
    block = out.fuse(b, h, block)
    out.bind(block, te.thread_axis("blockIdx.x"))
    out.vectorize(pair)
    threads = thread_axes(tile.warps, _LANES)
    out.bind(warp, threads[0])
    hold(s, out, warp, d.q, d.share, d.weighted)
    if d.problem.depth % 2 == 0:
        s[d.q].vectorize(s[d.q].split(s[d.q].op.axis[-1], factor=2)[1])
    values = multiply(s[d.weighted], mma, tile.step)
    # Of all keys at once, values come while keys are used.
    reader, at, copied, around = out, warp, out, block
    if tile.step:
        reader, at = copied, around = s[d.weighted], values[0]
        update_rows(s, d.largest, reader, at, tile.step)
        sum_rows_with(s, d.total, out, warp, reader, at, tile.step)
    else:
        for tensor in (d.largest, d.total):
            reduce_rows(s, tensor, out, warp)
    assert d.factors is not None
    made = [d.scores, d.masked, d.powers, d.factors]
    hold(s, reader, at, *made)
    for tensor in made[1:]:
        by_columns(s[tensor])
    part = multiply(s[d.scores], mma)[-1]
    keys = s.cache_read(d.k, "shared", [d.scores])
    _bring(s, keys, copied, around, threads, d.problem.depth, tile)
    load_tiles(s, keys, s[d.scores], part, load_keys)
    values_of = s.cache_read(d.v, "shared", [d.weighted])
    _bring(s, values_of, copied, around, threads, d.problem.width, tile)
    load_tiles(s, values_of, s[d.weighted], values[-1], load_values)
    s[d.k].compute_inline()
    s[d.v].compute_inline()
    return s


def _bring(
    s: Schedule, tensor: Tensor, reader: Stage, at: IterVar, threads: list[IterVar], extent: int,
    tile: AttentionMmaTile,
) -> None:  # fmt: skip
    """Copy rows of keys or values to shared memory, in the background by 16 bytes a thread where
    they have as many."""
    stage = s[tensor]
    stage.compute_at(reader, at)
    stage.storage_align(stage.op.axis[2], 2 * _CHUNK, _CHUNK)
    *outer, column = stage.op.axis
    if extent % _CHUNK == 0:
        column, chunk = stage.split(column, factor=_CHUNK)
        stage.tensorize(chunk, copy_async(_CHUNK, str(tensor.dtype)))
        if tile.step and tile.stages > 1:
            stage.pipeline(tile.stages)
    bind_all(stage, stage.fuse(*outer, column), threads)
