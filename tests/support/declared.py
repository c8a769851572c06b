"""What a declaration means, by NumPy: every stage over its whole grid of indices.

Nothing here knows of schedules, loops or lowering. An expression is evaluated for all elements at
once; where only a condition keeps an index in bounds, the elements where it fails are left out.

Integers are the machine's: they wrap in their type, a division by zero and its remainder are 0, the
smallest integer divided by -1 is itself, and a shift by the width or more leaves 0, or -1 where an
arithmetic shift to the right has a negative operand. NumPy's own integers do all of that. Index
arithmetic is exact in 64 bits, and brought into its type where it is stored, converted, or combined
with data. The maximum or minimum of a value and what is not a number is not a number.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from tilewright.ir import expr as E
from tilewright.ir.buffer import Buffer
from tilewright.ir.expr import Expr, Var
from tilewright.te import ComputeOp, IterVar, PlaceholderOp, Tensor

Array = np.ndarray[Any, Any]


class OutOfBounds(Exception):
    """The declaration itself reads beyond a tensor, that of ``buffer``, for these inputs."""

    def __init__(self, buffer: Buffer, text: str) -> None:
        self.buffer = buffer
        super().__init__(text)


@contextmanager
def _deep() -> Iterator[None]:
    """Room for expressions of thousands of terms; the compiler has to do without."""
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(100_000)
    try:
        yield
    finally:
        sys.setrecursionlimit(limit)


def declared(
    outputs: Sequence[Tensor],
    inputs: Mapping[Tensor, Array],
    sizes: Mapping[Var, int] | None = None,
) -> list[Array]:
    """The outputs for ``inputs``; ``sizes`` are the values of symbolic extents.

    Raises :class:`OutOfBounds` where the declaration reads beyond a tensor.
    """
    known: dict[Buffer, Array] = {t.buffer: a for t, a in inputs.items()}
    scalars: dict[Var, Any] = {v: np.int64(n) for v, n in (sizes or {}).items()}
    with np.errstate(all="ignore"), _deep():
        for tensor in outputs:
            _fill(tensor, known, scalars)
    return [known[t.buffer] for t in outputs]


def _fill(tensor: Tensor, known: dict[Buffer, Array], scalars: Mapping[Var, Any]) -> None:
    op = tensor.op
    if tensor.buffer in known:
        return
    assert not isinstance(op, PlaceholderOp), f"no value was given for {tensor.name}"
    assert isinstance(op, ComputeOp), f"{op} is no expression"
    for read in op.inputs:
        _fill(read, known, scalars)
    for t, value in zip(op.outputs, _stage(op, known, scalars)):
        known[t.buffer] = value


def _size(e: Expr, scalars: Mapping[Var, Any]) -> int:
    return int(_Grid(dict(scalars), {}, ()).of(e))


def _stage(op: ComputeOp, known: Mapping[Buffer, Array], scalars: Mapping[Var, Any]) -> list[Array]:
    extents = [_size(axis.dom.extent, scalars) for axis in op.axis]
    values = _indices(op.axis, extents, scalars)
    rows = _Grid({**scalars, **values}, known, tuple(extents))
    chosen: Any = True
    for axis in op.reduce_axis:  # whose extents may depend on the axes of the result
        lengths = np.asarray(rows.of(axis.dom.extent))
        extents.append(max(0, int(np.max(lengths, initial=0))))
    rank, shape = len(op.axis), tuple(extents[: len(op.axis)])
    values = _indices((*op.axis, *op.reduce_axis), extents, scalars)
    grid = _Grid({**scalars, **values}, known, tuple(extents))
    for axis in op.reduce_axis:
        chosen = np.logical_and(chosen, values[axis.var] < grid.of(axis.dom.min + axis.dom.extent))
    first = op.body[0]
    if not isinstance(first, E.Reduce):
        return [_typed(np.broadcast_to(grid.of(e), shape), e) for e in op.body]
    chosen = np.logical_and(chosen, grid.where(chosen).of(first.condition))
    chosen = np.broadcast_to(chosen, extents)
    inside = grid.where(chosen)
    terms = [
        np.where(chosen, np.broadcast_to(inside.of(e), extents), identity.value)
        for e, identity in zip(first.source, first.reducer.identity)
    ]
    count = math.prod(extents[rank:])
    terms = [_typed(t, e).reshape(*shape, count) for t, e in zip(terms, first.source)]
    made = [_typed(np.broadcast_to(grid.of(e), shape), e) for e in _starts(first)]
    for k in range(count):
        both = dict(zip(first.reducer.lhs, made)) | dict(
            zip(first.reducer.rhs, (t[..., k] for t in terms))
        )
        combined = _Grid(both, {}, shape)
        made = [_typed(combined.of(e), e) for e in first.reducer.result]
    return [made[e.index] for e in op.body if isinstance(e, E.Reduce)]


def _indices(
    axes: Sequence[IterVar], extents: Sequence[int], scalars: Mapping[Var, Any]
) -> dict[Var, Array]:
    indices = np.indices(extents, np.int64, sparse=True)
    return {a.var: i + _size(a.dom.min, scalars) for a, i in zip(axes, indices)}


def _starts(reduction: E.Reduce) -> tuple[Expr, ...]:
    return reduction.init or reduction.reducer.identity


def _typed(value: Any, e: Expr) -> Array:
    return np.array(value, numpy_type(str(e.dtype)), order="C")


def _ties_away(x: Array) -> Array:
    return np.copysign(np.floor(np.abs(x) + 0.5), x)


def _truncdiv(x: Array, y: Array) -> Array:
    down = np.floor_divide(x, y)
    return down + ((np.fmod(x, y) != 0) & ((x < 0) != (y < 0))).astype(down.dtype)


_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "floor": np.floor, "ceil": np.ceil, "trunc": np.trunc, "round": _ties_away,
    "nearbyint": np.rint, "sqrt": np.sqrt, "abs": np.abs,
    "popcount": lambda x: np.bitwise_count(x.view(f"u{x.dtype.itemsize}")).astype(x.dtype),
    "fma": lambda x, y, z: x * y + z,
    "bits_of_float": lambda x: x.view(f"u{x.dtype.itemsize}"),
    "float_of_bits": lambda x: x.view(f"f{x.dtype.itemsize}"),
}  # fmt: skip

_OPERATIONS: dict[type[Expr], Callable[[Any, Any], Any]] = {
    E.Add: np.add, E.Sub: np.subtract, E.Mul: np.multiply, E.Div: np.divide,
    E.FloorDiv: np.floor_divide, E.FloorMod: np.mod,
    E.TruncDiv: _truncdiv, E.TruncMod: np.fmod,
    E.Min: np.minimum, E.Max: np.maximum, E.BitAnd: np.bitwise_and, E.BitOr: np.bitwise_or,
    E.BitXor: np.bitwise_xor, E.Shl: np.left_shift, E.Shr: np.right_shift, E.EQ: np.equal,
    E.NE: np.not_equal, E.LT: np.less, E.LE: np.less_equal, E.GT: np.greater,
    E.GE: np.greater_equal,
}  # fmt: skip


def numpy_type(t: str) -> np.dtype[Any]:
    """What a type is computed in: bfloat16 in float32, and every result is rounded."""
    return np.dtype("float32" if t == "bfloat16" else t)


def _rounded(value: Any, e: Expr) -> Any:
    """``value``, of type bfloat16 as the nearest that there is, of two the even one."""
    if e.dtype.kind != "bfloat":
        return value
    bits = np.asarray(value, np.float32).view(np.uint32)
    nearest = (bits + np.uint32(0x7FFF) + (bits >> 16 & 1)) & np.uint32(0xFFFF0000)
    return np.where(np.isnan(value), value, nearest.view(np.float32))


def _is_index(e: Expr) -> bool:
    return e.exact and e.dtype.is_int


class _Grid:
    """Values of variables over a grid; ``alive`` marks the points at which the program is."""

    def __init__(
        self,
        values: Mapping[Var, Any],
        known: Mapping[Buffer, Array],
        shape: tuple[int, ...],
        alive: Any = True,
        outer: _Grid | None = None,
    ) -> None:
        self.values, self.known, self.shape, self.alive = values, known, shape, alive
        self.outer = outer
        # What is shared is computed once.
        self._found: dict[Expr, Any] = {}

    def where(self, condition: Any) -> _Grid:
        if np.all(condition):
            return self
        alive = np.logical_and(self.alive, condition)
        return _Grid(self.values, self.known, self.shape, alive, self)

    def of(self, e: Expr) -> Any:
        found = self._tried(e)
        if isinstance(found, OutOfBounds):
            raise found
        return found

    def _tried(self, e: Expr) -> Any:
        """The value of ``e``, that at more points where it is in bounds there too; or why not."""
        found = self._found.get(e)
        if found is None:
            found = None if self.outer is None else self.outer._tried(e)
            if found is None or isinstance(found, OutOfBounds):
                try:
                    found = _rounded(self._value(e), e)
                except OutOfBounds as error:
                    found = error
            self._found[e] = found
        return found

    def _part(self, of: Expr, e: Expr) -> Any:
        """The value of ``e`` as a part of ``of``: an index is brought into its type by data."""
        found = self.of(e)
        return found if of.exact or not _is_index(e) else found.astype(numpy_type(str(e.dtype)))

    def _value(self, e: Expr) -> Any:
        kind = np.dtype("int64") if _is_index(e) else numpy_type(str(e.dtype))
        match e:
            case Var():
                value = np.asarray(self.values[e])
                return value.astype(kind)
            case E.IntImm(_, value) if _is_index(e):  # one beyond 64 bits is refused by lowering
                return kind.type((value + 2**63) % 2**64 - 2**63)
            case E.IntImm(_, value) | E.FloatImm(_, value):
                return kind.type(value)
            case E.Load(buffer, indices, _):
                return self.read(buffer, indices)
            case E.And(a, b):
                left = self.of(a)
                return np.logical_and(left, self.where(left).of(b))
            case E.Or(a, b):
                left = self.of(a)
                return np.logical_or(left, self.where(np.logical_not(left)).of(b))
            case E.Not(a):
                return np.logical_not(self.of(a))
            case E.Select(condition, a, b):  # and IfThenElse: what is not chosen is not read
                c = self.of(condition)
                yes, no = self.where(c)._part(e, a), self.where(np.logical_not(c))._part(e, b)
                return np.where(c, yes, no).astype(kind)
            case E.Cast(_, value):
                found = self._part(e, value)
                if e.dtype.is_bool:
                    return found != 0
                if value.dtype.is_float and e.dtype.is_int:
                    return np.where(self.alive, np.trunc(found), 0).astype(np.int64).astype(kind)
                return found.astype(kind)
            case E.Call(_, name, args):
                return np.asarray(_FUNCTIONS[name](*(self._part(e, a) for a in args))).astype(kind)
            case E.Binary(a, b) | E.Compare(a, b):
                left, right = self._part(e, a), self._part(e, b)
                return np.asarray(_OPERATIONS[type(e)](left, right)).astype(kind)
        raise AssertionError(f"{e} ({type(e).__name__}) has no place in a declaration")

    def read(self, buffer: Buffer, indices: tuple[Expr, ...]) -> Any:
        array = self.known[buffer]
        found = []
        for index, extent in zip(indices, array.shape):
            at = self.of(index)
            inside = np.logical_or(np.logical_not(self.alive), (at >= 0) & (at < extent))
            if not np.all(inside):
                raise OutOfBounds(
                    buffer, f"{buffer.name}{list(indices)} reads beyond {array.shape}"
                )
            found.append(np.clip(at, 0, max(extent - 1, 0)))
        if not array.size:  # nothing alive reads it
            return array.dtype.type(0)
        return array[tuple(found)] if found else array[()]
