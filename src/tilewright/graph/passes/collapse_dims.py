"""Dimensions that lie behind one another and are read alike are one."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence

from tilewright.graph.builder import reshape
from tilewright.graph.graph import Graph
from tilewright.graph.passes.own_outputs import owner
from tilewright.graph.value import Node, Value
from tilewright.topi.functions import FUNCTIONS


def collapse_dims(graph: Graph) -> Graph:
    """Compute functions of elements over as few dimensions as their operands leave.

    >>> from tilewright.graph.value import Input
    >>> x, s = Input("x", (1, 8, 6, 6), "float32"), Input("s", (1, 8, 1, 1), "float32")
    >>> print(collapse_dims(Graph("g", (x, s), {"y": Node("multiply", (x, s))})))
    g(x: float32[1x8x6x6], s: float32[1x8x1x1]):
      %0 = reshape(x, newshape=(8, 36))  # float32[8x36]
      %1 = reshape(s, newshape=(8, 1))  # float32[8x1]
      %2 = multiply(%0, %1)  # float32[8x36]
      y = reshape(%2, newshape=(1, 8, 6, 6))  # float32[1x8x6x6]

    Behind programs. Loops are longer then, vectors fuller, and programs of several shapes the same.
    Dimensions between which the parts of a whole have gaps stay apart.
    """
    runs: dict[Value, set[int]] = {}
    for node in graph.nodes:
        if node.operator == "concatenate_view":
            axis = int(node.attributes["axis"]) % node.rank
            for part in node.inputs:
                runs.setdefault(owner(part), set()).add(math.prod(part.shape[axis:]))

    def change(old: Node, now: Node) -> Value:
        if now.operator == "transpose":
            return _moved(now)
        cuts = {
            d + old.rank - x.rank
            for x in (old, *old.inputs)
            for d in range(x.rank)
            if math.prod(x.shape[d:]) in runs.get(owner(x), ())
        }
        return _collapsed(now, cuts)

    return graph.map(change)


def _moved(node: Node) -> Value:
    """A turn of as few dimensions as there are that move by themselves: those of one element do
    not, and others go along with the one before."""
    (x,), axes = node.inputs, tuple(node.attributes["axes"])
    groups: list[list[int]] = []
    for a in (a for a in axes if x.shape[a] > 1):
        before = range(groups[-1][-1] + 1, a) if groups else ()
        if groups and a > groups[-1][-1] and all(x.shape[d] == 1 for d in before):
            groups[-1].append(a)
        else:
            groups.append([a])
    if len(groups) == node.rank or not groups:
        return node
    order = sorted(groups)
    source = reshape(x, tuple(math.prod(x.shape[d] for d in g) for g in order))
    turned = tuple(order.index(g) for g in groups)
    return reshape(Node("transpose", (source,), {"axes": turned}, node.name), node.shape)


def _collapsed(node: Node, cuts: Collection[int] = ()) -> Value:
    """A function of elements over fewer dimensions; none before one of ``cuts`` is joined to it."""
    if not _is_of_elements(node) or not node.rank:
        return node
    groups = dims_alike(node.shape, [x.shape for x in node.inputs], cuts)
    if len(groups) == node.rank:
        return node

    def shape(x: Value) -> tuple[int, ...]:
        whole = (1,) * (node.rank - x.rank) + x.shape
        return tuple(math.prod(whole[d] for d in group) for group in groups)

    operands = tuple(reshape(x, shape(x)) if isinstance(x, Value) else x for x in node.operands)
    return reshape(Node(node.operator, operands, node.attributes, node.name), node.shape)


def _is_of_elements(node: Node) -> bool:
    calls = [c.function for c in node.attributes["body"]] if node.operator == "program" else [
        node.operator
    ]  # fmt: skip
    return all(c in FUNCTIONS and FUNCTIONS[c].kind == "broadcast" for c in calls)


def dims_alike(
    shape: Sequence[int], inputs: Sequence[Sequence[int]], cuts: Collection[int] = ()
) -> list[list[int]]:
    """Dimensions of a shape in groups, in each of which every input is whole or has one element;
    another one begins at each of ``cuts``.

    >>> dims_alike((2, 8, 6, 6), [(2, 8, 6, 6), (8, 1, 1)])
    [[0], [1], [2, 3]]
    >>> dims_alike((2, 8, 6, 6), [(2, 8, 6, 6)], {1})
    [[0], [1, 2, 3]]
    """
    whole = [(1,) * (len(shape) - len(s)) + tuple(s) for s in inputs]
    groups: list[list[int]] = []
    last: tuple[bool, ...] | None = None
    for d, extent in enumerate(shape):
        if d in cuts:
            last = None
        if extent == 1 and len(shape) > 1:
            if groups:
                groups[-1].append(d)
            continue
        reads = tuple(s[d] > 1 for s in whole)
        if reads == last:
            groups[-1].append(d)
        else:
            groups.append([d])
        last = reads
    return groups or [list(range(len(shape)))]
