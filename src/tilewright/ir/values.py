"""Values of all kinds as expressions, and the types that they meet in."""

from __future__ import annotations

from typing import Any, TypeAlias

from tilewright.ir import expr as E
from tilewright.ir.dtype import DType, dtype, int_range
from tilewright.ir.errors import LanguageError
from tilewright.ir.expr import Cast, Expr, FloatImm, IntImm
from tilewright.ir.operand import Operand

Value: TypeAlias = "Expr | Operand | int | float"


def const(value: int | float | bool, type: str | None = None) -> Expr:
    """A constant; int32, float32 or bool by the value's Python type where none is named."""
    if type is None:
        type = (
            "bool" if isinstance(value, bool) else "int32" if isinstance(value, int) else "float32"
        )
    t = dtype(type)
    if t.lanes > 1:
        return E.Broadcast(const(value, t.element), t.lanes)
    if t.is_float:
        return FloatImm(t, float(value))
    if t.is_int:
        return IntImm(t, int(value))
    return IntImm(t, int(bool(value)))


def as_expr(value: Any, type: str | None = None) -> Expr:
    """A Python number, an axis or an expression as an expression."""
    if isinstance(value, Expr):
        return value
    if isinstance(value, (bool, int, float)):
        return const(value, type)
    inner = getattr(value, "var", None)  # an axis
    if isinstance(inner, Expr):
        return inner
    read = getattr(value, "as_scalar", None)  # a 0-dimensional tensor, a finished slice
    if read is not None:
        found = read()
        if isinstance(found, Expr):
            return found
    item = getattr(value, "item", None)  # a NumPy scalar
    if item is not None:
        return const(item(), type)
    raise LanguageError(f"{value!r} (a {value.__class__.__name__}) cannot be used in an expression")


def as_index(value: Any) -> Expr:
    """An integer expression; raises :class:`LanguageError` for anything else."""
    made = as_expr(value)
    if not made.dtype.is_int:
        raise LanguageError(f"an index or extent must be an integer, got {made} of {made.dtype}")
    return made


def as_condition(value: Any) -> Expr:
    """A bool expression."""
    made = as_expr(value)
    if made.dtype.is_bool:
        return made
    if isinstance(made, (IntImm, FloatImm)):
        return const(made.value != 0)
    return E.NE(made, const(0, made.dtype))


def _broadcast(a: Expr, lanes: int) -> Expr:
    return a if a.dtype.lanes == lanes else E.Broadcast(a, lanes)


def common_type(a: DType, b: DType) -> DType:
    """The type that arithmetic on both is done in."""
    lanes = max(a.lanes, b.lanes)
    a, b = a.element, b.element
    if a == b:
        best = a
    elif a.is_float and b.is_float:
        # float16 with bfloat16 needs both ranges: float32
        best = dtype("float32") if a.bits == b.bits else max(a, b, key=lambda t: t.bits)
    elif a.is_float or b.is_float:
        best = a if a.is_float else b
    elif a.is_bool or b.is_bool:
        best = b if a.is_bool else a
    elif a.bits != b.bits:
        best = max(a, b, key=lambda t: t.bits)
    else:
        best = a if a.kind == "int" else b
    return best.with_lanes(lanes)


def unify(a: Any, b: Any) -> tuple[Expr, Expr]:
    """Both operands in one type; a Python number takes the other's type where it can."""
    if isinstance(a, (int, float)) and not isinstance(b, (int, float)):
        b = as_expr(b)
        a = _match_literal(a, b)
    elif isinstance(b, (int, float)) and not isinstance(a, (int, float)):
        a = as_expr(a)
        b = _match_literal(b, a)
    else:
        a, b = as_expr(a), as_expr(b)
    if a.dtype is b.dtype:
        return a, b
    to = common_type(a.dtype, b.dtype)
    return cast(to, a), cast(to, b)


def _match_literal(value: int | float, other: Expr) -> Expr:
    t = other.dtype
    if t.is_int and isinstance(value, int):
        low, high = int_range(t)
        if not low <= value <= high:
            raise LanguageError(
                f"{value} is beyond the range of {other!r}, which is of {t}, {low} to {high}: cast "
                "it to a wider type, as in .astype('int64')"
            )
    if t.is_float or (isinstance(value, (bool, int)) and t.is_int) or isinstance(value, bool):
        return const(value, t)
    made = const(value)
    return _broadcast(made, t.lanes)


def cast(to: str, value: Value) -> Expr:
    """``value`` as type ``to``; the lanes of a vector are kept."""
    e, t = as_expr(value), dtype(to)
    if t.lanes == 1 and e.dtype.lanes > 1:
        t = t.with_lanes(e.dtype.lanes)
    if t.lanes > 1 and e.dtype.lanes == 1:
        return E.Broadcast(cast(t.element, e), t.lanes)
    if e.dtype == t:
        return e
    if isinstance(e, IntImm) and t.is_int:
        bits = e.value & (2**t.bits - 1)
        signed = bits - 2**t.bits if t.kind == "int" and bits >= 2 ** (t.bits - 1) else bits
        return const(signed, t)
    if isinstance(e, IntImm):
        return const(e.value, t)
    if isinstance(e, FloatImm) and t.is_float and t.bits >= e.dtype.bits:
        return const(e.value, t)
    return Cast(t, e)
