"""How many functions a call from PyTorch calls on the host, which is what it costs there: times are
the machine's and who else is on it, these numbers are not."""

from __future__ import annotations

import contextlib
import gc
import sys

import pytest

torch = pytest.importorskip("torch")
pytestmark = [pytest.mark.needs_torch, pytest.mark.usefixtures("only_kernels")]

import tilewright.torch as tt  # noqa: E402
from tilewright.torch import calls  # noqa: E402


def counted(run):
    """Functions of Python's, and builtin ones, that are called by a run of what ran before."""
    for _ in range(4):
        run()
    found = {"call": 0, "c_call": 0}

    def count(_frame, event, _argument):
        if event in found:
            found[event] += 1

    gc.collect()
    gc.disable()
    before = sys.getprofile()
    sys.setprofile(count)
    try:
        run()
    finally:
        sys.setprofile(before)
        gc.enable()
    return found["call"] - 1, found["c_call"] - 1  # that is the run, and setprofile


def bfloat16(cache_enabled=False):
    """As each layer of a model is called, whose parameters come once in a region."""
    return torch.autocast("cpu", torch.bfloat16, cache_enabled=cache_enabled)


#: By case: the region that it runs in, whether gradients are recorded, whether they are made, and
#: how many functions of Python's and builtin ones are called.
CASES = {
    "inference": (contextlib.nullcontext, False, False, (16, 26)),
    "inference, autocast": (bfloat16, False, False, (18, 30)),
    "training, forward": (contextlib.nullcontext, True, False, (28, 36)),
    "training, forward, autocast": (bfloat16, True, False, (30, 40)),
    "training, backward": (contextlib.nullcontext, True, True, (28, 46)),
    "training, backward, autocast": (bfloat16, True, True, (28, 46)),
}


@pytest.mark.parametrize("case", CASES)
def test_a_call_like_one_before_calls_few_functions(case):
    region, records, backward, (most, most_builtin) = CASES[case]
    calls.forget()
    casts = region is bfloat16
    x = torch.randn(1, 4, 6, 6, dtype=torch.bfloat16 if casts else torch.float32)
    x.requires_grad_(records)
    w = torch.nn.Parameter(torch.randn(4, 1, 3, 3))

    def run():
        return tt.depthwise_conv2d(x, w, None, 1, 1)

    with region(), torch.set_grad_enabled(records):
        for _ in range(3):
            run()
        made = run()
        ones = torch.ones_like(made)
        with torch.set_grad_enabled(records and not backward):
            found = counted((lambda: made.grad_fn.apply(ones)) if backward else run)
    assert found[0] <= most
    assert found[1] <= most_builtin
