"""Models whose depthwise convolutions were swapped are the same models, and can be swapped back."""

from __future__ import annotations

import copy
import io
import pickle

import pytest
from tests.support.torch_checks import close

torch = pytest.importorskip("torch")
pytestmark = [
    pytest.mark.needs_torch,
    pytest.mark.usefixtures("only_kernels", "plain_code"),
    pytest.mark.filterwarnings("error"),
]
nn, F = torch.nn, torch.nn.functional

import tilewright.torch as tt  # noqa: E402
from tilewright.torch import calls  # noqa: E402


class Inverted(nn.Module):
    """MobileNetV2's block."""

    def __init__(self, channels, wide, stride=1):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(channels, wide, 1, bias=False), nn.BatchNorm2d(wide), nn.ReLU6(),
            nn.Conv2d(wide, wide, 3, stride, 1, groups=wide, bias=False), nn.BatchNorm2d(wide),
            nn.ReLU6(), nn.Conv2d(wide, channels, 1, bias=False),
        )  # fmt: skip

    def forward(self, x):
        return self.layers(x)


class Next(nn.Module):
    """ConvNeXt's block."""

    def __init__(self, channels):
        super().__init__()
        self.conv = nn.Conv2d(channels, channels, 7, padding=3, groups=channels)
        self.norm, self.mix = nn.GroupNorm(1, channels), nn.Conv2d(channels, channels, 1)

    def forward(self, x):
        return x + self.mix(F.gelu(self.norm(self.conv(x))))


def mobile():
    return nn.Sequential(nn.Conv2d(3, 8, 3, 2, 1), Inverted(8, 16), Inverted(8, 16, 2))


def convnext():
    return nn.Sequential(nn.Conv2d(3, 8, 4, 4), Next(8), Next(8))


@pytest.mark.parametrize("model", [mobile, convnext])
@pytest.mark.parametrize("last", [False, True])
def test_a_model_computes_what_it_did(model, last):
    form = torch.channels_last if last else torch.contiguous_format
    torch.manual_seed(0)
    model = model().to(memory_format=form)
    x = torch.randn(2, 3, 32, 32).to(memory_format=form)
    other = copy.deepcopy(model)
    report = tt.optimize_(model)
    assert len(report.replaced) == 2
    y, wanted = model(x), other(x)
    assert close(y, wanted)
    assert y.is_contiguous(memory_format=form)
    for m, out in ((model, y), (other, wanted)):
        out.square().sum().backward()
        assert all(p.grad is not None for p in m.parameters())
    for ours, theirs in zip(model.parameters(), other.parameters()):
        assert float((ours.grad - theirs.grad).norm()) <= 1e-4 * float(theirs.grad.norm()) + 1e-4


def test_the_report_says_what_was_replaced_and_what_not_and_why():
    class Own(nn.Conv2d):
        def forward(self, x):
            return super().forward(x) + 1

    model = nn.ModuleDict(
        {
            "dense": nn.Conv2d(8, 8, 3), "deep": nn.Conv2d(8, 16, 3, 2, groups=8),
            "line": nn.Conv1d(8, 8, 3, groups=8), "grouped": nn.Conv2d(8, 8, 3, groups=4),
            "back": nn.ConvTranspose2d(8, 8, 3, groups=8), "own": Own(8, 8, 3, groups=8),
            "left": nn.Conv2d(8, 8, 3, groups=8), "cube": nn.Conv3d(8, 8, 3, groups=8),
            "complex": nn.Conv2d(8, 8, 3, groups=8, dtype=torch.complex64),
        }
    )  # fmt: skip
    report = tt.optimize_(model, lambda module, name: name != "left")
    assert report.replaced == ["deep", "line", "grouped", "back"]
    skipped = dict(report.skipped)
    others = skipped.pop("cube")  # timm's layers are in the list where it is loaded
    assert others.startswith("Conv3d: there are kernels for Conv2d, Conv1d, ConvTranspose2d")
    assert skipped == {
        "dense": "is dense: left to PyTorch, unless dense=True",
        "own": "is a Own, which may have a forward pass of its own",
        "left": "left out by filter_fn",
        "complex": "has parameters of torch.complex64",
    }
    lines = str(report).splitlines()
    assert lines[0].split() == ["module", "layer", "result"]
    assert "deep     Conv2d 8 -> 16, 3x3, stride 2x2" in str(report)
    assert lines[-1] == "4 of 9 convolutions replaced"
    assert tt.optimize_(model["deep"]).skipped == {"": "is Tilewright's already"}


def test_a_model_can_be_what_it_was():
    for undo in (lambda model, report: report.undo(), lambda model, report: tt.undo_(model)):
        model = mobile()
        kinds = [type(m) for m in model.modules()]
        report = tt.optimize_(model)
        assert [type(m) for m in model.modules()] != kinds
        undo(model, report)
        assert [type(m) for m in model.modules()] == kinds


def test_the_state_is_the_same():
    model = convnext()
    before, parameters = model.state_dict(), list(model.parameters())
    hook = model[1].conv.register_forward_hook(lambda *_: None)
    tt.optimize_(model)
    after = model.state_dict()
    assert list(before) == list(after)
    assert all(before[k].equal(after[k]) for k in before)
    assert all(a is b for a, b in zip(parameters, model.parameters()))
    assert len(model[1].conv._forward_hooks) == 1
    hook.remove()
    convnext().load_state_dict(after)
    model.load_state_dict(convnext().state_dict())


def test_a_swapped_model_can_be_copied_pickled_and_saved():
    model, x = convnext(), torch.randn(1, 3, 16, 16)
    tt.optimize_(model)
    wanted, file = model(x), io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    for other in (
        copy.deepcopy(model),
        pickle.loads(pickle.dumps(model)),
        torch.load(file, weights_only=False),
    ):
        assert type(other[1].conv) is tt.DepthwiseConv2d
        assert other(x).equal(wanted)


@pytest.mark.parametrize("mode", ["zeros", "reflect", "replicate", "circular"])
def test_padding_modes_are_honoured(mode):
    ours = tt.DepthwiseConv2d(4, 8, (3, 2), padding=(2, 1), padding_mode=mode)
    theirs = nn.Conv2d(4, 8, (3, 2), padding=(2, 1), padding_mode=mode, groups=4)
    theirs.load_state_dict(ours.state_dict())
    x = torch.randn(2, 4, 7, 6)
    assert close(ours(x), theirs(x))
    line = tt.DepthwiseConv1d(4, 4, 3, padding=1, padding_mode=mode)
    plain = nn.Conv1d(4, 4, 3, padding=1, padding_mode=mode, groups=4)
    plain.load_state_dict(line.state_dict())
    row = x[:, :, 0].contiguous()
    assert close(line(row), plain(row))


def test_a_module_is_depthwise():
    assert tt.DepthwiseConv2d(6).weight.shape == (6, 1, 3, 3)
    assert isinstance(tt.DepthwiseConv2d(6, 12, 5), nn.Conv2d)
    with pytest.raises(ValueError, match="groups=2: it is in_channels=6"):
        tt.DepthwiseConv2d(6, 6, 3, groups=2)
    with pytest.raises(ValueError, match="out_channels=7 is not a multiple of the 6"):
        tt.DepthwiseConv2d(6, 7, 3)


def test_explain_names_the_kernel_of_each_call():
    model = mobile()
    tt.optimize_(model)
    model[2].layers[3].stride = (2, 2)
    found = tt.explain(model, torch.randn(1, 3, 16, 16))
    assert [line.name for line in found.lines] == ["1.layers.3", "2.layers.3"]
    assert all(line.kernel.startswith("cpu.lines(") for line in found.lines)
    assert "forward 1x16x8x8 K3 s2 p1,1,1,1 float32 NCHW" in str(found)
    assert not calls.observers
    strided = tt.explain(model[1].layers[3], torch.randn(1, 16, 8, 16)[..., ::2])
    assert "PyTorch: the input is dense in neither NCHW nor NHWC" in str(strided)


@pytest.mark.parametrize(
    "change",
    [
        nn.utils.parametrizations.weight_norm, nn.utils.spectral_norm,
        lambda m: nn.utils.prune.random_unstructured(m, "weight", 0.5),
        lambda m: nn.utils.prune.random_unstructured(m, "bias", 0.5),
    ],
)  # fmt: skip
def test_parameters_that_are_computed_are_computed_for_each_call(change):
    from torch.nn.utils import prune  # noqa: F401

    torch.manual_seed(0)
    ours = change(tt.DepthwiseConv2d(4, padding=1)).eval()
    x = torch.randn(1, 4, 6, 6)
    for _ in range(3):
        assert close(ours(x), F.conv2d(x, ours.weight, ours.bias, 1, 1, 1, 4))
        with torch.no_grad():
            for p in ours.parameters():
                p.mul_(-1.5)


def test_a_module_may_be_called_with_the_parameters_of_another():
    ours, other = (tt.DepthwiseConv2d(4, padding=1) for _ in range(2))
    x, state = torch.randn(1, 4, 6, 6), dict(other.named_parameters())
    for _ in range(3):
        assert close(torch.func.functional_call(ours, state, (x,)), other(x))
        assert not close(ours(x), other(x))


def test_a_swapped_model_compiles_as_one_graph():
    model, x = convnext().eval(), torch.randn(2, 3, 16, 16)
    tt.optimize_(model)
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    with torch.no_grad():
        assert close(compiled(x), model(x))


def test_measuring_when_a_shape_is_first_seen(monkeypatch):
    monkeypatch.setattr("tilewright.select.choice.MEASURED", 2)
    conv, x = tt.DepthwiseConv2d(4), torch.randn(1, 4, 8, 8)
    wanted = conv(x)
    before = tt.set_policy("profile")
    try:
        assert close(conv(x), wanted)
        assert tt.explain(conv, x).lines[0].kernel.endswith(" us")
    finally:
        assert tt.set_policy(before) == "profile"
    monkeypatch.setattr("tilewright.select.vendor.Call.seconds", lambda *_: 1e-12)
    x = torch.randn(1, 4, 9, 9)
    wanted = conv(x)
    tt.set_policy("profile")
    try:
        assert close(conv(x), wanted)
        assert tt.explain(conv, x).lines[0].kernel.startswith("pytorch()")
    finally:
        tt.set_policy(before)
    with pytest.raises(Exception, match="unknown policy"):
        tt.set_policy("fastest")
