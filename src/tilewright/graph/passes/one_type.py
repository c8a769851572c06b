"""Activations of 8 bits are all with a sign, or all without, where that makes zeros zero."""

from __future__ import annotations

from tilewright.graph.graph import Graph
from tilewright.graph.rewrite import PRODUCTS
from tilewright.graph.value import Node, Operand, Value

#: Functions of one tensor that only move or pick values, in the order of which scales are.
MOVING = ("identity", "max_pool", "reshape", "strided_slice", "transpose", "max", "min")
#: By type, how far its integers are above those of the other.
_ABOVE = {"int8": -128, "uint8": 128}
#: What makes of integers of a type the same integers of the other.
_CARRYING = frozenset({*MOVING, "concatenate", "constant_pad", "maximum"})


def one_type(graph: Graph) -> Graph:
    """Quantise to the other type of 8 bits, by zero points that are 128 apart: to the type in which
    more images have 0 as their zero point.

    >>> from tilewright.graph.value import Input
    >>> x, w = Input("x", (2, 4), "float32"), Input("w", (4, 8), "float32")
    >>> q = Node("quantize", (x, 0.5, -128), {"dtype": "int8"})
    >>> y = Node("gemm", (Node("dequantize", (q, 0.5, -128)), w))
    >>> print(one_type(Graph("g", (x, w), {"y": y})))
    g(x: float32[2x4], w: float32[4x8]):
      %0 = quantize(x, 0.5, 0, dtype='uint8')  # uint8[2x4]
      %1 = dequantize(%0, 0.5, 0)  # float32[2x4]
      y = gemm(%1, w)  # float32[2x8]

    Before products are of integers: behind a ReLU all of int8 stands for what is not negative, and
    images are padded by -128, which no kernel does. Kernels have residuals and results in the type
    of images, so that one type for all is also what fuses most.
    """
    kind = _better(graph)
    free = _free(graph, kind)
    if not free:
        return graph
    more = _ABOVE[kind]

    def shifted(zero: Operand) -> Operand:
        assert not isinstance(zero, Value)
        return zero + more

    def change(old: Node, now: Node) -> Value:
        x, *rest = now.operands
        attributes = dict(now.attributes)
        if old in free and old.operator == "quantize":
            attributes["dtype"] = kind
            return Node(now.operator, (x, rest[0], shifted(rest[1])), attributes, now.name)
        if old in free and old.operator == "maximum":
            return Node(now.operator, (x, *map(shifted, rest)), attributes, now.name)
        if old in free and old.operator == "constant_pad":
            attributes["value"] = shifted(attributes["value"])
            return Node(now.operator, (x,), attributes, now.name)
        if old.operator == "dequantize" and old.operands[0] in free:
            return Node(now.operator, (x, rest[0], shifted(rest[1])), attributes, now.name)
        return now

    return graph.map(change)


def _better(graph: Graph) -> str:
    """The type in which more images have 0 as their zero point; where as many, the one that more
    values have."""
    zeros, count = dict.fromkeys(_ABOVE, 0), dict.fromkeys(_ABOVE, 0)
    for node in graph.nodes:
        if node.operator == "quantize" and node.dtype in count:
            count[node.dtype] += 1
        image = node.operands[0]
        if node.operator not in PRODUCTS or not isinstance(image, Node):
            continue
        q, zero = image.operands[0], image.operands[-1]
        if image.operator == "dequantize" and isinstance(q, Value) and q.dtype in _ABOVE:
            if isinstance(zero, int) and zero in (0, *_ABOVE.values()):
                other = "uint8" if q.dtype == "int8" else "int8"
                zeros[other if zero else q.dtype] += 1
    return max(_ABOVE, key=lambda kind: (zeros[kind], count[kind]))


def _free(graph: Graph, kind: str) -> set[Value]:
    """The values that may be of the type, and are not: quantised here, and read by what takes
    either."""
    found: set[Value] = {
        x for x in graph.nodes if x.dtype in _ABOVE and x.dtype != kind and _is_made_here(x)
    }
    outputs = set(graph.outputs.values())
    before = -1
    while before != len(found):
        before = len(found)
        bad = outputs & found
        for node in graph.nodes:
            read = [x for x in node.inputs if x in found]
            carries = node.operator in _CARRYING
            if carries and (node in found) != (len(read) == len(node.inputs)):
                bad |= {node, *read}
            elif read and not carries and not _dequantizes(node):
                bad |= set(read)
        found -= bad
    return found


def _is_made_here(x: Node) -> bool:
    numbers = not any(isinstance(p, Value) for p in x.operands[1:])
    return x.operator in _CARRYING or (x.operator == "quantize" and numbers)


def _dequantizes(node: Node) -> bool:
    return node.operator == "dequantize" and not isinstance(node.operands[-1], Value)
