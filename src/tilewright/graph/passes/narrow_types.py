"""Products in 16 bits, and what lies between kernels: the user's choice of a type."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tilewright.graph.builder import cast
from tilewright.graph.graph import Graph
from tilewright.graph.rewrite import PRODUCTS
from tilewright.graph.value import Constant, Node, Value
from tilewright.ir.dtype import dtype
from tilewright.runtime.narrow_floats import storage_type
from tilewright.topi.functions import FUNCTIONS

#: The types that may be chosen.
TYPES = ("float16", "bfloat16")
_WIDE = "float32"
_NARROWED = PRODUCTS | {"attention"}
#: Functions that only pick values, beside those that move them.
_PICKING = frozenset({"clamp", "max", "max_pool", "maximum", "min", "minimum", "relu"})


def narrow_types(kind: str) -> Callable[[Graph], Graph]:
    """A pass: products of float32, their operands and their results are of type ``kind``.

    >>> from tilewright.graph.value import Input
    >>> x, w = Input("x", (8, 4), "float32"), Constant(np.ones((4, 4), "float32"), "w")
    >>> y = Node("exp", (Node("gemm", (x, w)),))
    >>> print(narrow_types("float16")(Graph("g", (x,), {"y": Node("gemm", (y, w))})))
    g(x: float32[8x4]):
      %0 = cast(x, dtype='float16')  # float16[8x4]
      %1 = gemm(%0, w: float16[4x4])  # float16[8x4]
      %2 = cast(%1, dtype='float32')  # float32[8x4]
      %3 = exp(%2)  # float32[8x4]
      %4 = cast(%3, dtype='float16')  # float16[8x4]
      %5 = gemm(%4, w: float16[4x4])  # float16[8x4]
      y = cast(%5, dtype='float32')  # float32[8x4]

    All else is computed in float32, but for what only moves or picks values: programs convert what
    they read and write, so behind epilogues, and before programs are made.
    """

    def run(graph: Graph) -> Graph:
        made = _Narrowing(kind)
        for value in graph.values:
            made.add(value)
        outputs = {name: made.wide(x) for name, x in graph.outputs.items()}
        return Graph(graph.name, graph.inputs, outputs)

    run.__name__ = "narrow_types"
    return run


def narrowed(x: Constant, kind: str) -> Constant:
    """Numbers in 16 bits: what is finite stays so."""
    most = 65504.0 if kind == "float16" else float(np.finfo("float32").max) * 0.996
    finite = np.where(np.isfinite(x.array), np.clip(x.array, -most, most), x.array)
    return Constant(finite.astype(storage_type(dtype(kind))), x.name)


class _Narrowing:
    """Each value as it is made, of which those of products are narrow."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self._made: dict[Value, Value] = {}
        self._narrow: dict[Value, Value] = {}

    def wide(self, x: Value) -> Value:
        """A value in the type that it had; by a cast for each that reads it, so that it is part of
        its program."""
        made = self._made[x]
        return made if made.dtype == x.dtype else cast(made, x.dtype)

    def narrow(self, x: Value) -> Value:
        """A value in the narrow type, where it is of the wide one."""
        made = self._made[x]
        return self._once(made) if made.dtype == _WIDE else made

    def _once(self, made: Value) -> Value:
        if made not in self._narrow:
            self._narrow[made] = self._narrowed(made)
        return self._narrow[made]

    def _narrowed(self, x: Value) -> Value:
        if isinstance(x, Node) and x.operator == "reshape":  # which no program goes through
            return Node(x.operator, (self._once(x.inputs[0]),), x.attributes, x.name)
        return narrowed(x, self.kind) if isinstance(x, Constant) else cast(x, self.kind)

    def add(self, x: Value) -> None:
        """Make a value."""
        if not isinstance(x, Node):
            self._made[x] = x
            return
        take: Any = self.wide
        if x.dtype == x.inputs[0].dtype == _WIDE and x.operator in _NARROWED:
            take = self.narrow
        elif x.dtype == _WIDE and self._picks(x):
            narrow = [self._made[v].dtype == self.kind for v in x.inputs if v.dtype == _WIDE]
            take = self.narrow if any(narrow) else self.wide
        given = tuple(take(v) if isinstance(v, Value) else v for v in x.operands)
        same = all(a is b for a, b in zip(given, x.operands, strict=True))
        self._made[x] = x if same else Node(x.operator, given, x.attributes, x.name)

    def _picks(self, x: Node) -> bool:
        function = FUNCTIONS.get(x.operator)
        moves = function is not None and function.kind == "injective"
        return moves or x.operator in _PICKING
