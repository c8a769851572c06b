"""Buffers: named, typed, multi-dimensional storage in one of the machine's memories."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tilewright.ir.distribution import Distribution
from tilewright.ir.dtype import DType
from tilewright.ir.dtype import dtype as as_dtype
from tilewright.ir.expr import Expr, IntImm, Load, Ramp, Var
from tilewright.ir.ops import (
    Value,
    add,
    as_expr,
    as_index,
    bitand,
    bitxor,
    cast,
    ceildiv,
    const,
    floordiv,
    maximum,
    mul,
    shr,
)

#: The memories: of the device, of a cluster of blocks, each of which keeps one element of the first
#: dimension in its shared memory, of a block of threads, of a warp, of one thread; and the
#: registers of a group of threads that hold an array together, each its part.
SCOPES = ("global", "cluster", "shared", "warp", "fragment", "local")


#: TVM's names of some.
_OTHER_NAMES = {
    "shared.dyn": "shared",
    "wmma.matrix_a": "fragment",
    "wmma.matrix_b": "fragment",
    "wmma.accumulator": "fragment",
}


def known_scope(scope: str) -> str | None:
    """``scope``, where it is one of :data:`SCOPES` or another name for one; None otherwise.

    >>> known_scope("shared"), known_scope("wmma.matrix_a"), known_scope("register")
    ('shared', 'fragment', None)
    """
    return scope if scope in SCOPES else _OTHER_NAMES.get(scope)


def scopes_instead() -> str:
    """What to write in the place of a scope that there is not."""
    return f"The scopes are {', '.join(SCOPES)}"


#: Threads that share memory of scope "warp": the extent along threadIdx.x, whatever the target has.
WARP = 32


def warp_copies(block: tuple[int, int, int]) -> int:
    """How many copies of memory of scope "warp" a block of (x, y, z) threads has.

    >>> warp_copies((64, 2, 1)), warp_copies((16, 2, 1))
    (4, 2)
    """
    x, y, z = block
    return -(-x // WARP) * y * z


@dataclass(frozen=True, slots=True)
class Layout:
    """A bijection from a logical index to an offset in storage, in elements.

    ``offset = sum(index * stride) + base``, then, where ``swizzle`` is (bits, base, shift), the
    bits of the offset from ``base`` on are XORed with those ``shift`` further up.
    """

    strides: tuple[Expr, ...]
    base: Expr = field(default_factory=lambda: const(0))
    swizzle: tuple[int, int, int] | None = None

    def offset(self, indices: tuple[Expr, ...]) -> Expr:
        """Where the element at ``indices`` is stored."""
        total = self.base
        for index, stride in zip(indices, self.strides, strict=True):
            total = add(total, mul(index, stride))
        return total if self.swizzle is None else self.swizzled(total)

    def swizzled(self, offset: Expr) -> Expr:
        """Where the element lies that without the swizzle would lie at ``offset``."""
        assert self.swizzle is not None
        bits, base, shift = self.swizzle
        mask = ((1 << bits) - 1) << base
        return bitxor(offset, bitand(shr(offset, shift), mask))


class _Declared:
    """``tensor``: the tensor whose elements a buffer holds, for :mod:`tilewright.te`; unset for a
    buffer that stands alone. A load keeps its buffer, and so the tensor that it reads; a table
    beside them would keep both for ever, since a tensor has its buffer."""

    __slots__ = ("tensor",)
    tensor: Any


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class Buffer(_Declared):
    """Storage for an array; two buffers are the same only if they are one object.

    Parameters
    ----------
    name : a name to print; need not be unique.
    shape : extents, constants or expressions of symbolic variables.
    dtype : the type of an element.
    scope : one of :data:`SCOPES`.
    layout : where elements lie; None is row-major and dense.
    align : the alignment of the first element in bytes, 0 where nothing is promised.
    distribution : of a fragment, which thread holds which element; None until it is known.
    """

    name: str
    shape: tuple[Expr, ...]
    dtype: DType
    scope: str = "global"
    layout: Layout | None = None
    align: int = 0
    distribution: Distribution | None = None

    def __getitem__(self, indices: Value | tuple[Value, ...]) -> Load:
        found = indices if isinstance(indices, tuple) else (indices,)
        if len(found) != len(self.shape):
            raise IndexError(
                f"buffer {self.name} has {len(self.shape)} dimensions, got {len(found)} indices"
            )
        return Load(self, tuple(as_index(i) for i in found), None)

    def access_ptr(self, access_mask: Any = "rw") -> Buffer:
        """TVM's way to pass it to ``te.call_extern``, which takes a buffer itself as the pointer
        to its start. ``access_mask`` has no effect: a stage says what it reads and writes."""
        return self

    @property
    def data(self) -> Buffer:
        """The pointer to its start, under TVM's name: a call takes the buffer itself for it."""
        return self

    def vload(self, begin: Any, dtype: Any = None) -> Load:
        """The elements of a vector type from ``begin`` on, along the last dimension; TVM's name."""
        return Load(self, self._vector(begin, as_dtype(dtype or self.dtype).lanes), None)

    def vstore(self, begin: Any, value: Any) -> Any:
        """The statement that stores a value, or a vector, from ``begin`` on; TVM's name."""
        from tilewright.ir.stmt import Store  # which needs this class

        made = cast(self.dtype.with_lanes(as_expr(value).dtype.lanes), value)
        return Store(self, self._vector(begin, made.dtype.lanes), made)

    def _vector(self, begin: Any, lanes: int) -> tuple[Expr, ...]:
        *outer, last = map(as_index, begin if isinstance(begin, (tuple, list)) else (begin,))
        return (*outer, last if lanes == 1 else Ramp(last, const(1, last.dtype), lanes))

    @property
    def elem_offset(self) -> Expr:
        """How far :attr:`data` is from its start, under TVM's name: not at all."""
        return const(0)

    @property
    def dense_strides(self) -> tuple[Expr, ...]:
        """Row-major strides, in elements."""
        return _dense(self.shape)

    @property
    def strides(self) -> tuple[Expr, ...]:
        """The strides of the layout, in elements."""
        return self.layout.strides if self.layout else self.dense_strides

    def offset(self, indices: tuple[Expr, ...]) -> Expr:
        """The offset in elements of the element at ``indices``."""
        if self.layout is not None:
            return self.layout.offset(indices)
        if any(index.dtype.bits == 64 for index in indices):
            # Strides are products of extents, which may not fit 32 bits where they are symbolic.
            wide = tuple(cast("int64", extent) for extent in self.shape)
            return Layout(_dense(wide)).offset(indices)
        return Layout(self.dense_strides).offset(indices)

    @property
    def size(self) -> Expr:
        """How many elements of storage it takes, gaps of the layout included."""
        if self.layout is None:
            total: Expr = const(1)
            for extent in self.shape:
                total = mul(total, _at_least_zero(extent))
            return total
        last = tuple(
            const(0) if isinstance(stride, IntImm) and stride.value < 0 else add(extent, const(-1))
            for extent, stride in zip(self.shape, self.layout.strides, strict=True)
        )
        plain = Layout(self.layout.strides, self.layout.base)
        size = add(plain.offset(last), const(1))
        if self.constant_shape is None:  # where an extent is 0 there is no last element
            size = maximum(size, const(0, size.dtype))
        if self.layout.swizzle is None:
            return size
        bits, base, shift = self.layout.swizzle  # whole blocks, after which the permutation repeats
        block = 1 << (bits + base + shift)
        return mul(floordiv(add(size, const(block - 1)), const(block)), const(block))

    @property
    def share(self) -> Expr:
        """How many elements of storage a block takes: of scope "cluster", one of those in the first
        dimension."""
        if self.scope != "cluster":
            return self.size
        layout = None if self.layout is None else Layout(self.layout.strides[1:], self.layout.base)
        return Buffer(self.name, self.shape[1:], self.dtype, "shared", layout).size

    @property
    def span(self) -> Expr:
        """How far a copy behind this one has to lie, in elements, to be aligned as it is."""
        step = self.align // self.dtype.bytes
        return mul(ceildiv(self.size, const(step)), const(step)) if step > 1 else self.size

    @property
    def constant_shape(self) -> tuple[int, ...] | None:
        """The shape as integers, or None where it is symbolic."""
        if all(isinstance(extent, IntImm) for extent in self.shape):
            return tuple(extent.value for extent in self.shape if isinstance(extent, IntImm))
        return None

    def __repr__(self) -> str:
        shape = ", ".join(map(repr, self.shape))
        return f"{self.name}[{self.dtype} {shape}; {self.scope}]"


def _at_least_zero(extent: Expr) -> Expr:
    """The extent of a tile, which is the difference of two indices, where nothing is in it."""
    if isinstance(extent, (IntImm, Var)):
        return extent
    return maximum(extent, const(0, extent.dtype))


def _dense(shape: tuple[Expr, ...]) -> tuple[Expr, ...]:
    strides: list[Expr] = []
    step: Expr = const(1)
    for extent in reversed(shape):
        strides.append(step)
        step = mul(step, extent)
    return tuple(reversed(strides))
