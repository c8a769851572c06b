"""Python's operators on anything that stands for an expression."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tilewright.ir.expr import Expr

#: What the operators do, by name; :mod:`tilewright.ir.ops`, which knows, fills it in.
OPERATORS: dict[str, Callable[..., Expr]] = {}


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
        raise TypeError(
            "an expression has no truth value while the program is being written: use "
            "te.all / te.any for 'and' / 'or', te.if_then_else for 'if', and ~ for 'not'"
        )
