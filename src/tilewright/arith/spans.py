"""The values that index arithmetic can take: one interval an expression, nothing but ranges.

Coarser than :class:`tilewright.arith.Analyzer`, which reasons about how indices depend on each
other, and linear in the size of the program. It decides how wide indices are computed
(``lower/loops/index_width.py``), and where one that becomes a value has to be brought into its
type.
"""

from __future__ import annotations

from math import inf

from tilewright.arith.interval import Span, product, quotient, remainder, union
from tilewright.ir import expr as E
from tilewright.ir.dtype import DType, int_range
from tilewright.ir.expr import Expr, IntImm, Var

#: No symbolic extent reaches this, but where ``te.var(..., most=)`` says so.
LIMIT = 2**31


class Spans:
    """The least and the greatest value of expressions, were they computed without overflow.

    Attributes
    ----------
    known : what variables range over; others are extents that the host reads off an argument.
    """

    def __init__(self) -> None:
        self.known: dict[Var, Span] = {}
        self.spans: dict[Expr, Span] = {}

    def learn(self, var: Var, span: Span) -> None:
        """From here on ``var`` lies in ``span``."""
        if self.known.get(var, span) != span:
            self.spans.clear()
        self.known[var] = span

    def span(self, e: Expr) -> Span:
        """The least and the greatest value of ``e``; of data what its type holds."""
        found = self.spans.get(e)
        if found is None:
            found = self._span(e)
            if not e.exact and e.dtype.is_int:
                low, high = type_span(e.dtype)
                if not (low <= found[0] and found[1] <= high):
                    found = low, high  # it wraps around
            if not isinstance(e, Var):
                self.spans[e] = found
        return found

    def fits(self, e: Expr) -> bool:
        """Whether the type of ``e`` holds all of its values."""
        low, high = self.span(e)
        least, most = type_span(e.dtype)
        return least <= low and high <= most

    def _span(self, e: Expr) -> Span:
        match e:
            case IntImm(_, value):
                return value, value
            case Var():
                found = self.known.get(e)
                if found is not None:
                    return found
                if not e.exact or e.dtype.is_bool:
                    return type_span(e.dtype)
                return e.least, greatest_extent(e)
            case E.Add(a, b):
                (p, q), (r, s) = self.span(a), self.span(b)
                return p + r, q + s
            case E.Sub(a, b):
                (p, q), (r, s) = self.span(a), self.span(b)
                return p - s, q - r
            case E.Mul(a, b):
                return product(self.span(a), self.span(b))
            case E.Shl(a, IntImm(_, k)) if 0 <= k < 31:
                return product(self.span(a), (2**k, 2**k))
            case E.FloorDiv(a, IntImm(_, k)) | E.TruncDiv(a, IntImm(_, k)) if k > 0:
                low, high = self.span(a)
                return quotient(low, k), quotient(high, k) + (low < 0)
            case E.FloorDiv(a, _) | E.TruncDiv(a, _):
                low, high = self.span(a)
                most = max(abs(low), abs(high))
                return -most, most
            case E.FloorMod(a, IntImm(_, k)) if k > 0:
                return remainder(self.span(a), k)
            case E.FloorMod(_, b):
                low, high = self.span(b)
                return min(low + 1, 0), max(high - 1, 0)
            case E.TruncMod(a, b):
                low, high = self.span(a)
                most = max(map(abs, self.span(b)))
                return max(low, -most) if low < 0 else 0, min(high, most) if high > 0 else 0
            case E.Min(a, b):
                (p, q), (r, s) = self.span(a), self.span(b)
                return min(p, r), min(q, s)
            case E.Max(a, b):
                (p, q), (r, s) = self.span(a), self.span(b)
                return max(p, r), max(q, s)
            case E.Select(_, a, b):
                return union(self.span(a), self.span(b))
            case E.Cast(t, a) if a.dtype.is_int and t.is_int:
                inner, outer = self.span(a), type_span(t)
                return inner if outer[0] <= inner[0] and inner[1] <= outer[1] else outer
            case E.Ramp(base, stride, lanes):
                (p, q), (r, s) = self.span(base), product(self.span(stride), (0, lanes - 1))
                return p + r, q + s
            case E.Broadcast(a, _):
                return self.span(a)
            case E.BitAnd(_, IntImm(_, mask)) if mask >= 0:
                return 0, mask
        return type_span(e.dtype)


def greatest_extent(var: Var) -> int:
    """The greatest value that a call gives a symbolic extent."""
    return LIMIT - 1 if var.most is None else var.most


def type_span(t: DType) -> Span:
    """The least and the greatest value of a type."""
    if t.is_bool:
        return 0, 1
    return int_range(t.element) if t.is_int else (-inf, inf)


def within(span: Span, t: DType) -> bool:
    """Whether an integer type holds every value of a span."""
    low, high = int_range(t.element)
    return low <= span[0] and span[1] <= high
