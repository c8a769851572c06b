"""What is made of parameters, or in place of them, kept as long as they stay as they are."""

from __future__ import annotations

from typing import Any

import torch

from tilewright.torch.casts import cast

_stream = getattr(torch._C, "_cuda_getCurrentRawStream", None)
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


class KeptCast:
    """A parameter in another type, made anew where anything about it has changed.

    Autocast forgets its casts at the end of each region, which in inference is each forward pass. A
    change is seen by the parameter's version, which all operators count that write to it, and by
    its address; what was there before is kept, so that nothing else comes to lie at that address.
    On a GPU a cast belongs to the stream on which it was made, and the capture of a graph has casts
    of its own, which are made again in each replay.
    """

    __slots__ = ("_kept",)

    def __init__(self) -> None:
        self._kept: tuple[Any, Any, Any] = (None, None, None)

    def __call__(self, tensor: Any, dtype: Any) -> Any:
        """``tensor`` in ``dtype``, as autocast casts it."""
        if tensor.dtype is dtype:
            return tensor
        stream = 0
        if tensor.is_cuda:
            if _stream is None or captures(tensor):
                return cast(tensor, dtype)
            stream = _stream(tensor.get_device())
        try:
            known = (tensor.data_ptr(), tensor._version, dtype, stream)
        except RuntimeError:  # a tensor of inference mode counts no versions
            return cast(tensor, dtype)
        kept = self._kept
        if known != kept[0]:
            kept = self._kept = (known, cast(tensor, dtype), tensor.detach())
        return kept[1]
