"""Loops: a schedule becomes one function over buffers.

Every stage becomes a nest of its leaf axes around a store; an attached stage stands in the body of
the loop that it is attached to. A reduction is initialised where its first reduction loop begins,
by the data loops inside there. What a split does not divide is guarded.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any

from tilewright.arith import Analyzer
from tilewright.ir.buffer import Buffer, Layout
from tilewright.ir.errors import LoweringError
from tilewright.ir.expr import Expr, IntImm, Load, Reduce, Select, Var
from tilewright.ir.func import Func
from tilewright.ir.itervar import IterVar
from tilewright.ir.ops import const, is_const, logical_and, sub
from tilewright.ir.stmt import (
    Allocate,
    AllReduce,
    Attr,
    For,
    ForKind,
    If,
    Let,
    Stmt,
    Store,
    seq,
)
from tilewright.ir.visit import Rewriter, apply_reducer, exprs, free_vars, substitute
from tilewright.lower.bounds import Bounds, Domain, enclosing_loops, infer_bounds
from tilewright.lower.lazy_select import lazy
from tilewright.lower.prefetch_hint import prefetch_hint
from tilewright.lower.safe_reads import reads_in_bounds
from tilewright.lower.storage_align import aligned_strides
from tilewright.lower.tensorize import WHERE
from tilewright.schedule.relations import Split
from tilewright.schedule.schedule import Schedule
from tilewright.schedule.stage import Stage
from tilewright.te.axes import axis_kind
from tilewright.te.operation import ComputeOp, ExternOp, PlaceholderOp
from tilewright.te.tensor import Tensor


def schedule_to_func(schedule: Schedule, args: Sequence[Any], name: str = "main") -> Func:
    """The program of a schedule over ``args``: tensors, buffers and symbolic variables.

    Raises :class:`LoweringError` where an input or output of the schedule is missing in ``args``,
    and where stages are attached or bound in ways that contradict each other.
    """
    normal = schedule.normalize()
    params = tuple(a.buffer if isinstance(a, Tensor) else a for a in args)
    _check_params(normal, params, args)
    bounds = infer_bounds(normal)
    body = _Nests(bounds, set(params)).program()
    _check_variables(body, params)
    return Func(name, params, body)


def _check_params(schedule: Schedule, params: tuple[Any, ...], args: Sequence[Any]) -> None:
    for p in params:
        if not isinstance(p, (Buffer, Var)):
            is_array = hasattr(p, "__array_interface__") or hasattr(p, "__dlpack__")
            raise LoweringError(
                "arguments are tensors and symbolic variables, got "
                + (f"an array, a {type(p).__name__}" if is_array else repr(p)),
                mend="List what te.placeholder, te.compute and te.var made; arrays are passed to "
                "the kernel that is built",
            )
        if isinstance(p, Var) and not p.dtype.is_int:
            raise LoweringError(
                f"argument {p.name!r} is a scalar of {p.dtype}: those of a kernel are integers",
                mend=f"Pass a tensor of one element: {p.name} = te.placeholder((1,), "
                f"{str(p.dtype)!r}), read as {p.name}[0]",
            )
        if sum(other is p for other in params) > 1:
            raise LoweringError(f"argument {p.name!r} is listed twice", mend="List it once")
    given = frozenset(params)
    for stage in schedule.stages:
        outer = isinstance(stage.op, PlaceholderOp) or stage.op in schedule.outputs
        for tensor in stage.op.outputs:
            if outer and tensor.buffer not in given:
                kind = "input" if isinstance(stage.op, PlaceholderOp) else "output"
                raise stage.contradiction(
                    f"{tensor.name!r} is an {kind} of the schedule, but not among the arguments",
                    mend="Add it to the list",
                )
            if tensor.buffer in given and stage.attachment.kind == "at":
                raise stage.contradiction(
                    "the stage is an argument, but computed inside of another stage",
                    stage.attachment.axis,
                    "Leave it out of the arguments, or compute it at the root",
                    stage.attachment.where,
                )
    for arg in args:
        if isinstance(arg, Tensor) and schedule.stage_of(arg.buffer) is None:
            if not isinstance(arg.op, PlaceholderOp):
                raise LoweringError(
                    f"argument {arg.name!r} is not computed by this schedule, or inlined",
                    stage=arg.op.name,
                    where=arg.op.where,
                    mend="Pass its operation to create_schedule, or leave it out of the arguments",
                )


def _check_variables(body: Stmt, params: tuple[Any, ...]) -> None:
    known = {e for p in params for e in (p.shape if isinstance(p, Buffer) else (p,))}
    shapes = (e for p in params if isinstance(p, Buffer) for e in p.shape)
    used = dict.fromkeys(free_vars(body))
    for extent in shapes:
        used.update(dict.fromkeys(free_vars(extent)))
    for var in used:
        if var not in known and axis_kind(var) is not None:
            raise LoweringError(
                f"axis {var.name!r} is in use where there is no loop over it",
                mend="A store predicate may use thread axes that the stage, or one that it is "
                "computed in, binds, and the stage's own data axes",
            )
        if var not in known:
            raise LoweringError(
                f"variable {var.name!r} is in use, but neither an argument nor an extent of one",
                mend="Add it to the list of arguments",
            )


class _Views(Rewriter):
    """Reads of a stage's full tensor become reads of the part that is kept."""

    def __init__(self, parts: dict[Buffer, tuple[Buffer, tuple[Expr, ...]]]) -> None:
        self.parts = parts

    def expr(self, e: Expr) -> Expr:
        if isinstance(e, Load) and e.buffer in self.parts:
            part, mins = self.parts[e.buffer]
            indices = tuple(sub(self.expr(i), m) for i, m in zip(e.indices, mins, strict=True))
            if part.scope == "local":  # no index of threads shall stand where there is no choice
                indices = tuple(
                    const(0) if is_const(extent, 1) else i
                    for i, extent in zip(indices, part.shape, strict=True)
                )
            return Load(part, indices, e.predicate)
        return super().expr(e)

    def buffer(self, b: Buffer) -> Buffer:
        return self.parts[b][0] if b in self.parts else b


class _Nests:
    def __init__(self, bounds: Bounds, params: set[Any]) -> None:
        self.bounds, self.params = bounds, params
        self.schedule = bounds.schedule
        self.parts: dict[Buffer, tuple[Buffer, tuple[Expr, ...]]] = {}
        self.attached: dict[tuple[Stage, IterVar], list[Stage]] = {}
        for stage in self.schedule.stages:
            at = stage.attachment
            if at.kind == "at" and at.stage is not None and at.axis is not None:
                self.attached.setdefault((at.stage, at.axis), []).append(stage)
            if not isinstance(stage.op, PlaceholderOp):
                self._make_buffers(stage)
        self.views = _Views(self.parts)
        self.stages: dict[Stage | None, _StageNest] = {}
        self.warm: dict[Stage, _StageNest] = {}  # of rolling stages, what is computed before
        for stage in self.schedule.stages:  # producers before their consumers
            if isinstance(stage.op, ComputeOp):
                self.stages[stage] = _StageNest(self, stage, bounds.domains[stage])
                if stage in bounds.warm:
                    self.warm[stage] = _StageNest(self, stage, bounds.warm[stage])

    def program(self) -> Stmt:
        """The root: every stage that is computed there, in order, and the buffers between."""
        nests: list[Stmt] = []
        buffers: list[Buffer] = []
        for stage in self.schedule.stages:
            if isinstance(stage.op, PlaceholderOp) or stage.attachment.kind == "at":
                continue
            nests.append(self.produce(stage))
            for tensor in stage.op.outputs:
                if tensor.buffer not in self.params:
                    buffers.append(self.parts[tensor.buffer][0])
        body = seq(*nests)
        for buffer in reversed(buffers):
            body = Allocate(buffer, body)
        return body

    def _make_buffers(self, stage: Stage) -> None:
        domain = self.bounds.domains[stage]
        kept_mins, kept = self.bounds.kept.get(stage, (domain.mins, domain.shape))
        for tensor in stage.op.outputs:
            old = tensor.buffer
            layout = None
            if stage.alignments:
                layout = Layout(aligned_strides(kept, stage.alignments))
            shape = kept if stage.op.axis else old.shape
            mins = kept_mins if stage.op.axis else tuple(const(0) for _ in shape)
            if old in self.params:
                new = old
            else:
                new = Buffer(old.name, shape, old.dtype, self.bounds.scopes[stage], layout)
            self.parts[old] = (new, mins)

    def produce(self, stage: Stage, warm: bool = False) -> Stmt:
        """What computes a stage, or of a rolling one what comes before, marked with its name."""
        op = stage.op
        if isinstance(op, ExternOp):
            body: Stmt = self.views.stmt(op.body)
        else:
            body = (self.warm if warm else self.stages)[stage].build()
        for thread in reversed(stage.env):
            assert thread.dom is not None
            body = For(thread.var, const(0), thread.dom.extent, ForKind.THREAD, body, thread.tag)
        if stage.double_buffered:
            body = Attr("double_buffer", self.parts[op.outputs[0].buffer][0], body)
        return Attr("produce", stage.name, body)

    def inside(self, stage: Stage, leaf: IterVar, body: Stmt) -> Stmt:
        """``body`` of the loop ``leaf`` of ``stage``, after the stages that are attached there."""
        for producer in reversed(self.attached.get((stage, leaf), [])):
            body = seq(self.produce(producer), body)
            if producer not in self.warm:
                body = self._allocated(producer, body)
        return body

    def around(self, stage: Stage, leaf: IterVar, loop: Stmt) -> Stmt:
        """The loop ``leaf`` of ``stage``, after what rolling stages compute before it."""
        for producer in reversed(self.attached.get((stage, leaf), [])):
            if producer in self.warm:
                loop = self._allocated(producer, seq(self.produce(producer, warm=True), loop))
        return loop

    def _allocated(self, stage: Stage, body: Stmt) -> Stmt:
        for tensor in stage.op.outputs:
            if tensor.buffer not in self.params:
                body = Allocate(self.parts[tensor.buffer][0], body)
        return body


class _StageNest:
    """The loops of one stage, or of a part of it."""

    def __init__(self, nests: _Nests, stage: Stage, domain: Domain) -> None:
        self.nests, self.stage, self.domain = nests, stage, domain
        assert isinstance(stage.op, ComputeOp)
        self.op: ComputeOp = stage.op
        self.leaves = stage.leaf_iter_vars
        self.analyzer: Analyzer = nests.bounds.analyzer
        self.body = tuple(
            self._at(Reduce(e.reducer, e.source, (), e.condition, e.index, e.init))
            if isinstance(e, Reduce)
            else self._at(e)
            for e in self.op.body
        )
        self.outputs = [nests.parts[t.buffer] for t in self.op.outputs]
        mapping = self.domain.values
        self.indices = tuple(
            tuple(sub(mapping[a], m) for a, m in zip(self.op.axis, mins, strict=True))
            for _, mins in self.outputs
        )
        self.needed = self._needed()
        reduces = [k for k, leaf in enumerate(self.leaves) if leaf.kind == "reduce"]
        self.first_reduce = reduces[0] if reduces else len(self.leaves)

    def _var(self, leaf: IterVar) -> Var:
        return self.domain.variables[leaf]

    def _needed(self) -> list[Expr]:
        """What must hold for an element of a tile to be computed.

        An element outside of the tensor is never used; computing it is harmless where it reads
        nothing that is not there, and nothing that another stage has left out.
        """
        if self.stage.attachment.kind != "at":
            return []
        needed = [c for c in self._inside() if not self.analyzer.prove(c)]
        producers = [self.nests.schedule.stage_of(t.buffer) for t in self.op.inputs]
        if not all(self.nests.stages[q].complete for q in producers if q in self.nests.stages):
            return needed
        for condition in tuple(needed):
            rest = [c for c in needed if c is not condition]
            with ExitStack() as assumed:
                for c in rest:
                    assumed.enter_context(self.analyzer.assume(c))
                if all(reads_in_bounds(self.analyzer, e) for e in self.body):
                    needed = rest
        return needed

    @property
    def complete(self) -> bool:
        """Whether every element of the part that is kept is computed."""
        return not self.needed

    def _inside(self) -> list[Expr]:
        """What must hold for an element of a tile to be one of the tensor."""
        found: list[Expr] = []
        for axis, extent in zip(self.op.axis, self.op.outputs[0].shape, strict=True):
            value = self.domain.values[axis]
            found += [value >= 0, value < extent]
        return found

    def _at(self, e: Expr) -> Expr:
        # Before reads of a tensor become reads of a part of it, in which the index that a choice
        # keeps within the tensor may always be in bounds, and what is there undefined.
        if any(type(x) is Select for x in exprs(e)):
            e = lazy(self._declared(), e)
        return self.nests.views.expr(substitute(e, self.domain.mapping))

    def _declared(self) -> Analyzer:
        """What is known of the axes of the declaration."""
        analyzer = Analyzer()
        for axis in (*self.op.axis, *self.op.reduce_axis):
            assert axis.dom is not None
            for x in exprs(axis.dom.extent):
                if isinstance(x, Var):
                    analyzer.bind(x, 1, None)
            analyzer.bind(axis.var, axis.dom.min, axis.dom.extent)
        return analyzer

    def build(self) -> Stmt:
        first = self.body[0]
        if not isinstance(first, Reduce):
            return self._loops(0, len(self.leaves), self._plain_store)
        if any(self._thread_reduce(leaf) for leaf in self.leaves):
            return self._loops(0, self.first_reduce, self._cross_thread)
        return self._loops(0, self.first_reduce, self._init_and_update)

    # -- stores ---------------------------------------------------------------------------

    def _plain_store(self) -> Stmt:
        stores = [
            Store(buffer, index, value)
            for (buffer, _), index, value in zip(self.outputs, self.indices, self.body, strict=True)
        ]
        return self._guarded(seq(*stores), data_only=False)

    def _init_and_update(self) -> Stmt:
        first = self.body[0]
        assert isinstance(first, Reduce)
        rest = [leaf for leaf in self.leaves[self.first_reduce :] if leaf.kind == "data"]
        init = self._init_nest(rest, first.init or first.reducer.identity)
        update = self._loops(self.first_reduce, len(self.leaves), self._update_store)
        return seq(init, update)

    def _init_nest(self, leaves: list[IterVar], values: tuple[Expr, ...]) -> Stmt:
        stores = [
            Store(buffer, index, value)
            for (buffer, _), index, value in zip(self.outputs, self.indices, values, strict=True)
        ]
        body = self._guarded(seq(*stores), data_only=True)
        renamed: dict[Expr, Expr] = {}
        for leaf in reversed(leaves):
            mark = self.stage.marks.get(leaf)
            var = self._var(leaf)
            if mark is not None and mark.thread is not None:
                body = self._loop(leaf, body)
                continue
            fresh = Var.make(f"{var.name}.init", var.dtype)
            renamed[var] = fresh
            extent = self.domain.extents[leaf]
            self.analyzer.bind(fresh, 0, extent)
            kind = mark.kind if mark is not None else ForKind.SERIAL
            if kind is ForKind.PARALLEL:
                kind = ForKind.SERIAL
            body = For(fresh, const(0), extent, kind, body)
        found: Stmt = substitute(body, renamed)
        return found

    def _update_store(self) -> Stmt:
        first = self.body[0]
        assert isinstance(first, Reduce)
        left = tuple(
            Load(buffer, index, None)
            for (buffer, _), index in zip(self.outputs, self.indices, strict=True)
        )
        update = _combine(first, left, [b for b, _ in self.outputs], list(self.indices))
        return self._guarded(self._where(first.condition, update), data_only=False)

    def _where(self, condition: Expr, body: Stmt) -> Stmt:
        return body if isinstance(condition, IntImm) and condition.value else If(condition, body)

    # -- reductions across threads --------------------------------------------------------

    def _thread_reduce(self, leaf: IterVar) -> bool:
        mark = self.stage.marks.get(leaf)
        return leaf.kind == "reduce" and mark is not None and mark.thread is not None

    def _cross_thread(self) -> Stmt:
        """Each thread reduces its share into a register; the threads' shares are combined."""
        first = self.body[0]
        assert isinstance(first, Reduce)
        inner = self.leaves[self.first_reduce :]
        late = [leaf for leaf in inner if leaf.kind == "data"]
        if late:
            bound = next(leaf for leaf in self.leaves if self._thread_reduce(leaf))
            raise self.stage.contradiction(
                f"a data axis stands inside a reduction whose axis {bound.name!r} is bound to "
                "threads",
                late[0],
                "Reorder the data axes to the outside",
                self.stage.marks[bound].where,
            )
        threads = [leaf for leaf in inner if self._thread_reduce(leaf)]
        serial = [leaf for leaf in inner if not self._thread_reduce(leaf)]
        zero = (const(0),)
        parts = tuple(
            Buffer(f"{b.name}.part", (const(1),), b.dtype, "local") for b, _ in self.outputs
        )
        start = seq(
            *(Store(p, zero, v) for p, v in zip(parts, first.reducer.identity, strict=True))
        )
        values = tuple(Load(p, zero, None) for p in parts)
        step = _combine(first, values, list(parts), [zero] * len(parts))
        share = self._where(first.condition, step)
        body = self._guarded(share, data_only=False, stores=False)
        # The loops over threads go around everything, so what is attached at one that stands inside
        # of serial loops stays inside of these.
        first_serial = self.leaves.index(serial[0]) if serial else len(self.leaves)
        for leaf in reversed(inner):
            if self.leaves.index(leaf) >= first_serial:
                body = self.nests.inside(self.stage, leaf, body)
            if leaf in serial:
                body = self._for(leaf, body)
        axes = tuple(self._var(leaf) for leaf in threads)
        total = AllReduce(first.reducer, parts, zero, values, const(True), axes)
        private = all(b.scope == "local" for b, _ in self.outputs)
        result: tuple[Expr, ...] = values
        if first.init:
            result = apply_reducer(first.reducer, first.init, values)
        stores = seq(
            *(
                Store(buffer, index, value)
                for (buffer, _), index, value in zip(
                    self.outputs, self.indices, result, strict=True
                )
            )
        )
        once = [] if private else [axis.equal(0) for axis in axes]
        store = self._guarded(self._where(logical_and(*once), stores), data_only=True)
        whole: Stmt = seq(start, body, total, store)
        for part in reversed(parts):
            whole = Allocate(part, whole)
        for leaf in reversed(threads):
            if self.leaves.index(leaf) < first_serial:
                whole = self.nests.inside(self.stage, leaf, whole)
            whole = self._for(leaf, whole)
        return whole

    # -- loops and guards -----------------------------------------------------------------

    def _loops(self, begin: int, end: int, innermost: Callable[[], Stmt]) -> Stmt:
        body = innermost()
        for leaf in reversed(self.leaves[begin:end]):
            body = self._for(leaf, self.nests.inside(self.stage, leaf, self._hints(leaf, body)))
        return body

    def _hints(self, leaf: IterVar, body: Stmt) -> Stmt:
        mark = self.stage.marks.get(leaf)
        if mark is None or not mark.prefetches:
            return body
        inner = self.leaves[self.leaves.index(leaf) + 1 :]
        start = {self._var(a): const(0) for a in inner}
        for tensor, _ in mark.prefetches:
            made = self.nests.schedule.stage_of(tensor.buffer)
            around = enclosing_loops(made) if made is not None else []
            if any(nest is self.stage and axis in inner for nest, axis in around):
                raise self.stage.contradiction(
                    f"prefetch: {tensor.name} is computed inside of the axis, so that there is "
                    "nothing of it to fetch there",
                    leaf,
                    "Prefetch at an axis inside of which it is read and not computed",
                    mark.where,
                )
        hints = [
            prefetch_hint(self.body, self._kept(tensor), self._var(leaf), offset, start)
            for tensor, offset in mark.prefetches
        ]
        return seq(*hints, body)

    def _kept(self, tensor: Tensor) -> Buffer:
        return self.nests.parts.get(tensor.buffer, (tensor.buffer, ()))[0]

    def _for(self, leaf: IterVar, body: Stmt) -> Stmt:
        return self.nests.around(self.stage, leaf, self._loop(leaf, body))

    def _loop(self, leaf: IterVar, body: Stmt) -> Stmt:
        mark = self.stage.marks.get(leaf)
        var, extent = self._var(leaf), self.domain.extents[leaf]
        if mark is None:
            return For(var, const(0), extent, ForKind.SERIAL, body)
        notes = tuple(mark.pragmas.items())
        if mark.instruction is not None:
            notes = (*notes, ("tensorize", mark.instruction), (WHERE, mark.where))
        tag = mark.thread.tag if mark.thread is not None else ""
        return For(var, const(0), extent, mark.kind, body, tag, notes)

    def _guarded(self, body: Stmt, data_only: bool, stores: bool = True) -> Stmt:
        conditions: list[Expr] = []
        with ExitStack() as assumed:  # those of inner loops come first, and often imply the others
            for c in self._guards(data_only):
                if not self.analyzer.prove(c):
                    conditions.append(c)
                    assumed.enter_context(self.analyzer.assume(c))
        if stores and self.stage.store_predicate is not None:
            own: dict[Expr, Expr] = {a.var: v for a, v in self.domain.values.items()}
            conditions.append(substitute(self.stage.store_predicate, own))
        unique = list(dict.fromkeys(self.analyzer.simplify(c) for c in conditions))
        return If(logical_and(*unique), body) if unique else body

    def _guards(self, data_only: bool) -> list[Expr]:
        """What must hold for an iteration to stand for an element of the tensor."""
        extents, values = self.domain.extents, self.domain.values
        found: list[Expr] = []
        roots = set(self.op.axis) | set(self.op.reduce_axis)
        starts = dict(zip(self.op.axis, self.domain.mins, strict=True))
        for axis in self.op.reduce_axis:
            assert axis.dom is not None
            starts[axis] = axis.dom.min
        for relation in reversed(self.stage.relations):
            if not isinstance(relation, Split):
                continue
            parent = relation.parent
            if data_only and parent.kind == "reduce":
                continue
            value = values[parent]
            if parent in roots:
                value = sub(value, starts[parent])
            found.append(value < extents[parent])
        return found + self.needed


def _combine(
    reduction: Reduce,
    left: tuple[Expr, ...],
    buffers: list[Buffer],
    indices: list[tuple[Expr, ...]],
) -> Stmt:
    """``buffers[k][indices] = combination of left and source``, all components at once."""
    values = apply_reducer(reduction.reducer, left, reduction.source)
    if len(values) == 1:
        return Store(buffers[0], indices[0], values[0])
    names = [Var.make(f"{b.name}.next", v.dtype) for b, v in zip(buffers, values, strict=True)]
    body: Stmt = seq(*(Store(b, i, n) for b, i, n in zip(buffers, indices, names, strict=True)))
    for name, value in zip(reversed(names), reversed(values), strict=True):
        body = Let(name, value, body)
    return body
