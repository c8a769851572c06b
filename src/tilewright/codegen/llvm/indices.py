"""Indices as 64-bit numbers, and division that rounds down.

Integer variables are held as 64-bit numbers and index arithmetic is done in these: the indices of
a program do not overflow, so LLVM need not widen them to form addresses.
"""

from __future__ import annotations

import operator
from collections.abc import Callable

from tilewright.arith import Analyzer
from tilewright.codegen.llvm.builder import Builder, Value, constant, literal
from tilewright.codegen.llvm.known import fixed_divisor
from tilewright.codegen.llvm.sums import I64, Sums, Terms
from tilewright.codegen.llvm.types import Types, cast
from tilewright.ir import expr as E
from tilewright.ir.dtype import dtype
from tilewright.ir.errors import TargetError
from tilewright.ir.expr import Expr, Var

INT64 = dtype("int64")
_EXTREMA = {E.Min: "smin", E.Max: "smax"}
_FOLDED: dict[type[Expr], Callable[[int, int], int]] = {
    E.Min: min, E.Max: max, E.FloorDiv: operator.floordiv, E.FloorMod: operator.mod,
    E.TruncDiv: lambda a, d: abs(a) // d * (1 if a >= 0 else -1),
    E.TruncMod: lambda a, d: abs(a) % d * (1 if a >= 0 else -1),
}  # fmt: skip


class Indices(Sums):
    """Writes indices, and brings variables into scope.

    Attributes
    ----------
    b : where instructions are added.
    variables : the variables in scope, integers as i64 (vectors and others in their own type).
    mask : lanes for which anything that may fail is evaluated; None for all.
    """

    def __init__(self, b: Builder, types: Types) -> None:
        super().__init__()
        self.b, self.types = b, types
        self.analyzer = Analyzer()
        self.variables: dict[Var, Value] = {}
        self.mask: Value | None = None

    def expr(self, e: Expr) -> Value:
        """A value in the type of the expression."""
        raise NotImplementedError

    def let(self, var: Var, value: Expr) -> None:
        """Bring a variable into scope."""
        self.binds(var)
        if var.dtype.is_int and var.dtype.lanes == 1:
            self.variables[var] = self.index(value)
            if var.dtype.kind == "int" and var.dtype.bits >= 32 and not self.partial(value):
                self.analyzer.define(var, value)
        else:
            self.variables[var] = self.expr(value)

    def variable(self, v: Var) -> Value:
        """What a variable is held in."""
        found = self.variables.get(v)
        if found is None:
            raise TargetError(f"variable {v.name} is used outside of its scope")
        return found

    def index(self, e: Expr) -> Value:
        """A scalar integer as i64, computed as if 64 bits had been meant from the start."""
        if isinstance(e, E.IntImm):
            return Value(I64, str(e.value))
        if isinstance(e, Var):
            return self.variable(e) if e.dtype.is_int else self._extended(e)
        found = self.recall("index", e)
        if found is None:
            found = self._index(e)
            self.keep("index", e, found)
        return found

    def _index(self, e: Expr) -> Value:
        if e.exact and e.dtype.is_int:
            match e:
                case E.FloorDiv(a, d) | E.FloorMod(a, d) | E.TruncDiv(a, d) | E.TruncMod(a, d):
                    x, y = self.index(a), self.index(d)
                    return self._folded(e, x, y) or self.division(e, x, y)
                case E.Mul(a, d) if not (isinstance(a, E.IntImm) or isinstance(d, E.IntImm)):
                    return self.product(self.index(a), self.index(d))
                case E.Add() | E.Sub() | E.Mul():
                    terms: Terms = {}
                    return self.total(terms, self.collect(e, 1, terms))
                case E.Min(a, d) | E.Max(a, d):
                    x, y = self.index(a), self.index(d)
                    return self._folded(e, x, y) or self.b.intrinsic(_EXTREMA[type(e)], x, y)
                case E.Cast(_, value) if value.dtype.kind == "int" and value.dtype.bits >= 32:
                    return self.index(value)
                case E.LetExpr(var, value, body):
                    self.let(var, value)
                    return self.index(body)
        return self._extended(e)

    def _folded(self, e: E.Binary, x: Value, y: Value) -> Value | None:
        """The result where both operands are known, as in turns of a loop that is written out."""
        a, d = constant(x), constant(y)
        if a is None or d is None or (d <= 0 and not isinstance(e, (E.Min, E.Max))):
            return None
        return Value(I64, str(_FOLDED[type(e)](a, d)))

    def _extended(self, e: Expr) -> Value:
        return cast(self.b, self.types, e.dtype, INT64, self.expr(e))

    def division(self, e: E.Binary, a: Value, d: Value) -> Value:
        """Division, of scalars or vectors of one integer type: by zero it is zero, and the least
        number by -1 wraps around, where the processor's own would end the process."""
        b, quotient = self.b, isinstance(e, (E.FloorDiv, E.TruncDiv))
        signed = e.dtype.kind == "int"
        if fixed_divisor(e.b) is not None or self._above_zero(e.b):
            return self._quotient_or_rest(e, a, d)
        odd = b.binary("add", d, literal(d.type, 1)) if signed else d  # 0 or 1: by -1 or by 0
        special = b.compare("icmp ult", odd, literal(d.type, 2 if signed else 1))
        found = self._quotient_or_rest(e, a, b.select(special, literal(d.type, 1), d))
        if not quotient:  # by 1, it is 0
            return found
        return b.select(special, b.binary("mul", a, d), found)

    def _above_zero(self, divisor: Expr) -> bool:
        if divisor.dtype.lanes > 1 or divisor.dtype.kind != "int" or divisor.dtype.bits < 32:
            return False
        low = self.analyzer.bounds(divisor).lo
        return low is not None and low >= 1

    def _quotient_or_rest(self, e: E.Binary, a: Value, d: Value) -> Value:
        """Division by what is neither 0 nor, of signed numbers, -1."""
        if isinstance(e, (E.FloorDiv, E.FloorMod)):
            return self._floor(e, a, d)
        opcode = "div" if isinstance(e, E.TruncDiv) else "rem"
        return self.b.binary(f"{'s' if e.dtype.kind == 'int' else 'u'}{opcode}", a, d)

    def _floor(self, e: E.FloorDiv | E.FloorMod, a: Value, d: Value) -> Value:
        """Division that rounds down."""
        quotient, b = isinstance(e, E.FloorDiv), self.b
        divisor = _splatted(d)
        if e.dtype.kind == "uint":
            return b.binary("udiv" if quotient else "urem", a, d)
        if divisor is not None and divisor > 0:
            if divisor & (divisor - 1) == 0:
                amount = divisor.bit_length() - 1 if quotient else divisor - 1
                return b.binary("ashr" if quotient else "and", a, literal(a.type, amount))
            low = self.analyzer.bounds(e.a).lo if e.dtype.lanes == 1 else None
            if low is not None and low >= 0:
                return b.binary("udiv" if quotient else "urem", a, d)
        zero = literal(a.type, 0)
        rest = b.binary("srem", a, d)
        differs = b.compare("icmp slt", b.binary("xor", rest, d), zero)
        off = b.select(b.compare("icmp eq", rest, zero), literal(differs.type, 0), differs)
        if quotient:
            found = b.binary("sdiv", a, d)
            return b.binary("add", found, b.convert("sext", off, a.type))
        return b.binary("add", rest, b.select(off, d, zero))


def _splatted(d: Value) -> int | None:
    """The constant that a value holds in every lane."""
    text = d.text
    if text.startswith("splat ("):
        text = text[7:-1].split()[-1]
    return int(text) if text[0] in "-0123456789" and "x" not in text else None
