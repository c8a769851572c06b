"""``optimize_(model, example=x)`` compiles what a call takes, and leaves the model as it is."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="needs PyTorch")

from torch import nn  # noqa: E402

import tilewright.torch  # noqa: E402
from tilewright.ir.errors import ArgumentError  # noqa: E402
from tilewright.torch import kernels  # noqa: E402

pytestmark = [pytest.mark.needs_torch, pytest.mark.usefixtures("plain_code")]


@pytest.fixture
def built(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[list[Any]]:
    """Kernels built in this process, of which none is known."""
    monkeypatch.setenv("TILEWRIGHT_CACHE", str(tmp_path))
    tilewright.torch.set_policy(kernels._state.policy)
    found: list[Any] = []
    build = kernels._build

    def noted(*args: Any) -> Any:
        found.append(args[0])
        return build(*args)

    monkeypatch.setattr(kernels, "_build", noted)
    yield found
    tilewright.torch.set_policy(kernels._state.policy)


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fused = nn.Sequential(
            nn.Conv2d(6, 6, 3, padding=1, groups=6), nn.BatchNorm2d(6), nn.ReLU6()
        )
        self.alone = nn.Conv2d(6, 6, 5, padding=2, groups=6)
        self.drop = nn.Dropout(0.5)

    def forward(self, x: Any, scale: float = 1.0) -> Any:
        return self.drop(self.alone(self.fused(x))) * scale


def state(model: nn.Module) -> dict[str, Any]:
    return {name: (t.data_ptr(), t.clone()) for name, t in model.state_dict().items()}


def unchanged(before: dict[str, Any], after: dict[str, Any]) -> bool:
    return before.keys() == after.keys() and all(
        before[k][0] == after[k][0] and torch.equal(before[k][1], after[k][1]) for k in before
    )


@pytest.mark.parametrize("kind", ["tensor", "tuple", "dict"])
def test_the_first_call_compiles_nothing(built: list[Any], kind: str) -> None:
    x = torch.randn(2, 6, 12, 12)
    example = {"tensor": x, "tuple": (x, 2.0), "dict": {"x": x, "scale": 2.0}}[kind]
    model = Net().eval()
    with torch.inference_mode():
        expected = model(x)
        tilewright.torch.optimize_(model, example=example)
        assert sorted((p.kernel_h, bool(p.epilogue[1:])) for p in built) == [(3, True), (5, False)]
        built.clear()
        assert torch.allclose(model(x), expected, atol=1e-5)
        assert torch.allclose(model(x[:1]), expected[:1], atol=1e-5)
    assert built == []


def test_training_takes_the_kernels_of_gradients_along(built: list[Any]) -> None:
    model, x = Net(), torch.randn(2, 6, 12, 12, requires_grad=True)
    tilewright.torch.optimize_(model, example=x)
    assert {p.pass_ for p in built} == {"forward", "dgrad", "wgrad"}
    built.clear()
    model(x).sum().backward()
    assert built == []


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("mode", [torch.enable_grad, torch.no_grad, torch.inference_mode])
def test_the_state_stays(training: bool, mode: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "build_ahead", lambda asked, progress: {})
    model = Net().train(training)
    model.alone.eval()
    before, modes = state(model), [m.training for m in model.modules()]
    x = torch.randn(2, 6, 12, 12)
    torch.manual_seed(5)
    drawn = torch.rand(3)
    torch.manual_seed(5)
    with mode():
        tilewright.torch.optimize_(model, example=x)
    assert torch.equal(torch.rand(3), drawn)
    assert unchanged(before, state(model))
    assert modes == [m.training for m in model.modules()]
    assert all(p.grad is None for p in model.parameters())


@pytest.mark.parametrize(
    ("example", "words"),
    [
        ([1, 2], "example is a list"),
        (3, "example is a int"),
        ({1: 2}, "names of the example's arguments"),
        (torch.randn(2, 7, 12, 12), "cannot be called with the example, a tensor of"),
        ({"y": torch.randn(2, 6, 12, 12)}, "cannot be called with the example, {y: a tensor of"),
    ],
)
def test_what_is_no_example_is_an_error_and_changes_nothing(example: Any, words: str) -> None:
    model = Net()
    before = state(model)
    with pytest.raises(ArgumentError, match=words):
        tilewright.torch.optimize_(model, example=example)
    assert type(model.alone) is nn.Conv2d
    assert type(model.fused) is nn.Sequential
    assert unchanged(before, state(model))


def test_without_a_cache_kernels_are_compiled_in_this_process(
    built: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TILEWRIGHT_CACHE", "off")
    model = Net().eval()
    tilewright.torch.optimize_(model, example=torch.randn(1, 6, 9, 9))
    assert len(built) == 2
