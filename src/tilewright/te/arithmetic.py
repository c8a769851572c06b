"""Functions of whole tensors: element by element, of shapes that are broadcast."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tilewright.ir import ops
from tilewright.ir.errors import LanguageError
from tilewright.ir.expr import Expr
from tilewright.ir.operand import OPERATORS
from tilewright.te.operation import compute
from tilewright.te.tensor import Tensor


def elementwise(function: str | Callable[..., Any], *operands: Any, name: str = "") -> Any:
    """``function`` of the elements of tensors and of values; an operator of Python's by its name.

    Shapes are aligned at their last dimensions, and where an extent is 1 the element is repeated.
    Returns an expression where no operand is a tensor. Raises :class:`LanguageError` where two
    extents differ otherwise.
    """
    apply = OPERATORS[function] if isinstance(function, str) else function
    name = name or f"T_{function}"
    tensors = [x for x in operands if isinstance(x, Tensor)]
    if not tensors:
        return apply(*map(ops.as_expr, operands))
    shape = common_shape([t.shape for t in tensors])

    def element(*at: Any) -> Any:
        return apply(*(read(x, at) if isinstance(x, Tensor) else ops.as_expr(x) for x in operands))

    return compute(shape, element, name, tag="elemwise" if len(tensors) == 1 else "broadcast")


def common_shape(shapes: Sequence[Sequence[Expr]]) -> tuple[Expr, ...]:
    """The shape that all of them are broadcast to."""
    rank = max(map(len, shapes))
    found: list[Expr] = [ops.const(1)] * rank
    for shape in shapes:
        for k, extent in enumerate(shape, rank - len(shape)):
            if ops.is_const(found[k], 1):
                found[k] = extent
            elif not (ops.is_const(extent, 1) or extent is found[k]):
                listed = " and ".join(str(list(s)) for s in shapes)
                raise LanguageError(f"tensors of the shapes {listed} do not fit one another")
    return tuple(found)


def read(x: Tensor, at: Sequence[Any]) -> Expr:
    """The element of ``x`` at an index of the shape that it is broadcast to."""
    if not x.ndim:
        return x.as_scalar()
    own = at[len(at) - x.ndim :]
    return x(*(0 if ops.is_const(e, 1) else i for i, e in zip(own, x.shape, strict=True)))
