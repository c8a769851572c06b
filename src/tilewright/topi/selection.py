"""What is before what along one axis of a tensor: running sums, and the places of the largest."""

from __future__ import annotations

from typing import Any

from tilewright import te
from tilewright.te import Tensor
from tilewright.topi.broadcast import shape_of
from tilewright.topi.reduction import REDUCE, STORED, above, dimension

#: Elements of a block of running sums; an axis that is much longer is cut into such blocks.
_BLOCK = 32
#: Bits of a key that one reading of all keys determines.
_DIGIT = 4
#: Elements of an axis of which the bits of keys are compared, at least: by some thirty stages
#: instead of two, which are kernels on a GPU.
_MANY = 4096


def cumsum(x: Tensor, axis: int, exclusive: bool = False, reverse: bool = False) -> Tensor:
    """The sum of an element and those before it; of those alone that are before it where it is
    ``exclusive``, and of those behind with ``reverse``."""
    return _running(te.sum, 0, x, axis, exclusive, reverse, "cumsum")


def cumprod(x: Tensor, axis: int, exclusive: bool = False, reverse: bool = False) -> Tensor:
    """The product of what :func:`cumsum` adds."""
    return _running(te.prod, 1, x, axis, exclusive, reverse, "cumprod")


def _running(
    combine: Any, neutral: int, x: Tensor, axis: int, exclusive: bool, reverse: bool, name: str
) -> Tensor:
    """An element is made of all; along an axis of many, of those of its block, and of the totals
    of the blocks before it."""
    axis = dimension(axis, x.ndim)
    extent = shape_of(x)[axis]
    nothing = te.const(neutral, x.dtype)

    def before(place: Any, at: Any, itself: bool) -> Any:
        if reverse:
            return place >= at if itself else place > at
        return place <= at if itself else place < at

    if not isinstance(extent, int) or extent <= 4 * _BLOCK:
        r = te.reduce_axis((0, extent), "r")

        def element(*i: Any) -> Any:
            there = x[(*i[:axis], r, *i[axis + 1 :])]
            inside = before(r, i[axis], not exclusive)
            return combine(te.if_then_else(inside, there, nothing), axis=r)

        made: Tensor = te.compute(x.shape, element, name=name, tag=REDUCE)
        return made
    outer, inner = x.shape[:axis], x.shape[axis + 1 :]
    blocks = -(-extent // _BLOCK)

    def read(i: tuple[Any, ...], block: Any, lane: Any) -> Any:
        """Of a tensor of blocks; ``i`` has the other dimensions, these are at ``axis``."""
        place = block * _BLOCK + lane
        there = x[(*i[:axis], place, *i[axis:])]
        return te.if_then_else(place < extent, there, nothing) if extent % _BLOCK else there

    def own(*i: Any) -> Any:
        block, lane = i[axis : axis + 2]
        r = te.reduce_axis((0, _BLOCK), "r")
        there = read((*i[:axis], *i[axis + 2 :]), block, r)
        inside = before(r, lane, not exclusive)
        return combine(te.if_then_else(inside, there, nothing), axis=r)

    def whole(*i: Any) -> Any:
        r = te.reduce_axis((0, _BLOCK), "r")
        return combine(read((*i[:axis], *i[axis + 1 :]), i[axis], r), axis=r)

    parts = te.compute((*outer, blocks, _BLOCK, *inner), own, name=f"{name}_of_block", tag=REDUCE)
    wholes = te.compute((*outer, blocks, *inner), whole, name=f"{name}_of_blocks", tag=REDUCE)
    rest = _running(combine, neutral, wholes, axis, True, reverse, name)

    def joined(*i: Any) -> Any:
        block, lane = te.indexdiv(i[axis], _BLOCK), te.indexmod(i[axis], _BLOCK)
        a = rest[(*i[:axis], block, *i[axis + 1 :])]
        b = parts[(*i[:axis], block, lane, *i[axis + 1 :])]
        return a + b if combine is te.sum else a * b

    found: Tensor = te.compute(x.shape, joined, name=name, tag=STORED)
    return found


def topk_places(x: Tensor, k: int, axis: int, largest: bool = True, many: int = _MANY) -> Tensor:
    """Where the ``k`` largest elements along ``axis`` are, or the smallest, in order, an int64; of
    equal ones the first comes first. NaN is larger than all numbers. An axis of ``many`` elements,
    of which at most half are wanted, is read digit by digit of their bits; of fewer elements, each
    is compared with all."""
    axis = dimension(axis, x.ndim)
    extent = shape_of(x)[axis]
    if isinstance(extent, int) and extent >= many and 2 * k <= extent:
        return _by_bits(x, k, axis, largest)
    r, other = (te.reduce_axis((0, extent), name) for name in ("r", "other"))

    def rank(*i: Any) -> Any:
        """How many are before it in descending order, or behind it in ascending order."""
        value, there = x[i], x[(*i[:axis], other, *i[axis + 1 :])]
        beside = other < i[axis] if largest else other > i[axis]
        return te.sum(above(there, value, beside).astype("int32"), axis=other)

    ranks: Tensor = te.compute(x.shape, rank, name="ranks", tag=REDUCE)

    def place(*i: Any) -> Any:
        at = i[axis] if largest else extent - 1 - i[axis]
        found = ranks[(*i[:axis], r, *i[axis + 1 :])].equal(at.astype("int32"))
        return te.sum(te.Select(found, r.astype("int64"), te.const(0, "int64")), axis=r)

    shape = [k if d == axis else e for d, e in enumerate(shape_of(x))]
    made: Tensor = te.compute(tuple(shape), place, name="topk_places", tag=REDUCE)
    return made


def _by_bits(x: Tensor, k: int, axis: int, largest: bool) -> Tensor:
    """As many readings of all elements as their keys have digits find the key of the last one that
    is among the ``k``. Those above it, and as many that equal it as are left, are found by running
    sums, in the order of their places; these alone are sorted."""
    keys = _keys(x, axis, largest)
    *outer, extent = shape_of(keys)
    last = te.compute(outer, lambda *row: te.const(0, keys.dtype), name="last")
    for shift in range(keys.dtype.bits - _DIGIT, -1, -_DIGIT):
        last = _next_digit(keys, last, shift, k)

    def chosen(*i: Any) -> Any:
        *row, equal, place = i
        key, least = keys[(*row, place)], last[tuple(row)]
        return te.Select(equal > 0, key.equal(least), key > least).astype("int32")

    flags = te.compute((*outer, 2, extent), chosen, name="chosen", tag="injective")
    places = _places(cumsum(flags, len(outer) + 1), k)

    def key_of(*i: Any) -> Any:
        return keys[(*i[:-1], te.clip(places[i], 0, extent - 1))]

    held = te.compute(places.shape, key_of, name="held", tag=STORED)
    other = te.reduce_axis((0, k), "other")

    def rank(*i: Any) -> Any:
        """How many are above it, or equal it and were before."""
        *row, at = i
        mine, there = held[i], held[(*row, other)]
        first = te.any(there > mine, te.all(there.equal(mine), other < at))
        return te.sum(first.astype("int32"), axis=other)

    ranks, r = te.compute(places.shape, rank, name="ranks", tag=REDUCE), te.reduce_axis((0, k), "r")

    def place(*i: Any) -> Any:
        there = (*i[:axis], *i[axis + 1 :], r)
        found = ranks[there].equal(i[axis].astype("int32"))
        return te.sum(te.select(found, places[there], 0).astype("int64"), axis=r)

    shape = [k if d == axis else e for d, e in enumerate(shape_of(x))]
    made: Tensor = te.compute(tuple(shape), place, name="topk_places", tag=REDUCE)
    return made


def _keys(x: Tensor, axis: int, largest: bool) -> Tensor:
    """Unsigned integers in the order of the elements, ``axis`` last: the more, the earlier. Behind
    the last element are zeros, up to a multiple of :func:`_root`."""
    extent = shape_of(x)[axis]
    size = _root(extent)
    wide = x.dtype.bits == 64
    word, signed, real = ("uint64", "int64", "float64") if wide else ("uint32", "int32", "float32")
    sign = te.const(1 << (63 if wide else 31), word)
    every = te.max_value(word)

    def key(*i: Any) -> Any:
        v = x[(*i[:axis], te.min(i[-1], extent - 1), *i[axis:-1])]
        if x.dtype.is_float:
            v = v.astype(real)
            bits = te.reinterpret(word, te.Select(v.equal(0), te.const(0, real), v))  # -0 is 0
            found = te.Select(v < 0, bits ^ every, bits | sign)
            found = te.Select(te.isnan(v), every, found)
        elif str(x.dtype).startswith("int"):
            found = te.reinterpret(word, v.astype(signed)) ^ sign
        else:
            found = v.astype(word)
        found = found if largest else found ^ every
        return te.select(i[-1] < extent, found, te.const(0, word))

    shape = (*x.shape[:axis], *x.shape[axis + 1 :], -(-extent // size) * size)
    made: Tensor = te.compute(shape, key, name="keys", tag=STORED)
    return made


def _next_digit(keys: Tensor, last: Tensor, shift: int, k: int) -> Tensor:
    """The bits of the key of the last of ``k`` elements, with those from ``shift`` on."""
    *outer, extent = shape_of(keys)
    size = _root(extent)
    parts, digits = extent // size, 1 << _DIGIT
    n, part = te.reduce_axis((0, size), "n"), te.reduce_axis((0, parts), "part")
    digit = te.reduce_axis((0, digits), "digit")

    def count(*i: Any) -> Any:
        """Of a part, how many are as large as the key found so far with a digit behind it."""
        *row, block, d = i
        least = last[tuple(row)] | (d.astype(keys.dtype) << shift)
        return te.sum((keys[(*row, block * size + n)] >= least).astype("int32"), axis=n)

    def whole(*i: Any) -> Any:
        return te.sum(counted[(*i[:-1], part, i[-1])], axis=part)

    def more(*row: Any) -> Any:
        step = te.select(counts[(*row, digit)] >= k, te.const(1 << shift, keys.dtype), 0)
        found = te.select(digit < 1, last[row], step.astype(keys.dtype))
        return te.sum(found, axis=digit)

    counted = te.compute((*outer, parts, digits), count, name=f"counted{shift}", tag=REDUCE)
    counts = te.compute((*outer, digits), whole, name=f"counts{shift}", tag=REDUCE)
    made: Tensor = te.compute(tuple(outer), more, name=f"last{shift}", tag=REDUCE)
    return made


def _root(extent: int) -> int:
    """About the square root of an extent, a power of two."""
    return 1 << (extent.bit_length() + 1) // 2


def _places(upto: Tensor, k: int) -> Tensor:
    """Where the ``k`` chosen elements are: those above the last one, then those that equal it."""
    *outer, _, extent = shape_of(upto)
    size = _root(extent)
    block = te.reduce_axis((0, extent // size), "block")
    n = te.reduce_axis((0, size), "n")

    def blocks(*i: Any) -> Any:
        """How many blocks are before the one that the element is in."""
        *row, at = i
        above, equal = (upto[(*row, kind, block * size + (size - 1))] for kind in (0, 1))
        most = upto[(*row, 0, extent - 1)]
        return te.sum(te.select(at < most, above <= at, equal <= at - most).astype("int32"), block)

    whole = te.compute((*outer, k), blocks, name="blocks_before", tag=REDUCE)

    def inside(*i: Any) -> Any:
        *row, at = i
        most = upto[(*row, 0, extent - 1)]
        equal = te.select(at < most, 0, 1)
        there = upto[(*row, equal, te.clip(whole[i] * size + n, 0, extent - 1))]
        begin = te.select(n < 1, whole[i] * size, 0)
        return te.sum(begin + (there <= at - equal * most).astype("int32"), axis=n)

    made: Tensor = te.compute((*outer, k), inside, name="places", tag=REDUCE)
    return made
