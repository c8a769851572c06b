"""What the operator of a convolution and what follows it does not do, and says so."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.needs_torch

import tilewright.torch  # noqa: E402, F401
from tilewright.ir.errors import ProblemError  # noqa: E402


def call(activation="relu", eps=1e-5, **changes):
    operands = {
        "input": torch.randn(1, 4, 5, 5), "weight": torch.randn(4, 1, 3, 3), "bias": None,
        "mean": torch.zeros(4), "variance": torch.ones(4), "gamma": None, "beta": None,
    } | changes  # fmt: skip
    return torch.ops.tilewright.depthwise_conv2d_norm(
        *operands.values(), eps, activation, [1, 1], [1, 1, 1, 1], [1, 1]
    )


def test_it_has_no_gradient():
    y = call(weight=torch.randn(4, 1, 3, 3, requires_grad=True))
    with pytest.raises(RuntimeError, match=r"for inference and has no gradient: call the conv.*"):
        y.sum().backward()


def test_it_has_the_activations_of_an_epilogue():
    with pytest.raises(ProblemError, match="no epilogue has a step 'tanh': use bias, "):
        call("tanh")


@pytest.mark.parametrize("channels", [3, 5])
def test_pytorch_says_what_does_not_fit(channels):
    with pytest.raises(
        RuntimeError, match=f"running_mean should contain 4 elements not {channels}"
    ):
        call(mean=torch.zeros(channels), variance=torch.ones(channels))
    with pytest.raises(RuntimeError, match="expected weight to be divisible by 3"):
        call(input=torch.randn(1, 3, 5, 5))
