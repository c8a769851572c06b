"""What is cheap is computed where it is read, wherever storing it would move more bytes."""

from __future__ import annotations

import math
from collections.abc import Mapping

from tilewright.graph.graph import Graph
from tilewright.graph.passes.make_programs import REPEATED, is_thin, sums_rows
from tilewright.graph.passes.own_outputs import owner
from tilewright.graph.value import Node, Operand, Value
from tilewright.ir.dtype import dtype
from tilewright.topi.functions import FUNCTIONS


def recompute(graph: Graph) -> Graph:
    """Give each reader of a cheap function of elements one of its own.

    >>> from tilewright.graph.value import Input
    >>> x = Input("x", (64, 64), "float16")
    >>> y = Node("cast", (x,), {"dtype": "float32"})
    >>> s = Node("sum", (y,), {"axis": (0,), "keepdims": True})
    >>> print(recompute(Graph("g", (x,), {"z": Node("subtract", (y, s))})))
    g(x: float16[64x64]):
      %0 = cast(x, dtype='float32')  # float32[64x64]
      %1 = cast(x, dtype='float32')  # float32[64x64]
      %2 = sum(%1, axis=(0,), keepdims=True)  # float32[1x64]
      z = subtract(%0, %2)  # float32[64x64]

    On GPUs, where memory bounds what is done by elements; before programs, which take in what one
    node alone reads. A stored result is written once and read by each reader; one that is computed
    again costs each reader its operands. :func:`merge_equal` takes back what found no program.
    What is normalised by sums of its own rows stays: one kernel computes these sums and what
    follows from them, and could not if others read the sums too.
    """
    copies = _copies(graph)
    made: dict[Value, Value] = {}
    shaped: dict[Value, Node] = {}

    def fresh(x: Operand) -> Operand:
        """What a reader reads: a value that is stored, which all read in one shape, or a copy of
        its own."""
        if not isinstance(x, Value):
            return x
        if copies.get(x, 1) == 1:
            return made[x]
        assert isinstance(x, Node)
        copy = Node(x.operator, tuple(map(fresh, x.operands)), x.attributes, x.name)
        return (
            shaped.setdefault(x, copy) if is_thin(x) and copies.get(x.inputs[0], 1) == 1 else copy
        )

    for value in graph.values:
        if copies.get(value, 1) > 1:
            continue
        made[value] = value
        if isinstance(value, Node):
            given = tuple(map(fresh, value.operands))
            if any(a is not b for a, b in zip(given, value.operands, strict=True)):
                made[value] = Node(value.operator, given, value.attributes, value.name)
    return Graph(graph.name, graph.inputs, {n: made[x] for n, x in graph.outputs.items()})


def _copies(graph: Graph) -> dict[Value, int]:
    """How many copies there are to be of each node that is to have several."""
    readers: dict[Value, list[Node]] = {}
    for node in graph.nodes:
        for x in dict.fromkeys(node.inputs):
            readers.setdefault(x, []).append(node)
    outputs = set(graph.outputs.values())
    found: dict[Value, int] = {}
    by_rows = _by_rows(graph)
    takes: dict[Value, bool] = {}
    for node in reversed(graph.nodes):
        taken = all(takes[r] for r in readers.get(node, ())) and node not in outputs
        takes[node] = taken if is_thin(node) else _takes_in(node)
        count = sum(found.get(r, 1) for r in readers.get(node, ()))
        if count > 1 and taken:
            read = sum(map(_bytes, [node] if _is_slice(node) else node.inputs))
            again, stored = count * read, read + (1 + count) * _bytes(node)
            cheap = _is_cheap(node) and node not in by_rows
            if is_thin(node) or (cheap and again <= stored):
                found[node] = count
    return found


def _by_rows(graph: Graph) -> Mapping[Value, int]:
    """Sums of rows, and what is computed of them by elements that are no more than were added up:
    how many those were."""
    found: dict[Value, int] = {}
    for node in graph.nodes:
        if sums_rows(node):
            found[node] = math.prod(node.inputs[0].shape)
        elif is_thin(node) or _is_cheap(node):
            added = max((found.get(x, 0) for x in node.inputs), default=0)
            if added >= math.prod(node.shape):
                found[node] = added
    return found


def _is_cheap(node: Node) -> bool:
    function = FUNCTIONS.get(node.operator)
    elements = function is not None and function.kind == "broadcast"
    return elements or _is_slice(node)


def _is_slice(node: Node) -> bool:
    """Whether it is a part of what one sum of several has made."""
    if node.operator != "strided_slice":
        return False
    (source,) = (owner(x) for x in node.inputs)
    return isinstance(source, Node) and source.operator == "sums"


def _takes_in(reader: Node) -> bool:
    """Whether a program with this node may compute its operands."""
    return (
        reader.operator in FUNCTIONS
        and reader.operator not in REPEATED
        and reader.operator not in ("reshape", "concatenate")
    )


def _bytes(x: Value) -> int:
    return math.prod(x.shape) * dtype(x.dtype).bytes


def merge_equal(graph: Graph) -> Graph:
    """One node for all that compute the same of the same.

    >>> from tilewright.graph.value import Input
    >>> x = Input("x", (4,), "float32")
    >>> print(merge_equal(Graph("g", (x,), {"y": Node("add", (Node("relu", (x,)),
    ...                                                       Node("relu", (x,))))})))
    g(x: float32[4]):
      %0 = relu(x)  # float32[4]
      y = add(%0, %0)  # float32[4]

    Behind programs, for what :func:`recompute` gave to readers that did not take it in.
    """
    known: dict[object, Node] = {}

    def change(_: Node, now: Node) -> Value:
        # Numbers as they are written: 0.0 and -0.0 are equal, 1 and 1.0 of two types.
        operands = tuple(x if isinstance(x, Value) else repr(x) for x in now.operands)
        return known.setdefault((now.operator, operands, str(dict(now.attributes))), now)

    return graph.map(change)
