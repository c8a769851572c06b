"""Tensors: what a declaration reads and what it makes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from tilewright.ir.buffer import Buffer
from tilewright.ir.dtype import DType, dtype
from tilewright.ir.errors import LanguageError, in_declaration
from tilewright.ir.expr import Expr, IntImm, load
from tilewright.ir.operand import OPERATORS, Operand
from tilewright.ir.ops import Value, add, as_expr, as_index, const
from tilewright.ir.values import is_numpy

if TYPE_CHECKING:
    from tilewright.te.operation import Operation


def tensor_of(buffer: Buffer) -> Tensor | None:
    """The tensor whose elements ``buffer`` holds, None for a buffer that stands alone."""
    return getattr(buffer, "tensor", None)


def as_shape(shape: Value | Sequence[Value], what: str) -> tuple[Expr, ...]:
    """A shape as expressions.

    Raises :class:`LanguageError` where an extent is no integer, or not positive.
    """
    found: Sequence[Any] = shape if isinstance(shape, (tuple, list)) else (shape,)
    extents = []
    for extent in found:
        try:  # what Python's division makes of integers is one, where it divides
            whole = isinstance(extent, float) and extent.is_integer()
            extents.append(as_index(int(extent) if whole else extent))
        except LanguageError:
            raise LanguageError(
                f"{what} has an extent of {extent!r}: extents are integers, or made by te.var"
            ) from None
        made = extents[-1]
        if made.dtype.kind != "int" or made.dtype.bits < 32:
            raise LanguageError(
                f"{what} has an extent of {made} of {made.dtype}: extents are of int32 or int64"
            )
        if isinstance(made, IntImm) and made.value <= 0:
            raise LanguageError(f"{what} has an extent of {made.value}: extents are positive")
    return tuple(extents)


def _operated(function: str | Callable[..., Any], *operands: Any) -> Any:
    from tilewright.te.arithmetic import elementwise  # it computes tensors of tensors

    return elementwise(function, *operands, name="" if isinstance(function, str) else "T_cast")


def _whole(name: str, reflected: bool = False) -> Any:
    """An operator on whole tensors, or on the elements of those without dimensions; within the
    function of a ``te.compute``, where elements are meant, only on these."""

    def method(self: Tensor, *other: Any) -> Any:
        operands = (*other, self) if reflected else (self, *other)
        whole = any(isinstance(x, Tensor) and x.ndim for x in operands)
        fits = all(isinstance(x, (Tensor, Expr, int, float)) or is_numpy(x) for x in operands)
        if not whole or not fits or in_declaration():
            return OPERATORS[name](*operands)
        return _operated(name, *operands)

    return method


class Tensor(Operand):
    """One output of an operation: ``shape``, ``dtype``, and ``op``, which makes it.

    ``A[i, j]``, ``A[i][j]`` and ``A(i, j)`` read an element; ``A[i]`` and ``A[i, 2:6]`` are
    slices, which take further indices.
    """

    __slots__ = ("__weakref__", "buffer", "index", "op")

    def __init__(self, op: Operation, index: int, buffer: Buffer) -> None:
        self.op, self.index, self.buffer = op, index, buffer
        object.__setattr__(buffer, "tensor", self)

    __hash__ = object.__hash__

    __add__, __radd__ = _whole("add"), _whole("add", reflected=True)
    __sub__, __rsub__ = _whole("sub"), _whole("sub", reflected=True)
    __mul__, __rmul__ = _whole("mul"), _whole("mul", reflected=True)
    __truediv__, __rtruediv__ = _whole("div"), _whole("div", reflected=True)
    __floordiv__, __rfloordiv__ = _whole("floordiv"), _whole("floordiv", reflected=True)
    __mod__, __rmod__ = _whole("floormod"), _whole("floormod", reflected=True)
    __lshift__, __rlshift__ = _whole("shl"), _whole("shl", reflected=True)
    __rshift__, __rrshift__ = _whole("shr"), _whole("shr", reflected=True)
    __and__, __or__, __xor__ = _whole("bitand"), _whole("bitor"), _whole("bitxor")
    __neg__, __invert__ = _whole("neg"), _whole("invert")

    def astype(self, to: str) -> Any:
        """The tensor, or the element of one without dimensions, converted to another type."""
        if not self.ndim:
            return super().astype(to)
        return _operated(lambda value: value.astype(to), self)

    def __eq__(self, other: object) -> Any:
        return self is other

    def __ne__(self, other: object) -> Any:
        return self is not other

    def __bool__(self) -> bool:
        return True

    @property
    def name(self) -> str:
        return self.buffer.name

    @property
    def shape(self) -> tuple[Expr, ...]:
        return self.buffer.shape

    @property
    def dtype(self) -> DType:
        return self.buffer.dtype

    @property
    def ndim(self) -> int:
        return len(self.buffer.shape)

    @property
    def value_index(self) -> int:
        return self.index

    def __call__(self, *indices: Value) -> Expr:
        return as_expr(self[indices])

    def __getitem__(self, indices: Any) -> Any:
        return TensorSlice(self, ())[indices] if self.ndim else self.as_scalar()

    def as_scalar(self) -> Expr:
        """The element of a tensor without dimensions."""
        if self.ndim:
            raise LanguageError(
                f"tensor {self.name} has {self.ndim} dimensions: index it, as in "
                f"{self.name}[{', '.join('ijklmn'[: self.ndim])}]"
            )
        return load(self.buffer, ())

    def __iter__(self) -> Any:
        raise LanguageError(
            f"tensor {self.name} cannot be iterated over while a program is written: declare its "
            "elements with te.compute, and sums of them with te.reduce_axis"
        )

    def __repr__(self) -> str:
        return f"Tensor({self.name}, shape={list(self.shape)}, dtype={self.dtype})"


class TensorSlice(Operand):
    """A tensor with some of its indices given; further ones fill the open dimensions in order."""

    __slots__ = ("given", "tensor")

    def __init__(self, tensor: Tensor, given: tuple[Expr | slice, ...]) -> None:
        self.tensor, self.given = tensor, given

    __hash__ = object.__hash__

    def __getitem__(self, indices: Any) -> Any:
        pending = list(indices) if isinstance(indices, tuple) else [indices]
        merged: list[Expr | slice] = []
        for old in self.given:
            if isinstance(old, slice) and pending:
                merged.append(self._shift(pending.pop(0), old))
            else:
                merged.append(old)
        merged += [self._index(i) for i in pending]
        if len(merged) > self.tensor.ndim:
            shape = ", ".join(map(repr, self.tensor.shape))
            raise LanguageError(
                f"tensor {self.tensor.name} has {self.tensor.ndim} dimensions, ({shape}), got "
                f"{len(merged)} indices: leave out {len(merged) - self.tensor.ndim} of them"
            )
        whole = tuple(i for i in merged if not isinstance(i, slice))
        if len(whole) == self.tensor.ndim:
            return load(self.tensor.buffer, whole)
        return TensorSlice(self.tensor, tuple(merged))

    def as_scalar(self) -> Expr:
        """Raises: a slice with open dimensions is no value."""
        given = [*self.given, *[None] * (self.tensor.ndim - len(self.given))]
        open_ = [k for k, i in enumerate(given) if i is None or isinstance(i, slice)]
        names = [f"{'a slice' if given[k] else 'no index'} in dimension {k}" for k in open_]
        raise LanguageError(
            f"an element of tensor {self.tensor.name}, which has {self.tensor.ndim} dimensions, is "
            f"needed here, but it has {', '.join(names)}: give an index for each dimension; to "
            "compute with whole rows, make them an axis of te.compute or a te.reduce_axis"
        )

    def _index(self, value: Any) -> Expr | slice:
        if isinstance(value, slice):
            if value.step not in (None, 1):
                raise LanguageError(
                    f"a slice of tensor {self.tensor.name} has step {value.step}: index with "
                    "i * step instead"
                )
            return slice(self._index(value.start or 0), value.stop)
        try:
            return as_index(value)
        except LanguageError:
            raise LanguageError(
                f"an index of tensor {self.tensor.name} is {value!r}, which is no integer: cast "
                "it with .astype('int32')"
            ) from None

    def _shift(self, value: Any, base: slice) -> Expr | slice:
        found = self._index(value)
        start = base.start if base.start is not None else const(0)
        if isinstance(found, slice):
            return slice(add(start, found.start), found.stop)
        return add(start, found)


def make_buffer(name: str, shape: tuple[Expr, ...], type: str) -> Buffer:
    """The buffer of a new tensor; raises :class:`LanguageError` for elements that are vectors."""
    t = dtype(type)
    if t.lanes > 1:
        raise LanguageError(
            f"the elements of tensor {name} would be of {t}, but elements are scalars: declare "
            f"{t.element}, with a last dimension of {t.lanes}, and vectorize its axis"
        )
    return Buffer(name, shape, t)
