"""A schedule of any declarations whose tiles are knobs: what ``auto_scheduler`` searches.

Stages that only move or map elements are computed where they are read. Each other stage, together
with the map of its result that the program returns, is tiled: over cores, with vectors of its
innermost axis, or over blocks, virtual threads and threads of a GPU, which copy what they share. A
long sum of few elements is divided among the threads of a block.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from tilewright.ir.errors import LanguageError
from tilewright.ir.expr import IntImm, Load, Select
from tilewright.ir.ops import const
from tilewright.ir.visit import exprs
from tilewright.schedule import Schedule, create_schedule
from tilewright.target import current_target
from tilewright.te import ComputeOp, IterVar, PlaceholderOp, Tensor, thread_axis

#: At most: threads of a block, elements that a thread or a core sums at once, those of a core's
#: tile, and lanes of a vector.
_THREADS, _HELD, _TILE, _LANES = 1024, 128, 16384, 64
#: A sum of at most this number of elements, with at least that of terms, is divided among threads.
_FEW, _LONG = 1024, 512


def schedule_by(cfg: Any, tensors: Sequence[Tensor]) -> Schedule:
    """A schedule of the tensors, as the knobs of ``cfg`` say, for the target of the enclosing
    ``with``.

    Raises :class:`LanguageError` for symbolic extents, and for what te.compute has not made.
    """
    made = [t for t in tensors if not isinstance(t.op, PlaceholderOp)]
    s = create_schedule([t.op for t in made])
    target = current_target()
    gpu = target is not None and target.is_gpu
    heavy: dict[ComputeOp, str] = {}
    for place, stage in enumerate(s.stages):
        op = stage.op
        if isinstance(op, PlaceholderOp):
            continue
        if not isinstance(op, ComputeOp) or not all(
            _extent(a) for a in (*op.axis, *op.reduce_axis)
        ):
            raise LanguageError(
                f"auto_scheduler: {op.name!r} is not made by te.compute of constant extents; "
                "write its schedule, as a template of tvm.autotvm"
            )
        if not op.reduce_axis and op not in s.outputs and len(op.outputs) == 1:
            padded = any(isinstance(e, Select) for e in exprs(op.body[0]))
            if padded and not gpu:
                cfg.define_knob(f"{place}.{op.name}.inline", [True, False])
            if not padded or gpu or cfg[f"{place}.{op.name}.inline"].val:
                stage.compute_inline()
            else:
                stage.parallel(stage.fuse(*op.axis[:-1]) if op.axis[1:] else op.axis[0])
            continue
        heavy[op] = f"{place}.{op.name}"
    maps: dict[ComputeOp, ComputeOp] = {}
    for op in heavy:
        last = _last_map(s, op) if op.reduce_axis else None
        if last is not None and last not in maps.values():  # of two sums, the first has it
            maps[op] = last
    for op, name in heavy.items():
        if op not in maps.values():
            (_on_gpu if gpu else _on_cpu)(s, cfg, name, op, maps.get(op))
    return s


def _extent(axis: IterVar) -> int:
    found = axis.dom.extent if axis.dom is not None else None
    return found.value if isinstance(found, IntImm) else 0


def _extents(axes: Sequence[IterVar]) -> int:
    return math.prod(map(_extent, axes))


def _last_map(s: Schedule, op: ComputeOp) -> ComputeOp | None:
    """The output that maps the elements of ``op``, each at its own place, through stages that are
    computed where they are read; None where there is none."""
    current = op
    while len(current.outputs) == 1:
        consumers = [stage.op for stage in s.consumers(s[current])]
        if len(consumers) != 1 or not isinstance(consumers[0], ComputeOp):
            return None
        reader = consumers[0]
        own = tuple(const(0) if _extent(a) == 1 else a.var for a in reader.axis)
        reads = [e for e in exprs(reader.body[0]) if isinstance(e, Load)]
        there = {
            tuple(
                const(0) if _extent(a) == 1 else i
                for a, i in zip(reader.axis, e.indices, strict=False)
            )
            for e in reads
            if e.buffer is current.outputs[0].buffer
        }
        same = list(map(_extent, reader.axis)) == list(map(_extent, op.axis))
        if reader.reduce_axis or len(reader.outputs) > 1 or not same or there != {own}:
            return None
        if s[reader].attachment.kind != "inline":
            return reader if reader in s.outputs else None
        current = reader
    return None


def _split(cfg: Any, name: str, axis: IterVar, parts: int, most: int = 256) -> list[int]:
    """The inner extents that a knob splits an axis by, which divide it."""
    cfg.define_split(name, axis, num_outputs=parts, max_factor=most)
    return list(cfg[name].size[1:])


def _tiled(
    s: Schedule, cfg: Any, name: str, op: ComputeOp, last: ComputeOp | None
) -> tuple[Any, Any]:
    """The stage that stores results, and that which computes them."""
    if last is not None:
        return s[last], s[op]
    if op.reduce_axis and op.axis and len(op.outputs) == 1:
        inner = s.cache_write(op.outputs[0], "local")
        return s[op], s[inner]
    return s[op], s[op]


def _on_cpu(s: Schedule, cfg: Any, name: str, op: ComputeOp, last: ComputeOp | None) -> None:
    if not op.axis:
        _unrolled(cfg, name, s[op])
        return
    outer, inner = _tiled(s, cfg, name, op, last)
    parts = 3 if inner is not outer else 2
    sizes = [_split(cfg, f"{name}.{k}", a, parts) for k, a in enumerate(outer.op.axis)]
    wide = max((n for n in (1, 2, 4, 8) if _extent(outer.op.axis[-1]) % n == 0), default=1)

    def within(c: Any) -> bool:
        found = [c[f"{name}.{k}"].size[1:] for k in range(len(sizes))]
        held = math.prod(size[-1] for size in found)
        row = found[-1][-1]
        return wide <= row <= _LANES and held <= _HELD and math.prod(map(math.prod, found)) <= _TILE

    cfg.define_constraint(within)
    pairs = [
        outer.split(a, factor=math.prod(size)) for a, size in zip(outer.op.axis, sizes, strict=True)
    ]
    outer.reorder(*(a for a, _ in pairs), *(a for _, a in pairs))
    whole = outer.fuse(*(a for a, _ in pairs))
    outer.parallel(whole)
    if inner is outer:
        outer.vectorize(pairs[-1][1])
        return
    inner.compute_at(outer, whole)
    mine = [inner.split(a, factor=size[-1]) for a, size in zip(inner.op.axis, sizes, strict=True)]
    terms = [
        inner.split(a, factor=_split(cfg, f"{name}.r{k}", a, 2, 64)[0])
        for k, a in enumerate(inner.op.reduce_axis)
    ]
    inner.reorder(
        *(a for a, _ in mine), *(a for a, _ in terms), *(a for _, a in terms), *(a for _, a in mine)
    )
    inner.vectorize(mine[-1][1])
    _unrolled(cfg, name, inner)
    if last is not None or math.prod(sizes[-1]) <= _LANES:
        row = pairs[-1][1]
        _, lanes = outer.split(row, factor=min(math.prod(sizes[-1]), 16))
        outer.vectorize(lanes)


def _unrolled(cfg: Any, name: str, stage: Any) -> None:
    cfg.define_knob(f"{name}.unroll", [0, 16, 64, 512])
    if stage.leaf_iter_vars and cfg[f"{name}.unroll"].val:
        stage.pragma(stage.leaf_iter_vars[0], "auto_unroll_max_step", cfg[f"{name}.unroll"].val)


def _on_gpu(s: Schedule, cfg: Any, name: str, op: ComputeOp, last: ComputeOp | None) -> None:
    block, thread = thread_axis("blockIdx.x"), "threadIdx.x"
    few = _extents(op.axis) <= _FEW and _extents(op.reduce_axis) >= _LONG
    if op.reduce_axis and (few or not op.axis) and len(op.outputs) == 1:
        cfg.define_knob(f"{name}.threads", [64, 32, 128, 256, 512])
        stage = s[op]
        _, own = stage.split(stage.fuse(*op.reduce_axis), factor=cfg[f"{name}.threads"].val)
        part = s.rfactor(op.outputs[0], own)
        (axis,) = s[op].op.reduce_axis
        s[op].bind(axis, thread_axis(thread))
        s[part].compute_at(s[op], axis)
        if op.axis:
            s[op].bind(s[op].fuse(*s[op].op.axis), block)
        if last is not None:
            _spread(s[last], cfg, name)
        return
    outer, inner = _tiled(s, cfg, name, op, last)
    if inner is outer:
        _spread(outer, cfg, name)
        return
    sizes = [_split(cfg, f"{name}.{k}", a, 4, 128) for k, a in enumerate(outer.op.axis)]

    least = min(32, max(_extents(outer.op.axis) // 4, 1))

    def within(c: Any) -> bool:
        found = [c[f"{name}.{k}"].size[1:] for k in range(len(sizes))]
        copies, threads, own = (math.prod(size[k] for size in found) for k in range(3))
        return bool(least <= threads <= _THREADS and copies * own <= _HELD and copies <= 16)

    cfg.define_constraint(within)
    levels: list[list[IterVar]] = [[], [], [], []]
    for axis, size in zip(outer.op.axis, sizes, strict=True):
        for part in (0, 1, 2):
            head, axis = outer.split(axis, factor=math.prod(size[part:]))
            levels[part].append(head)
        levels[3].append(axis)
    outer.reorder(*(a for level in levels for a in level))
    blocks, copies, threads = (outer.fuse(*level) for level in levels[:3])
    count = math.prod(size[1] for size in sizes)
    outer.bind(blocks, block)
    outer.bind(copies, thread_axis("vthread"))
    outer.bind(threads, thread_axis((0, count), thread))
    inner.set_scope("local")
    inner.compute_at(outer, threads)
    terms = [
        inner.split(a, factor=_split(cfg, f"{name}.r{k}", a, 2, 64)[0])
        for k, a in enumerate(inner.op.reduce_axis)
    ]
    inner.reorder(*(a for a, _ in terms), *(a for _, a in terms), *inner.op.axis)
    _unrolled(cfg, name, inner)
    for source in inner.op.input_tensors:
        if any(_reads_memory(e) for e in exprs(inner.op.body[0]) if isinstance(e, Load)):
            break  # which elements are read is known when they are
        copy = s[s.cache_read(source, "shared", [inner.op])]
        copy.compute_at(inner, terms[-1][0])
        _, lane = copy.split(copy.fuse(*copy.op.axis), factor=count)
        copy.bind(lane, thread_axis((0, count), thread))


def _reads_memory(e: Load) -> bool:
    """Whether an index of an access is read from memory."""
    return any(isinstance(x, Load) for i in e.indices for x in exprs(i))


def _spread(stage: Any, cfg: Any, name: str) -> None:
    """One thread an element."""
    cfg.define_knob(f"{name}.block", [256, 64, 128, 512])
    whole = stage.fuse(*stage.op.axis)
    outer, inner = stage.split(whole, factor=cfg[f"{name}.block"].val)
    stage.bind(outer, thread_axis("blockIdx.x"))
    stage.bind(inner, thread_axis("threadIdx.x"))
