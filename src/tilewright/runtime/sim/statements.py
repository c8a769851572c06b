"""Statements as coroutines over frames, made once a kernel.

Every statement becomes a function of a frame that yields an event where threads wait for each
other; what drives it (:mod:`.machine`) decides when it goes on. Today a block has one role and the
only events are barriers, which pass at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

import numpy as np

from tilewright.ir import stmt as S
from tilewright.ir.buffer import Buffer
from tilewright.ir.errors import LoweringError
from tilewright.ir.func import LaunchAxis
from tilewright.ir.visit import stores
from tilewright.runtime.narrow_floats import is_narrow, round_to
from tilewright.runtime.sim.allreduce import AllReduceCode
from tilewright.runtime.sim.divergence import require_block, require_warp
from tilewright.runtime.sim.expressions import ExpressionCompiler
from tilewright.runtime.sim.findings import Site, Sites
from tilewright.runtime.sim.frame import Frame
from tilewright.runtime.sim.instruction import InstructionView, Operand
from tilewright.runtime.sim.values import Array, numpy_type
from tilewright.target.queues import QUEUES


@dataclass(frozen=True, slots=True)
class Barrier:
    """The threads of ``frame`` have come to a barrier of ``scope``, "cluster", "shared" or "warp",
    which is ``split`` where it only frees copies."""

    frame: Frame
    scope: str
    site: Site
    split: bool = False


Steps: TypeAlias = Callable[[Frame], Iterator[Barrier]]


class StatementCompiler:
    """Turns the body of one kernel into coroutines.

    ``scratch`` collects the buffers that it allocates.
    """

    def __init__(
        self, kernel: str, sites: Sites, axes: tuple[LaunchAxis, ...], profile: bool
    ) -> None:
        self.kernel, self.sites, self.axes = kernel, sites, axes
        self.expressions = ExpressionCompiler(kernel, profile)
        self.scratch: list[Buffer] = []

    def _enter(self, s: S.Stmt) -> Site:
        site = self.sites.new(self.kernel, s)
        self.expressions.enter(site)
        return site

    def stmt(self, s: S.Stmt) -> Steps:
        """The coroutine for ``s``."""
        # What definitions and allocations stand around is in line with them: both last.
        parts: list[Steps] = []
        waiting = [s]
        while waiting:
            match waiting.pop():
                case S.Seq(stmts):
                    waiting += reversed(stmts)
                case S.Begins(buffer, body):
                    parts.append(self._begins(self.expressions.place(buffer)))
                    waiting.append(body)
                case S.Remark(body=body):
                    waiting.append(body)
                case S.Allocate(buffer, body):
                    parts.append(self._allocate(buffer))
                    waiting.append(body)
                case S.Let() as let:
                    parts.append(self._let(let))
                    waiting.append(let.body)
                case other:
                    parts.append(self._single(other))
        if len(parts) == 1:
            return parts[0]

        def in_order(frame: Frame) -> Iterator[Barrier]:
            for part in parts:
                yield from part(frame)

        return in_order

    def _let(self, s: S.Let) -> Steps:
        self._enter(s)
        bound = self.expressions.expr(s.value)
        slot = self.expressions.slot(s.var)
        lanes = s.var.dtype.lanes
        if lanes > 1 and any(x.predicate is not None for x in stores(s.body)):
            # Which elements masked stores keep is not known yet.
            none = np.zeros((1, lanes), bool)
            return _plain(lambda frame: frame.bind(slot, bound(frame.keeping(none))))
        return _plain(lambda frame: frame.bind(slot, bound(frame)))

    def _single(self, s: S.Stmt) -> Steps:
        match s:
            case S.Store():
                return self._store(s)
            case S.For():
                return self._for(s)
            case S.If():
                return self._if(s)
            case S.Evaluate(value):
                self._enter(s)
                code = self.expressions.expr(value)
                return _plain(code)
            case S.Sync(scope, _, split):
                site = self._enter(s)

                def sync(frame: Frame) -> Iterator[Barrier]:
                    yield Barrier(frame, scope, site, split)

                return sync
            case S.AllReduce():
                site = self._enter(s)
                made = AllReduceCode(s, self.expressions, self.axes, site)
                return _plain(made.run)
            case S.Queue():
                return _plain(partial(_queue, s, self._enter(s)))
            case S.Instr():
                return self._instr(s)
        raise LoweringError(f"sim cannot run a {type(s).__name__}: {s!r}")

    def _store(self, s: S.Store) -> Steps:
        site = self._enter(s)
        x = self.expressions
        place, indices, value = x.place(s.buffer), x.indices(s.indices), x.expr(s.value)
        lanes = max((i.dtype.lanes for i in s.indices), default=1)
        what = (s.buffer, s.indices)
        lone = lanes == 1 and s.value.dtype.lanes == 1
        condition = x.expr(s.predicate) if s.predicate is not None and lone else None
        wanted = x.predicate(s.predicate, lanes) if condition is None else None
        to = s.buffer.dtype
        narrow = is_narrow(to) and s.value.dtype.kind != to.kind

        def store(frame: Frame) -> None:
            # The predicate of a scalar store guards its value too, as an If would.
            if condition is not None:
                taken = condition(frame)
                if taken.ndim == 0 or taken.all():
                    if not np.all(taken):
                        return
                elif taken.any():
                    frame = frame.narrow(taken)
                else:
                    return
            keep = wanted(frame) if wanted is not None else None
            found = value(frame if keep is None or keep.ndim < 2 else frame.keeping(keep))
            if narrow:
                found = round_to(found, to)
            if lanes > 1 and found.ndim == 1:
                found = found[:, None]
            frame.memories[place].write(frame, indices(frame), found, keep, site, what)

        return _plain(store)

    def _if(self, s: S.If) -> Steps:
        site = self._enter(s)
        condition = self.expressions.expr(s.condition)
        then = self.stmt(s.then)
        orelse = self.stmt(s.orelse) if s.orelse is not None else None

        def branch(frame: Frame) -> Iterator[Barrier]:
            taken = condition(frame)
            if taken.ndim and frame.batch.cost is not None:
                frame.batch.cost.branch(frame, site, taken)
            if taken.ndim == 0 or taken.all():
                if np.all(taken):
                    yield from then(frame)
                elif orelse is not None:
                    yield from orelse(frame)
                return
            if not taken.any():
                if orelse is not None:
                    yield from orelse(frame)
                return
            yield from then(frame.narrow(taken))
            if orelse is not None:
                yield from orelse(frame.narrow(~taken))

        return branch

    def _for(self, s: S.For) -> Steps:
        if s.kind is S.ForKind.THREAD:
            raise LoweringError(
                f"kernel {self.kernel!r} has the loop {s.var.name} over {s.tag} in its body: "
                "lower it with split_kernels, which turns such loops into launch axes"
            )
        site = self._enter(s)
        low, extent = self.expressions.expr(s.min), self.expressions.expr(s.extent)
        slot = self.expressions.slot(s.var)
        kind = numpy_type(s.var.dtype).type
        body = self.stmt(s.body)

        def loop(frame: Frame) -> Iterator[Barrier]:
            start, count = low(frame), extent(frame)
            if count.ndim == 0:
                if start.ndim == 0:
                    for k in range(int(start), int(start) + int(count)):
                        frame.env[slot] = kind(k)
                        yield from body(frame)
                    return
                start = start.copy()
                for k in range(int(count)):
                    frame.bind(slot, start + kind(k))
                    yield from body(frame)
                return
            yield from divergent(frame, start, count.copy())

        def divergent(frame: Frame, start: Array, count: Array) -> Iterator[Barrier]:
            """Threads run different numbers of iterations: those who are done wait."""
            if start.ndim:
                start = start.copy()
            for k in range(int(count.max())):
                going = count > k
                if frame.batch.cost is not None:
                    frame.batch.cost.branch(frame, site, going)
                if going.all():
                    now, values = frame, start
                else:
                    now, values = frame.narrow(going), start[going] if start.ndim else start
                now.bind(slot, values + kind(k))
                yield from body(now)

        return loop

    def _allocate(self, buffer: Buffer) -> Steps:
        places = self.expressions.places
        place = places.setdefault(buffer, len(places))
        self.scratch.append(buffer)
        return self._begins(place)

    def _begins(self, place: int) -> Steps:
        return _plain(lambda frame: frame.memories[place].renew(frame))

    def _instr(self, s: S.Instr) -> Steps:
        simulate = s.instruction.simulate
        if simulate is None:
            return self.stmt(s.body)
        site = self._enter(s)
        x = self.expressions
        axes = [x.slot(axis) for axis in s.axes]
        operands = [
            Operand(x.place(o.buffer), x.indices(o.indices), (o.buffer, o.indices))
            for o in s.operands
        ]

        def execute(frame: Frame) -> None:
            if s.instruction.group > 1:
                require_warp(frame, site, "divergent instruction", "executes an instruction with")
            view = InstructionView(s.instruction, frame, axes, operands, site)
            simulate(view)
            view.end()

        return _plain(execute)


def _queue(s: S.Queue, site: Site, frame: Frame) -> None:
    if QUEUES[s.queue].collective and s.action in ("commit", "wait"):
        verb = "waits" if s.action == "wait" else "commits"
        require_block(frame, site, "divergent barrier", f"{verb} instructions of the block without")
    if s.action == "proxy":
        for memory in frame.memories:
            if memory is not None and memory.unfenced is not None:
                memory.unfenced.fence(frame)
    elif s.action == "commit":
        frame.batch.flights.commit(s.queue, frame)
    elif s.action == "wait":
        frame.batch.flights.wait(s.queue, frame, s.pending)


def _plain(code: Callable[[Frame], Any]) -> Steps:
    """A statement that never waits."""

    def steps(frame: Frame) -> Iterator[Barrier]:
        code(frame)
        return
        yield  # makes it a coroutine

    return steps


def pass_barrier(barrier: Barrier) -> None:
    """Let the threads at a barrier go on; reports those of its cluster, block or warp that never
    come."""
    frame, batch = barrier.frame, barrier.frame.batch
    if barrier.scope == "warp":
        require_warp(frame, barrier.site, "divergent barrier", "waits at a barrier of the warp for")
    else:
        of_cluster = barrier.scope == "cluster"
        what = f"waits at a barrier of the {'cluster' if of_cluster else 'block'} for"
        require_block(frame, barrier.site, "divergent barrier", what, of_cluster)
    batch.pass_barrier(frame.act, barrier.scope)
    if barrier.split:
        batch.met = batch.time
    for memory in frame.memories if barrier.scope != "warp" else ():
        if memory is not None and memory.unfenced is not None:
            memory.unfenced.pass_barrier(frame)
    if batch.cost is not None and barrier.scope != "warp":
        batch.cost.barrier(frame, batch.kernel)
