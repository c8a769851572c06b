"""What follows a convolution, or a product of matrices, is done by its kernel."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from tilewright.graph.builder import build, cast, reshape
from tilewright.graph.graph import Graph
from tilewright.graph.passes.fold_scales import by_channel, channel_axis
from tilewright.graph.rewrite import PRODUCTS
from tilewright.graph.value import Constant, Node, Operand, Value
from tilewright.ir.dtype import dtype as _dtype
from tilewright.ir.dtype import int_range
from tilewright.ir.errors import ProblemError
from tilewright.topi.epilogue import Step, parse_epilogue

_FLOATS = ("float32", "float64", "float16", "bfloat16")


def fold_epilogues(graph: Graph) -> Graph:
    """Biases, residual sums and activations become steps of a problem's epilogue; of integers what
    quantises, too.

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
    return _fold(graph)[0]


def chains(graph: Graph) -> list[list[Node]]:
    """By product of a graph, what its kernel will compute: itself and its epilogue, in order."""
    return _fold(graph)[1]


def _fold(graph: Graph) -> tuple[Graph, list[list[Node]]]:
    uses, found = dict(graph.uses), dict[Value, list[Node]]()

    def change(old: Node, now: Node) -> Value:
        made, product = _folded(now, uses)
        if product is not None:
            found[made] = [*found.pop(product), old]
        elif now.operator in PRODUCTS:
            found[made] = [old]
        uses[made] = uses[old]
        return made

    return graph.map(change), list(found.values())


def _folded(node: Node, uses: dict[Value, int]) -> tuple[Node, Node | None]:
    """A node, or the product with it as a step, and the product without."""
    for k, x in enumerate(node.operands):
        if isinstance(x, Node) and x.operator in PRODUCTS and uses.get(x, 1) == 1:
            others = tuple(o for j, o in enumerate(node.operands) if j != k)
            found = _step(node, x, others)
            if found is not None:
                step, more = found
                joined = _joined(x, step, more, node.name)
                if joined is not None:
                    return joined, x
                whole = x
                if node.operator == "quantize":
                    scale, zero = others
                    assert not isinstance(scale, Value)
                    assert not isinstance(zero, Value)
                    units = _in_units(x, scale, zero)
                    if units is not None:
                        whole, step = units, _scaled_step("quantize", 1, zero)
                made = _with(whole, step, more, node.name)
                if made is not None:
                    return made, x
    return node, None


def _step(node: Node, x: Node, others: tuple[Operand, ...]) -> tuple[str, tuple[Value, ...]] | None:
    """The step that a node is after a product, and the tensors that it reads."""
    if node.operator == "add":
        (other,) = others
        bias = _bias(x, other)
        if bias is not None:
            return "bias", (bias,)
        found = _quantized_residual(x, other)
        if found is not None:
            return found
        alike = isinstance(other, Value) and other.type == x.type
        return ("residual", (other,)) if alike and isinstance(other, Value) else None
    if node.operator == "multiply":  # by what no weights could be multiplied by
        (other,) = others
        numbers = _numbers(x, other) if x.attributes.get("epilogue") else by_channel(x, other)
        if not isinstance(numbers, Constant):
            return None
        return "scale_shift", (numbers, Constant(np.zeros_like(numbers.array)))
    if node.operator == "quantize":
        plain = node.operands[0] is x and _is_of_bytes(x, node.dtype) and _are_numbers(others)
        return (_scaled_step("quantize", *others), ()) if plain else None
    known = _STEPS.get(node.operator)
    text = None if known is None or others else known(node)
    return None if text is None else (text, ())


def _numbers(x: Node, other: Operand) -> Constant | None:
    """A known operand as one number a channel of a product of floats; None where it is not that."""
    if isinstance(other, (int, float)) and x.dtype in _FLOATS:
        wide = "float64" if x.dtype == "float64" else "float32"
        other = cast(Constant(np.array(other, wide)), x.dtype)
    numbers = by_channel(x, other)
    return numbers if isinstance(numbers, Constant) else None


def _joined(x: Node, step: str, more: tuple[Value, ...], name: str) -> Node | None:
    """A product whose last step adds numbers of its channels, where another bias adds more."""
    before, last = x.attributes.get("epilogue", ()), x.operands[-1]
    added = step == "bias" and before and before[-1] in ("bias", "scale_shift")
    if (
        x.dtype not in _FLOATS
        or not added
        or not isinstance(last, Constant)
        or not isinstance(more[0], Constant)
    ):
        return None
    wide = np.float64 if x.dtype == "float64" else np.float32
    both = Constant(last.array.astype(wide) + more[0].array.astype(wide), last.name)
    return Node(x.operator, (*x.operands[:-1], cast(both, last.dtype)), x.attributes, name)


def _bias(x: Node, other: Operand) -> Value | None:
    """One number a channel of a product, of its type; None where an operand is not that."""
    numbers = _numbers(x, other)
    if numbers is not None:
        return numbers
    axis = channel_axis(x)
    if not isinstance(other, Value) or other.type == x.type or other.dtype != x.dtype:
        return None
    shape = (1,) * (x.rank - other.rank) + other.shape
    channels = tuple(e if d == axis else 1 for d, e in enumerate(x.shape))
    return reshape(other, (x.shape[axis],)) if shape == channels else None


def _quantized_residual(x: Node, other: Operand) -> tuple[str, tuple[Value, ...]] | None:
    """The step that adds what is dequantised, to sums of integers of its type."""
    if not isinstance(other, Node) or other.operator != "dequantize" or other.type != x.type:
        return None
    q, *numbers = other.operands
    if not isinstance(q, Value) or not _is_of_bytes(x, q.dtype) or not _are_numbers(numbers):
        return None
    scale, zero = numbers
    return _scaled_step("quantized_residual", scale, zero), (q,)


def _scaled_step(name: str, scale: Operand, zero: Operand) -> str:
    return f"{name}({scale!r},{zero})"


def _in_units(x: Node, scale: float, zero: float) -> Node | None:
    """A product whose results are divided by ``scale``, by numbers of its channels instead of one
    of its own, so that layers share kernels; None where a step is of real numbers."""
    operands, rest, steps = list(x.inputs[:2]), list(x.inputs[2:]), []
    whole = parse_epilogue(x.attributes["epilogue"])
    for step in whole:
        given = [rest.pop(0) for _ in step.tensors]
        if step.name in _HOMOGENEOUS and all(isinstance(t, Constant) for t in given):
            which = _HOMOGENEOUS[step.name]
            given = [
                _divided(t, scale) if k in which and t.dtype == "float32" else t
                for k, t in enumerate(given)
            ]
        elif step.name == "quantized_residual":
            step = Step(step.name, (step.values[0] / scale, step.values[1]))
        elif step.name in ("relu6", "clamp"):
            low, high = (v / scale for v in step.values or (0.0, 6.0))
            # The type of the result saturates there, too.
            last, most = not rest and step is whole[-1], int_range(_dtype(x.inputs[0].dtype))[1]
            relu = last and low == 0 and high + zero > most - 0.5
            step = Step("relu") if relu else Step("clamp", (low, high))
        else:
            return None
        operands += given
        steps.append(str(step))
    values = {**x.attributes, "epilogue": tuple(steps)}
    return Node(x.operator, tuple(operands), values, x.name)


def _divided(x: Value, scale: float) -> Value:
    assert isinstance(x, Constant)
    return Constant((x.array / np.float64(scale)).astype("float32"), x.name)


#: Steps that commute with a division, where these of their tensors are divided, too.
_HOMOGENEOUS = {"bias": {0}, "dequantize": {0}, "scale_shift": {1}, "relu": {}, "leaky_relu": {}}


def _is_of_bytes(x: Node, dtype: str) -> bool:
    return x.inputs[0].dtype == dtype and "dequantize" in x.attributes.get("epilogue", ())


def _are_numbers(operands: Sequence[Operand]) -> bool:
    return not any(isinstance(x, Value) for x in operands)


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
