"""Dense convolutions and those in groups take along their normalisation, what is added to it and
the activation, in inference on a CPU."""

from __future__ import annotations

import copy
import pickle

import pytest
from tests.support.torch_checks import close

torch = pytest.importorskip("torch")
pytestmark = [pytest.mark.needs_torch, pytest.mark.usefixtures("only_kernels", "plain_code")]
nn = torch.nn

from tests.support.sequences import ACTIVATIONS, sequence, trained, watched  # noqa: E402

import tilewright.torch as tt  # noqa: E402

FORMS = [torch.contiguous_format, torch.channels_last]


class Residual(nn.Module):
    """As torchvision's bottlenecks are written: one activation for all."""

    def __init__(self, channels=8, width=4, groups=1, stride=1):
        super().__init__()
        self.conv1 = nn.Conv2d(channels, width, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, stride, 1, groups=groups, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.drop = nn.Identity()
        self.conv3 = nn.Conv2d(width, channels, 1)
        self.bn3 = nn.BatchNorm2d(channels)
        self.relu = nn.ReLU(inplace=True)
        self.downsample = None
        if stride > 1:
            layers = nn.Conv2d(channels, channels, 1, stride), nn.BatchNorm2d(channels)
            self.downsample = nn.Sequential(*layers)

    def forward(self, x):
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.relu(self.drop(self.bn2(self.conv2(out))))
        out = self.bn3(self.conv3(out))
        if self.downsample is not None:
            x = self.downsample(x)
        return self.end(out, x)

    def end(self, out, x):
        out += x
        return self.relu(out)


class Behind(Residual):
    """The input comes first in the sum."""

    def end(self, out, x):
        return self.relu(x + out)


class Linear(Residual):
    """There is no activation behind the sum."""

    def end(self, out, x):
        return out + x


class Into(Residual):
    """The sum is written to what the caller has."""

    def end(self, out, x):
        x += out
        return self.relu(x)


class Half(Residual):
    """What is added has the extents of no result."""

    def end(self, out, x):
        return self.relu(out + x[:, :, :1])


class Doubled(Residual):
    def end(self, out, x):
        return self.relu(out + out)


class Overwritten(Residual):
    """What the convolution reads changes before the sum."""

    def forward(self, x):
        out = self.bn3(self.conv3(self.bn2(self.conv2(y := self.bn1(self.conv1(x))))))
        y.zero_()
        kept = self.conv3(z := self.bn1(self.conv1(x)))
        z.zero_()
        return self.relu(self.bn3(kept) + x) + out


class Parallel(nn.Module):
    """The sum of two branches, each normalised."""

    def __init__(self, groups):
        super().__init__()
        self.begin, self.norm = nn.Conv2d(8, 8, 1), nn.BatchNorm2d(8)
        self.a, self.b = nn.Conv2d(8, 8, 3, 1, 1, 1, groups), nn.Conv2d(8, 8, 1, groups=groups)
        self.of_a, self.of_b = nn.BatchNorm2d(8), nn.BatchNorm2d(8)
        self.act = nn.SiLU()

    def forward(self, x):
        return self.act(self.of_a(self.a(self.norm(self.begin(x)))) + self.of_b(self.b(x)))


def pair(model):
    """The same modules, fused and as they were."""
    trained(model.eval())
    other = copy.deepcopy(model)
    report = tt.optimize_(model, dense=True)
    return model, other, report


def sums(model, x):
    """How many kernels add something before they end."""
    lines = tt.explain(model, x).lines
    assert all(line.kernel.startswith("cpu.") for line in lines)
    return sum("residual" in str(line.problem) for line in lines)


@pytest.mark.spread
@pytest.mark.parametrize("form", FORMS, ids=str)
@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("name", ACTIVATIONS)
def test_a_sequence_is_one_kernel(name, groups, form, monkeypatch):
    model = sequence(ACTIVATIONS[name](), groups=groups, bias=name in ("SiLU", "none"))
    model, other, report = pair(model)
    assert list(report.fused) == ["0"]
    model, other = model.to(memory_format=form), other.to(memory_format=form)
    x = torch.randn(2, 8, 9, 10).to(memory_format=form)
    with torch.no_grad():
        wanted = other(x)
        count = watched(monkeypatch, model)
        for image in (x, x[:1], x):
            y = model(image)
            assert close(y, wanted[: len(image)], 1e-6)
            assert y.is_contiguous(memory_format=form)
            assert count() == (name == "none")  # the identity


@pytest.mark.parametrize("form", FORMS, ids=str)
@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("groups", [1, 2])
def test_a_residual_block_launches_a_kernel_a_convolution(groups, stride, form, monkeypatch):
    model, other, report = pair(Residual(groups=groups, stride=stride))
    assert report.fused["conv2"] == ("bn2", "relu")
    assert report.fused["conv3"] == ("bn3", "relu")
    assert "with BatchNorm2d, sum and ReLU" in str(report)
    model, other = model.to(memory_format=form), other.to(memory_format=form)
    x = torch.randn(2, 8, 10, 10).to(memory_format=form)
    with torch.no_grad():
        wanted = other(x)
        assert sums(model, x) == 1
        with torch.inference_mode():
            assert close(model(x), wanted, 1e-6)
        count = watched(monkeypatch, model)
        before = x.clone()
        assert close(model(x), wanted, 1e-6)
        assert torch.equal(x, before)
        assert count() == 1  # the identity between


@pytest.mark.parametrize(
    ("kind", "added"),
    [(Behind, 0), (Linear, 1), (Into, 0), (Half, 0), (Doubled, 0), (Overwritten, 0)],
)
def test_a_sum_of_another_kind_is_that_of_the_block(kind, added):
    model, other, _ = pair(kind())
    x = torch.randn(1, 8, 7, 6)
    with torch.no_grad():
        wanted = other(ours := x.clone())
        assert close(model(theirs := x.clone()), wanted, 1e-6)
        assert torch.allclose(ours, theirs, atol=1e-5)
        assert sums(model, x.clone()) == added


@pytest.mark.parametrize("groups", [1, 2, 8])
def test_of_two_branches_one_takes_the_sum_along(groups):
    model, other, report = pair(Parallel(groups))
    x = torch.randn(2, 8, 7, 6)
    with torch.no_grad():
        assert close(model(x), other(x), 1e-6)
        assert sums(model, x) == 1
        assert report.fused["a"] == ("of_a", "act")
        assert report.fused["b"] == ("of_b",)


def _hook(name):
    return lambda m: getattr(m, name).register_forward_hook(lambda *_: None)


def _written(m):
    for t in (*m.parameters(), m.bn3.running_mean):
        t.data.mul_(1.5)


def _replaced(m):
    m.bn3 = nn.Identity()


CHANGES = {
    "training": lambda m: m.train(),
    "a normalisation trains": lambda m: m.bn3.train(),
    **{f"a hook of {name}": _hook(name) for name in ("conv3", "bn3", "relu", "drop", "bn2")},
    "what is written through data": _written,
    "another module": _replaced,
    "another type": lambda m: m.double(),
}


@pytest.mark.filterwarnings("ignore:tilewright leaves")
@pytest.mark.parametrize("change", CHANGES)
def test_changes_of_a_residual_block_count(change):
    model, other, _ = pair(Residual(groups=2))
    x = torch.randn(2, 8, 6, 6)
    with torch.no_grad():
        model(x)
        CHANGES[change](model)
        CHANGES[change](other)
        x = x.to(other.conv1.weight.dtype)
        assert close(model(x), other(x), 1e-6)
        assert close(model(x), other(x), 1e-6)


def test_hooks_see_what_they_are_of():
    model, other, _ = pair(Residual())
    x, seen = torch.randn(2, 8, 6, 6), []
    for m in (model, other):
        for name in ("conv3", "bn3", "drop", "relu"):
            getattr(m, name).register_forward_hook(lambda _, a, out: seen.append((a[0], out)))
    with torch.no_grad():
        model(x)
        ours, seen[:] = seen[:], []
        other(x)
    assert len(ours) == len(seen) == 6
    for (a, b), (c, d) in zip(ours, seen, strict=True):
        assert close(a, c, 1e-5)
        assert close(b, d, 1e-5)


def test_gradients_reach_what_is_added():
    model, other, _ = pair(Residual(stride=2))
    grads = []
    for m in (model, other):
        for p in m.parameters():
            p.requires_grad_(False)
        m.downsample[0].weight.requires_grad_()
        x = torch.randn(2, 8, 6, 6, generator=torch.Generator().manual_seed(0))
        m(x).square().sum().backward()
        grads.append(m.downsample[0].weight.grad)
    assert close(*grads, 1e-5)


@pytest.mark.filterwarnings("ignore:tilewright leaves")
def test_copies_compilers_and_tracers_see_the_modules():
    model, other, report = pair(nn.Sequential(Residual(), Residual(stride=2)))
    x = torch.randn(2, 8, 6, 6)
    with torch.no_grad():
        expected = other(x)
        for made in (
            copy.deepcopy(model), pickle.loads(pickle.dumps(model)), torch.fx.symbolic_trace(model),
            torch.jit.trace(model, x, check_trace=False), torch.export.export(model, (x,)).module(),
            torch.compile(model, fullgraph=True, backend="eager"),
        ):  # fmt: skip
            assert close(made(x), expected, 1e-5)
        with torch.profiler.profile() as watched:
            assert close(model(x), expected, 1e-5)
        counts = {event.key: event.count for event in watched.key_averages()}
        assert counts["tilewright::conv2d_norm"] == 7
        assert "aten::batch_norm" not in counts
        with torch.overrides.BaseTorchFunctionMode():
            assert close(model(x), expected, 1e-5)
        with torch.autocast("cpu", torch.bfloat16):
            assert close(model(x), other(x), 1e-2)
    assert list(model.state_dict()) == list(other.state_dict())
    report.undo()
    assert [type(m) for m in model.modules()] == [type(m) for m in other.modules()]


def test_kernels_of_residual_blocks_are_compiled_ahead(monkeypatch):
    model, other = nn.Sequential(Residual(), Residual(stride=2)), torch.randn(2, 8, 6, 6)
    trained(model.eval())
    with torch.no_grad():
        expected = model(other)
        tt.optimize_(model, dense=True, example=other)
        monkeypatch.setattr(tt.kernels, "_build", None)
        assert close(model(other), expected, 1e-6)


@pytest.mark.needs_cuda
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("stride", [1, 2])
def test_on_a_gpu_images_of_16_bits_with_channels_last_are_one_launch_a_chain(dtype, stride):
    model = Residual(64, 32, stride=stride)
    trained(model)
    model = model.eval().cuda().to(dtype, memory_format=torch.channels_last)
    x = torch.randn(4, 64, 20, 18, device="cuda", dtype=dtype)
    x = x.contiguous(memory_format=torch.channels_last)
    exact = copy.deepcopy(model).double()
    with torch.no_grad():
        wanted = exact(x.double())
        one_by_one = model(x)
        tt.optimize_(model, dense=True)
        found = model(x)
        assert found.stride() == one_by_one.stride()
        errors = [float((y.double() - wanted).norm() / wanted.norm()) for y in (found, one_by_one)]
        assert errors[0] <= 1.5 * errors[1]
        activities = [torch.profiler.ProfilerActivity.CUDA]
        with torch.profiler.profile(activities=activities) as profile:
            model(x)
            torch.cuda.synchronize()
    kernels = [e for e in profile.events() if e.device_type == torch.autograd.DeviceType.CUDA]
    # Of the chain with strides, whose results are few, parts of sums may be added by another.
    assert 3 + (stride > 1) <= len(kernels) <= 3 + 2 * (stride > 1)
    assert torch.equal(model(x.contiguous()), model(x.contiguous()))  # which PyTorch computes
