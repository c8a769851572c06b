"""cache_read, cache_write: copies of a tensor in another memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tilewright.arith import Analyzer
from tilewright.ir.buffer import Buffer, known_scope, scopes_instead
from tilewright.ir.dtype import FLOAT8, DType
from tilewright.ir.dtype import dtype as as_dtype
from tilewright.ir.errors import ScheduleError
from tilewright.ir.expr import Cast, Expr, Load, Reduce, Var, load
from tilewright.ir.itervar import IterVar, Range
from tilewright.ir.ops import add, cast, floordiv, floormod, mul
from tilewright.ir.visit import rewrite_exprs, substitute
from tilewright.schedule.relations import (
    Fuse,
    Pad,
    Skew,
    Split,
    consumed,
    pass_extents,
    pass_values,
)
from tilewright.schedule.schedule import Schedule
from tilewright.schedule.stage import Stage
from tilewright.te.operation import ComputeOp, Operation
from tilewright.te.scan import ScanOp
from tilewright.te.tensor import Tensor

#: By type, those that hold all of its values.
_HELD_BY = {
    **dict.fromkeys(map(as_dtype, FLOAT8), ("float16", "bfloat16", "float32", "float64")),
    as_dtype("float16"): ("float32", "float64"),
    as_dtype("bfloat16"): ("float32", "float64"),
    as_dtype("float32"): ("float64",),
    as_dtype("int8"): ("int16", "int32", "int64", "float16", "float32", "float64"),
    as_dtype("uint8"): ("uint16", "uint32", "int16", "int32", "int64", "float16", "float32"),
    as_dtype("int16"): ("int32", "int64", "float32", "float64"),
    as_dtype("uint16"): ("uint32", "int32", "int64", "float32", "float64"),
    as_dtype("int32"): ("int64", "float64"),
}


def cache_read(
    s: Schedule, tensor: Tensor, scope: str, readers: Any, dtype: str | None = None,
    before: Any = None,
) -> Tensor:  # fmt: skip
    """A copy of ``tensor`` in ``scope`` that ``readers`` read in its place.

    The new stage ``B[i] = A[i]`` is returned as a tensor; it is computed at the root until
    compute_at says otherwise. ``readers`` are tensors or operations. With ``dtype`` the copy is of
    that type, which has to hold all values of the tensor's: what a reader converts to it, or to
    one that holds all of its values, is then converted once. Where stages share a loop, the copy is
    computed in front of its first reader, or of the stage ``before``, which has something to do
    until what is loaded is there.

    Raises :class:`ScheduleError` where a reader does not read ``tensor``, for a narrower type, and
    where ``before`` stands behind a reader, or in front of what computes the tensor.
    """
    scope = _checked(scope)
    if not isinstance(tensor, Tensor):
        raise ScheduleError(
            f"cache_read takes a tensor, got {tensor!r}", mend="Pass an output of the operation"
        )
    producer = s[tensor]
    given: Sequence[Any] = readers if isinstance(readers, (list, tuple)) else [readers]
    stages = [s[r] for r in given]
    if not stages:
        raise producer.error(
            "cache_read needs at least one reader", mend="Pass the tensors that read it as a list"
        )
    for reader in stages:
        if all(t is not tensor for t in reader.op.inputs):
            read = ", ".join(t.name for t in reader.op.inputs) or "nothing"
            raise reader.error(
                f"cache_read: the stage does not read {tensor.name}", mend=f"It reads {read}"
            )
    axes = _fresh_axes([f"ax{k}" for k in range(tensor.ndim)], tensor.shape)
    value: Expr = load(tensor.buffer, tuple(a.var for a in axes))
    if dtype is not None:
        value = cast(_wider(producer, tensor, dtype), value)
    copy = make_operation(f"{tensor.name}.{scope}", axes, (value,))
    cached = copy.outputs[0]
    first = min(stages, key=s.stages.index)
    if before is not None:
        first = _in_front(s, producer, first, s[before])
    for reader in stages:
        _reroute(reader, tensor.buffer, cached.buffer)
    stage = Stage(s, copy)
    stage.scope = scope
    s.add(stage, before=first)
    return cached


def _in_front(s: Schedule, producer: Stage, reader: Stage, place: Stage) -> Stage:
    """``place``, in front of which the copy of what a stage computes for a reader may stand: all
    that this is computed from is moved there, too."""
    first, moved, found = s.stages.index(place), [producer], set[Stage]()
    while moved:
        stage = moved.pop()
        if stage not in found and s.stages.index(stage) >= first:
            found.add(stage)
            moved += [s[t] for t in stage.op.inputs]
    if place in found or first > s.stages.index(reader):
        raise place.error(
            f"cache_read: a copy of what {producer.name} computes cannot be in front of the stage",
            mend=f"Name one that is not behind {reader.name}, and that {producer.name} does not "
            "read",
        )
    order = [stage for stage in s.stages if stage in found]
    rest = [stage for stage in s.stages if stage not in found]
    s.stages[:] = [*rest[:first], *order, *rest[first:]]
    return place


def cache_write(s: Schedule, tensor: Any, scope: str) -> Any:
    """Compute ``tensor`` in ``scope`` and then copy it: the computing stage is returned.

    The stage of ``tensor`` becomes the copy ``C[i] = CL[i]``, with fresh axes. Where its axes were
    split, fused or reordered before, ``CL`` has the loops for dimensions: ``C[i, j] = CL[i // 4, j,
    i % 4]``. Where some were padded or skewed, ``CL`` is declared over the loops, those of a
    reduction too (:mod:`~tilewright.schedule.loops_as_axes`).

    Raises :class:`ScheduleError` where it is not a computed tensor, or was scheduled already.
    """
    scope = _checked(scope)
    tensors: list[Tensor] = list(tensor) if isinstance(tensor, (list, tuple)) else [tensor]
    stage = s[tensors[0]]
    op = stage.op
    if not isinstance(op, ComputeOp):
        raise stage.error(
            "cache_write: the tensor is not the result of te.compute",
            mend="Use s.cache_read for a copy of an argument",
        )
    if isinstance(op, ScanOp):
        raise stage.error(
            "cache_write: the rows of a scan are kept in its result",
            mend="Use it for an update, or set_scope",
        )
    if len(tensors) != len(op.outputs):
        raise stage.error(
            f"cache_write: the operation has {len(op.outputs)} outputs, of which "
            f"{len(tensors)} were given",
            mend="Pass all of them as a list",
        )
    stage.unused("cache_write")
    if stage.marks:
        raise stage.error(
            "cache_write: the stage was already scheduled",
            mend="Call cache_write before bind, vectorize and the like",
        )
    if stage.relations or tuple(stage.leaf_iter_vars) != stage.roots:
        return _relaid(s, stage, op, tensors, scope, isinstance(tensor, (list, tuple)))
    inner_axes = _fresh_axes([f"{a.name}.c" for a in op.axis], tensors[0].shape)
    renamed = {a.var: b.var for a, b in zip(op.axis, inner_axes, strict=True)}
    inner = make_operation(
        f"{op.name}.{scope}",
        inner_axes,
        renamed_body(op.body, renamed),
    )
    indices = tuple(a.var for a in op.axis)
    copied = op.derive(tuple(load(t.buffer, indices) for t in inner.outputs))
    stage.replace_op(copied)
    replace_output(s, op, copied)
    made = Stage(s, inner)
    made.scope = scope
    s.add(made, before=stage)
    return list(inner.outputs) if isinstance(tensor, (list, tuple)) else inner.outputs[0]


def _relaid(
    s: Schedule, stage: Stage, op: ComputeOp, tensors: list[Tensor], scope: str, several: bool
) -> Any:
    """A copy whose dimensions are the loops that the stage has been given, in their order.

    Raises :class:`ScheduleError` where a split does not divide.
    """
    from tilewright.schedule.loops_as_axes import is_redeclared, over_loops

    extents: dict[IterVar, Expr] = {a: a.dom.extent for a in stage.roots if a.dom is not None}
    analyzer = Analyzer()
    pass_extents(stage.relations, extents, analyzer.simplify)
    leaves = [a for a in stage.leaf_iter_vars if a.kind == "data"]
    places: dict[IterVar, Expr] = {a: a.var for a in op.axis}
    for relation in stage.relations:
        if isinstance(relation, Split) and relation.parent in places:
            inner = extents[relation.inner]
            if not analyzer.prove(floormod(extents[relation.parent], inner).equal(0)):
                raise stage.error(
                    "cache_write: the stage was split into parts that are not equal",
                    relation.parent,
                    "Call cache_write before split",
                )
            places[relation.outer] = floordiv(places[relation.parent], inner)
            places[relation.inner] = floormod(places[relation.parent], inner)
        elif isinstance(relation, Fuse) and relation.outer in places:
            whole = mul(places[relation.outer], extents[relation.inner])
            places[relation.fused] = add(whole, places[relation.inner])
        elif isinstance(relation, Pad) and relation.parent in places:
            places[relation.child] = places[relation.parent]
        elif isinstance(relation, Skew) and relation.parent in places:
            far = add(mul(places[relation.by], relation.scale), relation.offset)
            places[relation.child] = add(far, mul(places[relation.parent], relation.step))
    fresh = _fresh_axes([f"{a.name}.c" for a in leaves], tuple(extents[a] for a in leaves))
    values: dict[IterVar, Expr] = {a: f.var for a, f in zip(leaves, fresh, strict=True)}
    values |= {a: a.var for a in stage.leaf_iter_vars if a.kind != "data"}
    pass_values(stage.relations, extents, values)
    if is_redeclared(stage):
        body = over_loops(stage, fresh, extents, values)
    else:
        body = renamed_body(op.body, {a.var: values[a] for a in op.axis})
    made = make_operation(f"{op.name}.{scope}", fresh, body)
    indices = tuple(analyzer.simplify(places[a]) for a in leaves)
    copied = op.derive(tuple(load(t.buffer, indices) for t in made.outputs))
    inner_stage = Stage(s, made)
    inner_stage.scope = scope
    if made.reduce_axis == op.reduce_axis and not is_redeclared(stage):
        reduced = [a for a in stage.leaf_iter_vars if a.kind == "reduce"]
        inner_stage.relations = [
            r for r in stage.relations if any(a.kind == "reduce" for a in consumed(r))
        ]
        inner_stage.leaf_iter_vars = [*fresh, *reduced]
    stage.replace_op(copied)
    replace_output(s, op, copied)
    s.add(inner_stage, before=stage)
    return list(made.outputs) if several else made.outputs[0]


def replace_output(s: Schedule, old: Operation, new: Operation) -> None:
    """Keep the list of outputs true when the operation of an output is replaced."""
    s.outputs = [new if op is old else op for op in s.outputs]


def renamed_body(body: tuple[Expr, ...], mapping: Mapping[Var, Expr]) -> tuple[Expr, ...]:
    """A body with its data axes renamed; the axes of a reduction stay, but for those whose domain
    depends on others."""
    whole: dict[Var, Expr] = dict(mapping)
    axes: list[IterVar] = []
    first = body[0]
    for axis in first.axes if isinstance(first, Reduce) else ():
        assert axis.dom is not None
        low, extent = (substitute(e, whole) for e in (axis.dom.min, axis.dom.extent))
        own = axis
        if low is not axis.dom.min or extent is not axis.dom.extent:
            fresh = whole[axis.var] = Var.make(axis.name, axis.var.dtype)
            own = IterVar(Range.from_extent(low, extent), fresh, "reduce", where=axis.where)
        axes.append(own)

    def renamed(e: Expr) -> Expr:
        made: Expr = substitute(e, whole)
        if not isinstance(made, Reduce):
            return made
        return Reduce(made.reducer, made.source, tuple(axes), made.condition, made.index, made.init)

    return tuple(map(renamed, body))


def _wider(producer: Stage, tensor: Tensor, name: str) -> DType:
    """The type that ``name`` says, which holds all values of the tensor's type."""
    narrow, wide = tensor.dtype, as_dtype(name)
    if wide != narrow and wide.with_lanes(1) not in _HELD_BY.get(narrow, ()):
        held = ", ".join(_HELD_BY.get(narrow, ())) or "no other"
        raise producer.error(
            f"cache_read: a copy in {wide} does not hold every {narrow}",
            mend=f"Types that do: {held}",
        )
    return wide


def _reroute(stage: Stage, old: Buffer, new: Buffer) -> None:
    # What was read, back in the type that it is kept in or another that holds that, is read as it
    # is.
    wide = (new.dtype, *_HELD_BY.get(new.dtype, ())) if new.dtype != old.dtype else ()

    def rule(e: Expr) -> Expr | None:
        if isinstance(e, Cast) and isinstance(e.value, Cast) and e.dtype in wide:
            inner = e.value
            read = inner.value
            if inner.dtype == old.dtype and isinstance(read, Load) and read.buffer is new:
                return cast(e.dtype, read)
        if isinstance(e, Load) and e.buffer is old:
            return cast(old.dtype, Load(new, e.indices, e.predicate))
        return None

    op = stage.op
    if not isinstance(op, ComputeOp):
        raise stage.error(
            "cache_read: an extern stage reads its inputs as they are",
            mend="Leave it out of the readers",
        )
    body = tuple(rewrite_exprs(e, rule) for e in op.body)
    rerouted = op.derive(body)
    stage.op = rerouted
    replace_output(stage.schedule, op, rerouted)


def _fresh_axes(names: list[str], shape: tuple[Expr, ...]) -> tuple[IterVar, ...]:
    return tuple(
        IterVar(Range.from_extent(0, extent), Var.make(name, extent.dtype), "data")
        for name, extent in zip(names, shape, strict=True)
    )


def make_operation(name: str, axes: tuple[IterVar, ...], body: tuple[Expr, ...]) -> ComputeOp:
    """A computed operation over ``axes`` with new output tensors."""
    op = ComputeOp(name)
    op.axis, op.body = axes, body
    op.reduce_axis = body[0].axes if isinstance(body[0], Reduce) else ()
    shape = tuple(a.dom.extent for a in axes if a.dom is not None)
    names = [name] if len(body) == 1 else [f"{name}.v{k}" for k in range(len(body))]
    op.outputs = tuple(
        Tensor(op, k, Buffer(n, shape, e.dtype))
        for k, (n, e) in enumerate(zip(names, body, strict=True))
    )
    return op


def _checked(scope: str) -> str:
    known = known_scope(scope)
    if known is None:
        raise ScheduleError(f"unknown scope {scope!r}", mend=scopes_instead())
    return known
