"""Attention on tensor cores: scores, powers and results of a warp's rows stay in its registers.

A block takes some rows of one head, a warp 16 of them. Keys and values come through shared memory;
a row's scores for all keys are sums in the registers of four threads, which exchange what each of
them found largest, and what its powers sum to. Powers are rounded where they lie, which is where the
second product reads them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

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
from tilewright.topi.nn.attention import AttentionDeclaration, Fill, declare_attention
from tilewright.topi.operators.attention import Attention
from tilewright.topi.pieces.tiling import bind_all
from tilewright.topi.stages import scheduled

#: By type: the product, and the loads of keys and of values.
_INSTRUCTIONS = {
    "float16": (mma_f16, ldmatrix_b_f16, ldmatrix_b_trans_f16),
    "bfloat16": (mma_bf16, ldmatrix_b_bf16, ldmatrix_b_trans_bf16),
}
#: Threads of a warp, rows and depth of an instruction, its columns; 16-bit numbers of a chunk.
_LANES, _ROWS, _COLUMNS, _CHUNK = 32, 16, 8, 8


@dataclass(frozen=True)
class AttentionMmaTile:
    """A block has ``warps`` warps, of 16 rows each."""

    warps: int = 4


def declare_mma(p: Attention, tile: AttentionMmaTile, batch: Any = None) -> AttentionDeclaration:
    """The program of a problem, filled up to whole instructions."""
    fill = Fill(_ROWS * tile.warps, _ROWS, _ROWS, _ROWS)
    return declare_attention(p, rounded=True, fill=fill)


def schedule_attention_mma(d: AttentionDeclaration, tile: AttentionMmaTile) -> Schedule:
    """The schedule of :func:`declare_mma`."""
    assert d.factors is not None
    multiply, load_keys, load_values = _INSTRUCTIONS[d.problem.dtype]
    s = scheduled(d.output, d.q, d.k, d.v, d.scores, d.masked, d.largest, d.powers, d.factors,
                  d.total, d.share, d.weighted)  # fmt: skip
    out = s[d.output]
    axes = list(out.op.axis)
    b, h, i, e = axes if d.problem.layout == "BHSD" else (axes[0], axes[2], axes[1], axes[3])
    block, i = out.split(i, factor=_ROWS * tile.warps)
    warp, row = out.split(i, factor=_ROWS)
    e, pair = out.split(e, factor=2)
    out.reorder(b, h, block, warp, row, e, pair)
    block = out.fuse(b, h, block)
    out.bind(block, te.thread_axis("blockIdx.x"))
    out.vectorize(pair)
    ty = te.thread_axis((0, tile.warps), "threadIdx.y")
    tx = te.thread_axis((0, _LANES), "threadIdx.x")
    out.bind(warp, ty)
    for tensor in (d.q, d.scores, d.masked, d.powers, d.factors, d.share, d.weighted):
        s[tensor].set_scope("fragment")
        s[tensor].compute_at(out, warp)
    for tensor, copied, load in (
        (d.scores, d.k, load_keys), (d.weighted, d.v, load_values),
    ):  # fmt: skip
        sums, tile_of = s[tensor], s[copied]
        tile_of.set_scope("shared")
        tile_of.compute_at(out, block)  # both at once, so that values come while keys are used
        tile_of.storage_align(tile_of.op.axis[2], 2 * _CHUNK, _CHUNK)
        _copy(tile_of, d.problem, (ty, tx))
        fragment = s[s.cache_read(copied, "fragment", [tensor])]
        part = _multiply(sums, multiply)
        fragment.compute_at(sums, part)
        *_, x, y = fragment.op.axis
        xo, x = fragment.split(x, factor=_ROWS)
        yo, y = fragment.split(y, factor=_ROWS)
        fragment.reorder(xo, yo, x, y)
        fragment.unroll(xo, yo)
        fragment.tensorize(x, load)
    for tensor in (d.largest, d.total):
        _reduce(s, tensor, out, warp)
    for tensor in (d.masked, d.powers, d.factors):
        stage = s[tensor]
        outer, inner = stage.split(stage.op.axis[-1], factor=_COLUMNS)
        stage.reorder(*stage.op.axis[:2], outer, stage.op.axis[2], inner)
        stage.unroll(outer)
    return s


def _multiply(sums: Stage, instruction: Any) -> IterVar:
    """A product of the matrices of a warp; returns the loop over 16 of the sum."""
    b, h, i, j = sums.op.axis
    part, k = sums.split(sums.op.reduce_axis[0], factor=_ROWS)
    jo, j = sums.split(j, factor=_COLUMNS)
    sums.reorder(b, h, part, jo, i, j, k)
    sums.unroll(part, jo)
    sums.tensorize(i, instruction)
    return part


def _reduce(s: Schedule, tensor: Tensor, out: Stage, warp: IterVar) -> None:
    """A reduction of rows: each of four threads reduces what it has, then they combine."""
    stage = s[tensor]
    turn, j = stage.split(stage.op.reduce_axis[0], factor=_COLUMNS)
    thread, pair = stage.split(j, factor=2)
    parts = s[s.rfactor(tensor, thread, tensor.ndim)]
    for made in (parts, stage):
        made.set_scope("fragment")
        made.compute_at(out, warp)
    *rest, row, thread = parts.op.axis
    turn, pair = parts.op.reduce_axis
    parts.reorder(*rest, row, thread, turn, pair)
    parts.unroll(turn, pair)


def _copy(stage: Stage, p: Attention, threads: tuple[IterVar, IterVar]) -> None:
    """All rows of keys or values, 16 bytes a thread in the background where they have as many."""
    *outer, column = stage.op.axis
    extent = p.depth if stage.op.name == "K" else p.width
    if extent % _CHUNK == 0:
        column, chunk = stage.split(column, factor=_CHUNK)
        stage.tensorize(chunk, copy_async(_CHUNK, p.dtype))
    bind_all(stage, stage.fuse(*outer, column), threads)
