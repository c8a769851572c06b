"""Convolutions that are not depthwise, in models: as PyTorch's, by kernels of ours where said."""

from __future__ import annotations

import copy
import io
import pickle

import pytest

torch = pytest.importorskip("torch")

from torch import fx, nn  # noqa: E402

from tilewright.ir.errors import ArgumentError  # noqa: E402
from tilewright.torch import GroupedConv2d, calls, explain, optimize_, set_policy, undo_  # noqa: E402

pytestmark = [pytest.mark.needs_torch, pytest.mark.usefixtures("plain_code")]


@pytest.fixture
def profile():
    before = set_policy("profile")
    yield
    set_policy(before)


def swapped(layer: nn.Module, dense: bool = False) -> nn.Module:
    model = nn.Sequential(copy.deepcopy(layer)).eval()
    assert optimize_(model, dense=dense).replaced == ["0"]
    assert type(model[0]) is GroupedConv2d
    return model


def ran_on(model: nn.Module, x: torch.Tensor) -> list[str]:
    return [line.kernel for line in explain(model, x).lines]


LAYERS = {
    "groups": nn.Conv2d(12, 18, 3, groups=3),
    "stride": nn.Conv2d(8, 8, 3, stride=2, padding=1, groups=2, bias=False),
    "same": nn.Conv2d(8, 24, (2, 4), padding="same", dilation=2, groups=4),
    "wide": nn.Conv2d(64, 64, 5, padding=(2, 0), groups=2),
}


@pytest.mark.parametrize("layer", LAYERS.values(), ids=LAYERS)
@pytest.mark.parametrize("batch", [1, 3])
def test_results_are_those_of_pytorch(layer, batch):
    model, x = swapped(layer), torch.randn(batch, layer.in_channels, 13, 11)
    with torch.no_grad():
        expected = layer(x)
        assert ran_on(model, x)[0].startswith("cpu.")
        torch.testing.assert_close(model(x), expected, rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(model(x[:1]), expected[:1], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("layer", LAYERS.values(), ids=LAYERS)
def test_channels_last_images_and_slices_are_read_as_they_lie(layer):
    model, x = swapped(layer), torch.randn(2, 2 * layer.in_channels, 13, 11)
    last = x.contiguous(memory_format=torch.channels_last)
    with torch.no_grad():
        image = x[:, layer.in_channels :]
        assert ran_on(model, image)[0].startswith("cpu.")
        torch.testing.assert_close(model(image), layer(image), rtol=1e-5, atol=1e-5)
        model = model.to(memory_format=torch.channels_last)
        for image in (last[:, layer.in_channels :], last[:, layer.in_channels :].clone()):
            made, expected = model(image), layer(image)
            assert ran_on(model, image)[0].startswith("cpu.")
            torch.testing.assert_close(made, expected, rtol=1e-5, atol=1e-5)
            assert made.is_contiguous(memory_format=torch.channels_last)


@pytest.mark.parametrize("turned", ["image", "weight"])
def test_a_weight_that_lies_otherwise_than_the_image_is_left_to_pytorch(turned):
    layer, x = LAYERS["groups"], torch.randn(2, 12, 9, 9)
    model = swapped(layer)
    with torch.no_grad():
        if turned == "image":
            x = x.contiguous(memory_format=torch.channels_last)
        else:
            model = model.to(memory_format=torch.channels_last)
        assert ran_on(model, x) == []
        torch.testing.assert_close(model(x), layer(x), rtol=1e-5, atol=1e-5)


def test_images_without_a_height_and_of_one_channel():
    with torch.no_grad():
        for layer, x in (
            (nn.Conv2d(8, 8, (1, 3), groups=2), torch.randn(2, 8, 1, 9)),
            (nn.Conv2d(6, 4, 1, groups=2), torch.randn(2, 6, 1, 1)),
        ):
            torch.testing.assert_close(swapped(layer)(x), layer(x), rtol=1e-5, atol=1e-5)


def test_what_is_no_inference_in_float32_is_left_to_pytorch():
    layer = LAYERS["groups"]
    model, x = swapped(layer), torch.randn(2, 12, 9, 9)
    seen: list[object] = []
    calls.observers.append(lambda problem, found: seen.append(problem))
    try:
        y = model(x)  # gradients are recorded
        y.sum().backward()
        assert model[0].weight.grad is not None
        with torch.no_grad():
            turned = x.transpose(2, 3)
            torch.testing.assert_close(model(turned), layer(turned))
            assert model(x[:0]).shape == (0, 18, 7, 7)
            with torch.autocast("cpu", torch.bfloat16):
                assert model(x).dtype == torch.bfloat16
            vmapped = torch.vmap(model)(x[None])
            torch.testing.assert_close(vmapped[0], layer(x))
        assert not seen
    finally:
        calls.observers.pop()


def test_weights_may_change_and_move():
    layer = LAYERS["wide"]
    model, x = swapped(layer), torch.randn(1, 64, 9, 9)
    with torch.no_grad():
        model(x)
        model[0].weight.data.mul_(2)
        model[0].bias.data.zero_()
        other = copy.deepcopy(layer)
        other.weight.data.mul_(2)
        other.bias.data.zero_()
        torch.testing.assert_close(model(x), other(x), rtol=1e-5, atol=1e-5)
        double = copy.deepcopy(model).double()
        torch.testing.assert_close(double(x.double()), other.double()(x.double()))


def test_a_wrong_input_is_pytorchs_error():
    model = swapped(LAYERS["groups"])
    with torch.no_grad():
        with pytest.raises(RuntimeError, match="channels"):
            model(torch.randn(1, 10, 9, 9))
        with pytest.raises(RuntimeError, match="[Kk]ernel size"):
            model(torch.randn(1, 12, 2, 2))


def test_it_is_taken_back_copied_saved_traced_and_scripted():
    layer = LAYERS["groups"]
    model, x = swapped(layer), torch.randn(2, 12, 9, 9)
    with torch.no_grad():
        expected = layer(x)
        for other in (
            copy.deepcopy(model),
            pickle.loads(pickle.dumps(model)),
            fx.symbolic_trace(model),
            torch.jit.script(model),
            torch.jit.trace(model, x),
            torch.export.export(model, (x,)).module(),
        ):
            torch.testing.assert_close(other(x), expected, rtol=1e-5, atol=1e-5)
        buffer = io.BytesIO()
        torch.save(model.state_dict(), buffer)
        assert list(model.state_dict()) == ["0.weight", "0.bias"]
        assert undo_(model) == ["0"]
        assert type(model[0]) is nn.Conv2d


def test_kernels_are_compiled_ahead():
    model = nn.Sequential(nn.Conv2d(16, 16, 3, groups=4), nn.ReLU(), nn.Conv2d(16, 16, 5, groups=2))
    model.eval()
    x = torch.randn(1, 16, 20, 20)
    with torch.no_grad():
        expected = model(x)
        assert optimize_(model, example=x).replaced == ["0", "2"]
        torch.testing.assert_close(model(x), expected, rtol=1e-5, atol=1e-5)


def test_dense_layers_are_measured_where_that_is_asked_for(profile, tmp_path, monkeypatch):
    monkeypatch.setenv("TILEWRIGHT_CACHE", str(tmp_path))
    layer = nn.Conv2d(16, 32, 3, padding=1)
    model, x = swapped(layer), torch.randn(1, 16, 7, 7)
    with torch.no_grad():
        torch.testing.assert_close(model(x), layer(x), rtol=1e-5, atol=1e-5)


def test_profilers_see_the_kernel_and_modes_the_function():
    model, x, seen = swapped(LAYERS["groups"]), torch.randn(1, 12, 9, 9), []

    class Mode(torch.overrides.TorchFunctionMode):
        def __torch_function__(self, function, types, args=(), kwargs=None):
            seen.append(function)
            return function(*args, **(kwargs or {}))

    with torch.no_grad():
        with torch.profiler.profile() as watched:
            model(x)
        keys = [event.key for event in watched.key_averages()]
        assert "tilewright::conv2d" in keys
        assert "aten::conv2d" not in keys
        with Mode():
            model(x)
    assert torch.conv2d in seen


def test_dense_layers_are_replaced_where_that_is_asked_for():
    layer, x = nn.Conv2d(16, 32, 3, padding=1), torch.randn(2, 16, 7, 7)
    assert optimize_(nn.Sequential(copy.deepcopy(layer))).replaced == []
    model = swapped(layer, dense=True)
    with torch.no_grad():
        assert ran_on(model, x)[0].startswith("cpu.")
        torch.testing.assert_close(model(x), layer(x), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("norm", [False, True])
def test_fewer_products_are_allowed_where_there_is_a_way(norm):
    """A dense 3x3 layer, alone or with its normalisation, and others that have none."""
    kinds = (nn.Conv2d(16, 16, 3, padding=1), nn.Conv2d(16, 8, 1), nn.Conv2d(8, 8, 3, groups=2))
    model = nn.Sequential(
        *(m for k in kinds for m in (k, nn.BatchNorm2d(k.out_channels))[: 1 + norm])
    )
    model, x = model.eval(), torch.randn(2, 16, 12, 12)
    plain = copy.deepcopy(model)
    report = optimize_(model, dense=True, precision="winograd")
    with torch.no_grad():
        lines = explain(model, x).lines
        assert [line.problem.precision for line in lines] == ["winograd", "exact", "exact"]
        torch.testing.assert_close(model(x), plain(x), rtol=1e-4, atol=1e-4)
        report.undo()
        assert "precision" not in vars(model[0])
        optimize_(model, dense=True)
        assert {line.problem.precision for line in explain(model, x).lines} == {"exact"}
    assert model.state_dict().keys() == plain.state_dict().keys()


def test_a_precision_that_there_is_not_is_refused():
    with pytest.raises(ArgumentError, match="there is winograd"):
        optimize_(nn.Sequential(), dense=True, precision="tf32")
    with pytest.raises(ArgumentError, match="dense=True"):
        optimize_(nn.Sequential(), precision="winograd")


def test_why_a_layer_is_left_is_said():
    model = nn.ModuleDict({
        "dense": nn.Conv2d(8, 8, 3), "narrow": nn.Conv2d(8, 8, 3, groups=2).half(),
        "reflect": nn.Conv2d(8, 8, 3, padding=1, groups=2, padding_mode="reflect"),
        "flat": nn.Conv1d(8, 8, 3, groups=2),
    })  # fmt: skip
    skipped = optimize_(model).skipped
    assert skipped["dense"] == "is dense: left to PyTorch, unless dense=True"
    last = nn.Sequential(nn.Conv2d(8, 8, 3, groups=2)).to(memory_format=torch.channels_last)
    assert optimize_(last).skipped == {"0": "is channels last: left to PyTorch, unless dense=True"}
    assert optimize_(last, dense=True).replaced == ["0"]
    assert "float32 on a CPU" in skipped["narrow"]
    assert "reflect" in skipped["reflect"]
    assert "not depthwise" in skipped["flat"]
