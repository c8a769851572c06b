"""What stands in place of parameters that a module does not have."""

from __future__ import annotations

from typing import Any

import torch

_captures = getattr(torch._C, "_cuda_isCurrentStreamCapturing", None)
#: By value, size, type and device.
_constants: dict[Any, Any] = {}


def captures(tensor: Any) -> bool:
    """Whether work on the device of a tensor is captured in a graph now."""
    return bool(tensor.is_cuda and _captures is not None and _captures())


def constant(value: float, like: Any) -> Any:
    """A tensor of one value of the size, type and device of another.

    It is never freed, as graphs that were captured may read it, and there when it is returned,
    whatever stream is to read it.
    """
    if captures(like):
        return torch.full_like(like, value)
    key = (value, like.shape, like.dtype, like.device)
    if key not in _constants:
        with torch.inference_mode(False):
            made = torch.full(like.shape, value, dtype=like.dtype, device=like.device)
        if made.is_cuda:
            torch.cuda.current_stream(made.device).synchronize()
        _constants[key] = made
    return _constants[key]
