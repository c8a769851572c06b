"""Intervals of integers, and arithmetic on them.

Inside the package a :data:`Span` is a pair whose ends may be infinite; :class:`Interval` is the
form given to callers, where None stands for an end that is not known.
"""

from __future__ import annotations

from math import inf
from typing import NamedTuple, TypeAlias

#: The least and the greatest value; an end is an int, or -inf or inf.
Span: TypeAlias = tuple[float, float]

EVERYTHING: Span = (-inf, inf)


class Interval(NamedTuple):
    """The constant bounds of a value, both included; None is no bound."""

    lo: int | None
    hi: int | None

    @property
    def extent(self) -> int | None:
        """How many integers lie within, None where that is not known."""
        return None if self.lo is None or self.hi is None else self.hi - self.lo + 1

    def __contains__(self, value: object) -> bool:
        return (
            isinstance(value, int)
            and (self.lo is None or self.lo <= value)
            and (self.hi is None or value <= self.hi)
        )


def as_interval(span: Span) -> Interval:
    """The span in the form for callers."""
    lo, hi = span
    return Interval(None if lo == -inf else int(lo), None if hi == inf else int(hi))


def intersection(a: Span, b: Span) -> Span:
    """What lies in both."""
    return max(a[0], b[0]), min(a[1], b[1])


def union(a: Span, b: Span) -> Span:
    """The least span that holds both."""
    return min(a[0], b[0]), max(a[1], b[1])


def quotient(value: float, divisor: int) -> float:
    """``value // divisor`` for a positive divisor, where value may be infinite."""
    return value if value in (inf, -inf) else int(value) // divisor


def truncated(value: float, divisor: int) -> float:
    """``value / divisor`` rounded towards zero, for a positive divisor."""
    return quotient(value, divisor) if value >= 0 else -quotient(-value, divisor)


def times(a: float, b: float) -> float:
    """A product in which zero times infinity is zero, as it is for the ends of spans."""
    return 0 if a == 0 or b == 0 else a * b


def product(a: Span, b: Span) -> Span:
    """The span of x * y."""
    ends = [times(x, y) for x in a for y in b]
    return min(ends), max(ends)


def remainder(a: Span, divisor: int) -> Span:
    """The span of x % divisor, rounded down, for a positive divisor."""
    lo, hi = a
    if lo > -inf and hi < inf and lo // divisor == hi // divisor:
        return lo % divisor, hi % divisor
    return 0, divisor - 1


def bits_above(value: float) -> float:
    """The greatest number with as many bits as ``value``, which is not negative."""
    return inf if value == inf else (1 << int(value).bit_length()) - 1
