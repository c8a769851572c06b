"""Small programs that read the same, or one another, are one kernel."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence

from tilewright.graph.builder import reshape
from tilewright.graph.graph import Graph
from tilewright.graph.passes.own_outputs import owner
from tilewright.graph.passes.view_slices import begins_aligned
from tilewright.graph.rewrite import regroup
from tilewright.graph.value import Node, Value
from tilewright.graph.views import VIEWS
from tilewright.topi.functions import FUNCTIONS
from tilewright.topi.operators.program import Call, parse

#: Elements of a vector that is small, vectors of one kernel, its calls and operands, at most.
_SMALL, _MOST, _CALLS, _OPERANDS = 1 << 13, 8, 64, 12


def join_siblings(parts: Collection[str]) -> Callable[[Graph], Graph]:
    """Compute vectors of one length in one kernel, which writes them one behind the other.

    >>> from tilewright.graph.value import Input
    >>> x, y = Input("x", (1, 8), "float32"), Input("y", (8,), "float32")
    >>> new = Node("add", (Node("reshape", (x,), {"newshape": (8,)}), y))
    >>> g = Graph("g", (x, y), {"a": Node("exp", (x,)), "b": new})
    >>> print(join_siblings(("a", "b"))(g))
    g(x: float32[1x8], y: float32[8]):
      %0 = reshape(y, newshape=(1, 8))  # float32[1x8]
      %1 = program(x, %0, body=exp(a0); add(a0, a1); concatenate(t0, t1, axis=0))  # float32[2x8]
      a = slice_view(%1, begin=(0, 0), strides=(1, 1), shape=(1, 8))  # float32[1x8]
      %2 = slice_view(%1, begin=(1, 0), strides=(1, 1), shape=(1, 8))  # float32[1x8]
      b = reshape(%2, newshape=(8,))  # float32[8]

    On CUDA, where a launch takes longer than such a kernel: a batch normalisation has four of them,
    its statistics. Behind programs; all others read views of what the kernel writes, and outputs
    are such where they are named ``parts``.
    """

    def join(graph: Graph) -> Graph:
        read = {owner(x): set[Node]() for x in graph.values}
        for node in graph.nodes:
            for x in () if node.operator in VIEWS else node.inputs:
                read[owner(x)].add(node)
        outputs = {owner(x) for x in graph.outputs.values()}

        def joined(group: Sequence[Node], made: Mapping[Value, Value]) -> dict[Value, Value]:
            stored = [n for n in group if n in outputs or not read[n] <= {*group}]
            return _joined(group, stored, made)

        return regroup(graph, _groups(graph, frozenset(parts)), joined)

    join.__name__ = "join_siblings"
    return join


def _groups(graph: Graph, parts: Collection[str]) -> list[list[Node]]:
    """Vectors to join. None of what is read for a group waits for it, not by way of others."""
    kept = {owner(x) for name, x in graph.outputs.items() if name not in parts}
    groups: list[list[Node]] = []
    group_of: dict[Value, int] = {}
    after: list[set[int]] = []  # by group, those whose kernels it waits for first
    waits: dict[Value, frozenset[int]] = {}
    readers: dict[Value, list[int]] = {}

    def needed(inputs: Sequence[Value]) -> set[int]:
        found = set[int]()
        for x in map(owner, inputs):
            found |= {group_of[x]} if x in group_of else waits.get(x, frozenset())
        return found

    def reach(found: set[int], group: int) -> bool:
        waiting, seen = list(found), set(found)
        while waiting:
            new = after[waiting.pop()] - seen
            waiting += new
            seen |= new
        return group in seen

    for node in graph.nodes:
        if node in kept or not _is_vector(node):
            waits[node] = frozenset(needed(node.inputs))
            continue
        read = [owner(x) for x in node.inputs]
        near = dict.fromkeys(
            [
                *(group_of[x] for x in read if x in group_of),
                *(g for x in read for g in readers.get(x, ())),
            ]
        )
        for g in near:
            others = needed([x for x in read if group_of.get(x) != g])
            if _fits(groups[g], node) and not reach(others, g):
                break
        else:
            g, others = len(groups), needed(read)
            groups.append([])
            after.append(set())
        groups[g].append(node)
        group_of[node] = g
        after[g] |= others
        for x in read:
            readers.setdefault(x, []).append(g)
    return [group for group in groups if len(group) > 1]


def _is_vector(node: Node) -> bool:
    """Whether a node makes a small vector, element by element, of such and of numbers."""
    count = math.prod(node.shape)
    return (
        1 < count <= _SMALL
        and max(node.shape) == count
        and all(math.prod(x.shape) in (1, count) for x in node.inputs)
        and begins_aligned(count, node.dtype)
        and all(c.function in FUNCTIONS and FUNCTIONS[c.function].kind == "broadcast"
                for c in _calls(node))
    )  # fmt: skip


def _calls(node: Node) -> Sequence[Call]:
    if node.operator in FUNCTIONS:
        return (node.call,)
    if node.operator != "program":
        return (Call(node.operator, (), {}),)
    return [c if isinstance(c, Call) else parse(c) for c in node.attributes["body"]]


def _fits(group: Sequence[Node], node: Node) -> bool:
    whole = [*group, node]
    same = (math.prod(group[0].shape), group[0].dtype) == (math.prod(node.shape), node.dtype)
    return (
        same
        and len(whole) <= _MOST
        and sum(len(_calls(n)) for n in whole) < _CALLS
        and len(_outer(whole)) <= _OPERANDS
    )


def _outer(group: Sequence[Node]) -> list[Value]:
    """What a group reads of others, in whatever shape."""
    read = dict.fromkeys(_unshaped(x) for n in group for x in n.inputs)
    return [x for x in read if x not in group]


def _unshaped(x: Value) -> Value:
    while isinstance(x, Node) and x.operator == "reshape":
        x = x.inputs[0]
    return x


def _joined(
    group: Sequence[Node], stored: Sequence[Node], made: Mapping[Value, Value]
) -> dict[Value, Value]:
    """What stands in the place of the vectors of a group that are ``stored``."""
    count = math.prod(group[0].shape)
    inputs = _outer(group)
    names: dict[Value, str] = {x: f"a{k}" for k, x in enumerate(inputs)}
    body: list[Call] = []
    for node in group:
        known = {f"a{k}": names[_unshaped(x)] for k, x in enumerate(node.inputs)}
        for k, call in enumerate(_calls(node)):
            given = tuple(known[x] if isinstance(x, str) else x for x in call.operands)
            known[f"t{k}"] = f"t{len(body)}"
            body.append(call._replace(operands=given))
        names[node] = f"t{len(body) - 1}"
    body.append(Call("concatenate", tuple(names[n] for n in stored), {"axis": 0}))
    rows = tuple(reshape(made[x], (1, math.prod(x.shape))) for x in inputs)
    whole = Node("program", rows, {"body": tuple(body)}, group[0].name)
    part = {"strides": (1, 1), "shape": (1, count)}
    return {
        node: reshape(
            Node("slice_view", (whole,), {"begin": (k, 0), **part}, node.name), node.shape
        )
        for k, node in enumerate(stored)
    }
