"""Parameters from one type to another on a GPU, at the cost of a launch.

PyTorch's ``Tensor.to`` asks its dispatcher several times on the way, which costs the host more than
twice what the launch does, and autocast does it to every parameter in each step, there and back.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from tilewright import te
from tilewright.runtime.kernel import Kernel
from tilewright.runtime.torch_memory import allocator
from tilewright.target import Target
from tilewright.torch import kernels
from tilewright.torch.calls import DTYPES, is_channels_last, target_of
from tilewright.torch.kernels import Launch

#: Numbers of a thread, which are one access of 16 bytes in the wider type, and threads of a block.
_EACH, _THREADS = 4, 128
#: Larger tensors, of this many bytes, keep a GPU busy for longer than a host takes: PyTorch's
#: copies of these are as good.
_LARGEST = 2**22

#: A copy of a tensor in another type.
Convert = Callable[[Any], Any]


def conversion(like: torch.Tensor, dtype: torch.dtype) -> Convert | None:
    """What makes copies in ``dtype`` of tensors that are like ``like`` in all but their values.

    They have no record of gradients. None where PyTorch does it: on a CPU, of tensors in neither
    memory format, and of other types.
    """
    dense = like.is_contiguous() or is_channels_last(like)
    if not dense or like.numel() * like.element_size() > _LARGEST:
        return None
    launch = launch_of(like.numel(), like.dtype, dtype, like.device)
    if launch is None:
        return None
    empty = allocator(torch, like.shape, like.stride(), dtype, like.device)

    def convert(tensor: Any) -> Any:
        made = empty()
        launch((tensor.data_ptr(), made.data_ptr()))
        return made

    vars(convert)["parts"] = empty, launch  # as of a run
    return convert


def launch_of(
    numbers: int, source: torch.dtype, dtype: torch.dtype, device: torch.device
) -> Launch | None:
    """A launch on the addresses of given numbers and of as many in ``dtype``; None where there is
    no kernel."""
    if not numbers or source is dtype or source not in DTYPES or dtype not in DTYPES:
        return None
    try:
        target = target_of(device)
        if target.kind != "cuda":
            return None
        with kernels.alone():
            program: Any = _kernel(DTYPES[source], DTYPES[dtype], target).program
            launch: Launch = program.caller((numbers,), device.index, torch)
    except Exception:  # whatever a driver or a compiler has against it: PyTorch does it
        return None
    return launch


def _kernel(source: str, dtype: str, target: Target) -> Kernel:
    """Converts any number of numbers."""
    from tilewright.runtime.compile import build

    n = te.var("n", most=_LARGEST)
    given = te.placeholder((n,), source, name="given")
    made = te.compute((n,), lambda i: given[i].astype(dtype), name="made")
    s = te.create_schedule(made.op)
    stage = s[made]
    block, inner = stage.split(stage.op.axis[0], factor=_EACH * _THREADS)
    thread, each = stage.split(inner, factor=_EACH)
    stage.bind(block, te.thread_axis("blockIdx.x"))
    stage.bind(thread, te.thread_axis("threadIdx.x"))
    stage.vectorize(each)
    return build(s, [given, made], target, name="convert")
