"""What follows a convolution, or a product of matrices, is done by its kernel."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from tilewright.graph.builder import build, reshape
from tilewright.graph.graph import Graph
from tilewright.graph.passes.fold_scales import by_channel, channel_axis
from tilewright.graph.rewrite import PRODUCTS
from tilewright.graph.value import Constant, Node, Operand, Value
from tilewright.ir.errors import ProblemError
from tilewright.topi.epilogue import parse_epilogue

_FLOATS = ("float32", "float64", "float16", "bfloat16")


def fold_epilogues(graph: Graph) -> Graph:
    """Biases, residual sums and activations become steps of a problem's epilogue.

    >>> import numpy as np
    >>> from tilewright.graph.value import Input
    >>> x, w = Input("x", (1, 4, 8, 8), "float32"), Constant(np.ones((4, 4, 1, 1), "float32"), "w")
    >>> b = Constant(np.ones((4, 1, 1), "float32"), "b")
    >>> y = Node("add", (Node("conv2d", (x, w)), b))
    >>> print(fold_epilogues(Graph("g", (x,), {"y": Node("relu", (Node("add", (x, y)),))})))
    g(x: float32[1x4x8x8]):
      y = conv2d(x, w: float32[4x4x1x1], b: float32[4], x, epilogue=('bias', 'residual', 'relu'))
        # float32[1x4x8x8]

    Before elementwise functions are made programs, as what is left is.
    """
    uses = dict(graph.uses)

    def change(old: Node, now: Node) -> Value:
        made = _folded(now, uses)
        uses[made] = uses[old]
        return made

    return graph.map(change)


def _folded(node: Node, uses: dict[Value, int]) -> Node:
    for k, x in enumerate(node.operands):
        if isinstance(x, Node) and x.operator in PRODUCTS and uses.get(x, 1) == 1:
            others = tuple(o for j, o in enumerate(node.operands) if j != k)
            found = _step(node, x, others)
            if found is not None:
                step, more = found
                made = _with(x, step, more, node.name)
                if made is not None:
                    return made
    return node


def _step(node: Node, x: Node, others: tuple[Operand, ...]) -> tuple[str, tuple[Value, ...]] | None:
    """The step that a node is after a product, and the tensors that it reads."""
    if node.operator == "add":
        (other,) = others
        bias = _bias(x, other)
        if bias is not None:
            return "bias", (bias,)
        alike = isinstance(other, Value) and other.type == x.type
        return ("residual", (other,)) if alike and isinstance(other, Value) else None
    if node.operator == "multiply":  # by what no weights could be multiplied by
        (other,) = others
        numbers = by_channel(x, other)
        if not isinstance(numbers, Constant):
            return None
        return "scale_shift", (numbers, Constant(np.zeros_like(numbers.array)))
    known = _STEPS.get(node.operator)
    text = None if known is None or others else known(node)
    return None if text is None else (text, ())


def _bias(x: Node, other: Operand) -> Value | None:
    """One number a channel of a product, of its type; None where an operand is not that."""
    numbers = by_channel(x, other)
    if isinstance(numbers, Constant):
        return numbers
    axis = channel_axis(x)
    if not isinstance(other, Value) or other.type == x.type or other.dtype != x.dtype:
        return None
    shape = (1,) * (x.rank - other.rank) + other.shape
    channels = tuple(e if d == axis else 1 for d, e in enumerate(x.shape))
    return reshape(other, (x.shape[axis],)) if shape == channels else None


def _with(x: Node, step: str, more: tuple[Value, ...], name: str) -> Node | None:
    steps = (*x.attributes.get("epilogue", ()), step)
    if x.dtype not in _FLOATS or _is_phased(x):
        return None
    try:
        parse_epilogue(steps)
        made = build(x.operator, *x.operands, *more, name=name,
                     **{**x.attributes, "epilogue": steps})  # fmt: skip
    except ProblemError:  # it has one such step already
        return None
    return made if isinstance(made, Node) else None


def _is_phased(x: Node) -> bool:
    """Whether it is a gradient by the input with strides, whose results are computed phase by
    phase by the schedules that multiply no zeros: these take no epilogue."""
    return x.attributes.get("pass_") == "dgrad" and max(x.attributes.get("stride", (1,))) > 1


def _clamp(node: Node) -> str | None:
    low, high = node.attributes["low"], node.attributes["high"]
    return "relu6" if (low, high) == (0, 6) else f"clamp({low!r}, {high!r})"


def _hard_sigmoid(node: Node) -> str | None:
    alpha, beta = node.attributes.get("alpha", 0.2), node.attributes.get("beta", 0.5)
    return "hsigmoid" if math.isclose(alpha, 1 / 6, rel_tol=1e-5) and beta == 0.5 else None


#: By function, the step that it is; None where its attributes are not those of a step.
_STEPS: dict[str, Callable[[Node], str | None]] = {
    "relu": lambda n: "relu",
    "clamp": _clamp,
    "leaky_relu": lambda n: f"leaky_relu({n.attributes['slope']!r})",
    "hard_swish": lambda n: "hswish",
    "hard_sigmoid": _hard_sigmoid,
    "silu": lambda n: "silu",
    "gelu": lambda n: "gelu",
}
