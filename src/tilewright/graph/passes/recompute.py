"""What is cheap is computed where it is read, wherever storing it would move more bytes."""

from __future__ import annotations

import math
from collections.abc import Collection, Container, Iterable, Mapping

from tilewright.graph.graph import Graph
from tilewright.graph.passes.make_programs import COSTLY, REPEATED, is_thin, sums_rows
from tilewright.graph.passes.own_outputs import owner
from tilewright.graph.value import Node, Operand, Value
from tilewright.ir.dtype import dtype
from tilewright.topi.functions import FUNCTIONS

#: Functions of a chain that is computed again, at most.
_LONG = 32


def recompute(graph: Graph) -> Graph:
    """Give each kernel that reads a cheap function of elements one of its own.

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
    node alone reads. A stored result is written once and read by each kernel; one that is computed
    again costs each kernel what it is made of, but for what that reads anyway. :func:`merge_equal`
    takes back what found no program. What is normalised by sums of its own rows stays: one kernel
    computes these sums and what follows from them, and could not if others read the sums too.
    """
    graph = merge_equal(graph)
    kernels = _kernels(graph)
    copied = {x: found for x, found in kernels.items() if len(found) > 1}
    made: dict[Value, Value] = {}
    copies: dict[tuple[Value, Node], Node] = {}

    def fresh(x: Operand, kernel: Node) -> Operand:
        """What a kernel reads: a value that is stored, which all read in one shape, or a copy of
        its own."""
        if not isinstance(x, Value):
            return x
        if x not in copied or (is_thin(x) and x.inputs[0] not in copied):
            return made[x]
        assert isinstance(x, Node)
        if (x, kernel) not in copies:
            given = tuple(fresh(y, kernel) for y in x.operands)
            copies[x, kernel] = Node(x.operator, given, x.attributes, x.name)
        return copies[x, kernel]

    for value in graph.values:
        shared = is_thin(value) and value.inputs[0] not in copied
        if value in copied and not shared:
            continue
        made[value] = value
        if isinstance(value, Node):
            kernel = next(iter(kernels[value]))
            given = tuple(fresh(x, kernel) for x in value.operands)
            if any(a is not b for a, b in zip(given, value.operands, strict=True)):
                made[value] = Node(value.operator, given, value.attributes, value.name)
    return Graph(graph.name, graph.inputs, {n: made[x] for n, x in graph.outputs.items()})


def _kernels(graph: Graph) -> dict[Value, dict[Node, None]]:
    """By each node, the last ones of the kernels in which it is to be computed: itself where it is
    stored, and several where each is to have a copy."""
    readers: dict[Value, list[Node]] = {}
    for node in graph.nodes:
        for x in dict.fromkeys(node.inputs):
            readers.setdefault(x, []).append(node)
    outputs = set(graph.outputs.values())
    by_rows = _by_rows(graph)
    takes: dict[Value, bool] = {}
    taken: set[Value] = set()
    for node in reversed(graph.nodes):
        if node in readers and node not in outputs and all(takes[r] for r in readers[node]):
            taken.add(node)
        takes[node] = node in taken if is_thin(node) else _takes_in(node)
    free = {
        x
        for x in taken
        if is_thin(x)
        or (
            isinstance(x, Node)
            and _is_cheap(x)
            and x not in by_rows
            and not (x.operator in COSTLY and any(_repeats(r, x) for r in readers[x]))
        )
    }
    found: dict[Value, dict[Node, None]] = {}
    for node in reversed(graph.nodes):
        whole = dict.fromkeys(k for r in readers.get(node, ()) for k in found[r])
        apart = len(whole) > 1 and not is_thin(node) and not _gains(node, whole, free)
        found[node] = {node: None} if node not in free or apart else whole
    return found


def _gains(node: Node, kernels: Collection[Node], free: Container[Value]) -> bool:
    """Whether less is moved where each kernel computes a node that is stored otherwise."""
    count = len(kernels)
    read = sum(map(_bytes, [node] if _is_slice(node) else node.inputs))
    if count * read <= read + (1 + count) * _bytes(node):
        return True
    own, functions = _read([node], free)
    if functions > _LONG:
        return False
    more = sum(_bytes(x) for k in kernels for x in own - _read([k], free, without=node)[0])
    return more <= sum(map(_bytes, own)) + (1 + count) * _bytes(node)


def _read(
    nodes: Iterable[Node], free: Container[Value], without: Value | None = None
) -> tuple[set[Value], int]:
    """What is in memory and read for some nodes if all before them is computed with them that may
    be, and how many functions that are; ``without`` what one of these reads for itself."""
    stored, seen, waiting = set[Value](), set[Value](nodes), [x for n in nodes for x in n.inputs]
    while waiting:
        x = waiting.pop()
        if x is without or x in seen:
            continue
        seen.add(x)
        if x in free and isinstance(x, Node):
            waiting += x.inputs
        else:
            stored.add(x)
    return stored, len(seen) - len(stored)


def _by_rows(graph: Graph) -> Mapping[Value, int]:
    """Sums of rows, and what is computed of them by elements that are no more than were added up:
    how many those were. Not of what is stored, as a result of the graph, which is read then."""
    found: dict[Value, int] = {}
    stored = set(map(owner, graph.outputs.values()))
    for node in graph.nodes:
        if sums_rows(node):
            found[node] = math.prod(node.inputs[0].shape)
        elif is_thin(node) or _is_cheap(node):
            rows = (x for x in node.inputs if owner(x) not in stored)
            added = max((found.get(x, 0) for x in rows), default=0)
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


def _repeats(reader: Node, x: Value) -> bool:
    """Whether a reader needs elements of a value several times."""
    return math.prod(reader.shape) > math.prod(x.shape)


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
