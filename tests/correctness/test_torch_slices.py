"""Slices of channels, as split and chunk make them, are read where they lie, at any batch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="needs PyTorch")

import torch.nn.functional as F  # noqa: E402
from torch import nn  # noqa: E402

import tilewright  # noqa: E402
import tilewright.torch  # noqa: E402
from tilewright import te  # noqa: E402
from tilewright.ir.errors import ArgumentError, LanguageError  # noqa: E402
from tilewright.torch.calls import lying  # noqa: E402

pytestmark = [pytest.mark.needs_torch, pytest.mark.usefixtures("plain_code")]
FORMATS = [torch.contiguous_format, torch.channels_last]


class Split(nn.Module):
    def __init__(self, channels: int, size: int) -> None:
        super().__init__()
        self.size = size
        self.depthwise = nn.Conv2d(channels, channels, 3, padding=1, groups=channels)

    def forward(self, x: Any) -> Any:
        rest, mine = x.split((self.size, x.shape[1] - self.size), 1)
        return torch.cat([rest, self.depthwise(mine)], 1)


@pytest.mark.parametrize("form", FORMATS)
def test_one_kernel_takes_a_split_at_every_batch_above_one(form: Any) -> None:
    model = Split(20, 12)
    x = torch.randn(5, 32, 11, 13).contiguous(memory_format=form)
    expected = model(x)
    tilewright.torch.optimize_(model)
    assert torch.allclose(model(x), expected, atol=1e-5)
    assert torch.allclose(model(x[:2]), expected[:2], atol=1e-5)
    (line,) = tilewright.torch.explain(model, x).lines
    assert line.kernel.startswith("cpu.")
    assert line.kernel.endswith(f"input with strides {lying(x[:, 12:])[1]}")


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("channels", [8, 20])
@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("batch", [1, 3])
def test_slices_have_the_results_and_gradients_of_dense_images(
    form: Any, channels: int, stride: int, batch: int
) -> None:
    whole = torch.randn(batch, 32, 9, 7).contiguous(memory_format=form)
    ours, theirs = (whole.clone(memory_format=torch.preserve_format) for _ in range(2))
    w, b = torch.randn(channels, 1, 3, 3), torch.randn(channels)
    w1, w2 = w.clone().requires_grad_(), w.clone().requires_grad_()
    ours.requires_grad_()
    theirs.requires_grad_()
    part = slice(5, 5 + channels)
    made = tilewright.torch.depthwise_conv2d(ours[:, part], w1, b, stride, 1)
    right = F.conv2d(theirs[:, part], w2, b, stride, 1, groups=channels)
    assert torch.allclose(made, right, atol=1e-5)
    grad = torch.randn_like(right)
    made.backward(grad)
    right.backward(grad)
    assert torch.allclose(ours.grad, theirs.grad, atol=1e-5)
    assert torch.allclose(w1.grad, w2.grad, atol=1e-4)


@pytest.mark.parametrize("form", FORMATS)
def test_what_follows_is_taken_along_from_a_slice(form: Any) -> None:
    model = nn.Sequential(nn.Conv2d(8, 8, 3, groups=8), nn.BatchNorm2d(8), nn.ReLU()).eval()
    x = torch.randn(3, 24, 9, 9).contiguous(memory_format=form)[:, 8:16]
    with torch.no_grad():
        expected = model(x)
        tilewright.torch.optimize_(model)
        assert torch.allclose(model(x), expected, atol=1e-5)
        (line,) = tilewright.torch.explain(model, x).lines
    assert "batch_norm" in str(line.problem)
    assert "input with strides" in line.kernel


@pytest.mark.parametrize(
    "cut",
    [
        lambda x: x[:, ::2],
        lambda x: x[::2],
        lambda x: x[:, :, 2:7],
        lambda x: x[:, :, :, ::2],
        lambda x: x[:, :, :, 1:6],
        lambda x: x.transpose(2, 3),
        lambda x: x[:1, :, :, :].expand(3, -1, -1, -1),
        lambda x: x[:, :1].expand(-1, 8, -1, -1),
        lambda x: x[:, :8].flip(1),
        lambda x: torch.as_strided(x, (2, 8, 5, 5), (8, 4, 5, 1)),
    ],
)
@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.filterwarnings("ignore:tilewright leaves")
def test_other_views_are_right_whoever_computes_them(cut: Any, form: Any) -> None:
    x = cut(torch.randn(4, 16, 9, 9).contiguous(memory_format=form))
    w = torch.randn(x.shape[1], 1, 3, 3)
    made = tilewright.torch.depthwise_conv2d(x, w, None, 1, 1)
    assert torch.allclose(made, F.conv2d(x, w, None, 1, 1, groups=x.shape[1]), atol=1e-5)


@pytest.mark.parametrize("form", FORMATS)
def test_compilers_are_told_the_layout_of_the_result(form: Any) -> None:
    model = Split(20, 12)
    tilewright.torch.optimize_(model)
    x = torch.randn(3, 32, 11, 13).contiguous(memory_format=form)
    made = torch.compile(model, backend="aot_eager", fullgraph=True)(x)
    assert torch.allclose(made, model(x), atol=1e-6)
    assert made.stride() == model(x).stride()


def test_an_argument_with_strides_takes_arrays_that_lie_so() -> None:
    x = te.placeholder((3, 4), name="x", strides=(10, 2))
    y = te.compute((3, 4), lambda i, j: x[i, j] * 2.0, name="y")
    kernel = tilewright.build(te.create_schedule(y.op), [x, y], "llvm")
    whole = np.arange(30, dtype="float32").reshape(3, 10)
    out = np.zeros((3, 4), "float32")
    kernel(whole[:, 1:9:2], out)
    assert np.array_equal(out, whole[:, 1:9:2] * 2)
    with pytest.raises(ArgumentError, match="expected strides"):
        kernel(np.ones((3, 4), "float32"), out)
    with pytest.raises(LanguageError, match="2 dimensions, 1 strides"):
        te.placeholder((3, 4), name="x", strides=(4,))
