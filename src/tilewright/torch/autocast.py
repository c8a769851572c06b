"""Operands as autocast casts those of a convolution."""

from __future__ import annotations

from typing import Any

import torch

from tilewright.torch.eager_fast_path import past_autocast


def cast(tensor: Any, dtype: Any) -> Any:
    """As autocast does it: float64 stays, and so do integers and float8."""
    stays = tensor.dtype is torch.float64 or tensor.element_size() == 1
    if tensor.dtype is dtype or stays or not tensor.is_floating_point():
        return tensor
    return tensor.to(dtype)


def autocast(input: Any, weight: Any, bias: Any) -> tuple[Any, Any, Any]:
    """The operands as autocast casts those of a convolution, where it is on.

    In each call: no version counts what is written through ``.data``, from NumPy or by a CUDA
    graph, and to compare the values would cost as much as a cast.
    """
    kind = "cuda" if input.is_cuda else "cpu" if input.is_cpu else ""
    # Some types of devices know no autocast.
    if kind and torch.is_autocast_enabled(kind):
        dtype = torch.get_autocast_dtype(kind)
        narrow = input.element_size() == 1  # of which the bias has the type of the result
        input, weight = cast(input, dtype), cast(weight, dtype)
        bias = bias if bias is None or narrow else cast(bias, dtype)
    return input, weight, bias


def register_autocast(library: torch.library.Library, name: str) -> None:
    """Let autocast cast image, weight and bias, the first three operands of the operator ``name``.

    Who calls it from Python has cast them; programs that were traced, scripted or exported have
    not, where autocast was off then.
    """
    operator = getattr(getattr(torch.ops, library.ns), name).default
    for device in ("CPU", "CUDA"):

        def cast_first(input: Any, weight: Any, bias: Any, *more: Any, device: str = device) -> Any:
            operands = autocast(input, weight, bias)
            with past_autocast(device):
                return operator(*operands, *more)

        library.impl(name, cast_first, f"Autocast{device}")
