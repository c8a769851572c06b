"""A part of rows is taken before what is computed of each row, not behind it."""

from __future__ import annotations

import math
from heapq import heappop, heappush
from typing import NamedTuple

from tilewright.graph.builder import build, reshape
from tilewright.graph.graph import Graph
from tilewright.graph.passes.channels_last import REDUCTIONS
from tilewright.graph.value import Constant, Node, Value
from tilewright.topi.functions import FUNCTIONS


class _Part(NamedTuple):
    """Elements of a tensor: of each dimension the first one, their distance and their number."""

    begin: tuple[int, ...]
    strides: tuple[int, ...]
    shape: tuple[int, ...]

    def of(self, x: Value) -> Value:
        """These elements of a tensor."""
        return x if self.shape == x.shape else build("strided_slice", x, **self._asdict())

    def with_dim(self, d: int, extent: int) -> _Part:
        """The same with all of a dimension."""
        begin, strides, shape = (
            (*values[:d], value, *values[d + 1 :])
            for values, value in zip(self, (0, 1, extent), strict=True)
        )
        return _Part(begin, strides, shape)


def lift_slices(graph: Graph) -> Graph:
    """Take a part of what the rows are computed from, where nothing else reads these rows.

    >>> from tilewright.graph.value import Input
    >>> x = Input("x", (2, 197, 64), "float32")
    >>> y = Node("divide", (x, Node("sum", (x,), {"axis": (2,), "keepdims": True})))
    >>> row = {"begin": (0, 0, 0), "strides": (1, 1, 1), "shape": (2, 1, 64)}
    >>> y = Node("strided_slice", (y,), row)
    >>> print(lift_slices(Graph("g", (x,), {"y": y})))
    g(x: float32[2x197x64]):
      %0 = strided_slice(x, begin=(0, 0, 0), strides=(1, 1, 1), shape=(2, 1, 64))  # float32[2x1x64]
      %1 = sum(%0, axis=(2,), keepdims=True)  # float32[2x1x1]
      y = divide(%0, %1)  # float32[2x1x64]

    Of a vision transformer the class token alone is read behind the last block, whose products and
    normalisations then are of one row of an image. Before reshapes move, which stand around
    products of rows. Slices of what elements alone are computed of stay: that is part of a product.
    """
    tried: set[Node] = set()
    while (lift := _next(graph, tried)) is not None:
        graph = lift.lifted()
    return graph


def _next(graph: Graph, tried: set[Node]) -> _Lift | None:
    """The first lift that spares something, of nodes that were not ``tried``."""
    found = _Readers(graph)
    for node in graph.nodes:
        if node not in tried and _taken(node) is not None:
            lift = _Lift(found, node)
            if lift.is_worth_it:
                return lift
        tried.add(node)
    return None


def _taken(node: Node) -> _Part | None:
    """What a node takes of its operand, if that is all it does; one index without its dimension
    too."""
    if node.operator not in ("strided_slice", "take"):
        return None
    x, *rest = node.operands
    assert isinstance(x, Value)
    if node.operator == "strided_slice":
        given = node.attributes
        return _Part(tuple(given["begin"]), tuple(given["strides"]), tuple(given["shape"]))
    index = rest[0] if rest else None
    axis = node.attributes.get("axis")
    if not isinstance(axis, int) or not isinstance(index, Constant):
        return None
    if index.rank or not 0 <= int(index.array) < x.shape[axis]:
        return None
    whole = _Part((0,) * x.rank, (1,) * x.rank, x.shape)
    axis %= x.rank
    begin = (*whole.begin[:axis], int(index.array), *whole.begin[axis + 1 :])
    return whole.with_dim(axis, 1)._replace(begin=begin)


class _Readers:
    """Who reads the values of a graph, and the places of its nodes."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.of: dict[Value, set[Value]] = {}
        for node in graph.nodes:
            for x in node.inputs:
                self.of.setdefault(x, set()).add(node)
        self.outputs = set(graph.outputs.values())
        self.places = {node: k for k, node in enumerate(graph.nodes)}

    def alone(self, x: Value, readers: set[Value]) -> bool:
        """Whether only some nodes read a value."""
        return self.of[x] <= readers and x not in self.outputs


class _Lift:
    """One slice, and the nodes that only it reads, directly or through others of them."""

    def __init__(self, found: _Readers, node: Node) -> None:
        self.found, self.node = found, node
        part = _taken(node)
        assert part is not None
        self.parts: dict[Value, _Part] = {node.inputs[0]: part}  # what is needed of each value
        self.lifts: set[Value] = {node}
        self.is_worth_it = False
        waiting = [-found.places[x] for x in node.inputs[:1] if isinstance(x, Node)]
        while waiting:  # readers before what they read
            x = found.graph.nodes[-heappop(waiting)]
            needed = self.operands(x, self.parts[x]) if found.alone(x, self.lifts) else None
            if needed is None or any(self.parts.get(o, p) != p for o, p in needed.items()):
                continue
            new = [o for o in needed if isinstance(o, Node) and o not in self.parts]
            for o in new:
                heappush(waiting, -found.places[o])
            self.parts |= needed
            self.lifts.update((x, *(_rows_of(x) or ())[:2]))
            self.is_worth_it |= x.operator in (*REDUCTIONS, "reshape")

    def lifted(self) -> Graph:
        """The graph in which they are computed of parts."""
        made = {x: p.of(x) for x, p in self.parts.items() if not isinstance(x, Node)}

        def change(old: Node, now: Node) -> Value:
            if old is self.node:
                return reshape(made[old.inputs[0]], old.shape)
            if old in self.parts:
                made[old] = self.rows(old, made) if old in self.lifts else self.parts[old].of(now)
            return now

        return self.found.graph.map(change)

    def operands(self, x: Node, part: _Part) -> dict[Value, _Part] | None:
        """What ``part`` of a node is computed of; None where of what is no part of its operands."""
        function = FUNCTIONS.get(x.operator)
        if function is not None and function.kind == "broadcast" and "axis" not in x.attributes:
            found: dict[Value, _Part] = {}
            for o in x.inputs:
                own = _Part(*(values[x.rank - o.rank :] for values in part))
                for d, extent in enumerate(o.shape):
                    own = own.with_dim(d, 1) if extent == 1 else own
                if found.setdefault(o, own) != own:
                    return None
            return found
        (first, *_) = x.inputs
        if x.operator in REDUCTIONS and x.attributes.get("keepdims"):
            given = x.attributes.get("axis")
            axes = range(x.rank) if given is None else (given,) if isinstance(given, int) else given
            for axis in axes:
                part = part.with_dim(axis % x.rank, first.shape[axis])
            return {first: part}
        rows = _rows_of(x)
        if rows is None or part.shape[-1] != x.shape[-1]:
            return None
        product, matrix, source = rows
        if not (self.found.alone(product, {x}) and self.found.alone(matrix, {product})):
            return None
        lead, rest = x.rank - 1, source.shape[x.rank - 1 :]
        zeros, ones = (0,) * len(rest), (1,) * len(rest)
        begin, strides, shape = (values[:lead] for values in part)
        return {source: _Part((*begin, *zeros), (*strides, *ones), (*shape, *rest))}

    def rows(self, x: Node, made: dict[Value, Value]) -> Value:
        """A node of parts of its operands."""
        rows = _rows_of(x)
        if rows is None:
            given = [made[o] if isinstance(o, Value) else o for o in x.operands]
            return build(x.operator, *given, name=x.name, **x.attributes)
        product, _, source = rows
        part, lead = made[source], x.rank - 1
        shape, depth = part.shape[:lead], math.prod(part.shape[lead:])
        matrix = reshape(part, (math.prod(shape), depth))
        y = build("gemm", matrix, *product.operands[1:], name=product.name, **product.attributes)
        return reshape(y, (*shape, x.shape[-1]))


def _rows_of(x: Node) -> tuple[Node, Node, Value] | None:
    """Of a product of rows, between reshapes that make a matrix of them and back: the product, that
    matrix, and the rows."""
    if x.operator != "reshape":
        return None
    (product,) = x.inputs
    if not isinstance(product, Node) or product.operator != "gemm":
        return None
    matrix = product.inputs[0]
    if not isinstance(matrix, Node) or matrix.operator != "reshape":
        return None
    (source,) = matrix.inputs
    lead = x.rank - 1
    alike = product.rank == 2 and x.shape[:lead] == source.shape[:lead] != source.shape
    plain = not product.attributes.get("transpose_a") and not product.attributes.get("epilogue")
    rows = product.shape == (math.prod(x.shape[:lead]), x.shape[-1])
    known = all(isinstance(o, Constant) for o in product.inputs[1:])
    return (product, matrix, source) if alike and plain and rows and known else None
