"""Compiled graphs call the operators, in the layout that the compiler computes in, and whoever
watches sees them."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from tests.support.torch_checks import error

torch = pytest.importorskip("torch")
pytestmark = [pytest.mark.needs_torch, pytest.mark.usefixtures("only_kernels", "plain_code")]
nn, F = torch.nn, torch.nn.functional

import tilewright.torch as tt  # noqa: E402
from tilewright.torch import calls, eager, kernels, lowerings  # noqa: E402
from tilewright.torch.kernels import Selection  # noqa: E402

GEOMETRY = ((1, 1), (1, 1, 1, 1), (1, 1))


@pytest.fixture(autouse=True)
def nothing_compiled():
    torch._dynamo.reset()
    calls.forget()


def code_of(run, *operands, **settings):
    """What a compiled function makes of operands, and the code that does."""
    from torch._inductor.utils import run_and_get_code

    with torch.no_grad():
        found, codes = run_and_get_code(torch.compile(run, fullgraph=True, **settings), *operands)
    return found, "\n".join(codes)


@pytest.fixture
def fused():
    """A convolution with what follows it, and its image."""
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(4, 8, 3, padding=1, groups=4), nn.BatchNorm2d(8), nn.ReLU6()
    ).eval()  # fmt: skip
    model[1].running_mean.normal_()
    return model, torch.randn(2, 4, 9, 8)


def test_sizes_may_vary():
    w = torch.randn(4, 1, 3, 3, requires_grad=True)

    def f(x):
        return tt.depthwise_conv2d(x, w, None, 2, 1).relu()

    compiled = torch.compile(f, fullgraph=True, dynamic=True)
    for n, h, wide in ((2, 8, 9), (3, 11, 9), (5, 8, 14), (4, 20, 21)):
        x = torch.randn(n, 4, h, wide, requires_grad=True)
        wanted = F.conv2d(x, w, None, 2, 1, 1, 4).relu()
        y = compiled(x)
        assert error(y, wanted) < 1e-5
        grads = [torch.autograd.grad(out.square().sum(), (x, w)) for out in (y, wanted)]
        assert max(map(error, *grads)) < 1e-4


@pytest.mark.parametrize("odd", ["strided image", "strided filter", "no scale"])
def test_operands_that_a_launch_does_not_take_as_they_are(odd, fused):
    (conv, norm, relu6), x = fused
    weight = conv.weight.detach().mT if odd == "strided filter" else conv.weight.detach()
    scale = (None, None) if odd == "no scale" else (norm.weight, norm.bias)

    def f(x):
        x = x.mT if odd == "strided image" else x
        x = torch.ops.tilewright.depthwise_conv2d_norm(
            x, weight, conv.bias, norm.running_mean, norm.running_var, *scale, 1e-5, "relu6",
            *GEOMETRY,
        )  # fmt: skip
        return tt.depthwise_conv2d(x, weight[:, :, :1].expand(8, 1, 3, 3), None, 1, 1)

    found, code = code_of(f, x)
    assert "tilewright.depthwise_conv2d_norm" in code
    y = F.conv2d(x.mT if odd == "strided image" else x, weight, conv.bias, 1, 1, 1, 4)
    y = relu6(F.batch_norm(y, norm.running_mean, norm.running_var, *scale))
    assert error(found, F.conv2d(y, weight[:, :, :1].expand(8, 1, 3, 3), None, 1, 1, 1, 8)) < 1e-5


def test_what_has_no_kernel_is_pytorchs(fused, monkeypatch):
    monkeypatch.setattr(kernels, "find", lambda *_: Selection(None))
    model, x = fused
    wanted = model(x)
    tt.optimize_(model)
    with torch.no_grad():
        compiled = torch.compile(model, fullgraph=True)
        assert error(compiled(x), wanted) < 1e-6
        assert error(compiled(x), wanted) < 1e-6


def test_profilers_and_observers_see_the_operators(fused):
    told = []
    model, x = fused
    tt.optimize_(model)
    wanted = model(x).detach()
    with torch.no_grad():
        compiled = torch.compile(model, fullgraph=True)
        compiled(x), compiled(x)
        with torch.profiler.profile() as profile:
            found = [compiled(x)]
        names = {event.key for event in profile.key_averages()}
        assert "tilewright::depthwise_conv2d_norm" in names

        def observer(problem, found):
            told.append(problem)

        calls.observers.append(observer)
        try:
            found.append(compiled(x))
        finally:
            calls.observers.remove(observer)
        assert [str(problem.epilogue[-1]) for problem in told] == ["relu6"]
    assert all(error(y, wanted) < 1e-6 for y in found)


def test_a_profiler_sees_a_call_that_nothing_is_known_of(fused):
    model, x = fused
    tt.optimize_(model)
    compiled = torch.compile(model, fullgraph=True)
    with torch.no_grad():
        compiled(x)
        tt.set_policy(tt.set_policy("reproducible"))
        with torch.profiler.profile() as profile:
            compiled(x)
    keys = [event.key for event in profile.key_averages()]
    assert keys.count("tilewright::depthwise_conv2d_norm") == 1


def test_a_bias_is_added_by_the_code_behind_on_a_gpu(monkeypatch):
    monkeypatch.setattr(eager, "_adds_by_itself", lambda _, bias: bias is not None)
    torch.manual_seed(0)
    layer, x = nn.Conv2d(4, 8, 3, padding=1, groups=4), torch.randn(2, 4, 9, 8)
    wanted = layer(x)
    tt.optimize_(layer)
    with torch.no_grad():
        found = torch.compile(layer, fullgraph=True)(x)
    assert error(found, wanted) < 1e-6


def test_a_bias_of_another_type_or_on_a_cpu_is_the_kernels(monkeypatch):
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
    half, single = torch.zeros(4, dtype=torch.float16), torch.zeros(4)
    on_a_gpu = SimpleNamespace(is_cuda=True, dtype=torch.float16)
    assert eager._adds_by_itself(on_a_gpu, half)
    assert not eager._adds_by_itself(on_a_gpu, single)
    assert not eager._adds_by_itself(on_a_gpu, None)
    assert not eager._adds_by_itself(single, single)


def test_an_image_cast_from_one_that_is_wanted_too_lies_as_its_neighbours():
    from torch._inductor import config

    torch.manual_seed(0)
    layers = nn.ModuleList(nn.Conv2d(4, 8, 1) for _ in range(5))
    layer, x = nn.Conv2d(8, 8, 3, padding=1, groups=8).bfloat16(), torch.randn(2, 4, 9, 8)

    def f(x):
        wide = sum(one(x) for one in layers).sigmoid()  # worth keeping
        return layer(wide.bfloat16()), wide.mean((2, 3))

    with torch.no_grad():
        wanted, mean = f(x)
        tt.optimize_(layer)
        # Inductor computes with channels last, as it does in 16 bits on a GPU.
        layouts = []
        calls.observers.append(lambda problem, _: layouts.append(problem.layout))
        try:
            with config.patch(force_layout_optimization=True, fx_graph_cache=False):
                found = torch.compile(f, fullgraph=True)(x)
        finally:
            calls.observers.pop()
    assert error(found[0], wanted) < 1e-2
    assert error(found[1], mean) < 1e-5
    assert layouts == ["NHWC"]


def test_insides_of_inductors_of_another_kind_leave_the_layout_to_it(fused, monkeypatch):
    def fail(*_):
        raise AttributeError("StorageBox")

    model, x = fused
    wanted = model(x)
    tt.optimize_(model)
    monkeypatch.setattr(lowerings, "_lay_as_what_it_reads", fail)
    found, code = code_of(model, x, options={"fx_graph_cache": False})
    assert error(found, wanted) < 1e-6
    assert "tilewright.depthwise_conv2d_norm" in code
