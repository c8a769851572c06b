"""Functions of ``tvm.te`` and ``tvm.tir`` made of Tilewright's own, with TVM's keywords."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping
from typing import Any

from tilewright import te
from tilewright.arith import Analyzer
from tilewright.ir import ops, visit
from tilewright.ir.dtype import dtype as to_dtype
from tilewright.ir.errors import LanguageError
from tilewright.ir.expr import Expr, Var
from tilewright.ir.visit import loads
from tilewright.schedule import Schedule
from tilewright.te.operation import ComputeOp
from tilewright.tvm import wmma
from tilewright.tvm.rules import own_call

__all__ = [
    "acosh", "add", "asinh", "atan2", "atanh", "bitwise_and", "bitwise_not", "bitwise_or",
    "bitwise_xor", "call_intrin", "call_pure_extern", "cast", "clz", "const", "convert", "copysign",
    "div", "fmod", "hypot", "if_then_else", "infinity", "isfinite", "isinf", "isnullptr", "ldexp",
    "likely", "max_value", "min_value", "multiply", "nextafter", "pow", "shift_left", "shift_right",
    "size_var", "subtract", "trunc_div", "trunc_mod", "vscale",
]  # fmt: skip


def size_var(name: str = "size", dtype: str = "int32") -> Var:
    """``te.var``: extents are never negative."""
    return te.var(name, dtype)


def const(value: Any, dtype: str | None = None) -> Expr:
    """:func:`tilewright.te.const`."""
    return te.const(value, dtype)


def convert(value: Any) -> Any:
    """A Python number as a constant; lists and dictionaries element by element."""
    if isinstance(value, Mapping):
        return {key: convert(v) for key, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [convert(v) for v in value]
    return ops.as_expr(value)


def cast(dtype: str, value: Any) -> Expr:
    """``value`` in another type."""
    return ops.cast(dtype, value)


def clz(x: Any) -> Expr:
    """How many zeros lead an integer of 32 or 64 bits, as int32; of 0, all of them."""
    value = ops.as_expr(x)
    if not value.dtype.is_int or value.dtype.bits < 32:
        raise LanguageError(f"clz needs an integer of 32 or 64 bits, got {value.dtype}")
    bits, shift = value.dtype.bits, 1
    seen = ops.cast(f"uint{bits}", value)
    while shift < bits:
        seen, shift = seen | (seen >> shift), shift * 2
    return ops.sub(bits, ops.cast("int32", te.popcount(seen)))


def if_then_else(cond: Any, t: Any, f: Any) -> Expr:
    """One of two values, of which only the chosen one is evaluated."""
    return ops.if_then_else(cond, t, f)


def select(condition: Any, true_value: Any, false_value: Any) -> Expr:
    """One of two values, which may both be evaluated."""
    return ops.select(condition, true_value, false_value)


def div(a: Any, b: Any) -> Expr:
    """``a / b``; on integers C's, which rounds towards zero."""
    with ops.truncating_division():
        return ops.div(a, b)


def add(lhs: Any, rhs: Any) -> Expr:
    return ops.add(lhs, rhs)


def subtract(lhs: Any, rhs: Any) -> Expr:
    return ops.sub(lhs, rhs)


def multiply(lhs: Any, rhs: Any) -> Expr:
    return ops.mul(lhs, rhs)


def bitwise_and(x: Any, y: Any) -> Expr:
    return ops.bitand(x, y)


def bitwise_or(x: Any, y: Any) -> Expr:
    return ops.bitor(x, y)


def bitwise_xor(x: Any, y: Any) -> Expr:
    return ops.bitxor(x, y)


def bitwise_not(x: Any) -> Expr:
    return ops.invert(x)


def shift_left(x: Any, y: Any) -> Expr:
    return ops.shl(x, y)


def shift_right(x: Any, y: Any) -> Expr:
    return ops.shr(x, y)


def infinity(dtype: str) -> Expr:
    return ops.infinity(dtype)


def likely(cond: Any) -> Expr:
    """``cond``; the loops where it always holds are found without a hint."""
    return ops.as_condition(cond)


def isinf(x: Any) -> Expr:
    a = _float(x)
    return ops.as_condition(te.abs(a) == ops.infinity(a.dtype))


def isfinite(x: Any) -> Expr:
    a = _float(x)
    return ops.as_condition(te.abs(a) < ops.infinity(a.dtype))


pow = te.power


def hypot(x1: Any, x2: Any) -> Expr:
    """The square root of the sum of squares; overflows where a square does."""
    a, b = _float(x1), _float(x2)
    return te.sqrt(a * a + b * b)


def atan2(x1: Any, x2: Any) -> Expr:
    """The angle of the point ``(x2, x1)``, from minus pi to pi."""
    y, x = ops.unify(_float(x1), _float(x2))
    angle = te.atan(y / ops.select(x.equal(0), 1, x))
    half_turn = ops.select(y < 0, -math.pi, math.pi)
    upright = ops.select(y.equal(0), 0.0, half_turn * 0.5)
    return ops.select(x > 0, angle, ops.select(x < 0, angle + half_turn, upright))


def asinh(x: Any) -> Expr:
    a = te.abs(_float(x))
    found = te.log1p(a + a * a / (1.0 + te.sqrt(a * a + 1.0)))
    return ops.select(ops.as_expr(x) < 0, -found, found)


def acosh(x: Any) -> Expr:
    a = _float(x)
    return te.log(a + te.sqrt(a * a - 1.0))


def atanh(x: Any) -> Expr:
    a = _float(x)
    return ops.mul(te.log1p(2.0 * a / (1.0 - a)), 0.5)


def call_pure_extern(dtype: str, func_name: str, *args: Any) -> Expr:
    """A call of a C function without effects: ``te.call_extern``."""
    return te.call_extern(dtype, func_name, *args)


def call_intrin(dtype: str, func_name: str, *args: Any) -> Expr:
    """An operation by its name, such as "tir.exp", or one that ``register_op_attr`` made known.

    Raises :class:`LanguageError` for one that is not among the functions of ``te``.
    """
    if func_name.removeprefix("tir.") in wmma.CALLS:
        words = [a for a in args if isinstance(a, str)]
        return te.call_extern("int32", func_name.removeprefix("tir."), *words)
    own = own_call(to_dtype(dtype), func_name, tuple(map(ops.as_expr, args)))
    if own is not None:
        return own
    name = func_name.removeprefix("tir.").removeprefix("tvm_")
    known = globals().get(name) if name in __all__ else getattr(te, name, None)
    if known is None or not callable(known):
        raise LanguageError(
            f"call_intrin: there is no function {func_name!r}; use one of te, such as te.exp, or "
            "te.call_extern, which calls a C function by its name"
        )
    return ops.cast(dtype, known(*args))


def fmod(x: Any, y: Any) -> Expr:
    """What is left of ``x`` once ``y`` is taken off as often as it fits, of the sign of ``x``."""
    a, b = ops.unify(x, y)
    if not a.dtype.is_float:
        return ops.truncmod(a, b)
    return ops.sub(a, ops.mul(te.trunc(a / b), b))


def copysign(x1: Any, x2: Any) -> Expr:
    """``x1`` with the sign of ``x2``, where that is not zero."""
    a, b = ops.unify(_float(x1), _float(x2))
    return ops.select(b < 0, -te.abs(a), te.abs(a))


def ldexp(x1: Any, x2: Any) -> Expr:
    """``x1`` times two to the power of the integer ``x2``."""
    a = _float(x1)
    return ops.mul(a, te.exp2(ops.cast(a.dtype, ops.as_expr(x2))))


def isnullptr(x: Any) -> Expr:
    """Whether a buffer is missing: never, since calls refuse it."""
    return ops.const(False)


def nextafter(x1: Any, x2: Any) -> Expr:
    """The neighbour of ``x1`` on the side of ``x2``, by the C function."""
    a, b = ops.unify(_float(x1), _float(x2))
    symbol = "nextafter" if a.dtype.bits == 64 else "nextafterf"
    return te.call_extern(str(a.dtype), symbol, a, b)


def vscale() -> Expr:
    """1: vectors have a fixed length here, and not a multiple of one that the machine chooses."""
    return ops.const(1)


def trunc_div(a: Any, b: Any) -> Expr:
    return ops.truncdiv(a, b)


def trunc_mod(a: Any, b: Any) -> Expr:
    return ops.truncmod(a, b)


def min_value(dtype: str, span: Any = None) -> Expr:
    """The smallest finite value of a type."""
    return _limit(dtype, -1)


def max_value(dtype: str, span: Any = None) -> Expr:
    """The largest finite value of a type."""
    return _limit(dtype, 1)


def _limit(dtype: str, sign: int) -> Expr:
    largest = {
        "float16": 65504.0,
        "float32": 3.4028234663852886e38,
        "float64": 1.7976931348623157e308,
    }
    if dtype in largest:
        return te.const(sign * largest[dtype], dtype)
    return te.min_value(dtype) if sign < 0 else te.max_value(dtype)


def substitute(node: Any, vmap: Any) -> Any:
    """``node`` with variables replaced by expressions."""
    return visit.substitute(node, {k: ops.as_expr(v) for k, v in dict(vmap).items()})


def post_order_visit(node: Any, fvisit: Callable[[Any], Any]) -> None:
    """Call ``fvisit`` on every node, those below before those above."""
    for child in visit.below(node):
        post_order_visit(child, fvisit)
    fvisit(node)


def _float(x: Any) -> Expr:
    a = ops.as_expr(x)
    return a if a.dtype.is_float else ops.cast("float32", a)


def inline_elementwise(s: Schedule) -> None:
    """Inline every stage that reads its inputs at its own index alone, outputs apart."""
    _inline(s, _is_elementwise)


def inline_broadcast(s: Schedule) -> None:
    """Inline every stage that is tagged as elementwise or broadcast, and elementwise ones."""
    _inline(s, lambda op: op.tag.startswith(("elemwise", "broadcast")) or _is_elementwise(op))


def inline_injective(s: Schedule) -> None:
    """Inline every stage that is no reduction, outputs apart."""
    _inline(s, lambda op: True)


def _inline(s: Schedule, wanted: Callable[[ComputeOp], bool]) -> None:
    for stage in s.stages:
        op = stage.op
        if isinstance(op, ComputeOp) and op not in s.outputs and not op.reduce_axis and wanted(op):
            stage.compute_inline()


def _is_elementwise(op: ComputeOp) -> bool:
    own = tuple(axis.var for axis in op.axis)
    return all(read.indices == own for expr in op.body for read in loads(expr))


def memoize(key: str, save_at_exit: bool = False) -> Callable[..., Any]:
    """``tvm.contrib.pickle_memoize``: a decorator that calls a function once for its arguments."""
    return functools.cache


def assert_prim_expr_equal(lhs: Any, rhs: Any) -> None:
    """Raises :class:`ValueError` where two expressions are not proved to be equal."""
    if not Analyzer().prove(ops.as_expr(lhs).equal(rhs)):
        raise ValueError(f"{lhs} and {rhs} are not equal")
