"""Python's operators on anything that stands for an expression."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tilewright.ir.errors import LanguageError

if TYPE_CHECKING:
    from tilewright.ir.expr import Expr

#: What the operators do, by name; :mod:`tilewright.ir.ops`, which knows, fills it in.
OPERATORS: dict[str, Callable[..., Expr]] = {}

#: NumPy's functions of two values that operators stand for: ``np.float32(2) * x`` comes here.
_UFUNCS = {
    "add": "add", "subtract": "sub", "multiply": "mul", "divide": "div", "true_divide": "div",
    "floor_divide": "floordiv", "remainder": "floormod", "less": "lt", "less_equal": "le",
    "greater": "gt", "greater_equal": "ge", "equal": "eq", "not_equal": "ne",
}  # fmt: skip


def _binary(name: str) -> Any:
    def method(self: object, other: object) -> Expr:
        return OPERATORS[name](self, other)

    return method


def _reflected(name: str) -> Any:
    def method(self: object, other: object) -> Expr:
        return OPERATORS[name](other, self)

    return method


class Operand:
    """Anything that Python's operators turn into an expression."""

    __slots__ = ()

    __add__, __radd__ = _binary("add"), _reflected("add")
    __sub__, __rsub__ = _binary("sub"), _reflected("sub")
    __mul__, __rmul__ = _binary("mul"), _reflected("mul")
    __truediv__, __rtruediv__ = _binary("div"), _reflected("div")
    __floordiv__, __rfloordiv__ = _binary("floordiv"), _reflected("floordiv")
    __mod__, __rmod__ = _binary("floormod"), _reflected("floormod")
    __lt__, __le__ = _binary("lt"), _binary("le")
    __gt__, __ge__ = _binary("gt"), _binary("ge")
    __eq__ = _binary("eq")
    __ne__ = _binary("ne")
    __and__, __rand__ = _binary("bitand"), _reflected("bitand")
    __or__, __ror__ = _binary("bitor"), _reflected("bitor")
    __xor__, __rxor__ = _binary("bitxor"), _reflected("bitxor")
    __lshift__, __rlshift__ = _binary("shl"), _reflected("shl")
    __rshift__, __rrshift__ = _binary("shr"), _reflected("shr")
    __hash__ = object.__hash__

    def __neg__(self) -> Expr:
        return OPERATORS["neg"](self)

    def __invert__(self) -> Expr:
        return OPERATORS["invert"](self)

    def astype(self, to: str) -> Expr:
        """This value converted to another type."""
        return OPERATORS["cast"](to, self)

    def equal(self, other: object) -> Expr:
        """``self == other`` as an expression."""
        return OPERATORS["eq"](self, other)

    def __bool__(self) -> bool:
        raise LanguageError(
            "an expression has no truth value while the program is being written: use "
            "te.all / te.any for 'and' / 'or', te.if_then_else for 'if', ~ for 'not', and "
            "te.max / te.min for 'max' / 'min'"
        )

    def __iter__(self) -> Any:
        raise LanguageError(
            "an expression is one value, which cannot be iterated over: to sum over an axis, write "
            "te.sum(expression, axis=k) with k = te.reduce_axis((0, n))"
        )

    def __index__(self) -> int:
        raise LanguageError(
            "an expression has no value while the program is being written, so it is no index of "
            "a Python list or a NumPy array, and no end of a range: make an array a te.placeholder "
            "and a loop an axis"
        )

    def __float__(self) -> float:
        raise LanguageError(
            "an expression has no value while the program is being written: use te.exp, te.sqrt "
            "and the like in place of Python's math"
        )

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **more: Any) -> Any:
        name = _UFUNCS.get(ufunc.__name__)
        if name is None or method != "__call__" or more or any(_is_array(x) for x in inputs):
            raise LanguageError(
                f"np.{ufunc.__name__} computes with arrays, at once; a declaration is written "
                "with operators and functions of te, such as te.exp, on elements of tensors"
            )
        return OPERATORS[name](*inputs)


def _is_array(value: Any) -> bool:
    return bool(getattr(value, "shape", ())) and not isinstance(value, Operand)
