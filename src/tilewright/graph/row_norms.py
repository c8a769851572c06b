"""Rows that are normalised, as importers write it: by a mean, squares and a root."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from tilewright.graph.value import Constant, Node, Operand, Value

#: Types in which rows are normalised whatever their own is: what is rounded to others counts.
_WIDE = ("float32", "float64")


@dataclass(frozen=True)
class RowNorm:
    """``(given - mean) / sqrt(variance + small) * scale + shift`` along the last dimension."""

    given: Value
    small: float
    scale: np.ndarray[Any, Any] | None
    shift: np.ndarray[Any, Any] | None


def row_norm(x: Value, uses: Mapping[Value, int]) -> RowNorm | None:
    """What ``x`` is made of, where nothing else reads what is normalised; None where it is no
    normalisation of rows."""
    scale: Any = None
    shift: Any = None
    width, exact = x.shape[-1], (x.dtype, *_WIDE)
    while isinstance(x, Node) and uses.get(x, 1) == 1:
        numbers = [n for o in x.operands if (n := _of_columns(o, width)) is not None]
        others = [o for o in x.inputs if _of_columns(o, width) is None]
        if len(others) != 1 or others[0].shape[-1:] != (width,):
            break
        if x.operator == "add" and numbers:
            more = numbers[0] if scale is None else numbers[0] * scale
            shift = more if shift is None else shift + more
        elif x.operator == "multiply" and numbers:
            scale = numbers[0] if scale is None else scale * numbers[0]
        elif x.operator != "reshape" and (x.operator != "cast" or x.dtype not in exact):
            break
        (x,) = others
    if not isinstance(x, Node) or x.operator != "multiply" or len(x.inputs) != 2:
        return None
    if uses.get(x, 1) > 1:
        return None
    for centred, root in (x.inputs, x.inputs[::-1]):
        small = _small(root, centred)
        given = None if small is None else _given(centred)
        if small is not None and given is not None and given.shape[-1] == width:
            return RowNorm(given, small, scale, shift)
    return None


def _of_columns(x: Operand, width: int) -> np.ndarray[Any, Any] | None:
    """Known numbers of the last dimension in float64; None of others."""
    if not isinstance(x, Constant) or x.shape[-1:] != (width,) or math.prod(x.shape) != width:
        return None
    return x.array.astype("float64").reshape(width)


def _small(root: Value, centred: Value) -> float | None:
    """What is added to the mean of squares of ``centred``, whose inverse root ``root`` is."""
    inner = _operand(root, "rsqrt")
    if not isinstance(inner, Node) or inner.operator != "add" or len(inner.inputs) != 1:
        return None
    variance, small = inner.operands
    if not isinstance(variance, Node) or not isinstance(small, (int, float)):
        return None
    squares = _mean(variance)
    if not isinstance(squares, Node) or squares.operator != "multiply" or len(squares.inputs) != 2:
        return None
    (more, *others) = set(squares.inputs)
    given = _given(more)
    same = given is not None and given is _given(centred) and more.type == centred.type
    return float(small) if same and not others else None


def _given(centred: Value) -> Value | None:
    """Of ``given - mean(given)`` what is given, before it was widened."""
    if not isinstance(centred, Node) or centred.operator != "subtract":
        return None
    wide, mean = centred.operands
    of = _mean(mean) if isinstance(mean, Value) else None
    if of is None or not isinstance(wide, Value) or of.type != wide.type:
        return None
    given = _before_cast(wide)
    return given if given is _before_cast(of) else None


def _mean(x: Value) -> Value | None:
    """Of which ``x`` is the mean along the last dimension."""
    if not isinstance(x, Node) or x.operator != "divide" or len(x.inputs) != 1:
        return None
    total, count = x.operands
    if not isinstance(total, Node) or total.operator != "sum":
        return None
    of = total.inputs[0]
    axes = tuple(a % of.rank for a in total.attributes["axis"])
    whole = axes == (of.rank - 1,) and total.attributes.get("keepdims")
    return of if whole and count == of.shape[-1] else None


def _operand(x: Value, operator: str) -> Value | None:
    if not isinstance(x, Node) or x.operator != operator:
        return None
    return x.inputs[0]


def _before_cast(x: Value) -> Value:
    """Of a conversion to a wide type, which several readers may have one each of, what it
    converts."""
    narrow = _operand(x, "cast") if x.dtype in _WIDE else None
    return x if narrow is None else narrow
