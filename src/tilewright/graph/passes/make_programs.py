"""Functions that follow one another become one program, whose stages one schedule computes."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any, TypeGuard

from tilewright.graph.graph import Graph
from tilewright.graph.value import Node, Operand, Value
from tilewright.graph.views import VIEWS
from tilewright.topi.functions import FUNCTIONS
from tilewright.topi.operators.program import Call

#: Calls of a program, its operands, and its reductions, at most.
_CALLS, _OPERANDS, _REDUCTIONS = 64, 12, 4
#: Functions that read an element several times: windows that overlap, sums that need it twice.
REPEATED = frozenset(
    {"avg_pool", "cumprod", "cumsum", "log_softmax", "max_pool", "max_pool_places", "resample",
     "softmax", "sum_pool", "topk_places", "argmax", "argmin"}
)  # fmt: skip
#: Functions that are worth storing where they would be computed again.
COSTLY = frozenset(
    {"acos", "acosh", "asin", "asinh", "atan", "atanh", "celu", "cos", "cosh", "divide", "elu",
     "erf", "exp", "gelu", "gelu_tanh", "log", "mish", "power", "quantize", "selu", "sigmoid",
     "silu", "sin", "sinh", "softplus", "swish", "tan", "tanh", "concatenate"}
)  # fmt: skip


def make_programs(graph: Graph) -> Graph:
    """Elementwise functions among themselves, before reductions and pooling, and behind them.

    >>> from tilewright.graph.value import Input
    >>> x = Input("x", (2, 8), "float32")
    >>> y = Node("add", (Node("sum", (x,), {"axis": (1,), "keepdims": True}), 1.0))
    >>> print(make_programs(Graph("g", (x,), {"y": Node("multiply", (x, y))})))
    g(x: float32[2x8]):
      y = program(x, body=sum(a0, axis=(1,), keepdims=True); add(t0, 1.0); multiply(a0, t1))
        # float32[2x8]

    After epilogues, which take what they can; what several nodes read is stored once. Reshapes
    that add or drop dimensions of one element do not stand between two functions.
    """
    groups: dict[Value, _Group] = {}
    readers: dict[Value, set[Node]] = {}
    for node in graph.nodes:
        for x in node.inputs:
            readers.setdefault(x, set()).add(node)
    outputs = set(graph.outputs.values())
    place = {node: k for k, node in enumerate(graph.nodes)}
    for node in graph.nodes:
        if node.operator not in FUNCTIONS or node.operator in VIEWS:
            continue
        group = _Group([node])
        waiting = list(node.inputs)
        while waiting:
            x = waiting.pop()
            shaped: list[Node] = []
            inside = set(group.nodes)
            # All that read it must be in the group that it becomes a part of.
            while is_thin(x) and x not in outputs and readers[x] <= {*inside, *shaped}:
                shaped.append(x)
                (x,) = x.inputs
            inside |= set(shaped)
            other = groups.get(x)
            if other is None or x in outputs or not readers[x] <= inside:
                continue
            if shaped and other.reductions:
                continue
            if group.fits(other, readers[x], shaped):
                every = {*other.nodes, *group.nodes, *shaped}
                group = _Group(sorted(every, key=place.__getitem__))
                waiting = group.inputs()
        groups |= dict.fromkeys(group.nodes, group)
    return _merged(graph, groups)


class _Group:
    """Nodes, operands first, of which the last is the only one that others read."""

    def __init__(self, nodes: list[Node]) -> None:
        self.nodes = nodes

    @property
    def last(self) -> Node:
        return self.nodes[-1]

    @property
    def reductions(self) -> int:
        return sum(2 if n.operator in REPEATED else 1 for n in self.nodes if _reduces(n))

    def inputs(self) -> list[Value]:
        inside = set(self.nodes)
        found = (x for n in self.nodes for x in n.inputs if x not in inside)
        return list(dict.fromkeys(found))

    def large(self) -> list[Value]:
        """The inputs that are as large as what is made of them."""
        return [x for x in self.inputs() if math.prod(x.shape) >= math.prod(self.last.shape)]

    def fits(self, other: _Group, readers: Iterable[Node], shaped: Sequence[Node]) -> bool:
        """Whether another group may be computed with this one, whose ``readers`` read it, some of
        them reshapes between the two."""
        whole = _Group([*other.nodes, *shaped, *self.nodes])
        if len(whole.nodes) > _CALLS or len(whole.inputs()) > _OPERANDS:
            return False
        across = any(_sums_columns(n) for n in other.nodes)
        if across and any(sums_rows(n) for n in self.nodes):
            return False  # there is a schedule for each of them alone
        if any(map(_sums_columns, self.nodes)) and any(map(sums_rows, other.nodes)):
            return False
        if any(map(_turns, self.nodes)) and len(other.large()) > 1:
            return False  # a tile turns one image alone
        cheap = not any(_reduces(n) or n.operator in COSTLY for n in other.nodes)
        joins = any(n.operator == "concatenate" for n in self.nodes)
        if joins and any(map(_reduces, other.nodes)):
            return False  # each of its parts would compute it
        if any(_reduces(n) and _smaller(n, self.last) for n in other.nodes):
            return False  # each element would compute it again
        for reader in readers:
            repeats = reader.operator in REPEATED or reader.operator == "concatenate"
            other_shape = other.last.operator in REPEATED and other.last.shape != reader.shape
            if (repeats and not cheap) or other_shape:
                return False
            if across and reader.shape != other.last.shape:
                return False  # all of a column is read before one of its elements is made
        return whole.reductions <= _REDUCTIONS


def is_thin(x: Value) -> TypeGuard[Node]:
    """Whether a value is another one with dimensions of one element more or less."""
    if not isinstance(x, Node) or x.operator != "reshape":
        return False
    before, after = ([e for e in s if e != 1] for s in (x.inputs[0].shape, x.shape))
    return before == after


def _turns(node: Node) -> bool:
    """Whether neighbours of a node lie apart in what it reads."""
    return node.operator == "transpose" and node.attributes["axes"][-1] != node.rank - 1


def _smaller(node: Node, reader: Node) -> bool:
    """Whether what a function reduces has fewer elements than what is made of it."""
    return math.prod(node.inputs[0].shape) < math.prod(reader.shape)


def _sums_columns(node: Node) -> bool:
    """Whether a node reduces dimensions, of which none is the last."""
    axes = _reduced(node)
    return bool(axes) and node.inputs[0].rank - 1 not in axes


def sums_rows(node: Node) -> bool:
    """Whether a node reduces the last dimension, among others or alone."""
    return node.inputs != () and node.inputs[0].rank - 1 in _reduced(node)


def _reduced(node: Node) -> set[int]:
    axis = node.attributes.get("axis")
    if node.operator not in ("sum", "sums", "max", "min", "prod") or axis is None:
        return set()
    given = (axis,) if isinstance(axis, int) else axis
    return {a % node.inputs[0].rank for a in given}


def _reduces(node: Node) -> bool:
    return not FUNCTIONS[node.operator].inlines


def _merged(graph: Graph, groups: dict[Value, _Group]) -> Graph:
    """The graph with a program for each group of several nodes."""
    made: dict[Value, Value] = {}
    for value in graph.values:
        if not isinstance(value, Node):
            made[value] = value
            continue
        group = groups.get(value)
        if group is not None and value is not group.last:
            continue
        if group is None or len(group.nodes) == 1:
            operands = tuple(made[x] if isinstance(x, Value) else x for x in value.operands)
            made[value] = Node(value.operator, operands, value.attributes, value.name)
        else:
            made[value] = _program(group, made)
    return Graph(graph.name, graph.inputs, {n: made[x] for n, x in graph.outputs.items()})


def _program(group: _Group, made: dict[Value, Value]) -> Node:
    inputs = group.inputs()
    names: dict[Any, str] = {x: f"a{k}" for k, x in enumerate(inputs)}
    body = []
    for k, node in enumerate(group.nodes):
        given = tuple(_named(x, names) for x in node.operands)
        body.append(Call(node.operator, given, dict(node.attributes)))
        names[node] = f"t{k}"
    last = group.last
    attributes = {"body": tuple(body)}
    if not last.rank:
        attributes["shape"] = ()
    return Node("program", tuple(made[x] for x in inputs), attributes, last.name)


def _named(x: Operand, names: dict[Any, str]) -> str | int | float:
    return names[x] if isinstance(x, Value) else x
