"""Expressions as LLVM IR.

Integer variables are held as 64-bit numbers and index arithmetic is done in these: the indices of
a program do not overflow, so LLVM need not widen them to form addresses. Integer *data* is
computed in its own type and wraps around.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tilewright.arith import Analyzer
from tilewright.codegen.llvm import math
from tilewright.codegen.llvm.builder import (
    FLAGS,
    Builder,
    Value,
    constant,
    literal,
    split_type,
    vector_type,
)
from tilewright.codegen.llvm.known import fixed_divisor
from tilewright.codegen.llvm.sums import I64, Sums, Terms
from tilewright.codegen.llvm.types import FLOAT32, Types, cast, narrow, widen
from tilewright.ir import expr as E
from tilewright.ir.dtype import DType, dtype
from tilewright.ir.errors import TargetError
from tilewright.ir.expr import Expr, Var
from tilewright.ir.ops import FLOAT_FUNCTIONS

INT64 = dtype("int64")
_INTEGER = {
    E.Add: "add", E.Sub: "sub", E.Mul: "mul", E.BitAnd: "and", E.BitOr: "or", E.BitXor: "xor",
    E.Shl: "shl",
}  # fmt: skip
_FLOAT = {E.Add: "fadd", E.Sub: "fsub", E.Mul: "fmul", E.Div: "fdiv"}
_COMPARE = {
    E.EQ: ("eq", "oeq"), E.NE: ("ne", "une"), E.LT: ("lt", "olt"), E.LE: ("le", "ole"),
    E.GT: ("gt", "ogt"), E.GE: ("ge", "oge"),
}  # fmt: skip
_HOLDS: dict[str, Callable[[int, int], bool]] = {
    "eq": operator.eq, "ne": operator.ne, "lt": operator.lt, "le": operator.le,
    "gt": operator.gt, "ge": operator.ge,
}  # fmt: skip
#: Nodes of which an index is made, beside variables and constants.
_INDEX_NODES = (
    E.Add, E.Sub, E.Mul, E.FloorDiv, E.FloorMod, E.TruncDiv, E.TruncMod, E.Min, E.Max,
)  # fmt: skip


class Expressions(Sums):
    """Writes expressions; :class:`.memory.Memory` adds loads, :class:`.stmt.Statements` the rest.

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

    # Indices

    def index(self, e: Expr) -> Value:
        """A scalar integer as i64, computed as if 64 bits had been meant from the start."""
        if isinstance(e, E.IntImm):
            return Value(I64, str(e.value))
        if isinstance(e, Var):
            return self._variable(e) if e.dtype.is_int else self._extended(e)
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
                    return self._floor(type(e), a, self.index(a), self.index(d), self._divides(d))
                case E.TruncDiv(a, d) | E.TruncMod(a, d):
                    opcode = "sdiv" if isinstance(e, E.TruncDiv) else "srem"
                    return self.b.binary(opcode, self.index(a), self._divides(d)(self.index(d)))
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

    def _divides(self, d: Expr) -> Guard:
        """Makes a divisor harmless in lanes that are off."""
        return Guard(self, fixed_divisor(d) is None)

    def _floor(self, node: type[Expr], e: Expr, a: Value, d: Value, guard: Guard) -> Value:
        """Division that rounds down, of scalars or vectors of one integer type."""
        quotient, b = node is E.FloorDiv, self.b
        divisor = _splatted(d)
        if e.dtype.kind == "uint":
            return b.binary("udiv" if quotient else "urem", a, guard(d))
        if divisor is not None and divisor > 0:
            if divisor & (divisor - 1) == 0:
                amount = divisor.bit_length() - 1 if quotient else divisor - 1
                return b.binary("ashr" if quotient else "and", a, literal(a.type, amount))
            low = self.analyzer.bounds(e).lo if e.dtype.lanes == 1 else None
            if low is not None and low >= 0:
                return b.binary("udiv" if quotient else "urem", a, d)
        d = guard(d)
        zero = literal(a.type, 0)
        rest = b.binary("srem", a, d)
        differs = b.compare("icmp slt", b.binary("xor", rest, d), zero)
        off = b.select(b.compare("icmp eq", rest, zero), _false(differs), differs)
        if quotient:
            found = b.binary("sdiv", a, d)
            return b.binary("add", found, b.convert("sext", off, a.type))
        return b.binary("add", rest, b.select(off, d, zero))

    # Values

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
            return Value(self.types.register(t), str(sixteen_bits(t, float(value))))
        return literal(self.types.register(t), value)

    def _expr(self, e: Expr) -> Value:
        b, types = self.b, self.types
        match e:
            case Var():
                held = self._variable(e)
                return b.convert("trunc", held, types.register(e.dtype))
            case E.Compare():
                return self._comparison(e)
            case E.And(x, y) | E.Or(x, y):
                return self._logical(e, x, y)
            case E.Not(x):
                held = self.expr(x)
                return b.binary("xor", held, literal(held.type, 1))
            case E.Select(c, t, f):
                return self._choice(e, c, t, f)
            case E.Binary():
                return self._binary(e)
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
            case E.Load():
                return self.load(e)
            case E.Call():
                return self._call(e)
        raise TargetError(f"no LLVM IR for {type(e).__name__}: {e}")

    def let(self, var: Var, value: Expr) -> None:
        """Bring a variable into scope."""
        if var.dtype.is_int and var.dtype.lanes == 1:
            self.variables[var] = self.index(value)
            if var.dtype.kind == "int" and var.dtype.bits >= 32 and not self.partial(value):
                self.analyzer.define(var, value)
        else:
            self.variables[var] = self.expr(value)

    def _variable(self, v: Var) -> Value:
        found = self.variables.get(v)
        if found is None:
            raise TargetError(f"variable {v.name} is used outside of its scope")
        return found

    def _ramp(self, t: DType, base: Value, stride: Value, lanes: int) -> Value:
        element = split_type(base.type)[0]
        steps = ", ".join(f"{element} {k}" for k in range(lanes))
        made = Value(vector_type(element, lanes), f"<{steps}>")
        if constant(stride) != 1:
            made = self.b.binary("mul", made, self.b.splat(stride, lanes))
        return self.b.binary("add", self.b.splat(base, lanes), made)

    def _comparison(self, e: E.Compare) -> Value:
        t = e.a.dtype
        integer, floating = _COMPARE[type(e)]
        if t.is_float:
            a, b = self.expr(e.a), self.expr(e.b)
            if self.types.narrow(t):
                a, b = widen(self.b, t, a), widen(self.b, t, b)
            return self.b.compare(f"fcmp {floating}", a, b)
        if t.lanes == 1 and t.kind == "int" and self._is_index(e.a) and self._is_index(e.b):
            a, b = self.index(e.a), self.index(e.b)
        else:
            a, b = self.expr(e.a), self.expr(e.b)
        x, y = constant(a), constant(b)
        if x is not None and y is not None and t.kind == "int":
            return Value("i1", "true" if _HOLDS[integer](x, y) else "false")
        if integer not in ("eq", "ne"):
            integer = ("s" if t.kind == "int" else "u") + integer
        return self.b.compare(f"icmp {integer}", a, b)

    def _is_index(self, e: Expr) -> bool:
        """Whether ``e`` is arithmetic on variables, as opposed to data."""
        if isinstance(e, (Var, E.IntImm)):
            return True
        return isinstance(e, _INDEX_NODES) and self._is_index(e.a) and self._is_index(e.b)

    def _logical(self, e: Expr, x: Expr, y: Expr) -> Value:
        """``select`` and not ``and``: what the left operand rules out may be poison."""
        conjunction = isinstance(e, E.And)
        left = self.expr(x)
        known = uniform(left)
        if known is not None:  # where it decides, the right operand is not evaluated
            return self.expr(y) if known is conjunction else left
        if self.partial(y) and e.dtype.lanes == 1 and left.type == "i1":
            b, more, done = self.b, self.b.label("rhs"), self.b.label("end")
            came = b.block
            b.branch(left, *((more, done) if conjunction else (done, more)))
            b.start(more)
            with self.region():
                right = self.expr(y)
            last = b.block
            b.jump(done)
            b.start(done)
            return b.phi((Value("i1", "false" if conjunction else "true"), came), (right, last))
        if self.partial(y):
            with self.masked(left if conjunction else self._inverted(left)):
                right = self.expr(y)
        else:
            right = self.expr(y)
        if conjunction:
            return self.b.select(left, right, _false(left))
        return self.b.select(left, literal(left.type, 1), right)

    def _inverted(self, x: Value) -> Value:
        return self.b.binary("xor", x, literal(x.type, 1))

    @contextmanager
    def masked(self, mask: Value) -> Iterator[None]:
        """Evaluate under ``mask`` (a vector of i1), and under what holds already."""
        before = self.mask
        if before is not None and before.type == mask.type:
            mask = self.b.select(before, mask, _false(mask))
        self.mask = mask
        try:
            with self.region():
                yield
        finally:
            self.mask = before

    def _choice(self, e: Expr, c: Expr, t: Expr, f: Expr) -> Value:
        b, lazy = self.b, isinstance(e, E.IfThenElse)
        condition = self.expr(c)
        known = uniform(condition)
        if known is not None:
            return self.expr(t if known else f)
        if not lazy or not (self.partial(t) or self.partial(f)):
            return b.select(condition, self.expr(t), self.expr(f))
        if condition.type != "i1":
            with self.masked(condition):
                yes = self.expr(t)
            with self.masked(self._inverted(condition)):
                no = self.expr(f)
            return b.select(condition, yes, no)
        then, other, done = b.label("then"), b.label("else"), b.label("end")
        b.branch(condition, then, other)
        incoming = []
        for label, value in ((then, t), (other, f)):
            b.start(label)
            with self.region():
                found = self.expr(value)
            incoming.append((found, b.block))
            b.jump(done)
        b.start(done)
        return b.phi(*incoming)

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
        if node in (E.FloorDiv, E.FloorMod):
            return self._floor(node, e.a, a, d, self._divides(e.b))
        if node in (E.TruncDiv, E.TruncMod):
            opcode = "div" if node is E.TruncDiv else "rem"
            return self.b.binary(f"{'s' if signed else 'u'}{opcode}", a, self._divides(e.b)(d))
        if node is E.Shr:
            return self.b.binary("ashr" if signed else "lshr", a, d)
        raise TargetError(f"no LLVM IR for {node.__name__} of {t}")

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
        return narrow(b, t, found) if short else found

    def _extremum(self, e: E.Min | E.Max, x: Value, y: Value) -> Value:
        """The operand that is a number where the other is NaN (IEEE 754-2019 minimumNumber).

        The processor's minimum gives its second operand in that case, so it suffices where that
        one is a constant. Not ``llvm.minnum``: LLVM 22 vectorises loops that reduce by it, wrongly
        where they hold several reductions.
        """
        low = isinstance(e, E.Min)
        if _is_number(e.a):
            x, y = y, x
        if _is_number(e.a) or _is_number(e.b):
            return self.b.select(self.b.compare("fcmp olt" if low else "fcmp ogt", x, y), x, y)
        return self.b.intrinsic("minimumnum" if low else "maximumnum", x, y, flags="nsz")

    def _call(self, e: E.Call) -> Value:
        t, name = e.dtype, e.name
        if name.startswith("extern:"):
            return self._extern(e)
        if name == "address_of":
            return self.address(e.args[0])
        args = [self.expr(a) for a in e.args]
        source = e.args[0].dtype
        if name == "popcount":
            return self.b.intrinsic("ctpop", args[0])
        if name == "abs" and t.is_int:
            return self.b.call(
                args[0].type, f"llvm.abs.{_suffix(args[0])}", [*args, Value("i1", "false")]
            )
        if name == "isnan":
            if self.types.narrow(source):
                args = [widen(self.b, source, args[0])]
            return self.b.compare("fcmp uno", args[0], literal(args[0].type, 0.0))
        if name not in FLOAT_FUNCTIONS and name not in ("pow", "fma", "abs"):
            raise TargetError(f"the function {name!r} does not exist on a CPU")
        if source.bits == 16:
            wide = FLOAT32.with_lanes(t.lanes)
            args = [cast(self.b, self.types, source, wide, a) for a in args]
            found = math.apply(self.b, name, args)
            return cast(self.b, self.types, wide, t, found)
        return math.apply(self.b, name, args)

    def _extern(self, e: E.Call) -> Value:
        symbol = e.name.removeprefix("extern:")
        args = [
            self._string(a.value) if isinstance(a, E.StringImm) else self._passed(a) for a in e.args
        ]
        returns = "i8" if e.dtype.is_bool else self.types.register(e.dtype)
        found = self.b.call(returns, symbol, args, external=True)
        self.forget_loads()
        return self.b.convert("trunc", found, "i1") if e.dtype.is_bool else found

    def _passed(self, a: Expr) -> Value:
        """An argument as C takes it: a bool as a byte."""
        held = self.expr(a)
        return self.b.convert("zext", held, "i8") if held.type == "i1" else held

    def _string(self, text: str) -> Value:
        data = text.encode() + b"\0"
        name = f"@.str{len(self.b.globals)}"
        body = "".join(f"\\{c:02X}" for c in data)
        self.b.globals.append(
            f'{name} = private unnamed_addr constant [{len(data)} x i8] c"{body}"'
        )
        return Value("ptr", name)

    def load(self, e: E.Load) -> Value:
        raise NotImplementedError

    def address(self, e: Expr) -> Value:
        raise NotImplementedError


class Guard:
    """Replaces a divisor by 1 in the lanes that are off, so that they do not divide by zero."""

    def __init__(self, owner: Expressions, needed: bool) -> None:
        self.owner, self.needed = owner, needed

    def __call__(self, d: Value) -> Value:
        mask = self.owner.mask
        if not self.needed or mask is None or split_type(mask.type)[1] != split_type(d.type)[1]:
            return d
        return self.owner.b.select(mask, d, literal(d.type, 1))


def _is_number(e: Expr) -> bool:
    """Whether ``e`` is a constant other than NaN."""
    if isinstance(e, E.Broadcast):
        e = e.value
    return isinstance(e, E.FloatImm) and e.value == e.value


def uniform(x: Value) -> bool | None:
    """What a condition is known to be, in all lanes."""
    text = x.text.removeprefix("splat (i1 ").removesuffix(")")
    return True if text == "true" else False if text == "false" else None


def _splatted(d: Value) -> int | None:
    """The constant that a value holds in every lane."""
    text = d.text
    if text.startswith("splat ("):
        text = text[7:-1].split()[-1]
    return int(text) if text[0] in "-0123456789" and "x" not in text else None


def _false(like: Value) -> Value:
    return literal(like.type, 0)


def _suffix(a: Value) -> str:
    element, lanes = split_type(a.type)
    return element if lanes == 1 else f"v{lanes}{element}"


def sixteen_bits(t: DType, value: float) -> int:
    """A constant of float16 or bfloat16 as its bits."""
    import struct

    from tilewright.codegen.llvm.builder import half_bits, round_to_float32

    if t.kind == "float":
        return half_bits(value)
    bits: int = struct.unpack("<I", struct.pack("<f", round_to_float32(value)))[0]
    if value != value:
        return 0x7FC0
    return (bits + 0x7FFF + (bits >> 16 & 1)) >> 16
