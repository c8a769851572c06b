"""Which thread holds what of a buffer, as instructions want their operands to be held.

An operand of a matrix instruction is a tile whose elements lie in the registers of a group of
threads; its declaration says where each bit of each axis goes. Seen from the buffer that the tile
is taken from, a bit of an axis is a bit of one of the buffer's indices: of which one, and which,
follows from the operand's indices, whatever the loops were split and ordered into. So the order of
a reduction is free as long as both operands have it.

>>> from tilewright.ir.dtype import dtype
>>> k = Var.make("k")
>>> A = Buffer("A", (const(64),), dtype("float16"), "fragment")
>>> own = (("slot 0", "lane 0", "lane 1", "slot 1"),)
>>> held = spread(Access(A, (k % 8 * 4 + k // 8,)), (k,), (16,), own, Analyzer())
>>> held.bits
{(0, 2): None, (0, 3): 0, (0, 4): 1, (0, 0): None}
>>> held.packed  # two elements of 16 bits lie in one register
((0, 2),)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product

from tilewright.arith import Analyzer
from tilewright.arith.affine import as_affine
from tilewright.ir.buffer import Buffer
from tilewright.ir.distribution import Bit, Distribution, parse_bit
from tilewright.ir.expr import Expr, IntImm, Var
from tilewright.ir.ops import const
from tilewright.ir.stmt import Access
from tilewright.ir.visit import substitute

#: Dimension of a buffer's index, and bit of it.
Place = tuple[int, int]
#: Bytes of a register.
_REGISTER = 4


@dataclass(frozen=True)
class Held:
    """Where the bits of a buffer's indices go; ``packed`` are those that count the elements of one
    register, the lowest first, and ``group`` the number of threads, where bits do not tell all of
    them apart."""

    bits: Mapping[Place, Bit]
    packed: tuple[Place, ...] = ()
    group: int = 0

    @property
    def lanes(self) -> int:
        """The number of threads that hold it together."""
        return self.group or 1 << sum(bit is not None for bit in self.bits.values())


def spread(
    access: Access,
    axes: Sequence[Var],
    extents: Sequence[int],
    wanted: Sequence[Sequence[str]],
    analyzer: Analyzer,
) -> Held | str:
    """Where the bits of the buffer's indices go, or why that cannot be said.

    ``axes`` are those of the operand, with their ``extents``; ``wanted`` is the declaration's
    ``fragment``. What of an axis its bits do not count is further tiles.
    """
    zero: dict[Expr, Expr] = {axis: const(0, axis.dtype) for axis in axes}
    base = _at(access, zero, analyzer)
    found: dict[Place, Bit] = {}
    packed: dict[int, Place] = {}
    in_one = (_REGISTER // access.buffer.dtype.bytes).bit_length() - 1
    total = [0] * len(base)
    for axis, extent, bits in zip(axes, extents, wanted, strict=True):
        tile = 1 << len(bits)
        if extent % tile:
            raise ValueError(f"{len(bits)} bits are declared for an axis of {extent}")
        if extent > tile:
            step = _steps(access, zero | {axis: const(tile, axis.dtype)}, base, analyzer)
            moved = [(d, size) for d, size in enumerate(step or ()) if size]
            if len(moved) != 1 or moved[0][1] < 0:
                return f"a step of {tile} along {axis.name} is not one of one index"
            total[moved[0][0]] += moved[0][1] * (extent // tile - 1)
        for b, bit in enumerate(bits):
            step = _steps(access, zero | {axis: const(1 << b, axis.dtype)}, base, analyzer)
            moved = [(d, size) for d, size in enumerate(step or ()) if size]
            if len(moved) != 1 or moved[0][1] & (moved[0][1] - 1) or moved[0][1] < 0:
                return f"a step of {1 << b} along {axis.name} is not one bit of one index"
            place = (moved[0][0], moved[0][1].bit_length() - 1)
            if place in found:
                return f"two bits of its axes are one of index {place[0]}"
            word, _, number = bit.partition(" ")
            if word == "slot" and int(number) < in_one:
                packed[int(number)] = place
            found[place] = None if word == "slot" else parse_bit(bit)
            total[place[0]] += moved[0][1]
    most: dict[Expr, Expr] = {
        a: const(extent - 1, a.dtype) for a, extent in zip(axes, extents, strict=True)
    }
    if _steps(access, most, base, analyzer) != total:
        return "its indices are not sums over the bits of its axes"
    for d, index in enumerate(base):
        reason = _touches(index, {b for dim, b in found if dim == d}, analyzer)
        if reason:
            return reason
    return Held(found, tuple(packed[number] for number in sorted(packed)))


def joined(one: Held, other: Held) -> Held | None:
    """What both ask for; None where they contradict each other."""
    lanes = [{at: bit for at, bit in h.bits.items() if bit is not None} for h in (one, other)]
    agree = lanes[0] == lanes[1] and one.packed == other.packed
    return Held({**one.bits, **other.bits}, one.packed) if agree else None


def distribution_of(buffer: Buffer, held: Held) -> Distribution | None:
    """The distribution of a buffer that is ``held`` so; None where its shape varies."""
    shape = buffer.constant_shape
    if shape is None:
        return None
    found = []
    for d in range(len(shape)):
        count = max((b + 1 for dim, b in held.bits if dim == d), default=0)
        found.append(tuple(held.bits.get((d, b)) for b in range(count)))
    group = held.group if shared_bits(held) else 0
    return Distribution(shape, tuple(found), held.packed, group)


def shared_bits(held: Held) -> list[int]:
    """The bits of the lane that are none of an index."""
    used = set(held.bits.values())
    return [b for b in range(held.lanes.bit_length() - 1) if b not in used]


def slot_values(extents: Sequence[int], fragment: Sequence[Sequence[str]]) -> list[list[int]]:
    """The axes' values of each of a thread's elements in the declared order, for lane 0; those of
    further tiles of an axis, beyond its bits, come last.

    >>> rows, columns = ("lane 2", "lane 3", "lane 4", "slot 1"), ("slot 0", "lane 0", "lane 1")
    >>> slot_values((16, 8), (rows, columns))
    [[0, 0], [0, 1], [8, 0], [8, 1]]
    """
    places = sorted(
        (int(bit.split()[1]), d, b)
        for d, own in enumerate(fragment)
        for b, bit in enumerate(own)
        if bit.startswith("slot")
    )
    found = []
    tiles = [range(0, n, 1 << len(own)) for n, own in zip(extents, fragment, strict=True)]
    for first in product(*tiles):
        for number in range(1 << len(places)):
            values = list(first)
            for position, d, b in places:
                values[d] += (number >> position & 1) << b
            found.append(values)
    return found


def _at(access: Access, values: Mapping[Expr, Expr], analyzer: Analyzer) -> list[Expr]:
    return [analyzer.simplify(substitute(i, dict(values))) for i in access.indices]


def _steps(
    access: Access, values: Mapping[Expr, Expr], base: Sequence[Expr], analyzer: Analyzer
) -> list[int] | None:
    """How far the indices are from ``base``, None where that varies."""
    found = []
    for index, first in zip(_at(access, values, analyzer), base, strict=True):
        step = analyzer.simplify(index - first)
        if not isinstance(step, IntImm):
            return None
        found.append(step.value)
    return found


def _touches(index: Expr, used: set[int], analyzer: Analyzer) -> str:
    """Why the first element's ``index`` may have one of the bits in ``used``; empty if it cannot.

    Each of its terms has to keep clear of them, and no two terms may share a bit below the highest
    one, so that nothing is ever carried into them.
    """
    if not used:
        return ""
    top = max(used) + 1
    form = as_affine(index)
    taken = set(used)
    for atom, factor in (*form.terms.items(), (None, form.const)):
        if factor % (1 << top) == 0:
            continue
        if atom is None:
            most: int | None = form.const
            factor = 1
        else:
            bounds = analyzer.bounds(atom)
            low = isinstance(bounds.lo, int) and bounds.lo >= 0
            most = bounds.hi * factor if low and isinstance(bounds.hi, int) else None
        if most is None or factor < 0 or most < 0:
            return f"{index} is not known to be a multiple of {1 << top}"
        if atom is None:
            own = {b for b in range(top) if most >> b & 1}
        else:
            own = set(range((factor & -factor).bit_length() - 1, min(top, most.bit_length())))
        if own & taken or (atom is not None and most >= 1 << top):
            return f"{index} is not known to be a multiple of {1 << top}"
        taken |= own
    return ""
