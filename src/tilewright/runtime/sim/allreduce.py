"""A reduction among threads, executed with its meaning: every thread's value, then their sum."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tilewright.ir import stmt as S
from tilewright.ir.errors import LoweringError
from tilewright.ir.func import LaunchAxis
from tilewright.runtime.sim.divergence import require_block
from tilewright.runtime.sim.findings import Site
from tilewright.runtime.sim.frame import Frame
from tilewright.runtime.sim.values import Array, numpy_type

if TYPE_CHECKING:
    from tilewright.runtime.sim.expressions import ExpressionCompiler


class AllReduceCode:
    """The closure of one AllReduce."""

    def __init__(
        self, s: S.AllReduce, x: ExpressionCompiler, axes: tuple[LaunchAxis, ...], site: Site
    ) -> None:
        tags = {axis.var: axis.tag for axis in axes}
        self._along: list[int] = []  # dimensions of the block: 0 is x
        for axis in s.axes:
            tag = tags.get(axis, "")
            if not tag.startswith("threadIdx."):
                raise LoweringError(
                    f"the reduction `{site.text}` runs over {axis.name}, which is no thread axis "
                    f"of kernel {site.kernel!r}"
                )
            self._along.append("xyz".index(tag[-1]))
        self._site = site
        self._everywhere = s.everywhere
        self._condition = x.expr(s.condition)
        self._source = [x.expr(e) for e in s.source]
        self._types = [e.dtype for e in s.source]
        self._identity = [x.expr(e) for e in s.reducer.identity]
        self._lhs = [x.slot(v) for v in s.reducer.lhs]
        self._rhs = [x.slot(v) for v in s.reducer.rhs]
        self._result = [x.expr(e) for e in s.reducer.result]
        self._places = [x.place(b) for b in s.buffers]
        self._what = [(b, s.indices) for b in s.buffers]
        self._indices = x.indices(s.indices)

    def run(self, frame: Frame) -> None:
        """Reduce; reports threads of the block that do not take part."""
        require_block(frame, self._site, "divergent reduction", "reduces without")
        members = self._members(frame)
        totals = self._fold(frame, [part[members] for part in self._parts(frame)])
        writers = np.zeros(frame.batch.size, np.bool_)
        writers[members if self._everywhere else members[:, 0]] = True
        values = []
        for total in totals:
            full = np.empty(frame.batch.size, total.dtype)
            full[members] = total[:, None]
            values.append(full)
        mine = frame.pick(writers)
        target = frame if mine.all() else frame.narrow(mine)
        indices = self._indices(target)
        for place, what, full in zip(self._places, self._what, values, strict=True):
            memory = target.memories[place]
            memory.write(target, indices, target.pick(full), None, self._site, what)

    def _members(self, frame: Frame) -> Array:
        """Lanes by (group, member); member 0 has index 0 along the axes."""
        x, y, z = frame.batch.grid.block
        lanes = frame.batch.lanes.reshape(-1, z, y, x)
        along = sorted((3 - d for d in self._along), reverse=False)
        kept = [d for d in range(4) if d not in along]
        size = int(np.prod([lanes.shape[d] for d in along]))
        return lanes.transpose(kept + along).reshape(-1, size)

    def _parts(self, frame: Frame) -> list[Array]:
        """Each component's values in all lanes; the identity where a lane has none."""
        parts = []
        for identity, t in zip(self._identity, self._types, strict=True):
            parts.append(np.full(frame.batch.size, identity(frame), numpy_type(t)))
        condition = frame.each(self._condition(frame))
        if condition.any():
            inside = frame if condition.all() else frame.narrow(condition)
            for part, source in zip(parts, self._source, strict=True):
                part[inside.lanes] = source(inside)
        return parts

    def _fold(self, frame: Frame, parts: list[Array]) -> list[Array]:
        """Each group's combination, as a tree."""
        while parts[0].shape[1] > 1:
            half = parts[0].shape[1] // 2
            rest = [part[:, 2 * half :] for part in parts]
            combined = self._combine(frame, [p[:, :half] for p in parts], [
                p[:, half : 2 * half] for p in parts
            ])  # fmt: skip
            parts = [np.concatenate(pair, axis=1) for pair in zip(combined, rest, strict=True)]
        return [part[:, 0] for part in parts]

    def _combine(self, frame: Frame, left: list[Array], right: list[Array]) -> list[Array]:
        shape = left[0].shape
        # The values are not the batch's lanes: a frame of its own evaluates the combination.
        scratch = Frame(frame.batch, list(frame.env), frame.memories)
        scratch.n = left[0].size
        for slot, value in zip(self._lhs + self._rhs, left + right, strict=True):
            scratch.env[slot] = value.ravel()
        return [
            np.broadcast_to(result(scratch), scratch.n).reshape(shape) for result in self._result
        ]
