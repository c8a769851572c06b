"""Memory of PyTorch's for results and workspaces, at little cost on the host."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any


def allocator(
    torch: Any, shape: Sequence[int], strides: Sequence[int], dtype: Any, device: Any
) -> Callable[[], Any]:
    """A function that makes tensors of undefined contents, as ``torch.empty_strided`` does.

    What code of ``torch.compile``'s calls for that goes past the dispatcher, in half the time. It
    takes the current device of CUDA.
    """

    def empty() -> Any:
        return torch.empty_strided(shape, strides, dtype=dtype, device=device)

    guards = getattr(getattr(torch._C, "_dynamo", None), "guards", None)
    short = getattr(guards, f"_empty_strided_{device.type}", None)
    if short is None or device.type not in ("cpu", "cuda"):
        return empty
    here = partial(short, tuple(shape), tuple(strides), dtype)
    if device.type == "cpu" or torch.cuda.device_count() == 1:
        return here
    current, ordinal = torch._C._cuda_getDevice, device.index
    return lambda: here() if current() == ordinal else empty()
