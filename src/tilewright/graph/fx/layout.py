"""How the dimensions of PyTorch's tensors lie in memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilewright.graph.builder import build
from tilewright.graph.value import Value


def memory_order(shape: Sequence[Any], strides: Sequence[Any]) -> tuple[int, ...]:
    """The dimensions as they lie in memory, outermost first; in order where there are gaps."""
    plain = tuple(range(len(shape)))
    order = tuple(sorted(plain, key=lambda d: -int(strides[d]) if shape[d] != 1 else -(1 << 62)))
    if is_dense(shape, strides, order) and not is_dense(shape, strides, plain):
        return order
    return plain


def is_dense(shape: Sequence[Any], strides: Sequence[Any], order: Sequence[int]) -> bool:
    """Whether dimensions lie in an order, without gaps."""
    dense = strides_in(shape, order)
    return all(s == t for s, t, e in zip(strides, dense, shape, strict=True) if e != 1)


def strides_in(shape: Sequence[Any], order: Sequence[int]) -> tuple[Any, ...]:
    """Of a dense tensor whose dimensions lie in this order."""
    found, step = [1] * len(shape), 1
    for d in reversed(order):
        found[d] = step
        step = step * shape[d]
    return tuple(found)


def inverse(order: Sequence[int]) -> tuple[int, ...]:
    """The order that undoes one."""
    return tuple(sorted(range(len(order)), key=order.__getitem__))


def permuted(x: Value, order: Sequence[int]) -> Value:
    """With its dimensions in another order, the same memory where dimensions of 1 alone move."""
    if tuple(order) == tuple(range(x.rank)):
        return x
    return build("transpose", x, axes=tuple(order))
