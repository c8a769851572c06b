"""Whether operands are like others in all that a call depends on but their values, asked in one go.

Each thing that is asked of a tensor from Python takes 50 ns and more. Compiled code of PyTorch's
asks all of them at once before it runs: class, device, type, shape, strides, whether gradients are
recorded, and what the dispatcher would do in this thread. That last one has autocast in it, modes
that see every operator, inference mode, tracing and the transformations of torch.func.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import cache
from typing import Any

import torch

#: Of as many tensors as it was made for: whether each is like the one in its place then.
Guard = Callable[..., bool]


def guard(*tensors: Any) -> Guard | None:
    """What tells tensors like these, plain ones, in a thread that is in the same state.

    It raises :class:`Exception` where it is given another number of them. None where this PyTorch
    has no such thing.
    """
    return _guard(tensors) if _tells_apart() else None


def _guard(tensors: tuple[Any, ...]) -> Guard:
    # It keeps no tensor alive.
    made = torch._C._dynamo.guards.TensorGuards(
        *tensors, dynamic_dims_sizes=None, dynamic_dims_strides=None
    )
    found: Guard = made.check
    return found


@cache
def _tells_apart() -> bool:
    """Whether there is such a thing in this PyTorch, and it does what it is needed for."""
    found: list[bool] = []
    # A new thread is in no region of autocast, no mode, and no transformation.
    thread = threading.Thread(target=lambda: found.append(_sees_all()))
    thread.start()
    thread.join()
    return found == [True]


def _sees_all() -> bool:
    x = torch.zeros(2, 2, 2, 2, device="cpu", requires_grad=True)
    first = x.detach()
    others = [
        first[:1], first.double(), first.contiguous(memory_format=torch.channels_last), x,
        torch.empty_like(first, device="meta"), torch.nn.Parameter(first, False),
        torch._neg_view(first),
    ]  # fmt: skip
    try:
        is_like = _guard((first, x))
        sees = not any(is_like(other, x) for other in others) and is_like(first.clone(), x)
        for region in (torch.autocast("cpu", torch.bfloat16), torch.inference_mode()):
            with region:
                sees = sees and not is_like(first, x)
        return sees and is_like(first, x)
    except Exception:  # whatever its insides do in another version
        return False
