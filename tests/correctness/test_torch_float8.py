"""Convolutions and products of PyTorch's tensors of float8."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.needs_torch
F = torch.nn.functional

import tilewright.torch as tt  # noqa: E402
from tilewright.ir.errors import ProblemError  # noqa: E402
from tilewright.runtime.array import view  # noqa: E402

KINDS = [torch.float8_e4m3fn, torch.float8_e5m2]
DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.needs_cuda)]
#: Relative errors of results, by their types; on Hopper sums have fewer digits than float32.
ERRORS = {torch.float32: 1e-6, torch.float16: 5e-4, torch.bfloat16: 4e-3, "cuda": 5e-3}


def random(kind: Any, *shape: int, device: str = "cpu") -> Any:
    return torch.randn(*shape, device=device).to(kind)


def is_near(found: Any, exact: Any, device: str) -> bool:
    error = (found.double() - exact).norm() / exact.norm()
    return bool(error < ERRORS[found.dtype if device == "cpu" else "cuda"])


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_convolutions_of_any_dimensions(kind: Any, device: str) -> None:
    for rank, ours, theirs in (
        (1, tt.conv1d, F.conv1d), (2, tt.conv2d, F.conv2d), (3, tt.conv3d, F.conv3d)
    ):  # fmt: skip
        x, w = (random(kind, *s, *[5] * rank, device=device) for s in ((2, 8), (12, 4)))
        found = ours(x, w, padding=2, groups=2)
        assert found.dtype is torch.bfloat16
        assert is_near(found, theirs(x.double(), w.double(), padding=2, groups=2), device)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("last", [False, True])
def test_a_scale_and_a_bias_come_before_rounding(last: bool, device: str) -> None:
    x, w = (random(KINDS[0], *s, device=device) for s in ((2, 32, 9, 7), (16, 32, 3, 3)))
    form = torch.channels_last if last else torch.contiguous_format
    x, b = x.contiguous(memory_format=form), random(torch.float16, 16, device=device)
    exact = F.conv2d(x.double(), w.double(), padding=1)
    for scale in (torch.rand(16, device=device), torch.tensor(0.25, device=device)):
        found = tt.conv2d(x, w, b, padding=1, scale=scale, out_dtype=torch.float16)
        assert found.is_contiguous(memory_format=form)
        wanted = exact * scale.double().reshape(-1, 1, 1) + b.double().reshape(-1, 1, 1)
        assert is_near(found, wanted, device)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("kind", [*KINDS, torch.float32], ids=str)
def test_linear_is_pytorchs(kind: Any, device: str) -> None:
    x, w = random(kind, 2, 3, 40, device=device), random(kind, 24, 40, device=device)
    b = random(torch.float32, 24, device=device)
    narrow = {"out_dtype": torch.float32} if kind in KINDS else {}
    found = tt.linear(x, w, b, **narrow)
    assert found.shape == (2, 3, 24)
    assert is_near(found, F.linear(x.double(), w.double(), b.double()), device)
    assert tt.linear(x[:0], w, b, **narrow).shape == (0, 3, 24)
    if kind is torch.float32:
        x.requires_grad_()
        tt.linear(x, w, b).sum().backward()
        assert is_near(x.grad, w.double().sum(0).expand(2, 3, 40), device)


def test_autocast_leaves_float8_alone() -> None:
    x, w = random(KINDS[0], 5, 16), random(KINDS[0], 8, 16)
    b = random(torch.float16, 8)
    with torch.autocast("cpu", torch.bfloat16):
        assert tt.linear(x, w, b, out_dtype=torch.float16).dtype is torch.float16


def test_operands_and_types_that_do_not_go_together() -> None:
    x, w = random(KINDS[0], 5, 16), random(KINDS[0], 8, 16)
    with pytest.raises(ProblemError, match="b is .*float8_e4m3fn, on cpu; got .*float8_e5m2"):
        tt.linear(x, w.to(KINDS[1]))
    with pytest.raises(ProblemError, match="type of the result 'float64': use bfloat16, float16"):
        tt.linear(x, w, out_dtype=torch.float64)
    with pytest.raises(ProblemError, match="leave out_dtype out"):
        tt.linear(x.float(), w.float(), out_dtype=torch.float16)
    with pytest.raises(ProblemError, match="dequantize is for sums of integers"):
        tt.linear(x.float(), w.float(), scale=torch.tensor(2.0))


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_kernels_take_tensors_of_float8(kind: Any) -> None:
    assert str(view(random(kind, 4)).dtype) == str(kind).removeprefix("torch.")


def test_results_in_float8_saturate() -> None:
    x = torch.randint(-3, 4, (2, 32, 6, 6)).float()
    w = torch.randint(-3, 4, (8, 32, 3, 3)).float()
    bias = torch.randint(-9, 10, (8,)).float()
    x8, w8 = (t.to(torch.float8_e4m3fn) for t in (x, w))
    y = tt.conv2d(x8, w8, bias, scale=torch.tensor(8.0), out_dtype=torch.float8_e4m3fn)
    wanted = 8 * F.conv2d(x, w) + bias.reshape(-1, 1, 1)
    assert y.dtype is torch.float8_e4m3fn
    assert torch.equal(y.float(), wanted.clamp(-448, 448).to(torch.float8_e4m3fn).float())
    assert wanted.abs().max() > 448
    empty = tt.linear(x8.reshape(-1, 6)[:0], w8.reshape(-1, 6), out_dtype=x8.dtype)
    assert (empty.shape, empty.dtype) == ((0, 384), x8.dtype)
