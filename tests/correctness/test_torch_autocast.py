"""Under autocast a parameter counts as it is in each call, and gets its gradients."""

from __future__ import annotations

import pytest
from tests.support.torch_checks import error

torch = pytest.importorskip("torch")
pytestmark = [pytest.mark.needs_torch, pytest.mark.usefixtures("only_kernels", "plain_code")]
F = torch.nn.functional

import tilewright.torch as tt  # noqa: E402
from tilewright.torch import calls  # noqa: E402

KINDS = ["cpu", pytest.param("cuda", marks=pytest.mark.needs_cuda)]


def region(kind="cpu", dtype=torch.bfloat16, **more):
    return torch.autocast(kind, dtype, **more)


def operands(kind="cpu"):
    """An image and a parameter that the short way has met already."""
    torch.manual_seed(0)
    x = torch.randn(1, 4, 6, 6, device=kind)
    w = torch.nn.Parameter(torch.randn(4, 1, 3, 3, device=kind))
    for dtype in (torch.bfloat16, torch.float16):
        for _ in range(2):
            with region(kind, dtype):
                tt.depthwise_conv2d(x, w, None, 1, 1)
    return x, w


@pytest.mark.parametrize("kind", KINDS)
def test_a_step_between_two_regions_is_seen(kind):
    x, w = operands(kind)
    for _ in range(3):
        with region(kind):
            tt.depthwise_conv2d(x, w, None, 1, 1)
            ours, theirs = tt.depthwise_conv2d(x, w, None, 1, 1), F.conv2d(x, w, None, 1, 1, 1, 4)
        assert error(ours, theirs) < 1e-2
        with torch.no_grad():
            w.data.mul_(-2)  # which leaves no trace but the values


def test_gradients_of_all_calls_of_a_region_reach_the_parameter():
    x, w = operands()
    gradients = []
    for conv in (tt.depthwise_conv2d, lambda *a: F.conv2d(*a, 1, 4)):
        w.grad = None
        with region():
            loss = conv(x, w, None, 1, 1).sum() + conv(2 * x, w, None, 1, 1).sum()
        loss.backward()
        gradients.append(w.grad)
    assert gradients[0].dtype == torch.float32
    assert error(*gradients) < 1e-2


@pytest.mark.parametrize("without", [torch.no_grad, torch.inference_mode])
@pytest.mark.parametrize("memory", ["kept in mind", "forgotten"])
def test_what_was_cast_without_gradients_is_in_the_way_of_none(memory, without):
    x, w = operands()
    if memory == "forgotten":
        calls.forget()
    with region():
        for _ in range(3):
            with without():
                assert not tt.depthwise_conv2d(x, w, None, 1, 1).requires_grad
        found = tt.depthwise_conv2d(x, w, None, 1, 1)
        (g,) = torch.autograd.grad(found.sum(), w)
        with without():
            assert not tt.depthwise_conv2d(x, w, None, 1, 1).requires_grad
    wanted = torch.autograd.grad(F.conv2d(x, w, None, 1, 1, 1, 4).sum(), w)[0]
    assert error(g, wanted) < 1e-2


def test_a_parameter_frozen_within_a_region_gets_no_gradient():
    x, w = operands()
    with region():
        assert tt.depthwise_conv2d(x, w, None, 1, 1).requires_grad
        w.requires_grad_(False)
        assert not tt.depthwise_conv2d(x, w, None, 1, 1).requires_grad


def test_a_region_of_another_type_casts_to_it():
    x, w = operands()
    with region():
        assert tt.depthwise_conv2d(x, w, None, 1, 1).dtype == torch.bfloat16
        with region(dtype=torch.float16):
            assert tt.depthwise_conv2d(x, w, None, 1, 1).dtype == torch.float16


def test_a_region_that_keeps_nothing_takes_nothing_that_was_kept():
    x, w = operands()
    with region():
        tt.depthwise_conv2d(x, w, None, 1, 1)
        with region(cache_enabled=False):
            w.data.mul_(-2)
            found = tt.depthwise_conv2d(x, w, None, 1, 1)
    assert error(found, F.conv2d(x, w, None, 1, 1, 1, 4)) < 1e-2


@pytest.mark.parametrize(
    ("function", "image"),
    [(tt.depthwise_conv2d, (200, 200)), (tt.depthwise_conv1d, (40_000,)),
     (tt.depthwise_conv_transpose2d, (200, 200))],
)  # fmt: skip
@pytest.mark.parametrize("asked", ["bias", "bias and weight"])
def test_gradients_by_a_bias_are_summed_in_its_own_type(function, image, asked):
    w = torch.nn.Parameter(torch.zeros(1, 1, *[1 for _ in image]), asked != "bias")
    b = torch.nn.Parameter(torch.zeros(1))
    for _ in range(3):
        with region(dtype=torch.float16):
            y = function(torch.zeros(2, 1, *image), w, b)
        b.grad = None
        y.sum(dtype=torch.float32).backward()
    assert b.grad.item() == y.numel() > torch.finfo(torch.float16).max
