"""What a call from PyTorch costs on the host."""

from __future__ import annotations

import contextlib
import time

import pytest

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.needs_torch
DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.needs_cuda)]


def least(runs, wait, number=10, repeat=150):
    """Seconds a call of each, the least of many short measurements in turn."""
    found = [[] for _ in runs]
    for _ in range(repeat):
        for times, run in zip(found, runs):
            wait()
            begin = time.perf_counter()
            for _ in range(number):
                run()
            times.append((time.perf_counter() - begin) / number)
    return map(min, found)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("form", [torch.contiguous_format, torch.channels_last], ids=str)
@pytest.mark.parametrize("mode", ["inference", "training", "autocast"])
def test_an_eager_call_costs_at_most_1_4_times_that_of_conv2d(mode, form, device):
    from tilewright.torch import depthwise_conv2d

    x = torch.randn(1, 4, 4, 4, device=device).to(memory_format=form)
    w = torch.randn(4, 1, 3, 3, device=device, requires_grad=mode != "inference")
    cast = torch.autocast(device, torch.bfloat16) if mode == "autocast" else None
    with cast or contextlib.nullcontext():
        ours, theirs = least(
            (
                lambda: depthwise_conv2d(x, w, None, 1, 1),
                lambda: torch.nn.functional.conv2d(x, w, None, 1, 1, 1, 4),
            ),
            torch.cuda.synchronize if device == "cuda" else int,
        )
    assert ours < 1.4 * theirs
