"""Two products and the activation between them are one kernel, where a target has a fast one."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from tilewright.graph.builder import build, reshape
from tilewright.graph.errors import ModelError
from tilewright.graph.graph import Graph
from tilewright.graph.row_norms import row_norm
from tilewright.graph.value import Constant, Node, Value
from tilewright.ir.dtype import dtype
from tilewright.select.remembered import predicted
from tilewright.target import Target
from tilewright.topi.epilogue import parse_epilogue
from tilewright.topi.gpu.machine import MEMORY

#: How much longer two products take than predicted, where one stores what the other reads; and
#: microseconds of a small kernel.
_SLOWER, _SMALL = 1.1, 1.2


def join_products(target: Target) -> Callable[[Graph], Graph]:
    """A pass: a product of matrices whose result, after its epilogue, is the left factor of another
    one alone, becomes one ``mlp`` with that, of weights that are constants.

    >>> import numpy as np
    >>> from tilewright.graph.value import Input
    >>> x = Input("x", (50000, 64), "float16")
    >>> w, v = (Constant(np.ones((256, 64), "float16"), name) for name in "wv")
    >>> y = Node("gemm", (x, w), {"transpose_b": True, "epilogue": ("gelu",)})
    >>> graph = Graph("g", (x,), {"y": Node("gemm", (y, v))})
    >>> print(join_products(Target.parse("cuda -arch=sm_90a"))(graph))
    g(x: float16[50000x64]):
      y = mlp(x, w: float16[256x64], v: float16[256x64], inner='gelu')  # float16[50000x64]

    So do rows that are normalised first. Where two kernels are predicted to take less, they stay
    apart. Behind what makes epilogues. The result of the first product is rounded to its type.
    """

    def run(graph: Graph) -> Graph:
        return graph.exchange(lambda node, uses: _joined(node, uses, target))

    run.__name__ = "join_products"
    return run


def _joined(last: Node, uses: Mapping[Value, int], target: Target) -> Node | None:
    """The two products that a node ends; None where it ends none, or they are better apart."""
    first = _product(last) and last.inputs[0]
    if not isinstance(first, Node) or not _product(first) or uses.get(first, 1) > 1:
        return None
    (a, b, *read), (_, c, *epilogue) = first.inputs, last.inputs
    weights = (b, c, *read)
    if first in last.inputs[1:] or not all(isinstance(x, Constant) for x in weights):
        return None
    steps = parse_epilogue(first.attributes.get("epilogue", ()))
    attributes = {"inner": "+".join(map(str, steps))}
    if last.attributes.get("epilogue"):
        attributes["epilogue"] = last.attributes["epilogue"]
    if last.attributes.get("transpose_b"):
        c = build("transpose", c, axes=(1, 0), name=c.name)
    if not first.attributes.get("transpose_b"):
        b = build("transpose", b, axes=(1, 0), name=b.name)
    apart = (a, b, *read), attributes
    best = None
    least = _SLOWER * (predicted(first.problem, target) + predicted(last.problem, target))
    whole = _with_norm(*apart, uses)
    before = 0.0 if whole is None else apart_takes(2 * bytes_of(a))
    for (a, b, *read), found in filter(None, (apart, whole)):
        try:
            made = Node("mlp", (a, b, *read, c, *epilogue), found, last.name)
        except ModelError:  # an activation of something else, or types that it has not
            continue
        takes = predicted(made.problem, target) - before * ("norm" in found)
        if takes < least:
            best, least = made, takes
    return best


def _with_norm(
    operands: Sequence[Value], attributes: dict[str, Any], uses: Mapping[Value, int]
) -> tuple[Sequence[Value], dict[str, Any]] | None:
    """The first product of rows as they were before they were normalised, where they were: what the
    normalisation multiplies with is in the weights, and what it adds in the bias."""
    rows, b, *read = operands
    norm = row_norm(rows, uses)
    steps = attributes["inner"].split("+") if attributes["inner"] else []
    if norm is None or norm.given.dtype != rows.dtype or not isinstance(b, Constant):
        return None
    if norm.shift is not None:
        if "bias" in steps[1:]:
            return None
        more = b.array.astype("float64") @ norm.shift
        if steps[:1] == ["bias"]:
            bias = read[0]
            assert isinstance(bias, Constant)
            more = more + bias.array
        else:
            steps, read = ["bias", *steps], [b, *read]
        read = [_rounded(more, b, f"{b.name}.shift"), *read[1:]]
    if norm.scale is not None:
        b = _rounded(b.array * norm.scale, b, b.name)
    if not all(np.isfinite(x.array).all() for x in (b, *read[:1]) if isinstance(x, Constant)):
        return None  # beyond the type of weights
    made = {**attributes, "inner": "+".join(steps), "norm": repr(norm.small)}
    return (reshape(norm.given, rows.shape), b, *read), made


def _rounded(numbers: Any, like: Constant, name: str) -> Constant:
    """Numbers in the type of a constant, infinite where that has no room for them."""
    with np.errstate(over="ignore"):
        return Constant(numbers.astype(like.dtype), name)


def _product(node: Node) -> bool:
    """Whether it is a product of two matrices as they lie, but for the weights."""
    given = {name for name, value in node.attributes.items() if value}
    return node.operator == "gemm" and node.rank == 2 and given <= {"transpose_b", "epilogue"}


def apart_takes(moved: int) -> float:
    """The same of a small kernel of its own that moves as many bytes."""
    return _SMALL + moved / MEMORY


def bytes_of(x: Value) -> int:
    """Bytes of a value."""
    return math.prod(x.shape) * dtype(x.dtype).bytes
