"""Indices as 64-bit numbers, and division that rounds down.

Integer variables are held as 64-bit numbers and index arithmetic is done in these: the indices of
a program do not overflow, so LLVM need not widen them to form addresses.
"""

from __future__ import annotations

from tilewright.arith import Analyzer
from tilewright.codegen.llvm.builder import Builder, Value, literal, split_type
from tilewright.codegen.llvm.known import fixed_divisor
from tilewright.codegen.llvm.sums import I64, Sums, Terms
from tilewright.codegen.llvm.types import Types, cast
from tilewright.ir import expr as E
from tilewright.ir.dtype import dtype
from tilewright.ir.errors import TargetError
from tilewright.ir.expr import Expr, Var

INT64 = dtype("int64")


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
        t = e.dtype
        if t.kind == "int" and t.bits >= 32:
            match e:
                case E.FloorDiv(a, d) | E.FloorMod(a, d):
                    return self.floor(e, self.index(a), self.index(d))
                case E.TruncDiv(a, d) | E.TruncMod(a, d):
                    opcode = "sdiv" if isinstance(e, E.TruncDiv) else "srem"
                    return self.b.binary(opcode, self.index(a), self.harmless(d, self.index(d)))
                case E.Mul(a, d) if not (isinstance(a, E.IntImm) or isinstance(d, E.IntImm)):
                    return self.product(self.index(a), self.index(d))
                case E.Add() | E.Sub() | E.Mul():
                    terms: Terms = {}
                    return self.total(terms, self.collect(e, 1, terms))
                case E.Min(a, d) | E.Max(a, d):
                    name = "smin" if isinstance(e, E.Min) else "smax"
                    return self.b.intrinsic(name, self.index(a), self.index(d))
                case E.Cast(_, value) if value.dtype.kind == "int" and value.dtype.bits >= 32:
                    return self.index(value)
                case E.LetExpr(var, value, body):
                    self.let(var, value)
                    return self.index(body)
        return self._extended(e)

    def _extended(self, e: Expr) -> Value:
        return cast(self.b, self.types, e.dtype, INT64, self.expr(e))

    def harmless(self, divisor: Expr, d: Value) -> Value:
        """``d``, the value of ``divisor``, or 1 in the lanes that are off: these do not divide by
        zero."""
        mask = self.mask
        if fixed_divisor(divisor) is not None or mask is None:
            return d
        if split_type(mask.type)[1] != split_type(d.type)[1]:
            return d
        return self.b.select(mask, d, literal(d.type, 1))

    def floor(self, e: E.FloorDiv | E.FloorMod, a: Value, d: Value) -> Value:
        """Division that rounds down, of scalars or vectors of one integer type."""
        quotient, b = isinstance(e, E.FloorDiv), self.b
        divisor = _splatted(d)
        if e.dtype.kind == "uint":
            return b.binary("udiv" if quotient else "urem", a, self.harmless(e.b, d))
        if divisor is not None and divisor > 0:
            if divisor & (divisor - 1) == 0:
                amount = divisor.bit_length() - 1 if quotient else divisor - 1
                return b.binary("ashr" if quotient else "and", a, literal(a.type, amount))
            low = self.analyzer.bounds(e.a).lo if e.dtype.lanes == 1 else None
            if low is not None and low >= 0:
                return b.binary("udiv" if quotient else "urem", a, d)
        d = self.harmless(e.b, d)
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
