"""The value of a declaration on NumPy: what constants are folded with.

A function has one meaning, its tensor expression. Each stage is computed for all indices at once:
axes are open grids, of which NumPy's broadcasting makes the whole.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tilewright.graph.errors import ModelError
from tilewright.graph.value import Constant, Node, Operand, Value
from tilewright.ir import expr as E
from tilewright.ir.dtype import DType
from tilewright.runtime.narrow_floats import storage_type
from tilewright.runtime.sim.values import BINARY, cast, function, numpy_type
from tilewright.te import ComputeOp, Tensor
from tilewright.te.tensor import tensor_of

#: Elements that are computed at once, in rows.
_AT_ONCE = 1 << 18
_REDUCERS: Mapping[str, Any] = {
    "sum": np.add, "prod": np.multiply, "max": np.maximum, "min": np.minimum,
}  # fmt: skip


def evaluate(node: Node) -> np.ndarray[Any, Any]:
    """The array that a function makes of constants."""
    problem = node.problem
    declared = problem.declare()
    inputs, output = declared.inputs, declared.output
    given = {t: _constant(x) for t, x in zip(inputs.values(), node.inputs, strict=True)}
    with np.errstate(all="ignore"):
        found = _tensor(output, given)
    made: np.ndarray[Any, Any] = found.astype(storage_type(output.dtype)).reshape(node.shape)
    return made


def _constant(x: Operand) -> np.ndarray[Any, Any]:
    if not isinstance(x, Constant):
        raise ModelError(f"{x.name if isinstance(x, Value) else x} is no constant")
    return x.array.astype(np.float32) if x.dtype == "bfloat16" else x.array


def _tensor(output: Tensor, known: dict[Tensor, Any]) -> Any:
    waiting = [output]
    while waiting:
        if waiting[-1] in known:
            waiting.pop()
            continue
        op = waiting[-1].op
        missing = [t for t in op.inputs if t not in known]
        if not missing:
            assert isinstance(op, ComputeOp)
            known[waiting.pop()] = _array(op, known)
        waiting += missing
    return known[output]


def _array(op: ComputeOp, known: Mapping[Tensor, Any]) -> Any:
    """All elements of a stage, a few rows at once: what is between takes little memory."""
    extents = [int(a.dom.extent) for a in (*op.axis, *op.reduce_axis) if a.dom is not None]
    if not op.axis:
        return _Stage(op, known, extents, range(1)).array()
    rows = max(1, _AT_ONCE * extents[0] // max(1, math.prod(extents)))
    parts = [
        _Stage(op, known, extents, range(k, min(k + rows, extents[0]))).array()
        for k in range(0, extents[0], rows)
    ]
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


class _Stage:
    """Some rows of one stage, with the arrays that it reads."""

    def __init__(
        self, op: ComputeOp, known: Mapping[Tensor, Any], extents: Sequence[int], rows: range
    ) -> None:
        self.op, self.known = op, known
        axes = [*op.axis, *op.reduce_axis]
        places = [np.arange(n) for n in extents]
        if op.axis:
            places[0] = np.arange(rows.start, rows.stop)
        self.shape = tuple(len(p) for p in places)
        grids = [
            p.reshape([-1 if k == d else 1 for k in range(len(axes))]) for d, p in enumerate(places)
        ]
        self.values: dict[E.Expr, Any] = {a.var: g for a, g in zip(axes, grids, strict=True)}

    def array(self) -> Any:
        """Their elements."""
        (body,) = self.op.body
        outer = len(self.op.axis)
        if not isinstance(body, E.Reduce):
            return np.broadcast_to(self.value(body), self.shape)
        kind = numpy_type(body.dtype)
        found = np.broadcast_to(self.value(body.source[body.index]), self.shape)
        where = np.broadcast_to(self.value(body.condition), self.shape)
        identity = self.value(body.reducer.identity[body.index])
        found = np.where(where, found, identity).astype(kind)
        ufunc = _REDUCERS[body.reducer.name]
        return ufunc.reduce(found, axis=tuple(range(outer, len(self.shape))), dtype=kind)

    def value(self, e: E.Expr) -> Any:
        """An expression at all indices, computed once."""
        if e not in self.values:
            self.values[e] = self._value(e)
        return self.values[e]

    def _operands(self, e: E.Expr, *parts: E.Expr) -> list[Any]:
        """What a node is made of; index arithmetic, which is exact, ends where data begins."""
        found = [self.value(x) for x in parts]
        if not e.exact:
            found = [
                v.astype(numpy_type(x.dtype)) if x.exact and x.dtype.is_int else v
                for v, x in zip(found, parts, strict=True)
            ]
        return found

    def _value(self, e: E.Expr) -> Any:
        match e:
            case E.IntImm() | E.FloatImm():
                return np.asarray(e.value, np.int64 if e.exact and e.dtype.is_int
                                  else numpy_type(e.dtype))  # fmt: skip
            case E.Load(buffer, indices):
                tensor = tensor_of(buffer)
                assert tensor is not None
                array = self.known[tensor]
                at = [
                    np.clip(self.value(i), 0, n - 1)
                    for i, n in zip(indices, array.shape, strict=True)
                ]
                return array[tuple(at)] if at else np.asarray(array)
            case E.And(a, b):
                return np.logical_and(*self._operands(e, a, b))
            case E.Or(a, b):
                return np.logical_or(*self._operands(e, a, b))
            case E.Binary(a, b) | E.Compare(a, b):
                return BINARY[type(e)](*self._operands(e, a, b))
            case E.Not(a):
                return np.logical_not(self.value(a))
            case E.Select(condition, a, b):
                return np.where(self.value(condition), *self._operands(e, a, b))
            case E.Cast(to, a):
                return self._cast(self.value(a), a.dtype, to)
            case E.Call(_, name, args):
                return self._call(e, name, args)
        raise ModelError(f"constants are not folded through {type(e).__name__}")

    def _cast(self, x: Any, source: DType, to: DType) -> Any:
        return cast(x, source, to)

    def _call(self, e: E.Expr, name: str, args: Sequence[Any]) -> Any:
        found = function(name)
        if found is None:
            raise ModelError(f"constants are not folded through {name}")
        given = self._operands(e, *args)
        kind = numpy_type(e.dtype)
        if kind == np.float16:
            return found(*(x.astype(np.float32) for x in given)).astype(kind)
        return found(*given)
