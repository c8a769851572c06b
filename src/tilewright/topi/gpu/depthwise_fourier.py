"""Depthwise convolution by way of its spectrum on a GPU: kernels of products, one after another.

Every transform is a product of matrices from tiles in shared memory; the tables of cosines and
sines are made by small kernels before. Spectra are multiplied where the way back reads them or, in
a gradient by the filter, added up over the batch by a kernel of their own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tilewright import te
from tilewright.schedule import Schedule, Stage
from tilewright.target.target import Target
from tilewright.te import Tensor
from tilewright.topi.declare import Declaration, finished, placeholders
from tilewright.topi.nn.depthwise_fourier import (
    DEPTH,
    Fourier,
    FourierStages,
    Product,
    depthwise_fourier,
    multiplications,
)
from tilewright.topi.nn.images import Images
from tilewright.topi.problem import Problem
from tilewright.topi.stages import scheduled

#: Neighbouring columns of a thread, and threads of a block that are no products.
_LANES, _THREADS = 4, 128
#: Bytes that may stand between the kernels.
_WORKSPACE = 2**32


@dataclass(frozen=True)
class FourierTile:
    """A block of a product computes ``rows`` by ``4 * across`` sums with ``down`` by ``across``
    threads."""

    rows: int = 64
    down: int = 8
    across: int = 12


@dataclass(frozen=True)
class FourierDeclaration(Declaration):
    """A problem by way of its spectrum, cut as ``cut`` says."""

    cut: Fourier
    stages: FourierStages


def declare_fourier(p: Problem, tile: FourierTile, batch: Any = None) -> FourierDeclaration:
    """The program of a problem, cut as ``tile`` says; ``batch`` as in :func:`declare`."""
    inputs = placeholders(p, batch)
    first, second = list(inputs.values())[:2]
    cut = Fourier(p, tile.rows, _LANES * tile.across)
    made = depthwise_fourier(cut, first, second)
    sums, shape = made.last.sums, p.result_shape

    def element(a: Any, b: Any, c: Any, d: Any) -> Any:
        return sums[(a * shape[1] + b) * shape[2] + c, d]

    if p.pass_ == "wgrad":
        result = te.compute(shape, element, name="Result", varargs_names=["c", "m", "i", "j"])
    else:
        result = Images(p.layout).compute(
            first.shape[0], shape[1], shape[2:], lambda n, c, at: element(n, c, *at), "Result"
        )
    result = finished(p, result, inputs)
    return FourierDeclaration(p, inputs, result, sums, None, None, cut, made)


def schedule_fourier(d: Declaration, tile: FourierTile = FourierTile()) -> Schedule:
    """The schedule of what :func:`declare_fourier` makes of a problem with the same ``tile``."""
    assert isinstance(d, FourierDeclaration)
    made = d.stages
    kept = [t for p in made.products for t in (p.sums, *p.operands)]
    s = scheduled(d.output, *made.tables, made.spectrum, *kept)
    stored = [*made.tables, *([made.spectrum] if d.problem.pass_ == "wgrad" else [])]
    for tensor in stored:
        _spread(s[tensor])
    for p in made.products:
        _multiply(s, p, tile, s[d.output] if p is made.last else None, stored)
    return s


def _spread(stage: Stage) -> None:
    """A kernel that is no product."""
    block, thread = stage.split(stage.fuse(*stage.op.axis), factor=_THREADS)
    stage.bind(block, te.thread_axis("blockIdx.x"))
    stage.bind(thread, te.thread_axis("threadIdx.x"))


def _multiply(
    s: Schedule, p: Product, tile: FourierTile, out: Stage | None, stored: list[Tensor]
) -> None:
    """One product; its sums are read by ``out`` where that is its own kernel's result."""
    total = p.sums
    if out is None:
        total = s.cache_write(p.sums, "local")
        out = s[p.sums]
        *batch, i, j = out.op.axis
    else:
        s[total].set_scope("local")
        *rows, j = out.op.axis
        batch, i = [], out.fuse(*rows)
    tx = te.thread_axis((0, tile.across), "threadIdx.x")
    ty = te.thread_axis((0, tile.down), "threadIdx.y")
    io, i = out.split(i, factor=tile.rows)
    jo, j = out.split(j, factor=_LANES * tile.across)
    own, i = out.split(i, factor=tile.rows // tile.down)
    x, lane = out.split(j, factor=_LANES)
    out.reorder(*batch, io, jo, own, x, i, lane)
    block = out.fuse(*batch, io, jo)
    out.bind(block, te.thread_axis("blockIdx.x"))
    out.bind(own, ty)
    out.bind(x, tx)
    out.unroll(i)
    out.unroll(lane)

    sums = s[total]
    sums.compute_at(out, x)
    *outer, i, j = sums.op.axis
    sums.align_bounds(i, tile.rows // tile.down)
    sums.align_bounds(j, _LANES)
    step, k = sums.split(sums.op.reduce_axis[0], factor=DEPTH)
    sums.reorder(*outer, step, k, i, j)
    for axis in (k, i, j):
        sums.unroll(axis)
    for operand in p.operands:
        shared = operand
        if operand in stored:
            shared = s.cache_read(operand, "shared", [total])
        local = s[s.cache_read(shared, "local", [total])]
        local.compute_at(sums, k)
        for axis in local.op.axis[:-1]:
            local.unroll(axis)
        if operand is p.right:
            local.vectorize(local.op.axis[-1])
        stage = s[shared]
        stage.set_scope("shared")
        stage.compute_at(sums, step)
        rest = stage.fuse(*stage.op.axis)
        rest, thread = stage.split(rest, factor=tile.across)
        rest, row = stage.split(rest, factor=tile.down)
        stage.bind(thread, tx)
        stage.bind(row, ty)
        stage.unroll(rest)


def suits_fourier(p: Problem) -> bool:
    """Whether :func:`schedule_fourier` is for a problem: one whose transforms take fewer
    multiplications than its taps, and not too much memory."""
    return (
        p.rank == 2
        and p.accumulate in ("float32", "float64")
        and (p.pass_ != "dgrad" or p.multiplier == 1)
        and multiplications(p) <= p.flops // 2
        and _workspace(p) <= _WORKSPACE
    )


def fourier_tiles(p: Problem, target: Target) -> list[FourierTile]:
    """Tiles, those first that fill their matrices up least."""
    cut = Fourier(p, 1, 1)
    wide = p.kernel_w if p.pass_ == "wgrad" else p.result_shape[3]

    def filled(tile: FourierTile) -> float:
        columns = _LANES * tile.across
        whole = sum(-(-n // columns) * columns for n in (2 * cut.half, cut.half, cut.half, wide))
        return whole * (1 + 16 / columns) * (1 + 16 / tile.rows)

    found = [FourierTile(rows, 8, across) for rows in (64, 128) for across in (8, 12, 16, 24)]
    return sorted(found, key=filled)


def _workspace(p: Problem) -> int:
    """Bytes of what is between the kernels, about."""
    cut, results = Fourier(p, 1, 1), p.batch * p.out_channels
    height = max(p.height, p.out_image[0])
    return 4 * results * cut.half * (4 * height + 2 * cut.periods[0])
