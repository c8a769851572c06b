"""Distributions: which thread of a group holds which element of a fragment, and in which slot.

A fragment is an array that the threads of a warp, or of a group of four warps, hold together in
their registers. Its distribution says of a logical index the lane (the number of the thread in the
group) and the slot (the register of that thread): one of each, or lanes that hold it alike. Every
bit of an index goes to one bit of the lane or stays with the slot; what lies beyond the bits that
are spread counts further slots.

The sixteen by eight floats of a matrix product of a warp (PTX ISA, "mma.m16n8k16"): a thread holds
two neighbours of a row, and those eight rows below.

>>> rows, columns = ("lane 2", "lane 3", "lane 4", "slot"), ("slot", "lane 0", "lane 1")
>>> d = Distribution.parse((16, 8), (rows, columns))
>>> d.lanes, d.slots
(32, 4)
>>> from tilewright.ir.ops import const
>>> d.lane((const(3), const(6))), d.slot((const(11), const(7)))
(15, 3)
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from tilewright.ir.expr import Expr
from tilewright.ir.ops import add, const, floordiv, floormod, mul

#: Where a bit of an index goes: to the bit of the lane with this number; None to the slot.
Bit = int | None


@dataclass(frozen=True)
class Run:
    """Bits ``first .. first + count - 1`` of an index, which go together.

    To the lane's bits from ``lane`` on, or to bits of the slot worth ``slot`` and more.
    """

    first: int
    count: int
    lane: int | None = None
    slot: int = 0


@dataclass(frozen=True)
class Distribution:
    """How an array of ``shape`` is spread; ``bits[d][b]`` says where bit ``b`` of index ``d`` goes.

    Where bits of the lane are none of an index, all lanes that differ in these hold the element
    alike: ``group`` is the number of lanes then, of which 0 are as many as the bits tell apart.
    What has one element a row of a matrix is held so by all threads that hold a part of the row.

    >>> rows = Distribution.parse((16,), (("lane 2", "lane 3", "lane 4", "slot"),), group=32)
    >>> rows.lanes, rows.slots, rows.shared
    (32, 2, (0, 1))

    Slots count the bits in ``packed`` first, pairs of ``d`` and ``b``, as these choose an element
    of one register; then the last dimension's, so that neighbours that a thread holds lie side by
    side; then whole tiles, in row-major order.
    """

    shape: tuple[int, ...]
    bits: tuple[tuple[Bit, ...], ...]
    packed: tuple[tuple[int, int], ...] = ()
    group: int = 0

    @classmethod
    def parse(
        cls, shape: Sequence[int], bits: Sequence[Sequence[str]], group: int = 0
    ) -> Distribution:
        """From "slot" and "lane N" by dimension and bit, the lowest bit first."""
        return cls(tuple(shape), tuple(tuple(map(parse_bit, own)) for own in bits), (), group)

    def __post_init__(self) -> None:
        used, group = self._used, self.group
        known = range(group.bit_length() - 1 if group else len(used))
        power = not group & (group - 1)
        if (
            len(self.bits) != len(self.shape) or len(set(used)) < len(used) or not power
            or not set(used) <= set(known)
        ):  # fmt: skip
            raise ValueError(f"not a distribution of {self.shape}: {self.bits}")

    @cached_property
    def _used(self) -> tuple[int, ...]:
        return tuple(sorted(bit for own in self.bits for bit in own if bit is not None))

    @property
    def lanes(self) -> int:
        """How many threads hold it."""
        return self.group or 1 << len(self._used)

    @property
    def shared(self) -> tuple[int, ...]:
        """The bits of the lane in which threads differ that hold the same."""
        return tuple(b for b in range(self.lanes.bit_length() - 1) if b not in self._used)

    @property
    def tile(self) -> tuple[int, ...]:
        """The extents that the bits cover, dimension by dimension."""
        return tuple(1 << len(own) for own in self.bits)

    @property
    def tiles(self) -> tuple[int, ...]:
        """How many tiles there are along each dimension; the last one may stand out."""
        return tuple(-(-n // t) for n, t in zip(self.shape, self.tile, strict=True))

    @property
    def slots(self) -> int:
        """How many elements each thread has room for."""
        return math.prod(self.tiles) * self.tile_slots

    @property
    def tile_slots(self) -> int:
        """How many elements of one tile a thread holds."""
        return math.prod(self.tile) >> len(self._used)

    @cached_property
    def runs(self) -> tuple[tuple[Run, ...], ...]:
        """The bits of each dimension in runs that stay together, the lowest first."""
        order = list(self.packed)
        for d in reversed(range(len(self.bits))):
            order += [(d, b) for b, bit in enumerate(self.bits[d]) if bit is None]
        number = {at: k for k, at in enumerate(dict.fromkeys(order))}
        return tuple(
            tuple(part for run in runs_of(own) for part in _slots_of(run, d, number))
            for d, own in enumerate(self.bits)
        )

    def copies(self, count: int) -> Distribution:
        """The same for ``count`` arrays as one, of which each thread holds its part of each."""
        packed = tuple((d + 1, b) for d, b in self.packed)
        return Distribution((count, *self.shape), ((), *self.bits), packed, self.group)

    def lane(self, indices: Sequence[Expr]) -> Expr:
        """The lane that holds the element at ``indices``: of those that share it the first."""
        total: Expr = const(0)
        for index, run in self._parts(indices):
            if run.lane is not None:
                total = add(total, mul(_bits(index, run), const(1 << run.lane)))
        return total

    def slot(self, indices: Sequence[Expr]) -> Expr:
        """The slot of its thread's registers where the element at ``indices`` lies."""
        total: Expr = const(0)
        for index, tile, count in zip(indices, self.tile, self.tiles, strict=True):
            total = add(mul(total, const(count)), floordiv(index, const(tile)))
        total = mul(total, const(self.tile_slots))
        for index, run in self._parts(indices):
            if run.lane is None:
                total = add(total, mul(_bits(index, run), const(run.slot)))
        return total

    def _parts(self, indices: Sequence[Expr]) -> Iterator[tuple[Expr, Run]]:
        for index, runs in zip(indices, self.runs, strict=True):
            for run in runs:
                yield index, run


def runs_of(bits: Sequence[Bit]) -> list[Run]:
    """Bits in runs that stay together, the lowest first.

    >>> [(r.first, r.count, r.lane) for r in runs_of((None, 0, 1, None, None))]
    [(0, 1, None), (1, 2, 0), (3, 2, None)]
    """
    found: list[Run] = []
    for b, bit in enumerate(bits):
        last = found[-1] if found else None
        follows = None if last is None or last.lane is None else last.lane + last.count
        if last is not None and bit == follows:
            found[-1] = replace(last, count=last.count + 1)
        else:
            found.append(Run(b, 1, bit))
    return found


def _slots_of(run: Run, dimension: int, number: Mapping[tuple[int, int], int]) -> list[Run]:
    """A run with its place in the slot, in parts where the slot's bits do not follow each other;
    ``number`` says which bit of the slot a bit of a dimension is."""
    if run.lane is not None:
        return [run]
    found: list[Run] = []
    for b in range(run.first, run.first + run.count):
        slot = 1 << number[dimension, b]
        if found and slot == found[-1].slot << found[-1].count:
            found[-1] = replace(found[-1], count=found[-1].count + 1)
        else:
            found.append(Run(b, 1, None, slot))
    return found


def parse_bit(text: str) -> Bit:
    """None for "slot", N for "lane N".

    >>> parse_bit("lane 3")
    3
    """
    if text == "slot":
        return None
    word, _, number = text.partition(" ")
    if word != "lane":
        raise ValueError(f"a bit goes to 'slot' or to 'lane N', not to {text!r}")
    return int(number)


def _bits(index: Expr, run: Run) -> Expr:
    return floormod(floordiv(index, const(1 << run.first)), const(1 << run.count))
