"""Constant bounds of forms: by the ranges of their atoms, and by what is known beyond them."""

from __future__ import annotations

from math import gcd, inf
from typing import TYPE_CHECKING

from tilewright.arith.affine import Affine, as_affine
from tilewright.arith.interval import (
    EVERYTHING,
    Span,
    bits_above,
    intersection,
    product,
    quotient,
    remainder,
    truncated,
    union,
)
from tilewright.arith.spans import within
from tilewright.ir import expr as E
from tilewright.ir.dtype import int_range
from tilewright.ir.expr import Expr, IntImm

if TYPE_CHECKING:
    from tilewright.arith.analyzer import Analyzer

_BOOL: Span = (0, 1)


def span(az: Analyzer, form: Affine) -> Span:
    """The bounds of a form, each atom taken by itself."""
    spans = az.context.atom_spans
    lo: float = form.const
    hi: float = form.const
    for atom, k in form.terms.items():
        found = spans.get(atom)
        if found is None:
            found = spans[atom] = _atom_span(az, atom)
        if k > 0:
            lo += k * found[0]
            hi += k * found[1]
        else:
            lo += k * found[1]
            hi += k * found[0]
    return lo, hi


def value_span(az: Analyzer, e: Expr) -> Span:
    """The bounds of any scalar integer or bool expression, each atom taken by itself.

    The expression is not simplified first: simplifying asks for bounds, so it may not be asked
    here.
    """
    t = e.dtype
    if t.kind == "int" and t.bits >= 32 and t.lanes == 1:
        return span(az, az.raw(e))
    if isinstance(e, IntImm):
        return e.value, e.value
    if t.is_int and t.lanes == 1:
        return intersection(_type_span(e), _by_node(az, e))
    return _BOOL if t.is_bool else EVERYTHING


def _type_span(e: Expr) -> Span:
    t = e.dtype
    if t.is_bool:
        return _BOOL
    # 32 and 64 bits hold every index, so their ends would say nothing but slow sums down
    return int_range(t) if t.is_int and (t.bits < 32 or t.kind == "uint") else EVERYTHING


def _atom_span(az: Analyzer, atom: Expr) -> Span:
    known = az.context.ranges.get(atom)
    if isinstance(atom, E.Var):
        return EVERYTHING if known is None else known
    found = _by_node(az, atom)
    return found if known is None else intersection(found, known)


#: Arithmetic on data that may leave the range of its type, and wraps around where it does.
_WRAPPING = (E.Add, E.Sub, E.Mul, E.Shl, E.FloorDiv, E.TruncDiv, E.Cast, E.Call)


def _by_node(az: Analyzer, atom: Expr) -> Span:
    """The bounds of an atom by those of its parts."""
    found = _without_end(az, atom)
    if isinstance(atom, _WRAPPING) and not atom.exact and atom.dtype.is_int:
        return found if within(found, atom.dtype) else _type_span(atom)
    return found


def _operand(az: Analyzer, e: Expr) -> Span:
    """The bounds of an operand of data: an index becomes a value of its type there."""
    found = value_span(az, e)
    if not e.dtype.is_int:
        return found
    whole = int_range(e.dtype)
    wraps = e.exact and not isinstance(e, E.Var) and not within(found, e.dtype)
    return whole if wraps else intersection(found, whole)


def _without_end(az: Analyzer, atom: Expr) -> Span:
    """The bounds of an atom, were integers without end."""
    part = value_span if atom.exact else _operand
    match atom:
        case E.Add(a, b):
            x, y = part(az, a), part(az, b)
            return x[0] + y[0], x[1] + y[1]
        case E.Sub(a, b):
            x, y = part(az, a), part(az, b)
            return x[0] - y[1], x[1] - y[0]
        case E.FloorDiv(a, IntImm(_, c)) if c > 0:
            lo, hi = value_span(az, a)
            if az.context.facts:  # a guard on a flat index bounds what is divided out of it
                form = as_affine(a)
                # facts may speak of the quotient itself: it is looked up, not asked for again
                az.context.atom_spans[atom] = quotient(lo, c), quotient(hi, c)
                lo, hi = max(lo, lower(az, form, 1)), min(hi, -lower(az, -form, 1))
            return quotient(lo, c), quotient(hi, c)
        case E.FloorMod(a, IntImm(_, c)) if c > 0:
            return remainder(value_span(az, a), c)
        case E.FloorDiv(a, b):
            (lo, hi), (least, _) = value_span(az, a), value_span(az, b)
            if lo >= 0 and least >= 1:
                return 0, quotient(hi, int(least))
            return EVERYTHING
        case E.FloorMod(a, b):
            (lo, hi), (least, most) = value_span(az, a), value_span(az, b)
            if least >= 1:
                return 0, min(most - 1, hi) if lo >= 0 else most - 1
            return EVERYTHING
        case E.TruncDiv(a, IntImm(_, c)) if c != 0:
            lo, hi = value_span(az, a)
            ends = truncated(lo, abs(c)), truncated(hi, abs(c))
            return ends if c > 0 else (-ends[1], -ends[0])
        case E.TruncMod(a, IntImm(_, c)) if c != 0:
            lo, hi = value_span(az, a)
            most = abs(c) - 1
            return max(lo, -most) if lo < 0 else 0, min(hi, most) if hi > 0 else 0
        case E.Min(a, b):
            x, y = part(az, a), part(az, b)
            return min(x[0], y[0]), min(x[1], y[1])
        case E.Max(a, b):
            x, y = part(az, a), part(az, b)
            return max(x[0], y[0]), max(x[1], y[1])
        case E.Mul(a, b):
            found = product(part(az, a), part(az, b))
            return (max(found[0], 0), found[1]) if a is b else found
        case E.Select(_, a, b):
            return union(part(az, a), part(az, b))
        case E.Cast(_, a) if a.dtype.is_int or a.dtype.is_bool:
            inner = value_span(az, a)
            return inner if atom.exact or within(inner, atom.dtype) else _type_span(atom)
        case E.Load(buffer, _, _):
            return _type_span(atom) if buffer.dtype.is_int else EVERYTHING
        case E.BitAnd(a, b):
            x, y = value_span(az, a), value_span(az, b)
            tops = [s[1] for s in (x, y) if s[0] >= 0]
            return (0, min(tops)) if tops else _type_span(atom)
        case E.BitOr(a, b) | E.BitXor(a, b):
            x, y = value_span(az, a), value_span(az, b)
            if x[0] >= 0 and y[0] >= 0:
                return 0, bits_above(max(x[1], y[1]))
            return _type_span(atom)
        case E.Call(_, "popcount", (a,)):
            return 0, a.dtype.bits
        case E.Call(_, "abs", (a,)):
            lo, hi = value_span(az, a)
            return max(0, lo, -hi), max(-lo, hi)
    return _type_span(atom)


def lower(az: Analyzer, form: Affine, depth: int, goal: float = inf) -> float:
    """A lower bound of a form, as good as ``depth`` steps of reasoning make it, -inf for none.

    Stops as soon as it reaches ``goal``. One step replaces a minimum or maximum by its operands,
    takes the difference of two divisions, or uses one fact; a factor common to all terms is taken
    out in passing.
    """
    best = span(az, form)[0]
    if best >= goal or depth == 0 or not form.terms:
        return best
    az.effort -= 1
    if az.effort < 0:
        return best
    if len(form.terms) > 1:
        for atom, k in form.terms.items():
            cls = type(atom)
            if cls is E.Min or cls is E.Max:
                best = max(best, _by_operands(az, form, atom, k, depth, goal))
            elif cls is E.FloorDiv and k > 0:
                best = max(best, _by_divisions(az, form, atom, k, depth, goal))
            if best >= goal:
                return best
        if best < 0 <= goal and not form.const:
            best = max(best, _by_common_factor(az, form, depth))
            if best >= goal:
                return best
    for p, rest in _eliminations(az, form, depth):
        found = lower(az, rest, depth - 1, goal * p)
        if found > -inf:
            best = max(best, -(-found // p))
            if best >= goal:
                return best
    return best


def _eliminations(az: Analyzer, form: Affine, depth: int) -> list[tuple[int, Affine]]:
    """Pairs ``p, rest`` with ``p * form >= rest``: what is left of a form less a multiple of a
    fact, those of few terms first."""
    found: list[tuple[int, Affine]] = []
    for atom, k in form.terms.items():
        for fact in az.facts_of(atom, depth):
            kf = fact.terms[atom]
            if (kf > 0) == (k > 0):
                g = gcd(k, kf)
                p = abs(kf) // g
                found.append((p, form.combine(p, fact, -(abs(k) // g))))
    if len(found) > 1:
        found.sort(key=lambda item: len(item[1].terms))
    return found


def _by_operands(az: Analyzer, form: Affine, atom: Expr, k: int, depth: int, goal: float) -> float:
    assert isinstance(atom, (E.Min, E.Max))
    rest = form.without(atom)
    found = (
        lower(az, rest.combine(1, az.raw(operand), k), depth - 1, goal)
        for operand in (atom.a, atom.b)
    )
    return min(found) if (type(atom) is E.Min) == (k > 0) else max(found)


def _by_divisions(az: Analyzer, form: Affine, atom: Expr, k: int, depth: int, goal: float) -> float:
    """x // c - y // c is at least (x - y) // c."""
    best = -inf
    match atom:
        case E.FloorDiv(x, IntImm(_, c)) if c > 0:
            for other, ko in form.terms.items():
                match other:
                    case E.FloorDiv(y, IntImm(_, d)) if d == c and ko == -k:
                        least = lower(az, az.raw(x) - az.raw(y), depth - 1)
                        rest = form.without(atom).without(other)
                        if least > -inf:
                            least = k * quotient(least, c)
                            best = max(best, least + lower(az, rest, depth - 1, goal - least))
    return best


def _by_common_factor(az: Analyzer, form: Affine, depth: int) -> float:
    """0 where the form is a product of two values of which neither is negative."""
    for factor in az.factors(next(iter(form.terms))):
        rest = az.exact_quotient(form, factor)
        if rest is None or span(az, Affine({factor: 1}))[0] < 0:
            continue
        if lower(az, rest, depth, 0) >= 0:
            return 0
    return -inf
