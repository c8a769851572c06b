"""Arithmetic on expressions: operators, choices and functions; constants are folded.

With what :mod:`tilewright.ir.values` gives, all that builds expressions.
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from tilewright.ir import expr as E
from tilewright.ir.dtype import DType, dtype, int_range, wrapped
from tilewright.ir.errors import LanguageError
from tilewright.ir.expr import Call, Expr, FloatImm, IfThenElse, IntImm, Select
from tilewright.ir.operand import OPERATORS
from tilewright.ir.values import Value as Value
from tilewright.ir.values import as_condition as as_condition
from tilewright.ir.values import as_expr as as_expr
from tilewright.ir.values import as_index as as_index
from tilewright.ir.values import cast as cast
from tilewright.ir.values import common_type as common_type
from tilewright.ir.values import const as const
from tilewright.ir.values import in_one_type as in_one_type
from tilewright.ir.values import number as number
from tilewright.ir.values import tvm_promotion as tvm_promotion
from tilewright.ir.values import unify as unify

#: What ``/`` means on two integers: an error, or truncated division as TVM had it in 2017.
_integer_division: ContextVar[str] = ContextVar("integer_division", default="error")


@contextmanager
def truncating_division() -> Iterator[None]:
    """Let ``/`` and ``%`` on integers be C's while expressions are written."""
    token = _integer_division.set("truncate")
    try:
        yield
    finally:
        _integer_division.reset(token)


def _is(e: Expr, value: int) -> bool:
    if isinstance(e, E.Broadcast):
        e = e.value
    return isinstance(e, (IntImm, FloatImm)) and e.value == value


def _numeric(a: Any, b: Any, name: str) -> tuple[Expr, Expr]:
    a, b = unify(a, b)
    if a.dtype.is_bool:
        a, b = cast("int32", a), cast("int32", b)
    if not (a.dtype.is_int or a.dtype.is_float):
        raise LanguageError(f"{name} is not defined on {a.dtype}")
    return a, b


def _fold(a: Expr, b: Expr, compute: Callable[[Any, Any], Any]) -> Expr | None:
    if isinstance(a, IntImm) and isinstance(b, IntImm):
        value = compute(a.value, b.value)
        return const(value if a.exact else wrapped(value, a.dtype), a.dtype)
    if isinstance(a, FloatImm) and isinstance(b, FloatImm) and a.dtype.bits == 64:
        return const(compute(a.value, b.value), a.dtype)
    return None


def add(x: Value, y: Value) -> Expr:
    a, b = _numeric(x, y, "addition")
    if a.dtype.is_int:
        if _is(b, 0):
            return a
        if _is(a, 0):
            return b
        if isinstance(b, E.Sub) and b.b is a:  # the end of a loop: min + (end - min)
            return b.a
    folded = _fold(a, b, operator.add)
    return E.Add(a, b) if folded is None else folded


def sub(x: Value, y: Value) -> Expr:
    a, b = _numeric(x, y, "subtraction")
    if a.dtype.is_int:
        if _is(b, 0):
            return a
        if a is b:
            return const(0, a.dtype)
    folded = _fold(a, b, operator.sub)
    return E.Sub(a, b) if folded is None else folded


def mul(x: Value, y: Value) -> Expr:
    a, b = _numeric(x, y, "multiplication")
    if a.dtype.is_int and (_is(a, 0) or _is(b, 0)):
        return const(0, a.dtype)
    if _is(b, 1):
        return a
    if _is(a, 1):
        return b
    folded = _fold(a, b, operator.mul)
    return E.Mul(a, b) if folded is None else folded


def div(x: Value, y: Value) -> Expr:
    """Division of floats; of integers, what :func:`truncating_division` says, else an error."""
    a, b = _numeric(x, y, "division")
    if a.dtype.is_float:
        return a if _is(b, 1) else E.Div(a, b)
    if _integer_division.get() == "truncate":
        return truncdiv(a, b)
    raise LanguageError(
        f"'/' on integers ({a} / {b}) is ambiguous: use // (rounds down), te.truncdiv (rounds "
        "towards zero), or convert to a float first"
    )


def _integer_op(
    node: type[E.Binary], name: str, compute: Callable[[int, int], int], x: Value, y: Value
) -> Expr:
    a, b = _numeric(x, y, name)
    if not a.dtype.is_int:
        raise LanguageError(f"{name} needs integers, got {a.dtype}")
    if _is(b, 0):
        raise LanguageError(f"{name} by zero: {a} by {b}")
    if _is(b, 1):
        return a if node in (E.FloorDiv, E.TruncDiv) else const(0, a.dtype)
    if _is(a, 0):
        return a
    folded = _fold(a, b, compute)
    return node(a, b) if folded is None else folded


def _trunc(a: int, b: int) -> int:
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


def floordiv(x: Value, y: Value) -> Expr:
    """``x / y`` rounded down; on floats, ``floor(x / y)``."""
    a, b = unify(x, y)
    if a.dtype.is_float:
        return unary("floor", div(a, b))
    return _integer_op(E.FloorDiv, "floor division", operator.floordiv, a, b)


def floormod(x: Value, y: Value) -> Expr:
    """``x - floordiv(x, y) * y``: of the sign of ``y``."""
    a, b = unify(x, y)
    if a.dtype.is_float:
        return sub(a, mul(floordiv(a, b), b))
    return _integer_op(E.FloorMod, "floor modulo", operator.mod, a, b)


def truncdiv(x: Value, y: Value) -> Expr:
    """``x / y`` rounded towards zero, as in C."""
    return _integer_op(E.TruncDiv, "truncated division", _trunc, x, y)


def _mod(x: Value, y: Value) -> Expr:
    """``%``, which belongs to ``//``, or to ``/`` where that truncates."""
    a, b = unify(x, y)
    c_like = _integer_division.get() == "truncate" and not a.dtype.is_float
    return truncmod(a, b) if c_like else floormod(a, b)


def truncmod(x: Value, y: Value) -> Expr:
    """The remainder of :func:`truncdiv`, as ``%`` in C."""
    return _integer_op(E.TruncMod, "truncated modulo", lambda a, b: a - _trunc(a, b) * b, x, y)


def _extremum(node: type[E.Binary], compute: Callable[[Any, Any], Any], x: Value, y: Value) -> Expr:
    a, b = _numeric(x, y, node.__name__.lower())
    if a is b:
        return a
    folded = _fold(a, b, lambda x, y: x if x != x else y if y != y else compute(x, y))
    return node(a, b) if folded is None else folded


def minimum(x: Value, y: Value) -> Expr:
    """The smaller one; NaN where either is."""
    return _extremum(E.Min, min, x, y)


def maximum(x: Value, y: Value) -> Expr:
    """The larger one; NaN where either is."""
    return _extremum(E.Max, max, x, y)


def _compare(
    node: type[E.Compare], compute: Callable[[Any, Any], bool], x: Value, y: Value
) -> Expr:
    a, b = unify(x, y)
    if isinstance(a, (IntImm, FloatImm)) and isinstance(b, (IntImm, FloatImm)):
        return const(compute(a.value, b.value), "bool")
    return node(a, b)


def _bitwise(node: type[E.Binary], compute: Callable[[int, int], int], x: Value, y: Value) -> Expr:
    a, b = unify(x, y)
    if a.dtype.is_bool:
        if node is E.BitAnd:
            return logical_and(a, b)
        if node is E.BitOr:
            return logical_or(a, b)
        return E.NE(a, b)
    if not a.dtype.is_int:
        raise LanguageError(f"{node.symbol} needs integers or conditions, got {a.dtype}")
    folded = _fold(a, b, compute)
    return node(a, b) if folded is None else folded


def bitand(x: Value, y: Value) -> Expr:
    return _bitwise(E.BitAnd, operator.and_, x, y)


def bitor(x: Value, y: Value) -> Expr:
    return _bitwise(E.BitOr, operator.or_, x, y)


def bitxor(x: Value, y: Value) -> Expr:
    return _bitwise(E.BitXor, operator.xor, x, y)


def _shift(node: type[E.Binary], compute: Callable[[int, int], int], x: Value, y: Value) -> Expr:
    """A shift; by the width of its type or more it leaves zeros, or copies of the sign."""
    a, b = unify(x, y)
    if isinstance(a, IntImm) and isinstance(b, IntImm) and a.dtype.is_int:
        bits = a.dtype.bits
        if not 0 <= b.value < bits:
            return const(-1 if node is E.Shr and a.value < 0 else 0, a.dtype)
        if b.value >= 31:  # beyond what indices are shifted by
            return const(wrapped(compute(wrapped(a.value, a.dtype), b.value), a.dtype), a.dtype)
    return _bitwise(node, compute, a, b)


def shl(x: Value, y: Value) -> Expr:
    return _shift(E.Shl, operator.lshift, x, y)


def shr(x: Value, y: Value) -> Expr:
    return _shift(E.Shr, operator.rshift, x, y)


def neg(x: Value) -> Expr:
    a = number(x)
    if isinstance(a, FloatImm):
        return const(-a.value, a.dtype)
    if a.dtype.is_float:
        return E.Mul(a, const(-1.0, a.dtype))
    return sub(const(0, a.dtype), a)


def invert(x: Value) -> Expr:
    """``~x``: logical not of a condition, bitwise not of an integer."""
    a = as_expr(x)
    if a.dtype.is_bool:
        return logical_not(a)
    ones = int_range(a.dtype)[1] if a.dtype.kind == "uint" else -1
    return bitxor(a, const(ones, a.dtype))


def logical_and(*conditions: Value) -> Expr:
    """All of them, evaluated from the left until one fails."""
    result: Expr | None = None
    for c in map(as_condition, conditions):
        if isinstance(c, IntImm):
            if not c.value:
                return c
            continue
        result = c if result is None else E.And(result, c)
    return const(True) if result is None else result


def logical_or(*conditions: Value) -> Expr:
    """Any of them, evaluated from the left until one holds."""
    result: Expr | None = None
    for c in map(as_condition, conditions):
        if isinstance(c, IntImm):
            if c.value:
                return c
            continue
        result = c if result is None else E.Or(result, c)
    return const(False) if result is None else result


_NEGATED: dict[type[E.Compare], type[E.Compare]] = {
    E.EQ: E.NE, E.NE: E.EQ, E.LT: E.GE, E.GE: E.LT, E.GT: E.LE, E.LE: E.GT
}  # fmt: skip


def logical_not(x: Value) -> Expr:
    a = as_condition(x)
    if isinstance(a, IntImm):
        return const(not a.value)
    if isinstance(a, E.Not):
        return a.a
    if isinstance(a, E.Compare) and not a.a.dtype.is_float:  # a NaN makes both false
        return _NEGATED[type(a)](a.a, a.b)
    return E.Not(a)


def select(condition: Value, on_true: Value, on_false: Value) -> Expr:
    """One of two values; both may be evaluated."""
    return _choice(Select, condition, on_true, on_false)


def if_then_else(condition: Value, on_true: Value, on_false: Value) -> Expr:
    """One of two values; only the chosen one is evaluated, so the other may be out of bounds."""
    return _choice(IfThenElse, condition, on_true, on_false)


def _choice(node: type[Select], condition: Value, on_true: Value, on_false: Value) -> Expr:
    c, (t, f) = as_condition(condition), in_one_type(on_true, on_false)
    if isinstance(c, IntImm):
        return t if c.value else f
    return t if t is f else node(c, t, f)


def unary(name: str, x: Value) -> Expr:
    """A function of one floating-point value; an integer becomes float32 first."""
    a = number(x)
    if not a.dtype.is_float:
        a = cast("float32", a)
    return Call(a.dtype, name, (a,))


#: Functions of one floating-point value.
FLOAT_FUNCTIONS = (
    "exp exp2 exp10 log log2 log10 log1p expm1 sqrt rsqrt sin cos tan asin acos atan sinh cosh "
    "tanh erf erfc sigmoid floor ceil round trunc nearbyint"
).split()


def power(x: Value, y: Value) -> Expr:
    a, b = unify(x, y)
    if not a.dtype.is_float:
        a, b = cast("float32", a), cast("float32", b)
    return Call(a.dtype, "pow", (a, b))


def fma(x: Value, y: Value, z: Value) -> Expr:
    """``x * y + z`` rounded once."""
    a, b = unify(x, y)
    a, c = unify(a, z)
    return Call(a.dtype, "fma", (a, cast(a.dtype, b), c))


def absolute(x: Value) -> Expr:
    a = number(x)
    return a if a.dtype.kind in ("uint", "bool") else Call(a.dtype, "abs", (a,))


def popcount(x: Value) -> Expr:
    """How many bits of an integer are set."""
    a = as_expr(x)
    if not a.dtype.is_int:
        raise LanguageError(f"popcount needs an integer, got {a.dtype}")
    return Call(a.dtype, "popcount", (a,))


#: Functions that read a float's bits as an unsigned integer, and the other way round.
BITS_FUNCTIONS = ("bits_of_float", "float_of_bits")


def reinterpret(to: str | DType, x: Value) -> Expr:
    """The bits of a number as one of another type, of as many bits: of integers, or of floats of 32
    or 64 bits and integers."""
    a = number(x)
    new = dtype(to).with_lanes(a.dtype.lanes)
    if new == a.dtype:
        return a
    whole = [t.is_int or (t.is_float and t.bits >= 32) for t in (a.dtype, new)]
    if not all(whole) or a.dtype.bits != new.bits:
        raise LanguageError(
            f"reinterpret: {a.dtype} as {new}: both are to be integers, or floats of 32 or 64 "
            "bits, of as many bits"
        )
    unsigned = dtype(f"uint{new.bits}").with_lanes(new.lanes)
    if new.is_float:
        if a.dtype.is_float:
            return a
        return Call(new, "float_of_bits", (cast(unsigned, a),))
    return cast(new, Call(unsigned, "bits_of_float", (a,)) if a.dtype.is_float else a)


def clip(x: Value, low: Value, high: Value) -> Expr:
    """``x`` brought into ``[low, high]``."""
    return minimum(maximum(x, low), high)


def isnan(x: Value) -> Expr:
    a = number(x)
    if not a.dtype.is_float:
        raise LanguageError(f"isnan needs a floating-point number, got {a.dtype}")
    return Call(dtype("bool").with_lanes(a.dtype.lanes), "isnan", (a,))


def ceildiv(x: Value, y: Value) -> Expr:
    """``x / y`` of integers rounded up, for positive ``y``."""
    a, b = unify(x, y)
    return floordiv(add(a, sub(b, 1)), b)


def product(values: tuple[Expr, ...]) -> Expr:
    return functools.reduce(mul, values, const(1))


def is_const(e: Expr, value: int | float | None = None) -> bool:
    """Whether ``e`` is a constant (this one, where given)."""
    return isinstance(e, (IntImm, FloatImm)) and (value is None or e.value == value)


def infinity(t: str) -> Expr:
    return const(math.inf, t)


OPERATORS.update(
    add=add,
    sub=sub,
    mul=mul,
    div=div,
    floordiv=floordiv,
    floormod=_mod,
    neg=neg,
    invert=invert,
    cast=cast,
    lt=functools.partial(_compare, E.LT, operator.lt),
    le=functools.partial(_compare, E.LE, operator.le),
    gt=functools.partial(_compare, E.GT, operator.gt),
    ge=functools.partial(_compare, E.GE, operator.ge),
    eq=functools.partial(_compare, E.EQ, operator.eq),
    ne=functools.partial(_compare, E.NE, operator.ne),
    bitand=bitand,
    bitor=bitor,
    bitxor=bitxor,
    shl=shl,
    shr=shr,
)
