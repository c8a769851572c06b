"""Memory of PyTorch's for results and workspaces, at little cost on the host."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any, NoReturn

from tilewright.ir.errors import ArgumentError

#: No system gives memory for arrays to a process below this address (Linux's vm.mmap_min_addr), and
#: none of 64 bits that PyTorch runs on where the lowest mapping is higher, up to the second one.
_LEAST, _MOST = 1 << 16, 1 << 31


@cache
def lowest_address() -> int:
    """An address that tensors with memory lie above.

    A tensor whose storage was freed has for an address the bytes of its offset, which are not 0
    where it is a part of a larger one.
    """
    try:
        with Path("/proc/self/maps").open() as file:
            first = int(file.readline().partition("-")[0], 16)
    except (OSError, ValueError):  # no Linux
        return _LEAST
    return max(_LEAST, min(first, _MOST))


def refuse_addresses(pointers: Sequence[int], names: Sequence[str]) -> NoReturn:
    """Raises :class:`ArgumentError` about the first of ``pointers`` that is none."""
    k = next(k for k, p in enumerate(pointers) if p < lowest_address())
    raise ArgumentError(
        f"{names[k] if k < len(names) else f'operand {k}'} has no memory: its storage was freed "
        "(as FullyShardedDataParallel frees parameters between the calls of their layers), or it "
        "is a fake tensor. Call it with a tensor that has contents"
    )


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


def parts(torch: Any) -> Callable[[Any, Sequence[int], Sequence[int], int], Any]:
    """A function of a tensor, a shape, strides and an offset that makes a tensor on a part of its
    memory, with a version of its own: what changes one of several parts has not changed the others.

    Code of ``torch.compile``'s calls the same.
    """
    guards = getattr(getattr(torch._C, "_dynamo", None), "guards", None)
    short = getattr(guards, "_reinterpret_tensor", None)
    return short or (lambda whole, *lies: whole.as_strided(*lies).data)
