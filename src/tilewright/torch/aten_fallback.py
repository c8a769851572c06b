"""PyTorch's own passes, for padding that differs from side to side, in a given memory format."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F

from tilewright.torch.geometry import Geometry


def conv2d(x: Any, w: Any, b: Any, geometry: Geometry, memory_format: Any = None) -> Any:
    """The convolution; without ``memory_format``, as PyTorch lays it out."""
    stride, padding, dilation = geometry
    x, both = _padded(x, padding)
    return laid(F.conv2d(x, w, b, stride, both, dilation, x.shape[1]), memory_format)


def conv2d_input(dy: Any, w: Any, b: Any, size: Any, geometry: Geometry, memory_format: Any) -> Any:
    """The gradient by the input, of ``size``, and the bias of a transposed convolution."""
    stride, (top, left, bottom, right), dilation = geometry
    n, c, h, wide = size
    both = min(top, bottom), min(left, right)
    padded = (n, c, h + top + bottom - 2 * both[0], wide + left + right - 2 * both[1])
    dx = torch.nn.grad.conv2d_input(padded, w, dy, stride, both, dilation, c)
    dx = dx[:, :, top - both[0] : top - both[0] + h, left - both[1] : left - both[1] + wide]
    return laid(dx if b is None else dx + b[:, None, None], memory_format)


def conv2d_weight(x: Any, dy: Any, shape: Any, geometry: Geometry) -> Any:
    """The gradient by the weight, of ``shape``."""
    stride, padding, dilation = geometry
    x, both = _padded(x, padding)
    dw = torch.nn.grad.conv2d_weight(x, shape, dy, stride, both, dilation, x.shape[1])
    return laid(dw, torch.contiguous_format)


def laid(x: Any, memory_format: Any) -> Any:
    """``x`` with the strides that a new tensor of that memory format has; any without one."""
    if memory_format is None:
        return x
    strides = torch.empty(x.shape, device="meta", memory_format=memory_format).stride()
    return x if x.stride() == strides else x.clone(memory_format=memory_format)


def _padded(x: Any, padding: Sequence[int]) -> tuple[Any, tuple[int, int]]:
    """``x`` padded as far as the two sides differ, and the rest that both have."""
    top, left, bottom, right = padding
    h, w = min(top, bottom), min(left, right)
    if (top, left) != (bottom, right):
        x = F.pad(x, (left - w, right - w, top - h, bottom - h))
    return x, (h, w)
