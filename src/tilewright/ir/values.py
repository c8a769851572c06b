"""Values of all kinds as expressions, and the types that they are promoted to."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TypeAlias

from tilewright.ir import expr as E
from tilewright.ir.dtype import DType, dtype, int_range, wrapped
from tilewright.ir.errors import LanguageError
from tilewright.ir.expr import Cast, Expr, FloatImm, IntImm
from tilewright.ir.float8 import nearest
from tilewright.ir.operand import Operand

Value: TypeAlias = "Expr | Operand | int | float"


#: The largest finite float32.
_FLOAT32_MAX = 3.4028234663852886e38

#: Python's own numbers; NumPy's float64 is derived from float.
_NUMBERS = frozenset((bool, int, float))

#: Whether expressions are written under TVM's names, whose types are promoted otherwise.
_tvm_promotion: ContextVar[bool] = ContextVar("tvm_promotion", default=False)


@contextmanager
def tvm_promotion() -> Iterator[None]:
    """Promote types as TVM's do while expressions are written.

    A Python number is int32 or float32 whatever stands beside it, and so is a NumPy scalar; of a
    signed and an unsigned type of the same width the unsigned one wins.
    Source: TVM 0.18, ``BinaryOpMatchTypes``.
    """
    token = _tvm_promotion.set(True)
    try:
        yield
    finally:
        _tvm_promotion.reset(token)


def const(value: Any, type: str | None = None) -> Expr:
    """A constant. Where no type is named, a NumPy scalar has its own; a Python number is bool,
    int32 or float32, or int64 or float64 where it is beyond the range of these."""
    t = dtype(_type_of(value) if type is None else type)
    if t.lanes > 1:
        return E.Broadcast(const(value, t.element), t.lanes)
    if t.is_float8:
        return FloatImm(t, nearest(float(value), t))
    if t.is_float:
        return FloatImm(t, float(value))
    if t.is_int:
        return IntImm(t, int(value))
    return IntImm(t, int(bool(value)))


def _type_of(value: Any) -> str:
    """The type of a number for which none is named."""
    if is_numpy(value):
        return str(value.dtype)
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, int):
        low, high = int_range(dtype("int32"))
        return "int32" if low <= value <= high else "int64"
    wide = _FLOAT32_MAX < abs(value) < float("inf")
    return "float64" if wide else "float32"


def is_numpy(value: Any) -> bool:
    """Whether a value is a scalar of NumPy's, or an array of no dimensions."""
    if type(value) in _NUMBERS:
        return False
    numpy = sys.modules.get("numpy")
    return (
        numpy is not None
        and isinstance(value, (numpy.generic, numpy.ndarray))
        and value.shape == ()
    )


def _as_literal(value: Any) -> Any:
    """A NumPy scalar of a type that nobody chose as the Python number that it is.

    NumPy makes int64 and float64 of Python's numbers, as in ``np.prod(shape)`` and ``np.sqrt(2)``.
    Under TVM's names every NumPy scalar is taken so.
    """
    if isinstance(value, Expr) or not is_numpy(value):
        return value
    chosen = str(value.dtype) not in ("int64", "float64") and not _tvm_promotion.get()
    return value if chosen else value.item()


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
    if is_numpy(value):
        return const(value, type)
    item = getattr(value, "item", None)  # a scalar of another library's
    if item is not None and getattr(value, "shape", None) == ():
        return const(item(), type)
    raise LanguageError(f"{value!r} (a {value.__class__.__name__}) cannot be used in an expression")


def as_index(value: Any) -> Expr:
    """An integer expression; raises :class:`LanguageError` for anything else. Of a NumPy integer
    the value counts, and not its type."""
    if not isinstance(value, Expr):
        value = as_expr(value.item() if is_numpy(value) else value)
    made: Expr = value
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
    return E.NE(number(made), const(0, made.dtype))


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
        wins = "uint" if _tvm_promotion.get() else "int"
        best = a if a.kind == wins else b
    return best.with_lanes(lanes)


def number(value: Any) -> Expr:
    """An expression that something is computed of; raises :class:`LanguageError` for a type that
    has no arithmetic."""
    e = as_expr(value)
    if e.dtype.is_float8:
        raise LanguageError(
            f"{e} is of {e.dtype}, which is for memory alone and has no arithmetic: convert it "
            'first, as in .astype("float32")'
        )
    return e


def unify(a: Any, b: Any) -> tuple[Expr, Expr]:
    """Both operands of an operation in one type; a Python number takes the other's type where it
    can, but under :func:`tvm_promotion`."""
    x, y = in_one_type(a, b)
    return number(x), y


def in_one_type(a: Any, b: Any) -> tuple[Expr, Expr]:
    """As :func:`unify`, of any type, whether it has arithmetic or not."""
    a, b = _as_literal(a), _as_literal(b)
    literal = isinstance(a, (int, float)), isinstance(b, (int, float))
    if literal[0] == literal[1] or _tvm_promotion.get():
        a, b = as_expr(a), as_expr(b)
    elif literal[0]:
        b = as_expr(b)
        a = _match_literal(a, b)
    else:
        a = as_expr(a)
        b = _match_literal(b, a)
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


def as_data(e: Expr) -> Expr:
    """An integer as data: arithmetic with it wraps around in its type."""
    if not e.exact:
        return e
    t = e.dtype
    return Cast(t, Cast(dtype(f"uint{t.bits}").with_lanes(t.lanes), e))


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
        return const(wrapped(e.value, t), t)
    if isinstance(e, IntImm):
        return const(e.value, t)
    if isinstance(e, FloatImm) and t.is_float and t.bits >= e.dtype.bits:
        return const(e.value, t)
    return Cast(t, e)
