"""The loops of a reduction of which axes are bound to threads: each thread reduces its share into a
register, and the threads' shares are combined."""

from __future__ import annotations

from tilewright.ir.buffer import Buffer
from tilewright.ir.expr import Expr, Load, Reduce
from tilewright.ir.itervar import IterVar
from tilewright.ir.ops import const, logical_and
from tilewright.ir.stmt import Allocate, AllReduce, Stmt, Store, seq
from tilewright.ir.visit import Steps, apply_reducer, uses
from tilewright.lower.build.stage_nest import StageNest, combined
from tilewright.schedule.stage import Stage


def reduces_by_threads(stage: Stage) -> bool:
    """Whether threads share a reduction of a stage."""
    return any(_shares(stage, leaf) for leaf in stage.leaf_iter_vars)


def _shares(stage: Stage, leaf: IterVar) -> bool:
    mark = stage.marks.get(leaf)
    return leaf.kind == "reduce" and mark is not None and mark.thread is not None


class ThreadNest(StageNest):
    """The loops of a stage of which :func:`reduces_by_threads` holds."""

    def _reduction(self) -> Steps:
        first = self.body[0]
        assert isinstance(first, Reduce)
        inner = self.leaves[self.first_reduce :]
        late = [leaf for leaf in inner if leaf.kind == "data"]
        if late:
            bound = next(leaf for leaf in self.leaves if _shares(self.stage, leaf))
            raise self.stage.contradiction(
                f"a data axis stands inside a reduction whose axis {bound.name!r} is bound to "
                "threads",
                late[0],
                "Reorder the data axes to the outside",
                self.stage.marks[bound].where,
            )
        threads = [leaf for leaf in inner if _shares(self.stage, leaf)]
        loops = {self._var(leaf) for leaf in self.leaves}
        for leaf in threads:
            if uses(self.domain.extents[leaf], loops):
                raise self.stage.contradiction(
                    f"how often the axis runs, {self.domain.extents[leaf]}, depends on another "
                    "axis, but a block has as many threads for all",
                    leaf,
                    "Split the axis by a constant factor, and bind the inner one",
                    self.stage.marks[leaf].where,
                )
        serial = [leaf for leaf in inner if leaf not in threads]
        zero = (const(0),)
        parts = tuple(
            Buffer(f"{b.name}.part", (const(1),), b.dtype, "local") for b, _ in self.outputs
        )
        start = seq(
            *(Store(p, zero, v) for p, v in zip(parts, first.reducer.identity, strict=True))
        )
        values = tuple(Load(p, zero, None) for p in parts)
        step = combined(first, values, list(parts), [zero] * len(parts))
        share = self._where_reduced(first, step)
        body = self._guarded(share, data_only=False, stores=False)
        # The loops over threads go around everything, so what is attached at one that stands inside
        # of serial loops stays inside of these.
        first_serial = self.leaves.index(serial[0]) if serial else len(self.leaves)
        for leaf in reversed(inner):
            if self.leaves.index(leaf) >= first_serial:
                body = yield self.nests.inside(self.stage, leaf, body)
            if leaf in serial:
                body = yield self._for(leaf, body)
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
                whole = yield self.nests.inside(self.stage, leaf, whole)
            whole = yield self._for(leaf, whole)
        return whole
