"""Sums of columns that read the same memory are one kernel."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tilewright.graph.builder import WIDE, build, cast, reshape
from tilewright.graph.graph import Graph
from tilewright.graph.rewrite import regroup
from tilewright.graph.value import Constant, Node, Value
from tilewright.topi.functions import FUNCTIONS

#: Sums of one kernel, at most.
_MOST = 4


def join_sums(graph: Graph) -> Graph:
    """Add up what is made of the same tensors at once: mean and variance, or the two sums of a
    normalisation's gradient.

    >>> from tilewright.graph.value import Input
    >>> x, y = Input("x", (64, 8), "float32"), Input("y", (64, 8), "float32")
    >>> over = {"axis": (0,), "keepdims": True}
    >>> p = Node("sum", (Node("multiply", (x, y)),), over)
    >>> print(join_sums(Graph("g", (x, y), {"a": Node("exp", (Node("sum", (x,), over),)),
    ...                                     "b": Node("exp", (p,))})))
    g(x: float32[64x8], y: float32[64x8]):
      %0 = multiply(x, y)  # float32[64x8]
      %1 = sums(x, %0, axis=(0,))  # float32[2x8]
      %2 = strided_slice(%1, begin=(0, 0), strides=(1, 1), shape=(1, 8))  # float32[1x8]
      a = exp(%2)  # float32[1x8]
      %3 = strided_slice(%1, begin=(1, 0), strides=(1, 1), shape=(1, 8))  # float32[1x8]
      b = exp(%3)  # float32[1x8]

    On GPUs, whose sums of columns wait for memory; behind :func:`recompute`, by which each of them
    has what it sums for itself.
    """
    return regroup(graph, _groups(graph), _joined)


def _joined(group: Sequence[Node], made: Mapping[Value, Value]) -> dict[Value, Value]:
    """What stands in the place of sums of a group."""
    operands = [made[node.inputs[0]] for node in group]
    dtype = next(iter({WIDE.get(x.dtype, x.dtype) for x in operands}))
    total = build(
        "sums", *(cast(x, dtype) for x in operands), name=group[0].name,
        axis=group[0].attributes["axis"],
    )  # fmt: skip
    first, *others = group[0].shape
    whole = reshape(total, (first * len(group), *others))
    rest, strides = (0,) * len(others), (1,) * (1 + len(others))
    parts = (
        build("strided_slice", whole, name=node.name, begin=(k * first, *rest), strides=strides,
              shape=node.shape)
        for k, node in enumerate(group)
    )  # fmt: skip
    return {node: cast(part, node.dtype) for node, part in zip(group, parts, strict=True)}


def _groups(graph: Graph) -> list[list[Node]]:
    """Sums to join, none of which another one of them waits for: as many sums stand before each,
    one behind the other, and that holds of groups, too."""
    readers: dict[Value, set[Node]] = {}
    for node in graph.nodes:
        for x in node.inputs:
            readers.setdefault(x, set()).add(node)
    place = {x: k for k, x in enumerate(graph.values)}
    before: dict[Value, int] = {}
    found: dict[object, list[tuple[list[Node], set[Value]]]] = {}
    for value in graph.values:
        if not isinstance(value, Node):
            continue
        depth = max((before.get(x, 0) for x in value.inputs), default=0)
        before[value] = depth + _is_of_columns(value)
        if not _is_of_columns(value):
            continue
        source = value.inputs[0]
        wide = source.dtype in ("float16", "bfloat16", "float32")
        key = (depth, value.attributes["axis"], source.shape, wide or source.dtype)
        leaves = _leaves(value, readers, place)
        groups = found.setdefault(key, [])
        for group, known in groups:
            if known & leaves and len(group) < _MOST:
                group.append(value)
                known |= leaves
                break
        else:
            groups.append(([value], leaves))
    return [group for groups in found.values() for group, _ in groups if len(group) > 1]


def _is_of_columns(node: Node) -> bool:
    """Whether a node sums over all but the last dimension, which stays, and maybe the first."""
    if node.operator != "sum" or not node.attributes.get("keepdims"):
        return False
    axis = node.attributes.get("axis")
    if axis is None or isinstance(axis, int) or node.shape[-1] == 1:
        return False
    return tuple(axis) in (tuple(range(node.rank - 1)), tuple(range(1, node.rank - 1)))


def _leaves(
    node: Node, readers: Mapping[Value, set[Node]], place: Mapping[Value, int]
) -> set[Value]:
    """What is read of memory for a sum: tensors of its shape behind functions of elements that are
    for it alone."""
    found: set[Value] = set()
    inside, (x,) = {node}, node.inputs
    waiting = {x}
    while waiting:
        value = max(waiting, key=lambda v: place.get(v, -1))  # all that read it have been seen
        waiting.remove(value)
        function = FUNCTIONS.get(value.operator) if isinstance(value, Node) else None
        alone = function is not None and function.kind == "broadcast" and readers[value] <= inside
        if alone and isinstance(value, Node):
            inside.add(value)
            waiting |= set(value.inputs)
        elif value.shape == x.shape and not isinstance(value, Constant):
            found.add(value)
    return found
