"""Blocks with a forward pass of their own, timm's too, take along what follows convolutions."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="needs PyTorch")

from torch import nn  # noqa: E402

import tilewright.torch as tt  # noqa: E402
from tilewright.torch.blocks import FusedBlock  # noqa: E402

pytestmark = [pytest.mark.needs_torch, pytest.mark.usefixtures("plain_code")]


class Block(nn.Module):
    """As timm's inverted residuals are written."""

    def __init__(self, channels: int = 8) -> None:
        super().__init__()
        self.expand = nn.Conv2d(channels, 2 * channels, 1)
        self.depthwise = nn.Conv2d(2 * channels, 2 * channels, 3, 1, 1, groups=2 * channels)
        self.norm = nn.BatchNorm2d(2 * channels)
        self.act = nn.SiLU()
        self.project = nn.Conv2d(2 * channels, channels, 1)
        self.has_norm = True
        self.calls = 0

    def forward(self, x: Any, scale: float = 1.0) -> Any:
        self.calls += 1
        y = self.depthwise(self.expand(x))
        if self.has_norm:
            y = self.norm(y)
        return x + self.project(self.act(y)) * scale


class Twice(Block):
    """What the convolution makes is used once more."""

    def forward(self, x: Any, scale: float = 1.0) -> Any:
        y = self.depthwise(self.expand(x))
        return self.act(self.norm(y)) + y * scale


class Reads(Block):
    """The normalisation is not all that is asked of its module."""

    def forward(self, x: Any, scale: float = 1.0) -> Any:
        return self.act(self.norm(self.depthwise(self.expand(x)))) * self.norm.running_mean.mean()


def settled(model: Any) -> Any:
    """With statistics that matter, in evaluation mode."""
    for m in model.modules():
        if isinstance(m, nn.BatchNorm2d):
            nn.init.normal_(m.running_mean)
            nn.init.uniform_(m.running_var, 0.5, 2)
    return model.eval()


def kernels_of(model: Any, x: Any) -> list[bool]:
    """Of each depthwise convolution, whether its kernel has the normalisation."""
    return ["batch_norm" in str(line.problem) for line in tt.explain(model, x).lines]


def test_a_block_is_one_kernel_where_the_result_goes_to_its_normalisation_alone() -> None:
    model, x = settled(nn.Sequential(Block(), Block())), torch.randn(2, 8, 9, 9)
    with torch.no_grad():
        expected = model(x)
        report = tt.optimize_(model)
        assert report.fused["0.depthwise"] == ("0.norm", "0.act")
        assert isinstance(model[0], Block)
        assert torch.allclose(model(x), expected, atol=1e-5)
        assert kernels_of(model, x) == [True, True]
        assert torch.allclose(model[0](x, scale=0.0), x)
        assert model[0].depthwise(model[0].expand(x)).shape == (2, 16, 9, 9)


@pytest.mark.parametrize("kind", [Twice, Reads])
def test_a_block_that_does_more_stays_as_it_is(kind: Any) -> None:
    model = settled(kind())
    assert tt.optimize_(model).fused == {}
    assert type(model) is kind


def test_changes_of_a_block_count() -> None:
    model, x = settled(Block()), torch.randn(1, 8, 9, 9)
    tt.optimize_(model)
    with torch.no_grad():
        calls = model.calls
        first = model(x)
        assert model.calls == calls + 1
        model.has_norm = False
        tt.undo_(plain := copy.deepcopy(model))
        assert torch.allclose(model(x), plain(x), atol=1e-5)
        assert not torch.allclose(model(x), first)
        model.has_norm = True
        model.norm.running_mean.add_(1.0)
        tt.undo_(plain := copy.deepcopy(model))
        assert torch.allclose(model(x), plain(x), atol=1e-5)
        model.norm = nn.Identity()
        tt.undo_(plain := copy.deepcopy(model))
        assert torch.allclose(model(x), plain(x), atol=1e-5)
        seen: list[Any] = []
        model.depthwise.register_forward_hook(lambda m, a, out: seen.append(out))
        model(x)
        assert len(seen) == 1


def test_training_gradients_copies_and_tracers_see_the_modules() -> None:
    model, x = Block(), torch.randn(2, 8, 9, 9)
    reference = copy.deepcopy(model)
    tt.optimize_(model)
    model(x).sum().backward()
    reference(x).sum().backward()
    assert torch.allclose(model.depthwise.weight.grad, reference.depthwise.weight.grad, atol=1e-3)
    assert torch.allclose(model.norm.running_mean, reference.norm.running_mean, atol=1e-6)
    settled(model)
    with torch.no_grad():
        expected = model(x)
        for other in (
            copy.deepcopy(model), pickle.loads(pickle.dumps(model)),
            torch.fx.symbolic_trace(model), torch.jit.trace(model, x, check_trace=False),
        ):  # fmt: skip
            assert torch.allclose(other(x), expected, atol=1e-5)
    assert isinstance(pickle.loads(pickle.dumps(model)), FusedBlock)
    tt.undo_(model)
    assert type(model) is Block
    assert type(model.depthwise) is nn.Conv2d


@pytest.mark.parametrize("name", ["mobilenetv2_100", "tf_mobilenetv3_large_100"])
def test_models_of_timm_are_fused(name: str) -> None:
    timm = pytest.importorskip("timm", reason="needs timm and torchvision", exc_type=ImportError)
    model, x = settled(timm.create_model(name, num_classes=3)), torch.randn(1, 3, 64, 64)
    with torch.no_grad():
        expected = model(x)
        report = tt.optimize_(model)
        assert len(report.fused) == len(report.replaced) > 14
        assert all(kernels_of(model, x))
        assert (model(x) - expected).norm() <= 1e-4 * expected.norm()


@pytest.mark.parametrize(
    ("kernel", "stride", "dilation"), [(3, 2, 1), (5, 2, 1), (4, 1, 1), (3, 2, 2), (2, 3, 1)]
)
def test_same_padding_of_timm_follows_the_image(kernel: int, stride: int, dilation: int) -> None:
    layers = pytest.importorskip("timm.layers", reason="needs timm", exc_type=ImportError)
    theirs = layers.Conv2dSame(4, 4, kernel, stride=stride, dilation=dilation, groups=4)
    ours = copy.deepcopy(theirs)
    assert tt.optimize_(nn.Sequential(ours)).replaced == ["0"]
    for size in ((15, 16), (9, 8)):
        x = torch.randn(2, 4, *size)
        a, b = (x.clone().requires_grad_() for _ in range(2))
        made, right = ours(a), theirs(b)
        assert torch.allclose(made, right, atol=1e-5)
        grad = torch.randn_like(right)
        made.backward(grad)
        right.backward(grad)
        assert torch.allclose(a.grad, b.grad, atol=1e-5)
    tt.undo_(ours)
    assert type(ours) is layers.Conv2dSame


def test_same_padding_is_scripted() -> None:
    layers = pytest.importorskip("timm.layers", reason="needs timm", exc_type=ImportError)
    model, x = (
        nn.Sequential(layers.Conv2dSame(4, 4, 3, stride=2, groups=4)),
        torch.randn(1, 4, 9, 8),
    )
    expected = model(x)
    tt.optimize_(model)
    assert torch.allclose(torch.jit.script(model)(x), expected, atol=1e-5)
