"""The memories of a GPU as NumPy arrays, with bounds, what was written, and who did.

Everything outside of its bounds, never written or racing is reported; then the run goes on: such
a read gives zero or what happens to lie there, such a write is dropped if out of bounds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tilewright.ir.buffer import Buffer
from tilewright.ir.text import expr_name
from tilewright.runtime.sim.findings import first
from tilewright.runtime.sim.proxies import Unfenced
from tilewright.runtime.sim.values import Array, numpy_type, poison

if TYPE_CHECKING:
    from tilewright.runtime.sim.findings import Site
    from tilewright.runtime.sim.flight import Marks
    from tilewright.runtime.sim.frame import Frame
    from tilewright.runtime.sim.races import Races


class Form:
    """A buffer's shape and layout with symbolic extents bound."""

    def __init__(
        self, shape: tuple[int, ...], strides: tuple[int, ...], base: int,
        swizzle: tuple[int, int, int] | None, size: int,
    ) -> None:  # fmt: skip
        self.shape, self.strides, self.base = shape, strides, base
        self.swizzle, self.size = swizzle, size

    def offsets(self) -> Array:
        """The offset of every element, in the buffer's shape."""
        total: Any = np.full((1,) * len(self.shape), self.base, np.int64)
        for d, (extent, stride) in enumerate(zip(self.shape, self.strides, strict=True)):
            axis = np.arange(extent, dtype=np.int64) * stride
            total = total + axis.reshape([-1 if k == d else 1 for k in range(len(self.shape))])
        return self.swizzled(total)

    def swizzled(self, offset: Array) -> Array:
        if self.swizzle is None:
            return offset
        bits, base, shift = self.swizzle
        return offset ^ ((offset >> shift) & (((1 << bits) - 1) << base))


class Memory:
    """Storage of one buffer, with a copy for each block, warp or thread by its scope.

    Parameters
    ----------
    copies : how many; ``owner`` gives each lane's copy, None where there is only one.
    data : flat storage of ``copies * form.size`` elements, made here where None.
    tracked : whether it starts out as nobody's writing.
    """

    def __init__(
        self,
        buffer: Buffer,
        form: Form,
        copies: int = 1,
        owner: Array | None = None,
        data: Array | None = None,
        tracked: bool = True,
    ) -> None:
        self.buffer, self.form, self.copies, self.owner = buffer, form, copies, owner
        self.start = None if owner is None else owner.astype(np.int64) * form.size
        if data is None:
            data = np.full(copies * form.size, poison(buffer.dtype), numpy_type(buffer.dtype))
        self.data: Array = data
        self.written: Array | None = np.zeros(len(data), np.bool_) if tracked else None
        self.races: Races | None = None
        self.marks: Marks | None = None  # of asynchronous instructions under way
        self.unfenced: Unfenced | None = None  # where units go by another way than threads
        self.wide = copies * form.size >= 2**31

    def renew(self, frame: Frame) -> None:
        """Forget the contents in the copies of the active lanes: an allocation begins."""
        if self.written is None:
            return
        if frame.act is None or self.start is None:
            self.written[:] = False
        else:
            rows = self.written.reshape(self.copies, -1)
            rows[np.unique(self.owner[frame.act])] = False  # type: ignore[index]

    def offset(
        self, frame: Frame, indices: list[Array], keep: Array | None, site: Site, verb: str
    ) -> tuple[Array, Array | None]:
        """Offsets in a copy, and which accesses are in bounds (None: all that were asked for)."""
        form = self.form
        total: Any = form.base
        wrong: Any = None
        for i, extent, stride in zip(indices, form.shape, form.strides, strict=True):
            if i.ndim == 0:
                outside = not 0 <= i < extent
            else:
                outside = bool(i.size) and bool(i.min() < 0 or i.max() >= extent)
            if outside:
                bad = (i < 0) | (i >= extent)
                wrong = bad if wrong is None else wrong | bad
            if self.wide or i.dtype.itemsize < 4:  # offsets may be larger than what indices hold
                i = i.astype(np.int64 if self.wide else np.int32)
            total = total + (i if stride == 1 else i * stride)
        if not indices:
            total = np.int32(total)
        if wrong is not None:
            if keep is not None:
                wrong = wrong & keep
            if np.any(wrong):
                self._report_bounds(frame, indices, wrong, site, verb)
                keep = ~wrong if keep is None else keep & ~wrong
        return form.swizzled(total), keep

    def locate(self, frame: Frame, offset: Array) -> Array:
        """Offsets in the storage of all copies, with one row a lane where lanes differ."""
        if self.start is None:
            return offset
        start = frame.pick(self.start)
        return offset + (start[:, None] if np.ndim(offset) == 2 else start)

    def read(
        self, frame: Frame, indices: list[Array], keep: Array | None, site: Site, what: Any
    ) -> Array:
        """The elements at ``indices``; zero where ``keep`` does not hold."""
        offset, keep = self.offset(frame, indices, keep, site, "reads")
        if frame.batch.cost is not None:
            frame.batch.cost.access(frame, site, what, offset, keep, False)
        at = self.locate(frame, offset)
        if self.unfenced is not None:
            self.unfenced.note(frame, at, keep, store=False)
        if keep is None:
            self._check_read(frame, at, None, indices, site)
            return self.data[at]
        at, keep = np.broadcast_arrays(at, keep)
        out = np.zeros(at.shape, self.data.dtype)
        if keep.any():
            at = np.where(keep, at, 0)  # lanes that are off may lie beyond the end
            self._check_read(frame, at, keep, indices, site)
            out[keep] = self.data[at[keep]]
        return out[()]

    def write(
        self,
        frame: Frame,
        indices: list[Array],
        value: Array,
        keep: Array | None,
        site: Site,
        what: Any,
    ) -> None:
        """Store ``value`` at ``indices`` where ``keep`` holds."""
        offset, keep = self.offset(frame, indices, keep, site, "writes")
        if frame.batch.cost is not None:
            frame.batch.cost.access(frame, site, what, offset, keep, True)
        at = self.locate(frame, offset)
        if np.ndim(value) > np.ndim(at) or (np.ndim(value) and len(value) != np.shape(at)[0]):
            at = np.broadcast_to(at, np.broadcast_shapes(np.shape(at), np.shape(value)))
        if keep is not None:
            at, keep = np.broadcast_arrays(at, keep)
            if not keep.any():
                return
        if self.unfenced is not None:
            self.unfenced.note(frame, at, keep, store=True)
        if self.races is not None:
            self._check_races(frame, at, keep, indices, site, store=True)
        if self.marks is not None:
            under_way = (self.marks.written[at] + self.marks.held[at]) > 0
            self._check_flight(frame, indices, under_way, keep, site, "writes")
        if keep is not None:
            value = np.broadcast_to(value, at.shape)[keep]
            at = at[keep]
        elif np.ndim(at) == 0 and np.ndim(value):
            value = value[-1]  # many threads, one location: one of them wins
        self.data[at] = value
        if self.written is not None:
            self.written[at] = True

    def _check_read(
        self, frame: Frame, at: Array, keep: Array | None, indices: list[Array], site: Site
    ) -> None:
        if self.written is not None:
            known = self.written[at]
            if not known.all():
                missing = ~known if keep is None else ~known & keep
                missing = frame.unwritten(missing)
                if missing.any():
                    self._report_unwritten(frame, indices, missing, site)
        if self.races is not None:
            self._check_races(frame, at, keep, indices, site, store=False)
        if self.marks is not None:
            self._check_flight(frame, indices, self.marks.written[at] > 0, keep, site, "reads")

    def _check_flight(
        self, frame: Frame, indices: list[Array], under_way: Array, keep: Array | None,
        site: Site, verb: str,
    ) -> None:  # fmt: skip
        wrong = np.asarray(under_way if keep is None else under_way & keep)
        if not wrong.any():
            return
        position = first(wrong)
        index = index_at(indices, position)
        frame.batch.findings.add(
            "unfinished instruction",
            site,
            frame,
            lane_of(frame, wrong, position),
            f"{verb} {self._element(index)} ({self.buffer.scope}), which an asynchronous "
            "instruction still uses, without waiting for it",
            buffer=self.buffer.name,
            index=index,
            count=occurrences(frame, wrong),
            key=(verb,),
        )

    def _check_races(
        self,
        frame: Frame,
        at: Array,
        keep: Array | None,
        indices: list[Array],
        site: Site,
        store: bool,
    ) -> None:
        shape = (frame.n, *np.shape(at)[1:])
        rows = np.arange(frame.n)
        if len(shape) == 2:
            rows = np.broadcast_to(rows[:, None], shape)
        where = np.broadcast_to(at, shape)
        if keep is None:
            where, rows = where.ravel(), rows.ravel()
        else:
            keep = np.broadcast_to(keep, shape)
            where, rows = where[keep], rows[keep]
        who = frame.batch.who[frame.lanes[rows]]
        races = self.races
        assert races is not None
        found = (races.write if store else races.read)(frame, where, who, rows, site)
        findings, batch = frame.batch.findings, frame.batch
        for conflict in found:
            if keep is None:
                position = np.unravel_index(conflict.position, shape)
            else:
                position = tuple(axis[conflict.position] for axis in np.nonzero(keep))
            index = index_at(indices, tuple(map(int, position)))
            verb = "writes" if store else "reads"
            other = findings.place(batch, conflict.other_who, findings.sites[conflict.other_site])
            between = conflict.between_blocks
            order = "order between blocks" if between else "barrier between"
            findings.add(
                "race between blocks" if between else "race",
                site,
                frame,
                int(rows[conflict.position]),
                f"{verb} {self._element(index)}, which another thread {conflict.earlier}, "
                f"with no {order}:",
                buffer=self.buffer.name,
                index=index,
                other=other,
                count=conflict.count,
                key=(verb, conflict.earlier, conflict.other_site),
            )

    def _element(self, index: tuple[int, ...]) -> str:
        return f"{expr_name(self.buffer.name)}[{', '.join(map(str, index))}]"

    def _report_bounds(
        self, frame: Frame, indices: list[Array], wrong: Array, site: Site, verb: str
    ) -> None:
        position = first(wrong)
        index = index_at(indices, position)
        d = next(k for k, (i, n) in enumerate(zip(index, self.form.shape, strict=True))
                 if not 0 <= i < n)  # fmt: skip
        frame.batch.findings.add(
            "out of bounds",
            site,
            frame,
            lane_of(frame, wrong, position),
            f"{verb} {self._element(index)} of shape {self.form.shape}: index {index[d]} of "
            f"dimension {d} is not in 0..{self.form.shape[d] - 1};",
            buffer=self.buffer.name,
            index=index,
            count=occurrences(frame, wrong),
            key=(verb, d),
        )

    def _report_unwritten(
        self, frame: Frame, indices: list[Array], missing: Array, site: Site
    ) -> None:
        position = first(missing)
        index = index_at(indices, position)
        frame.batch.findings.add(
            "uninitialised read",
            site,
            frame,
            lane_of(frame, missing, position),
            f"reads {self._element(index)} ({self.buffer.scope}), which nobody wrote",
            buffer=self.buffer.name,
            index=index,
            count=occurrences(frame, missing),
        )


class Private(Memory):
    """A thread's own storage: element ``e`` of lane ``l`` lies at ``e * lanes + l``.

    An element that all threads access alike is then one row, which needs no gathering.
    """

    def __init__(self, buffer: Buffer, form: Form, lanes: int) -> None:
        super().__init__(buffer, form, lanes, np.arange(lanes))
        self.count = lanes
        self.rows = self.data.reshape(form.size, lanes)
        assert self.written is not None
        self.known = self.written.reshape(form.size, lanes)
        self.settled = bytearray(form.size)  # rows in which all lanes wrote

    def renew(self, frame: Frame) -> None:
        self.settled = bytearray(self.form.size)
        if frame.act is None:
            self.known[:] = False
        else:
            self.known[:, frame.act] = False

    def locate(self, frame: Frame, offset: Array) -> Array:
        lanes = frame.lanes
        return offset * self.count + (lanes[:, None] if np.ndim(offset) == 2 else lanes)

    def read(
        self, frame: Frame, indices: list[Array], keep: Array | None, site: Site, what: Any
    ) -> Array:
        if keep is not None or frame.batch.cost is not None or any(i.ndim for i in indices):
            return super().read(frame, indices, keep, site, what)
        offset, keep = self.offset(frame, indices, None, site, "reads")
        if keep is not None:
            return np.zeros(frame.n, self.data.dtype)
        if not self.settled[offset]:
            missing = ~frame.pick(self.known[offset])
            if missing.any():
                missing = frame.unwritten(missing)
            if missing.any():
                self._report_unwritten(frame, indices, missing, site)
        return frame.pick(self.rows[offset])

    def write(
        self,
        frame: Frame,
        indices: list[Array],
        value: Array,
        keep: Array | None,
        site: Site,
        what: Any,
    ) -> None:
        if keep is not None or frame.batch.cost is not None or any(i.ndim for i in indices):
            super().write(frame, indices, value, keep, site, what)
            return
        offset, keep = self.offset(frame, indices, None, site, "writes")
        if keep is not None:
            return
        if frame.act is None:
            self.rows[offset] = value
            if not self.settled[offset]:
                self.known[offset] = True
                self.settled[offset] = 1
        else:
            self.rows[offset, frame.act] = value
            if not self.settled[offset]:
                self.known[offset, frame.act] = True


def index_at(indices: list[Array], position: tuple[int, ...]) -> tuple[int, ...]:
    """The logical index of the access at ``position`` of (threads, vector lanes)."""
    found = []
    for i in indices:
        if np.ndim(i) == 0:
            found.append(int(i))
        else:
            full = position + (0,) * (np.ndim(i) - len(position))
            at = tuple(p if n > 1 else 0 for p, n in zip(full, np.shape(i), strict=True))
            found.append(int(i[at]))
    return tuple(found)


def occurrences(frame: Frame, mask: Array) -> int:
    """How many accesses ``mask`` marks, over all active threads."""
    count = int(np.count_nonzero(mask))
    alike = np.ndim(mask) == 0 or len(mask) != frame.n
    return count * frame.n if alike else count


def lane_of(frame: Frame, mask: Array, position: tuple[int, ...]) -> int:
    """The frame's lane that ``position`` of ``mask`` belongs to, its first where all are alike."""
    return position[0] if position and np.shape(mask)[0] == frame.n else 0
