"""Expressions as LLVM IR.

Integer *data* is computed in its own type and wraps around; indices are 64-bit numbers
(:mod:`~tilewright.codegen.llvm.indices`).
"""

from __future__ import annotations

from tilewright.codegen.llvm import calls
from tilewright.codegen.llvm.builder import (
    FLAGS,
    Value,
    constant,
    literal,
    mangled,
    split_type,
    vector_type,
)
from tilewright.codegen.llvm.conditions import Conditions
from tilewright.codegen.llvm.types import cast, narrow, narrow_bits, widen
from tilewright.ir import expr as E
from tilewright.ir.dtype import DType
from tilewright.ir.errors import TargetError
from tilewright.ir.expr import Expr, Var

_INTEGER = {
    E.Add: "add", E.Sub: "sub", E.Mul: "mul", E.BitAnd: "and", E.BitOr: "or", E.BitXor: "xor",
}  # fmt: skip
_FLOAT = {E.Add: "fadd", E.Sub: "fsub", E.Mul: "fmul", E.Div: "fdiv"}


class Expressions(Conditions):
    """Writes expressions; :class:`.memory.Memory` adds loads, :class:`.stmt.Statements` the
    rest."""

    def expr(self, e: Expr) -> Value:
        """A value in the type of the expression."""
        if isinstance(e, (E.IntImm, E.FloatImm)):
            return self.immediate(e.dtype, e.value)
        found = self.recall("expr", e)
        if found is None:
            found = self._expr(e)
            self.keep("expr", e, found)
        return found

    def immediate(self, t: DType, value: int | float) -> Value:
        if self.types.narrow(t):
            return Value(self.types.register(t), str(narrow_bits(t, float(value))))
        return literal(self.types.register(t), value)

    def _expr(self, e: Expr) -> Value:
        b, types = self.b, self.types
        match e:
            case E.Load():
                return self.load(e)
            case Var():
                held = self.variable(e)
                return b.convert("trunc", held, types.register(e.dtype))
            case E.Compare():
                return self.comparison(e)
            case E.And(x, y) | E.Or(x, y):
                return self.logical(e, x, y)
            case E.Not(x):
                held = self.expr(x)
                return b.binary("xor", held, literal(held.type, 1))
            case E.Select(c, t, f):
                return self.choice(e, c, t, f)
            case E.Binary():
                return self._binary(e)
            case E.Cast(to, E.Call(t, "nearbyint", (x,))) if _rounds(t, to):
                held = self.expr(x)  # one instruction, where a rounding and a cast are two
                name = f"llvm.lrint.{mangled(types.register(to))}.{mangled(held.type)}"
                return b.call(types.register(to), name, [held])
            case E.Cast(to, value):
                return cast(b, types, value.dtype, to, self.expr(value))
            case E.Ramp(base, stride, lanes):
                return self._ramp(e.dtype, self.expr(base), self.expr(stride), lanes)
            case E.Broadcast(value, lanes):
                return b.splat(self.expr(value), lanes)
            case E.Lane(vector, index):
                return b.lane(self.expr(vector), index)
            case E.Concat(values):
                return b.gather([self.expr(x) for x in values])
            case E.LetExpr(var, value, body):
                self.let(var, value)
                return self.expr(body)
            case E.Call():
                return calls.write(self, e)
        raise TargetError(f"no LLVM IR for {type(e).__name__}: {e}")

    def _ramp(self, t: DType, base: Value, stride: Value, lanes: int) -> Value:
        element = split_type(base.type)[0]
        steps = ", ".join(f"{element} {k}" for k in range(lanes))
        made = Value(vector_type(element, lanes), f"<{steps}>")
        if constant(stride) != 1:
            made = self.b.binary("mul", made, self.b.splat(stride, lanes))
        return self.b.binary("add", self.b.splat(base, lanes), made)

    def _binary(self, e: E.Binary) -> Value:
        t, node = e.dtype, type(e)
        if t.is_float:
            return self._float_binary(e)
        a, d = self.expr(e.a), self.expr(e.b)
        if node in _INTEGER:
            return self.b.binary(_INTEGER[node], a, d)
        signed = t.kind == "int"
        if node in (E.Min, E.Max):
            return self.b.intrinsic(f"{'s' if signed else 'u'}{node.__name__.lower()}", a, d)
        if isinstance(e, (E.FloorDiv, E.FloorMod, E.TruncDiv, E.TruncMod)):
            return self.division(e, a, d)
        if isinstance(e, (E.Shl, E.Shr)):
            return self._shift(e, a, d)
        raise TargetError(f"no LLVM IR for {node.__name__} of {t}")

    def _shift(self, e: E.Shl | E.Shr, a: Value, d: Value) -> Value:
        """A shift; by the width of its type or more it leaves zeros, or copies of the sign."""
        b, bits = self.b, e.dtype.bits
        left, signed = isinstance(e, E.Shl), e.dtype.kind == "int"
        opcode = "shl" if left else "ashr" if signed else "lshr"
        by = e.b.value if isinstance(e.b, E.Broadcast) else e.b
        if isinstance(by, E.IntImm) and 0 <= by.value < bits:
            return b.binary(opcode, a, d)
        beyond = b.compare("icmp uge", d, literal(d.type, bits))
        if opcode == "ashr":
            return b.binary(opcode, a, b.select(beyond, literal(d.type, bits - 1), d))
        return b.select(beyond, literal(a.type, 0), b.binary(opcode, a, d))

    def _float_binary(self, e: E.Binary) -> Value:
        t, b = e.dtype, self.b
        x, y = self.expr(e.a), self.expr(e.b)
        short = self.types.narrow(t)
        if short:
            x, y = widen(b, t, x), widen(b, t, y)
        if isinstance(e, (E.Min, E.Max)):
            found = self._extremum(e, x, y)
        else:
            opcode = _FLOAT.get(type(e), "")
            if not opcode:
                raise TargetError(f"no LLVM IR for {type(e).__name__} of {t}")
            # In 16 bits nothing is contracted, whether the operation is one of float32 that is
            # rounded after it or the processor's own (AVX512-FP16): a fused one rounds once for
            # two, and results would depend on the processor.
            found = b.binary(f"{opcode} {'nsz' if t.bits == 16 else FLAGS}", x, y)
        return narrow(b, self.types, t, found) if short else found

    def _extremum(self, e: E.Min | E.Max, x: Value, y: Value) -> Value:
        """NaN where either operand is one (IEEE 754-2019 minimum), but for the sign of a zero.

        The processor's minimum, ``y < x ? y : x``, is ``x`` where one of the two is NaN; where
        ``y`` is, ``x`` is replaced by it. (Chosen after the minimum, LLVM would make one condition
        of both, and no minimum.) No intrinsic: ``llvm.minimum`` orders zeros, too.
        """
        b, low = self.b, isinstance(e, E.Min)
        if _is_number(e.a):
            x, y = y, x
        if not (_is_number(e.a) or _is_number(e.b)):
            x = b.select(b.compare("fcmp uno", y, y), y, x)
        return b.select(b.compare("fcmp olt" if low else "fcmp ogt", y, x), y, x)

    def load(self, e: E.Load) -> Value:
        raise NotImplementedError

    def address(self, e: Expr) -> Value:
        raise NotImplementedError


def _rounds(source: DType, to: DType) -> bool:
    return source.element == "float32" and to.element == "int32"


def _is_number(e: Expr) -> bool:
    """Whether ``e`` is a constant other than NaN."""
    if isinstance(e, E.Broadcast):
        e = e.value
    return isinstance(e, E.FloatImm) and e.value == e.value
