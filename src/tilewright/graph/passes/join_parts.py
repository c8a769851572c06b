"""What is concatenated is written where it lies in the whole."""

from __future__ import annotations

import math

from tilewright.graph.graph import Graph
from tilewright.graph.passes.own_outputs import owner
from tilewright.graph.value import Node, Value
from tilewright.graph.views import VIEWS, View, dense, holder, parts, reshaped
from tilewright.ir.dtype import dtype

#: Bytes that lie side by side, of each part, from which on kernels write them as fast as a dense
#: tensor: a line of the caches.
_LINE = 64
_WHOLE = "concatenate_view"


def join_parts(graph: Graph) -> Graph:
    """Make views of concatenations whose parts kernels can write there.

    >>> from tilewright.graph.value import Input
    >>> x = Input("x", (2, 16), "float32")
    >>> parts = Node("sigmoid", (x,)), Node("exp", (x,))
    >>> whole = Node("concatenate", parts, {"axis": 1})
    >>> print(join_parts(Graph("g", (x,), {"y": Node("relu", (whole,))})))
    g(x: float32[2x16]):
      %0 = sigmoid(x)  # float32[2x16]
      %1 = exp(x)  # float32[2x16]
      %2 = concatenate_view(%0, %1, axis=1)  # float32[2x32]
      y = relu(%2)  # float32[2x32]

    What begins with all that another one joins joins that and the rest, as in dense blocks, whose
    layers read what all before them made: each part is then written once. Before programs, which
    take in what is left.
    """
    wholes: dict[tuple[int, tuple[Value, ...]], Node] = {}
    taken: set[Value] = set()
    outputs = {owner(x) for x in graph.outputs.values()}

    def change(old: Node, now: Node) -> Value:
        made = _joined(now, wholes, taken) if now.operator == "concatenate" else now
        if old in outputs:
            taken.add(made)
        return made

    return graph.map(change)


def _joined(
    node: Node, wholes: dict[tuple[int, tuple[Value, ...]], Node], taken: set[Value]
) -> Node:
    """A concatenation as a view; itself where it stays one."""
    axis, given = int(node.attributes["axis"]) % node.rank, node.inputs
    for count in range(len(given) - 1, 1, -1):
        begin = wholes.get((axis, given[:count]))
        if begin is not None:
            given = (begin, *given[count:])
            break
    held = [owner(x) for x in given]
    free = all(isinstance(x, Node) and x not in taken for x in held) and len(set(held)) == len(held)
    if not free or any(_side_by_side(x, axis) < _LINE for x in given):
        return node
    whole = Node(_WHOLE, given, {"axis": axis}, node.name)
    wholes[axis, node.inputs] = whole
    taken.update(held)
    return whole


def _side_by_side(part: Value, axis: int) -> int:
    """Bytes of a part that lie side by side in the whole."""
    return math.prod(part.shape[axis:]) * dtype(part.dtype).bytes


def own_parts(graph: Graph) -> Graph:
    """Copy what is joined, and cannot be written where it lies in the whole: an input, a constant,
    an output, a part of another whole, or what somebody reads in a shape that no strides have.

    >>> from tilewright.graph.value import Input
    >>> x = Input("x", (2, 16), "float32")
    >>> whole = Node("concatenate_view", (x, Node("exp", (x,))), {"axis": 1})
    >>> print(own_parts(Graph("g", (x,), {"y": Node("relu", (whole,))})))
    g(x: float32[2x16]):
      %0 = identity(x)  # float32[2x16]
      %1 = exp(x)  # float32[2x16]
      %2 = concatenate_view(%0, %1, axis=1)  # float32[2x32]
      y = relu(%2)  # float32[2x32]

    Last, since passes behind :func:`join_parts` exchange what is joined.
    """
    others = _others(graph)
    if not others:
        return graph

    def change(old: Node, now: Node) -> Value:
        if not any((old, k) in others for k in range(len(old.operands))):
            return now
        given = (
            Node("identity", (x,)) if (old, k) in others else x for k, x in enumerate(now.inputs)
        )
        return Node(now.operator, tuple(given), now.attributes, now.name)

    return graph.map(change)


def _others(graph: Graph) -> set[tuple[Node, int]]:
    """By whole and number, the parts that are memory of something else."""
    shaped: dict[Value, list[Node]] = {}
    for node in graph.nodes:
        if node.operator == "reshape":
            shaped.setdefault(node.inputs[0], []).append(node)

    def readable(x: Value, strides: tuple[int, ...]) -> bool:
        for reader in shaped.get(x, ()):
            seen = reshaped(x.shape, strides, reader.shape)
            if seen is None or not readable(reader, seen):
                return False
        return True

    taken = {owner(x) for x in graph.outputs.values()}
    lies: dict[Value, View] = {}
    found = set()
    for whole in reversed(graph.nodes):  # the outer ones first
        if whole.operator != _WHOLE:
            continue
        view = lies.get(whole, View(whole, 0, dense(whole.shape)))
        for k, (part, begin) in enumerate(parts(whole, view.strides)):
            held = holder(part, view._replace(offset=view.offset + begin))
            free = held is not None and _is_written(held[0]) and held[0] not in taken
            if held is None or not free or not readable(held[0], held[1].strides):
                found.add((whole, k))
                continue
            taken.add(held[0])
            lies |= [held]
    return found


def _is_written(x: Value) -> bool:
    """Whether a kernel, or several, write a value."""
    return isinstance(x, Node) and (x.operator == _WHOLE or x.operator not in VIEWS)
