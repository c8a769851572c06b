"""The loops of one stage, or of a part of it: a nest of its leaf axes around a store.

A reduction is initialised where its first reduction loop begins, by the data loops inside there.
What a split does not divide is guarded.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, ExitStack
from typing import TYPE_CHECKING

from tilewright.arith import Analyzer
from tilewright.arith.safe_reads import reads_in_bounds
from tilewright.ir.buffer import Buffer
from tilewright.ir.expr import Expr, IntImm, Load, Reduce, Select, Var
from tilewright.ir.itervar import IterVar
from tilewright.ir.ops import const, logical_and, sub
from tilewright.ir.parts import Part, in_parts
from tilewright.ir.stmt import For, ForKind, If, Stmt, Store, Tensorize, let, seq
from tilewright.ir.visit import Steps, apply_reducer, exprs, substitute
from tilewright.lower.build.attached import enclosing_loops
from tilewright.lower.build.bounds import Domain
from tilewright.lower.build.declared_reads import declared
from tilewright.lower.build.lazy_select import lazy
from tilewright.lower.build.prefetch_hint import prefetch_hint
from tilewright.lower.context import pure
from tilewright.schedule.relations import Skew, consumed, descended, guards, parents
from tilewright.schedule.stage import Stage
from tilewright.te.operation import ComputeOp
from tilewright.te.tensor import Tensor

if TYPE_CHECKING:
    from tilewright.lower.build.schedule_to_func import Nests


class StageNest:
    """The loops of one stage, or of a part of it."""

    def __init__(
        self, nests: Nests, stage: Stage, domain: Domain, part: ComputeOp | None = None
    ) -> None:
        self.nests, self.stage, self.domain = nests, stage, domain
        assert isinstance(stage.op, ComputeOp)
        self.op = part or stage.op
        for relation in stage.relations:
            if isinstance(relation, Skew) and relation.parent.kind == "data":
                raise stage.error(
                    "skew: loops over a data axis that was skewed by another one are not made",
                    relation.parent,
                    "Call s.cache_write, which declares the stage over its loops",
                )
        self.leaves, self.relations = stage.leaf_iter_vars, stage.relations
        if part is not None:  # the loops of the other outputs are none of its own
            own = descended(stage.relations, part.axis)
            others = descended(stage.relations, set(stage.op.axis) - own) - own
            self.leaves = [leaf for leaf in self.leaves if leaf not in others]
            self.relations = [r for r in self.relations if others.isdisjoint(parents(r))]
        self.analyzer: Analyzer = nests.bounds.analyzer
        self.conditions: list[Part] = []  # what the condition of a reduction is made of
        self.parts: list[Part] = []
        self.body = self._body()
        self.outputs = [nests.parts[t.buffer] for t in self.op.outputs]
        mapping = self.domain.values
        self.indices = tuple(
            tuple(sub(mapping[a], m) for a, m in zip(self.op.axis, mins, strict=True))
            for _, mins in self.outputs
        )
        reduces = [k for k, leaf in enumerate(self.leaves) if leaf.kind == "reduce"]
        self.first_reduce = reduces[0] if reduces else len(self.leaves)
        self.needed = self._needed()

    def _var(self, leaf: IterVar) -> Var:
        return self.domain.variables[leaf]

    def _inside(self, data_only: bool) -> AbstractContextManager[None]:
        """What holds where this stage stores, inside of its loops: with ``data_only`` outside of
        those of a reduction."""
        own = [x for x in self.leaves if not (data_only and x.kind == "reduce")]
        loops = (*self.nests.bounds.around(self.stage), *map(self._var, own))
        return self.nests.bounds.inside(loops)

    def _needed(self) -> list[Expr]:
        """What must hold for an element of a tile to be computed.

        An element outside of the tensor is never used; computing it is harmless where it reads
        nothing that is not there, and nothing that another stage has left out. Where a declaration
        may read beyond the tensor, all is computed, so that no guard hides it.
        """
        if self.stage.attachment.kind != "at":
            return []
        with self._inside(data_only=True):
            needed = [c for c in self._of_tensor() if not self.analyzer.prove(c)]
        if any(t.buffer in self.nests.params for t in self.op.outputs):
            return needed  # it is kept in an argument, as the steps of a scan are
        if needed and not self._read_within():
            return []
        producers = [self.nests.schedule.stage_of(t.buffer) for t in self.op.inputs]
        if not all(self.nests.complete(q) for q in producers if q is not None):
            return needed
        for condition in tuple(needed):
            rest = [c for c in needed if c is not condition]
            with self._inside(data_only=False), ExitStack() as assumed:
                for c in rest:
                    assumed.enter_context(self.analyzer.assume(c))
                if self._reads_in_bounds():
                    needed = rest
        return needed

    def _read_within(self) -> bool:
        """Whether this stage is read within its tensor, as other stages declare it; and so are all
        tiles that are computed of it, which otherwise are computed whole."""
        waiting, found = [self.stage], {self.stage}
        while waiting:
            stage = waiting.pop()
            if not self.nests.read_within(stage):
                return False
            tiles = (c for c in self.nests.schedule.consumers(stage) if c.attachment.kind == "at")
            waiting += [tile for tile in tiles if tile not in found]
            found.update(waiting)
        return True

    @property
    def complete(self) -> bool:
        """Whether every element of this part is computed."""
        return not self.needed

    def _of_tensor(self) -> list[Expr]:
        """What must hold for an element of a tile to be one of the tensor."""
        found: list[Expr] = []
        for axis, extent in zip(self.op.axis, self.op.outputs[0].shape, strict=True):
            value = self.domain.values[axis]
            found += [value >= 0, value < extent]
        return found

    def _body(self) -> tuple[Expr, ...]:
        """What the outputs are computed from, in terms of the loops; large values in parts."""
        first = self.op.body[0]
        if not isinstance(first, Reduce):
            self.parts, values = self._in_parts(self.op.body)
            return values
        self.conditions, (condition,) = self._in_parts((first.condition,))
        self.parts, source = self._in_parts(first.source)
        outside = declared(self.op.axis, self.nests.bounds.symbols)
        init = tuple(self._at(outside, e) for e in first.init)
        return tuple(
            Reduce(first.reducer, source, (), condition, k, init) for k in range(len(source))
        )

    def _in_parts(self, values: tuple[Expr, ...]) -> tuple[list[Part], tuple[Expr, ...]]:
        parts, left = in_parts(values)
        known = None
        # Before reads of a tensor become reads of a part of it, in which the index that a choice
        # keeps within the tensor may always be in bounds, and what is there undefined.
        if any(
            type(x) is Select for e in (*left, *(value for _, value in parts)) for x in exprs(e)
        ):
            axes = (*self.op.axis, *self.op.reduce_axis)
            known = declared(axes, self.nests.bounds.symbols)
        made: list[Part] = []
        for var, value in parts:
            made.append((var, self._at(known, value)))
            if known is not None and pure(value):
                known.define(var, value)
        return made, tuple(self._at(known, e) for e in left)

    def _at(self, known: Analyzer | None, e: Expr) -> Expr:
        if known is not None and any(type(x) is Select for x in exprs(e)):
            e = lazy(known, e)
        return self.nests.views.expr(substitute(e, self.domain.mapping))

    def _reads_in_bounds(self) -> bool:
        with self.analyzer.scope():
            for var, value in (*self.conditions, *self.parts):
                if not reads_in_bounds(self.analyzer, value):
                    return False
                if pure(value):
                    self.analyzer.define(var, value)
            evaluated = (*self.body, *self._store_predicate())
            return all(reads_in_bounds(self.analyzer, e) for e in evaluated)

    def build(self) -> Steps:
        """The loops, with those of the stages that are computed inside of them."""
        first = self.body[0]
        if not isinstance(first, Reduce):
            return (yield self._loops(0, len(self.leaves), self._plain_store()))
        return (yield self._loops(0, self.first_reduce, (yield self._reduction())))

    def in_steps(self, steps: int) -> Steps:
        """What is done in every iteration of the first loops, ``steps`` of them."""
        return (yield self._loops(steps, len(self.leaves), self._plain_store()))

    # -- stores ---------------------------------------------------------------------------

    def _plain_store(self) -> Stmt:
        stores = [
            Store(buffer, index, value)
            for (buffer, _), index, value in zip(self.outputs, self.indices, self.body, strict=True)
        ]
        return self._guarded(let(self.parts, seq(*stores)), data_only=False)

    def _reduction(self) -> Steps:
        """From where the results are set, with all that is inside of there."""
        first = self.body[0]
        assert isinstance(first, Reduce)
        update = yield self._loops(self.first_reduce, len(self.leaves), self._update_store())
        if self.stage.rolls_along is not None:
            return update
        return seq(self.set_results(*(first.init or first.reducer.identity)), update)

    def set_results(self, *values: Expr) -> Stmt:
        """Stores of ``values`` into the outputs of a reduction, where it begins."""
        rest = [leaf for leaf in self.leaves[self.first_reduce :] if leaf.kind == "data"]
        return self._data_nest(rest, [b for b, _ in self.outputs], values)

    def condition(self) -> Expr | None:
        """Where a reduction reduces anything; None of what is no reduction."""
        first = self.body[0]
        if not isinstance(first, Reduce) or self.conditions:
            return None
        with self._inside(data_only=False):
            found: Expr = self.analyzer.simplify(first.condition)
        return found

    def begin(self) -> Stmt:
        """Of a reduction that goes along with a loop, what stands before that one."""
        ((buffer, _),) = self.outputs
        return self.every_element(buffer, self.first())

    def first(self) -> Expr:
        """What a reduction to one value begins with."""
        reduction = self.body[0]
        assert isinstance(reduction, Reduce)
        (value,) = reduction.init or reduction.reducer.identity
        return value

    def every_element(self, buffer: Buffer, value: Expr) -> Stmt:
        """A store of ``value`` for each element of a reduction, into a buffer that is indexed as
        its output is."""
        data = [leaf for leaf in self.leaves if leaf.kind == "data"]
        return self._data_nest(data, [buffer], (value,))

    def results(self) -> tuple[Load, ...]:
        """What is in the outputs."""
        return tuple(
            Load(buffer, index, None)
            for (buffer, _), index in zip(self.outputs, self.indices, strict=True)
        )

    def reads(self, e: Load) -> Load:
        """What this stage reads of another one, in terms of the loops."""
        found = self._at(None, e)
        assert isinstance(found, Load)
        return found

    def _data_nest(
        self, leaves: list[IterVar], buffers: list[Buffer], values: tuple[Expr, ...]
    ) -> Stmt:
        stores = [
            Store(buffer, index, value)
            for buffer, index, value in zip(buffers, self.indices, values, strict=True)
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
            kind = mark.kind if mark is not None else ForKind.SERIAL
            if kind is ForKind.PARALLEL:
                kind = ForKind.SERIAL
            body = For(fresh, const(0), self.domain.extents[leaf], kind, body)
        found: Stmt = substitute(body, renamed)
        return found

    def _update_store(self) -> Stmt:
        first = self.body[0]
        assert isinstance(first, Reduce)
        update = combined(first, self.results(), [b for b, _ in self.outputs], list(self.indices))
        return self._guarded(self._where_reduced(first, update), data_only=False)

    def _where_reduced(self, first: Reduce, update: Stmt) -> Stmt:
        """One step of a reduction, where its condition holds."""
        return let(self.conditions, self._where(first.condition, let(self.parts, update)))

    def _where(self, condition: Expr, body: Stmt) -> Stmt:
        return body if isinstance(condition, IntImm) and condition.value else If(condition, body)

    # -- loops and guards -----------------------------------------------------------------

    def _loops(self, begin: int, end: int, body: Stmt) -> Steps:
        for leaf in reversed(self.leaves[begin:end]):
            body = yield self.nests.inside(self.stage, leaf, self._hints(leaf, body))
            body = yield self._for(leaf, body)
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
        parts = (*self.conditions, *self.parts)
        read = (*(value for _, value in parts), *self.body)
        hints = [
            prefetch_hint(read, self._kept(tensor), self._var(leaf), offset, start, parts)
            for tensor, offset in mark.prefetches
        ]
        return seq(*hints, body)

    def _kept(self, tensor: Tensor) -> Buffer:
        return self.nests.parts.get(tensor.buffer, (tensor.buffer, ()))[0]

    def _for(self, leaf: IterVar, body: Stmt) -> Steps:
        if leaf is self.stage.rolls_along:
            return body
        return (yield self.nests.around(self.stage, leaf, self._loop(leaf, body)))

    def _loop(self, leaf: IterVar, body: Stmt) -> Stmt:
        mark = self.stage.marks.get(leaf)
        var, extent = self._var(leaf), self.domain.extents[leaf]
        over = leaf if leaf in self.nests.pipelined_over else None
        if mark is None:
            return For(var, const(0), extent, ForKind.SERIAL, body, pipelines=over)
        tag = mark.thread.tag if mark.thread is not None else ""
        pragmas = tuple(mark.pragmas.items())
        loop = For(var, const(0), extent, mark.kind, body, tag, pragmas, over)
        if mark.instruction is None:
            return loop
        return Tensorize(mark.instruction, mark.where, loop)

    def _guarded(self, body: Stmt, data_only: bool, stores: bool = True) -> Stmt:
        conditions: list[Expr] = []
        with self._inside(data_only):
            with ExitStack() as assumed:  # those of inner loops come first, and often imply others
                for c in self._guards(data_only):
                    if not self.analyzer.prove(c):
                        conditions.append(c)
                        assumed.enter_context(self.analyzer.assume(c))
            if stores:  # behind the guards, for it may read memory
                conditions += self._store_predicate()
            unique = list(dict.fromkeys(self.analyzer.simplify(c) for c in conditions))
        return If(logical_and(*unique), body) if unique else body

    def _store_predicate(self) -> list[Expr]:
        predicate = self.stage.store_predicate
        return [] if predicate is None else [substitute(predicate, self.domain.mapping)]

    def _guards(self, data_only: bool) -> list[Expr]:
        """What must hold for an iteration to stand for an element of the tensor."""
        values = dict(self.domain.values)  # counted from zero
        for root, start in self.domain.starts.items():
            values[root] = sub(values[root], start)
        found: list[Expr] = []
        order = self.relations[::-1]
        order.sort(key=lambda r: not isinstance(r, Skew))  # which say what pads of theirs do
        for relation in order:
            if not (data_only and any(a.kind == "reduce" for a in consumed(relation))):
                found += guards(relation, self.domain.extents, values)
        return found + self.needed


def combined(
    reduction: Reduce,
    left: tuple[Expr, ...],
    buffers: list[Buffer],
    indices: list[tuple[Expr, ...]],
) -> Stmt:
    """``buffers[k][indices] = combination of left and source``, all components at once."""
    values = apply_reducer(reduction.reducer, left, reduction.source)
    if len(values) == 1:
        return Store(buffers[0], indices[0], values[0])
    names = [Var.of(f"{b.name}.next", v) for b, v in zip(buffers, values, strict=True)]
    body: Stmt = seq(*(Store(b, i, n) for b, i, n in zip(buffers, indices, names, strict=True)))
    return let(list(zip(names, values, strict=True)), body)
