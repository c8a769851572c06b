"""Whose kernels a step of a model spends its time in, from a profile of torch.profiler."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

OURS, THEIRS, OTHERS = "tilewright", "PyTorch depthwise", "others"
#: Operators of PyTorch's that convolve, with the place of the weight among their arguments.
_CONVOLUTIONS = {
    "aten::_conv_depthwise2d": 1, "aten::cudnn_convolution": 1, "aten::mkldnn_convolution": 1,
    "aten::convolution": 1, "aten::_convolution": 1, "aten::conv2d": 1,
    "aten::convolution_backward": 2,
}  # fmt: skip
#: Kernels whose launch belongs to no operator, by their names.
_NAMES = (
    (re.compile(r"^(main|depthwise\w*)_kernel(_\d+)?$"), OURS),
    (re.compile(r"depthwise|grouped_direct|_c1_k1_"), THEIRS),
)


def profiled(step: Callable[[], Any], device: str) -> dict[str, float]:
    """Milliseconds by class that one step takes: of the kernels on "cuda", else of the CPU."""
    return by_class(_traced(step, device), device == "cuda")


def busy(step: Callable[[], Any]) -> float:
    """Milliseconds of a step in which a GPU is at work, with how many kernels ever: those that wait
    for one another at their beginning, or run side by side, are no sum."""
    ranges = sorted(
        (event.time_range.start, event.time_range.end)
        for event in _traced(step, "cuda", kernels_alone=True)
        if _is_of_gpu(event)
    )
    total, last = 0.0, float("-inf")
    for begin, end in ranges:
        total += max(0.0, end - max(begin, last))
        last = max(last, end)
    return total / 1e3


def _is_of_gpu(event: Any) -> bool:
    return event.device_type.name != "CPU" and not getattr(event, "is_user_annotation", False)


def _traced(step: Callable[[], Any], device: str, kernels_alone: bool = False) -> Any:
    """What PyTorch's profiler saw in a step, in a fraction of the time without operators."""
    from torch.profiler import ProfilerActivity, profile

    kinds = [] if kernels_alone else [ProfilerActivity.CPU]
    if device == "cuda":
        import torch

        kinds.append(ProfilerActivity.CUDA)
        with profile(activities=kinds):  # the first profile of a process starts the tracing
            torch.cuda.synchronize()
    with profile(activities=kinds, record_shapes=not kernels_alone) as found:
        step()
        if device == "cuda":
            torch.cuda.synchronize()
    return found.events()


def by_class(events: Any, cuda: bool) -> dict[str, float]:
    """Milliseconds by class of the kernels on a GPU, or of what operators did on the CPU."""
    found = dict.fromkeys((OURS, THEIRS, OTHERS), 0.0)
    alone: dict[str, float] = {}  # on the GPU and of no operator, by kernel
    for event in events:
        if event.device_type.name != "CPU":
            if _is_of_gpu(event):
                alone[event.name] = alone.get(event.name, 0.0) + event.time_range.elapsed_us()
        elif not cuda:
            found[_class_of(event)] += event.self_cpu_time_total / 1e3
        else:
            for kernel in event.kernels:
                found[_class_of(event)] += kernel.duration / 1e3
                alone[kernel.name] = alone.get(kernel.name, 0.0) - kernel.duration
    for name, us in alone.items():
        found[_class_of_kernel(name)] += us / 1e3
    return found


def _class_of(event: Any) -> str:
    """By the innermost operator around an event that tells."""
    while event is not None:
        if event.name.startswith("tilewright::"):
            return OURS
        place = _CONVOLUTIONS.get(event.name)
        if place is not None and len(event.input_shapes) > place:
            weight = event.input_shapes[place]
            # One input channel a group, and several groups.
            return THEIRS if len(weight) > 2 and weight[1] == 1 < weight[0] else OTHERS
        event = event.cpu_parent
    return OTHERS


def _class_of_kernel(name: str) -> str:
    return next((kind for pattern, kind in _NAMES if pattern.search(name)), OTHERS)
