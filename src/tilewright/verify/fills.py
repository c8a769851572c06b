"""Writes that fill a buffer, and reads that their places in the program show to be behind them.

What a read touches is filled by an earlier write whose loops go all through the buffer, or which
are put to the indices of the read, and which is made wherever the read is.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from tilewright.arith.affine import as_affine
from tilewright.ir.expr import And, Expr, FloorDiv, FloorMod, IntImm, Load, Ramp, Var
from tilewright.ir.stmt import For, ForKind, If, Let
from tilewright.ir.visit import exprs
from tilewright.lower.analysis.accesses import Access, Kernel, Node
from tilewright.lower.build.distribute import LANES
from tilewright.lower.substitution import put


@dataclass(slots=True)
class Fill:
    """A write by its place in the program.

    Parameters
    ----------
    certain : the depth from which on nothing on the way to it decides whether it is done.
    depths : by dimension, at which depths there is what its index varies with.
    whole : by dimension, whether the loops that it varies with take it through all of the extent.
    lane : the index of the thread, where each writes those of the elements that it holds.
    """

    write: Access
    number: int
    certain: int
    depths: tuple[tuple[int, ...], ...]
    whole: tuple[bool, ...]
    lane: Var | None


def fill_of(kernel: Kernel, write: Access, number: int) -> Fill:
    """The ``write``; ``number`` is its place in the text."""
    ancestors = write.node.ancestors
    certain = 1
    bound: dict[Expr, int] = {}
    ranges: dict[Expr, int] = {}  # of loops from 0 on
    for depth, node in enumerate(ancestors):
        match node.stmt:
            case For(var, low, extent, kind):
                bound[var] = depth
                known = isinstance(extent, IntImm) and extent.value > 0
                if not known or kind is ForKind.THREAD:
                    certain = depth + 1
                elif isinstance(extent, IntImm) and isinstance(low, IntImm) and low.value == 0:
                    ranges[var] = extent.value
            case Let(var):
                bound[var] = depth
            case If():
                certain = depth + 2
    if write.guards or write.predicate is not None:
        certain = len(ancestors) + 1
    held, lane = write.buffer.distribution, None
    for axis in kernel.launch:
        if held is not None and axis.tag == LANES:
            lane = axis.var
            bound[lane], ranges[lane] = len(ancestors), held.lanes
    depths = tuple(
        tuple(
            bound.get(x, len(ancestors)) for x in exprs(index) if x in bound or isinstance(x, Load)
        )
        for index in write.indices
    )
    whole = filled(write.indices, write.buffer.shape, ranges)
    return Fill(write, number, certain, depths, whole, lane)


def _shared(a: Node, b: Node) -> int:
    """How many statements around two others, and they themselves, are the same."""
    count = 0
    for x, y in zip(a.line, b.line, strict=False):
        if x is not y:
            break
        count += 1
    return count


def covers(fill: Fill, read: Access) -> bool:
    """Whether the places of a write and a later read show that it fills what the read touches."""
    shared = _shared(fill.write.node, read.node)
    if shared < fill.certain:
        return False
    for d, depths in enumerate(fill.depths):
        if fill.whole[d] and all(depth >= shared for depth in depths):
            continue
        if read.indices[d] is not fill.write.indices[d] or any(k >= shared for k in depths):
            return False
    return True


def conditions_left(fill: Fill, read: Access) -> list[Expr] | None:
    """Conditions that are to hold at a later read for a write to fill what it touches, None where
    more is asked for. Loops around the write are put to what the read has as its indices."""
    write = fill.write
    if write.guards or write.predicate is not None:
        return None
    shared = _shared(write.node, read.node)
    loops: dict[Expr, tuple[int, int]] = {}
    conditions: list[Expr] = []
    for above, below in pairwise(write.node.line[shared - 1 :]):
        match above.stmt:
            case For(var, IntImm(_, low), IntImm(_, extent), kind) if kind is not ForKind.THREAD:
                loops[var] = (low, low + extent)
            case Let(var):
                loops[var] = (0, 0)
            case If(condition) if below.number == 0:
                conditions += _parts(condition)
            case For() | If():
                return None
    values: dict[Expr, Expr] = {}
    rest: list[tuple[Expr, Expr]] = []
    for d, (index, wanted) in enumerate(zip(write.indices, read.indices, strict=True)):
        if index in loops and index.dtype == wanted.dtype:
            if values.setdefault(index, wanted) is not wanted:
                return None
            if not _within(read, d, *loops[index]):
                return None
        elif not (fill.whole[d] and all(depth >= shared for depth in fill.depths[d])):
            rest.append((index, wanted))
    if any(low >= end for v, (low, end) in loops.items() if v not in values):
        return None
    known: set[Expr] = set()
    for above, below in pairwise(read.node.line) if conditions else ():
        if isinstance(above.stmt, If) and below.number == 0:
            known.update(_parts(above.stmt.condition))
    for subject, holds in read.guards:
        if holds is True:
            known.update(_parts(subject))
    for e in (*(index for index, _ in rest), *conditions):
        for x in exprs(e):
            if isinstance(x, Load) or x is fill.lane or (x in loops and x not in values):
                return None
    if not all(put(index, values) is wanted for index, wanted in rest):
        return None
    return [c for condition in conditions if (c := put(condition, values)) not in known]


def _parts(condition: Expr) -> Iterator[Expr]:
    """Conditions that hold together where ``condition`` holds."""
    if isinstance(condition, And):
        yield from _parts(condition.a)
        yield from _parts(condition.b)
    else:
        yield condition


def _within(read: Access, dimension: int, low: int, end: int) -> bool:
    """Whether an index of a read, which is in bounds, is certainly from ``low`` to ``end - 1``."""
    index, extent = read.indices[dimension], read.buffer.shape[dimension]
    if low == 0 and isinstance(extent, IntImm) and extent.value <= end:
        return True
    if isinstance(index, IntImm):
        return low <= index.value < end
    for node in read.node.ancestors:
        match node.stmt:
            case For(var, IntImm(_, first), IntImm(_, count)) if var is index:
                return low <= first and first + count <= end
    return False


#: The lane of a vector.
_LANE = Var.make("lane")


class _Digit(NamedTuple):
    """``step`` times the digits of ``var`` that are worth ``first`` and more, below ``beyond``."""

    var: Expr
    first: int
    beyond: int
    step: int = 1


def filled(
    indices: Sequence[Expr], shape: Sequence[Expr], ranges: Mapping[Expr, int]
) -> tuple[bool, ...]:
    """By dimension, whether the index takes all values below the extent, whatever the others are.

    ``ranges`` are the variables that range from 0 on, with their extents. Such an index is a sum of
    digits of them, none of which another index depends on.

    >>> from tilewright.ir.expr import Var
    >>> from tilewright.ir.ops import const
    >>> i, j = Var.make("i"), Var.make("j")
    >>> shape = (const(8), const(4))
    >>> filled((i * 2 + j % 2, j // 2), shape, {i: 4, j: 8})
    (True, True)
    >>> filled((i * 2 + j % 2, j % 4), shape, {i: 4, j: 8})
    (False, False)
    """
    found = [_digits(index, ranges) for index in indices]
    whole = [
        digits is not None and isinstance(extent, IntImm) and _reach(digits) >= extent.value
        for digits, extent in zip(found, shape, strict=True)
    ]
    taken = sorted(
        (str(digit.var), digit.first, digit.beyond, d)
        for d, digits in enumerate(found)
        for digit in digits or ()
    )
    for one, two in pairwise(taken):
        if one[0] == two[0] and one[2] > two[1]:
            whole[one[3]] = whole[two[3]] = False
    return tuple(whole)


def _reach(digits: Sequence[_Digit]) -> int:
    """How many values from 0 on a sum of digits takes without a gap."""
    reach = 1
    for digit in sorted(digits, key=lambda digit: digit.step):
        if not 0 < digit.step <= reach:
            return 0
        reach += digit.step * (digit.beyond // digit.first - 1)
    return reach


def _digits(index: Expr, ranges: Mapping[Expr, int]) -> list[_Digit] | None:
    """The digits that ``index`` is the sum of, None where it is something else."""
    found: list[_Digit] = []
    if isinstance(index, Ramp):
        if not isinstance(index.stride, IntImm):
            return None
        found.append(_Digit(_LANE, 1, index.lanes, index.stride.value))
        index = index.base
    form = as_affine(index)
    if form.const:
        return None
    for atom, step in form.terms.items():
        digit = _digit(atom, ranges)
        if digit is None:
            return None
        found.append(digit._replace(step=step))
    return found


def _digit(e: Expr, ranges: Mapping[Expr, int]) -> _Digit | None:
    """``e`` as digits of a variable; divisors have to divide what they divide without a rest."""
    if e in ranges:
        return _Digit(e, 1, ranges[e])
    match e:
        case FloorDiv(a, IntImm(_, n)) | FloorMod(a, IntImm(_, n)) if n > 0:
            inner = _digit(a, ranges)
            if inner is None or (inner.beyond // inner.first) % n:
                return None
            if isinstance(e, FloorDiv):
                return inner._replace(first=inner.first * n)
            return inner._replace(beyond=inner.first * n)
    return None
