"""Parameters that are constants of a compiled graph, and whether they still are what they were."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

import torch

#: Elements of each tensor that are compared in each call.
_SAMPLES = 4
_CELLS = {1: ctypes.c_uint8, 2: ctypes.c_uint16, 4: ctypes.c_uint32, 8: ctypes.c_uint64}


def freezable(tensors: Sequence[torch.Tensor]) -> bool:
    """Whether changes of these are noticed: tensors of inference mode count no versions."""
    return not any(t.is_inference() or t.dtype.is_complex for t in tensors)


class Frozen:
    """What tensors are now.

    Whatever PyTorch writes to a tensor counts in its version. What is written through ``.data``
    does not: on a CPU a few elements of each tensor are compared, which sees what changes all of
    them, as a mean teacher does.
    """

    def __init__(self, tensors: Sequence[torch.Tensor]) -> None:
        self._versions = [t._version for t in tensors]
        self._alive = [t.detach() for t in tensors]  # so that the cells are memory
        self._cells = [c for t in self._alive for c in _cells(t)]
        self._values = [c.value for c in self._cells]

    def holds(self, tensors: Sequence[torch.Tensor]) -> bool:
        """Whether these, of the same addresses, are still what they were."""
        return [t._version for t in tensors] == self._versions and [
            c.value for c in self._cells
        ] == self._values


def _cells(t: torch.Tensor) -> list[ctypes.c_uint64]:
    if t.device.type != "cpu" or not t.numel():
        return []
    size, count = t.element_size(), min(_SAMPLES, t.numel())
    flat = [k * (t.numel() - 1) // max(1, count - 1) for k in range(count)]
    places = []
    for k in flat:
        offset = 0
        for extent, stride in zip(reversed(t.shape), reversed(t.stride()), strict=True):
            offset += k % extent * stride
            k //= extent
        places.append(offset)
    return [_CELLS[size].from_address(t.data_ptr() + p * size) for p in places]  # type: ignore[misc]
