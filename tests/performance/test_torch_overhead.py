"""What a call from PyTorch costs on the host."""

from __future__ import annotations

import time

import pytest

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.needs_torch


def least(run, number=10, repeat=150):
    """Seconds a call, the least of many short measurements."""
    found = []
    for _ in range(repeat):
        begin = time.perf_counter()
        for _ in range(number):
            run()
        found.append((time.perf_counter() - begin) / number)
    return min(found)


@pytest.mark.parametrize("gradient", [False, True])
def test_an_eager_call_costs_at_most_1_4_times_that_of_conv2d(gradient):
    from tilewright.torch import depthwise_conv2d

    x = torch.randn(1, 4, 4, 4)
    w = torch.randn(4, 1, 3, 3, requires_grad=gradient)
    ours = least(lambda: depthwise_conv2d(x, w, None, 1, 1))
    theirs = least(lambda: torch.nn.functional.conv2d(x, w, None, 1, 1, 1, 4))
    assert ours < 1.4 * theirs
