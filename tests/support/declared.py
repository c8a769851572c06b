"""What a declaration means, by NumPy: every stage over its whole grid of indices.

Nothing here knows of schedules, loops or lowering. An expression is evaluated for all elements at
once; where only a condition keeps an index in bounds, the elements where it fails are left out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from tilewright.ir import expr as E
from tilewright.ir.buffer import Buffer
from tilewright.ir.expr import Expr, Var
from tilewright.te import ComputeOp, PlaceholderOp, Tensor

Array = np.ndarray[Any, Any]


def declared(
    outputs: Sequence[Tensor],
    inputs: Mapping[Tensor, Array],
    sizes: Mapping[Var, int] | None = None,
) -> list[Array]:
    """The outputs for ``inputs``; ``sizes`` are the values of symbolic extents."""
    known: dict[Buffer, Array] = {t.buffer: a for t, a in inputs.items()}
    scalars: dict[Var, Any] = {v: np.int64(n) for v, n in (sizes or {}).items()}
    with np.errstate(all="ignore"):
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
    axes = (*op.axis, *op.reduce_axis)
    extents, starts = [], []
    for axis in axes:
        assert axis.dom is not None
        extents.append(_size(axis.dom.extent, scalars))
        starts.append(_size(axis.dom.min, scalars))
    indices = np.indices(extents, np.int64, sparse=True)
    values = {a.var: i + start for a, i, start in zip(axes, indices, starts)}
    grid = _Grid({**scalars, **values}, known, tuple(extents))
    shape, rank = tuple(extents[: len(op.axis)]), len(op.axis)
    first = op.body[0]
    if not isinstance(first, E.Reduce):
        return [_typed(np.broadcast_to(grid.of(e), shape), e) for e in op.body]
    chosen = np.broadcast_to(grid.of(first.condition), extents)
    inside = grid.where(chosen)
    terms = [
        np.where(chosen, np.broadcast_to(inside.of(e), extents), identity.value)
        for e, identity in zip(first.source, first.reducer.identity)
    ]
    terms = [_typed(t, e).reshape(*shape, -1) for t, e in zip(terms, first.source)]
    made = [_typed(np.broadcast_to(grid.of(e), shape), e) for e in _starts(first)]
    for k in range(terms[0].shape[rank]):
        both = dict(zip(first.reducer.lhs, made)) | dict(
            zip(first.reducer.rhs, (t[..., k] for t in terms))
        )
        combined = _Grid(both, {}, shape)
        made = [_typed(combined.of(e), e) for e in first.reducer.result]
    return [made[e.index] for e in op.body if isinstance(e, E.Reduce)]


def _starts(reduction: E.Reduce) -> tuple[Expr, ...]:
    return reduction.init or reduction.reducer.identity


def _typed(value: Any, e: Expr) -> Array:
    return np.array(value, numpy_type(str(e.dtype)), order="C")


def _ties_away(x: Array) -> Array:
    return np.copysign(np.floor(np.abs(x) + 0.5), x)


_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "floor": np.floor, "ceil": np.ceil, "trunc": np.trunc, "round": _ties_away,
    "nearbyint": np.rint, "sqrt": np.sqrt, "abs": np.abs,
    "popcount": lambda x: np.bitwise_count(x.view(f"u{x.dtype.itemsize}")).astype(x.dtype),
    "fma": lambda x, y, z: x * y + z,
}  # fmt: skip

_OPERATIONS: dict[type[Expr], Callable[[Any, Any], Any]] = {
    E.Add: np.add, E.Sub: np.subtract, E.Mul: np.multiply, E.Div: np.divide,
    E.FloorDiv: np.floor_divide, E.FloorMod: np.mod,
    E.TruncDiv: lambda x, y: (np.sign(x) * np.sign(y) * (np.abs(x) // np.abs(y))).astype(x.dtype),
    E.TruncMod: lambda x, y: (np.sign(x) * (np.abs(x) % np.abs(y))).astype(x.dtype),
    E.Min: np.minimum, E.Max: np.maximum, E.BitAnd: np.bitwise_and, E.BitOr: np.bitwise_or,
    E.BitXor: np.bitwise_xor, E.Shl: np.left_shift, E.Shr: np.right_shift, E.EQ: np.equal,
    E.NE: np.not_equal, E.LT: np.less, E.LE: np.less_equal, E.GT: np.greater,
    E.GE: np.greater_equal,
}  # fmt: skip


def numpy_type(t: str) -> np.dtype[Any]:
    """What a type is computed in: bfloat16, of whose values all here are integers, in float32."""
    return np.dtype("float32" if t == "bfloat16" else t)


class _Grid:
    """Values of variables over a grid; ``alive`` marks the points at which the program is."""

    def __init__(
        self,
        values: Mapping[Var, Any],
        known: Mapping[Buffer, Array],
        shape: tuple[int, ...],
        alive: Any = True,
    ) -> None:
        self.values, self.known, self.shape, self.alive = values, known, shape, alive

    def where(self, condition: Any) -> _Grid:
        return _Grid(self.values, self.known, self.shape, np.logical_and(self.alive, condition))

    def of(self, e: Expr) -> Any:
        kind = numpy_type(str(e.dtype))
        match e:
            case Var():
                value = np.asarray(self.values[e])
                return value.astype(kind)
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
                yes, no = self.where(c).of(a), self.where(np.logical_not(c)).of(b)
                return np.where(c, yes, no).astype(kind)
            case E.Cast(_, value):
                found = self.of(value)
                if e.dtype.is_bool:
                    return found != 0
                if value.dtype.is_float and e.dtype.is_int:
                    return np.where(self.alive, np.trunc(found), 0).astype(np.int64).astype(kind)
                return found.astype(kind)
            case E.Call(_, name, args):
                return np.asarray(_FUNCTIONS[name](*map(self.of, args))).astype(kind)
            case E.Binary(a, b) | E.Compare(a, b):
                left, right = self.of(a), self.of(b)
                if isinstance(e, (E.FloorDiv, E.FloorMod, E.TruncDiv, E.TruncMod)):
                    right = np.where(self.alive, right, 1)
                    assert np.all(right != 0), f"{e} divides by zero"
                return np.asarray(_OPERATIONS[type(e)](left, right)).astype(kind)
        raise AssertionError(f"{e} ({type(e).__name__}) has no place in a declaration")

    def read(self, buffer: Buffer, indices: tuple[Expr, ...]) -> Any:
        array = self.known[buffer]
        found = []
        for index, extent in zip(indices, array.shape):
            at = self.of(index)
            inside = np.logical_or(np.logical_not(self.alive), (at >= 0) & (at < extent))
            assert np.all(inside), f"{buffer.name}{list(indices)} reads beyond {array.shape}"
            found.append(np.clip(at, 0, extent - 1))
        return array[tuple(found)] if found else array[()]
