"""Any program as loops over its result: what an operator runs as that has no sketch of its own.

A thread, or an iteration of a CPU's parallel loop, computes a tile of neighbouring results. What is
reduced stays in its registers until the element-wise stages behind have had it; a reduction that
another one reads is stored, by loops of its own.
"""

from __future__ import annotations

import math
from itertools import product
from typing import Any

from tilewright import te
from tilewright.schedule import Schedule, Stage
from tilewright.target.target import Target
from tilewright.topi.cpu.candidates import lanes
from tilewright.topi.declared import Declared
from tilewright.topi.pieces.counts import Counts, of_loops
from tilewright.topi.pieces.reads import most_elements
from tilewright.topi.pieces.sums import inline
from tilewright.topi.pieces.tiling import WHOLE_ROWS, Tiling, extent_of, spread, tile
from tilewright.topi.pieces.windows import keep_row_of_taps, load_whole
from tilewright.topi.problem import Problem
from tilewright.topi.sketches.turned import pixel_tiles

#: Iterations of a reduction's loop that are written out, at most.
_WRITTEN = 32


def schedule_cpu(d: Declared, t: Tiling) -> Schedule:
    """The loops of a CPU: tiles in parallel, columns as vectors."""
    found = inline(d.output)
    s = found.schedule
    for stored in found.before:
        _cpu(s[stored], s[stored], t)
    out = s[d.output]
    at = _cpu(out, out, t)
    if found.last is not None:
        sums = s[found.last]
        sums.set_scope("local")
        sums.compute_at(out, at)
        _registers(sums, t, vectors=True)
    return s


def _cpu(stage: Stage, out: Stage, t: Tiling) -> Any:
    reduced = list(stage.op.reduce_axis)
    if not stage.op.axis:
        return None
    nest = tile(stage, list(stage.op.axis), t.rows, t.columns)
    if reduced:
        stage.reorder(nest.outer, *reduced, *nest.inner)
    stage.parallel(nest.outer)
    *others, vector = nest.inner[::-1] if t.vectors else nest.inner
    stage.reorder(*others, vector)
    stage.vectorize(vector)
    return nest.outer


def schedule_gpu(d: Declared, t: Tiling) -> Schedule:
    """The loops of a GPU: a thread a tile, neighbouring threads along the last dimension."""
    found = inline(d.output)
    s = found.schedule
    for stored in found.before:
        _gpu(s[stored], t)
    out = s[d.output]
    if t.vectors == WHOLE_ROWS:
        _whole_rows(s, d, t)
        return s
    thread = _gpu(out, t)
    if found.last is not None:
        sums = s[found.last]
        sums.set_scope("local")
        sums.compute_at(out, thread)
        _registers(sums, t, vectors=bool(t.vectors))
        if t.window:
            keep_row_of_taps(s, sums, found.last.op)
    return s


def _whole_rows(s: Schedule, d: Declared, t: Tiling) -> None:
    """All that a thread has as one vector: rows of the last dimension, of which it has all. What is
    as large as the result, and may lie in another order, it reads in vectors before."""
    whole, shapes = math.prod(d.problem.result.shape), d.problem.shapes()
    moved = [x for n, x in d.inputs.items() if math.prod(shapes[n]) >= whole]
    readers = ([st.op for st in s.stages if x in st.op.inputs] for x in moved)
    read = [s[s.cache_read(x, "local", r)] for x, r in zip(moved, readers, strict=True)]
    out = s[d.output]
    nest = tile(out, list(out.op.axis), t.rows, t.columns)
    thread = spread(out, [nest.outer], t.threads)
    out.vectorize(out.fuse(*nest.inner))
    for loads in read:
        loads.compute_at(out, thread)
        load_whole(loads, vectors=True)


def _gpu(stage: Stage, t: Tiling) -> Any:
    reduced = list(stage.op.reduce_axis)
    nest = tile(stage, list(stage.op.axis), t.rows, t.columns)
    block, thread = stage.split(nest.outer, factor=t.threads)
    if reduced:
        stage.reorder(block, thread, *reduced, *nest.inner)
    stage.bind(block, te.thread_axis("blockIdx.x"))
    stage.bind(thread, te.thread_axis("threadIdx.x"))
    *rows, columns = nest.inner
    stage.unroll(*rows)
    (stage.vectorize if t.vectors else stage.unroll)(columns)
    return thread


def _registers(sums: Stage, t: Tiling, vectors: bool) -> None:
    """The loops of what stays in registers: of the tile inside of the reduction's."""
    axes, reduced = list(sums.op.axis), list(sums.op.reduce_axis)
    outer, inner = axes[:-2], axes[-2:]
    sums.reorder(*outer, *reduced, *inner)
    if vectors and inner:
        sums.vectorize(inner.pop())
    sums.unroll(*inner)
    if t.unroll and reduced and extent_of(reduced[-1]) <= _WRITTEN:
        sums.unroll(reduced[-1])


def counts(p: Problem, t: Tiling) -> Counts:
    """Of :func:`schedule_gpu`; products are as many for each result."""
    results = math.prod(p.result.shape)
    depth = -(-p.flops // (2 * results)) if results else 0
    return of_loops(p.result.shape, (t.rows, t.columns), t.threads, depth)


def tilings(p: Problem, target: Target) -> list[Tiling]:
    """The tiles worth trying, the best guess first: enough of them to keep a machine busy, the
    larger the better then."""
    wide = 4 if target.is_gpu else lanes(p, target)
    shape = p.result.shape if target.is_gpu else most_elements(p, wide)
    last, outer = shape[-1] if shape else 1, math.prod(shape[:-1])
    columns = (1, 2, wide) if target.is_gpu else (wide, 2 * wide, 1)
    found = [] if target.is_gpu else [(0.0, t) for t in pixel_tiles(p, wide)]
    for c, rows, unroll in product(columns, (1, 2, 4), (0, 1)):
        if rows > 1 and (len(shape) < 2 or shape[-2] % rows):
            continue
        for threads in (128, 64, 256) if target.is_gpu else (1,):
            tiles = -(-last // c) * outer // rows
            lone = c == 1 and not target.is_gpu and last >= wide
            waste = wide if lone else -(-last // c) * c / last  # a number takes a vector's time
            idle = max(1.0, 20_000 / tiles) if target.is_gpu else max(1.0, 8 / tiles)
            found.append((waste * idle * (1 + 1 / (rows * c)), Tiling(rows, c, threads, unroll)))
    return [t for _, t in sorted(found, key=lambda x: x[0])]
