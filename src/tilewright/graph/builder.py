"""Making nodes: what is known is computed at once, what changes nothing is left out."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tilewright.graph.evaluate import evaluate
from tilewright.graph.value import Constant, Node, Operand, Value
from tilewright.ir.dtype import dtype as to_dtype
from tilewright.ir.errors import TilewrightError
from tilewright.runtime.narrow_floats import storage_type
from tilewright.topi.functions import FUNCTIONS

#: Elements that are computed to fold one node, at most.
_MOST = 1 << 25
#: Operators that make tensors without elements of others, and the attribute that says so.
_EXTENTS = {"broadcast_to": "shape", "tile": "reps"}
#: Types whose sums are in a wider one, and that.
WIDE = {"float16": "float32", "bfloat16": "float32"}


def build(operator: str, *operands: Operand, name: str = "", **attributes: Any) -> Value:
    """The value of an operator: a constant where all operands are.

    >>> build("add", Constant(np.ones(2, "float32")), 1.0).array
    array([2., 2.], dtype=float32)
    """
    first = operands[0]
    if operator == "reshape" and isinstance(first, Constant):  # also one without elements
        return Constant(first.array.reshape(attributes["newshape"]), name or first.name)
    if operator == "transpose" and isinstance(first, Constant):  # the same memory
        return Constant(first.array.transpose(attributes["axes"]), name or first.name)
    empties = any(isinstance(x, Value) and 0 in x.shape for x in operands)
    if empties or 0 in attributes.get(_EXTENTS.get(operator, ""), ()):
        empty = _of_nothing(operator, operands, attributes, name)
        if empty is not None:
            return empty
    function = FUNCTIONS.get(operator)
    if function is not None and function.kind == "broadcast":
        operands = _numbers(operands)
    made = Node(operator, operands, attributes, name)
    if function is None:
        return made
    first = made.inputs[0]
    if operator in ("identity", "reshape", "cast", "broadcast_to") and first.type == made.type:
        return first
    if operator == "reshape" and isinstance(first, Node) and first.operator == "reshape":
        return build("reshape", *first.operands, name=name, **attributes)
    if operator == "transpose" and made.attributes["axes"] == tuple(range(made.rank)):
        return first
    if all(isinstance(x, Constant) for x in made.inputs) and made.problem.flops <= _MOST:
        return Constant(evaluate(made), name)
    return made


def _of_nothing(
    operator: str, operands: tuple[Operand, ...], attributes: dict[str, Any], name: str
) -> Value | None:
    """What an operator makes of tensors without elements: none, of the shape that those that it
    makes of one and of two lead to, or sums of nothing, or padding. Returns None otherwise."""
    extents = _EXTENTS.get(operator, "")

    def made_of(extent: int) -> Node:
        filled = (
            Constant(np.broadcast_to(np.ones((), x.array.dtype), [e or extent for e in x.shape]))
            if isinstance(x, Constant) and 0 in x.shape
            else x
            for x in operands
        )
        named = {k: [e or extent for e in v] if k == extents else v for k, v in attributes.items()}
        return Node(operator, tuple(filled), named)

    try:
        one, two = made_of(1), made_of(2)
    except (TilewrightError, ValueError):  # said of the operands that there are
        return None
    if one.rank != two.rank:
        return None
    shape = tuple(max(0, 2 * a - b) for a, b in zip(one.shape, two.shape, strict=True))
    sums = operator not in FUNCTIONS and len(operands) == 2 and not attributes.get("epilogue")
    if operator == "constant_pad":
        return build("cast", constant(np.full(shape, attributes["value"])), dtype=one.dtype)
    if 0 not in shape and not (sums and one.shape == two.shape):
        return None
    return Constant(np.zeros(shape, storage_type(to_dtype(one.dtype))), name)


def _numbers(operands: tuple[Operand, ...]) -> tuple[Operand, ...]:
    """Constants of one element as numbers, where a tensor of their type and rank stands beside."""
    others = [x for x in operands if isinstance(x, Value) and _number(x) is None]
    found: list[Operand] = []
    for x in operands:
        value = _number(x)
        beside = isinstance(x, Value) and any(
            o.dtype == x.dtype and o.rank >= x.rank for o in others
        )
        found.append(value if value is not None and beside else x)
    return tuple(found)


def _number(x: Operand) -> int | float | None:
    if not isinstance(x, Constant) or math.prod(x.shape) != 1 or x.dtype == "bool":
        return None
    value = x.array.item()
    return value if isinstance(value, (int, float)) and math.isfinite(value) else None


def constant(values: Any, dtype: str | None = None, name: str = "") -> Constant:
    """A constant of an array, or what NumPy makes one of."""
    return Constant(np.asarray(values, dtype), name)


def reshape(x: Value, shape: tuple[int, ...]) -> Value:
    """``x`` in another shape."""
    return build("reshape", x, newshape=tuple(int(e) for e in shape))


def cast(x: Value, dtype: str) -> Value:
    """``x`` in another type."""
    return build("cast", x, dtype=str(dtype))


def widened(x: Value) -> Value:
    """``x`` in the type of sums: float32 in place of floats of 16 bits, in which squares, and sums
    of an image, are too large."""
    return cast(x, WIDE.get(x.dtype, x.dtype))
