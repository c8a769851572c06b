"""Compiled graphs call kernels past the dispatcher, and whoever watches still sees them."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest
from tests.support.torch_checks import error

torch = pytest.importorskip("torch")
pytestmark = [pytest.mark.needs_torch, pytest.mark.usefixtures("only_kernels")]
nn, F = torch.nn, torch.nn.functional

import tilewright.torch as tt  # noqa: E402
from tilewright.torch import calls, eager, graph_calls, kernels, lowerings  # noqa: E402
from tilewright.torch.kernels import Selection  # noqa: E402

GEOMETRY = ((1, 1), (1, 1, 1, 1), (1, 1))


@pytest.fixture(autouse=True)
def nothing_compiled():
    torch._dynamo.reset()
    calls.forget()
    graph_calls.calls.clear()


def code_of(run, *operands, **settings):
    """What a compiled function makes of operands, and the code that does."""
    from torch._inductor.utils import run_and_get_code

    with torch.no_grad():
        found, codes = run_and_get_code(torch.compile(run, fullgraph=True, **settings), *operands)
    return found, "\n".join(codes)


def names_called(run):
    """The names of Python's functions that are called."""
    called = []
    sys.setprofile(lambda frame, event, _: called.append(frame.f_code.co_name))
    try:
        run()
    finally:
        sys.setprofile(None)
    return called


@pytest.fixture
def fused():
    """A convolution with what follows it, and its image."""
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(4, 8, 3, padding=1, groups=4), nn.BatchNorm2d(8), nn.ReLU6()
    ).eval()  # fmt: skip
    model[1].running_mean.normal_()
    return model, torch.randn(2, 4, 9, 8)


@pytest.mark.parametrize("form", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize("is_bare", [False, True])
def test_a_graph_calls_the_kernel_and_nothing_of_the_dispatcher(fused, form, is_bare):
    model, x = fused[0][:1] if is_bare else fused[0], fused[1].to(memory_format=form)
    wanted = model(x)
    tt.optimize_(model)
    compiled = torch.compile(model, fullgraph=True)
    with torch.no_grad():
        compiled(x), compiled(x)
        called = names_called(lambda: compiled(x))
        found = compiled(x)
    assert error(found, wanted) < 1e-6
    assert found.stride() == wanted.stride()
    assert not {"at_once", "cached", "normalized", "signature"} & set(called)


def test_gradients_are_called_past_the_dispatcher_too():
    layer = nn.Conv2d(4, 8, 3, stride=2, padding=1, groups=4)
    x = torch.randn(2, 4, 9, 8, requires_grad=True)
    wanted = torch.autograd.grad(layer(x).square().sum(), (x, *layer.parameters()))
    tt.optimize_(layer)
    compiled = torch.compile(layer, fullgraph=True)

    def step():
        return torch.autograd.grad(compiled(x).square().sum(), (x, *layer.parameters()))

    step(), step()
    called = names_called(step)
    assert max(map(error, step(), wanted)) < 1e-5
    assert not {"at_once", "cached", "dgrad", "wgrad", "signature"} & set(called)
    assert {what.split("'")[1] for what in graph_calls.calls} == {
        "depthwise_conv2d", "depthwise_conv2d_dgrad", "depthwise_conv2d_wgrad"
    }  # fmt: skip


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
    # Sizes that came before are recognised by one guard.
    called = names_called(lambda: compiled(x))
    assert not {"at_once", "cached", "signature"} & set(called)
    # One graph, whose calls say nothing of sizes.
    assert sorted(graph_calls.calls) == [
        graph_calls.text("depthwise_conv2d", (True, True, False)),
        graph_calls.text("depthwise_conv2d_dgrad", (True, True, False)),
        graph_calls.text("depthwise_conv2d_wgrad", (True, True)),
    ]


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
    assert "graph_calls[" in code
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


def test_profilers_observers_and_modes_see_the_operators(fused):
    from torch.utils._python_dispatch import TorchDispatchMode

    class Watch(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            seen.append(func)
            return func(*args, **(kwargs or {}))

    seen, told = [], []
    model, x = fused
    tt.optimize_(model)
    name, operator = "depthwise_conv2d_norm", torch.ops.tilewright.depthwise_conv2d_norm.default
    wanted = model(x).detach()
    with torch.no_grad():
        compiled = torch.compile(model, fullgraph=True)
        compiled(x), compiled(x)
        with torch.profiler.profile() as profile:
            found = [compiled(x)]
        assert f"tilewright::{name}" in {event.key for event in profile.key_averages()}

        def observer(problem, found):
            told.append(problem)

        calls.observers.append(observer)
        try:
            found.append(compiled(x))
        finally:
            calls.observers.remove(observer)
        assert [str(problem.epilogue[-1]) for problem in told] == ["relu6"]
        (what,) = graph_calls.calls
        own = (model[0].weight, model[0].bias, model[1].running_mean, model[1].running_var)
        operands = [t.detach() for t in (x, *own, *model[1].parameters())]
        with Watch():
            found.append(graph_calls.calls[what](*operands))
        assert seen == [operator]
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


def test_a_setting_that_has_no_literal(fused):
    model, x = fused
    model[1].eps = float("inf")
    wanted = model(x)
    tt.optimize_(model)
    found, code = code_of(model, x)
    assert torch.equal(found, wanted)
    assert "graph_calls[" in code


def test_another_policy_counts_from_the_next_call_on(fused):
    model, x = fused
    tt.optimize_(model)
    with torch.no_grad():
        compiled = torch.compile(model, fullgraph=True)
        wanted = compiled(x)
        (what,) = graph_calls.calls
        before = graph_calls.calls[what]
        tt.set_policy(tt.set_policy("profile"))
        assert not graph_calls.calls
        assert error(compiled(x), wanted) < 1e-6
    assert graph_calls.calls[what] is not before


@pytest.mark.parametrize("inside", ["_lowered", "_is_python"])
def test_insides_of_another_kind_leave_the_operator_to_the_dispatcher(inside, fused, monkeypatch):
    def fail(*_):
        raise AttributeError("ExternKernelAlloc")

    model, x = fused
    wanted = model(x)
    tt.optimize_(model)
    monkeypatch.setattr(lowerings, inside, fail)
    found, code = code_of(model, x, options={"fx_graph_cache": False})
    assert error(found, wanted) < 1e-6
    assert "graph_calls[" not in code
    assert "torch.ops.tilewright.depthwise_conv2d_norm.default(" in code


def test_what_inductor_says_of_a_call_is_a_tuple_or_has_names():
    named = SimpleNamespace(
        example_output="made", tensor_args=["x"], non_tensor_args=[1], unflatten_args=None,
        unbacked_bindings={},
    )  # fmt: skip
    for found in (named, ("made", ["x"], [1], None, {})):
        assert lowerings._parts(found) == ("made", ["x"], {})


def test_code_that_is_not_pythons_calls_the_dispatcher(fused, monkeypatch):
    from torch._inductor.virtualized import V

    class Graph:
        cpp_wrapper, aot_mode = False, False

    with V.set_graph_handler(Graph()):
        assert lowerings._is_python()
        for name in ("cpp_wrapper", "aot_mode"):
            with monkeypatch.context() as patch:
                patch.setattr(Graph, name, True)
                assert not lowerings._is_python()


@pytest.mark.needs_cuda
@pytest.mark.parametrize("form", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize("mode", ["default", "reduce-overhead"])
def test_graphs_on_a_gpu_make_what_eager_code_does(form, mode):
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(8, 32, 1), nn.Conv2d(32, 32, 3, padding=1, groups=32, bias=False),
        nn.BatchNorm2d(32), nn.ReLU6(), nn.Conv2d(32, 32, 7, padding=3, groups=32),
    ).cuda().to(memory_format=form)  # fmt: skip
    tt.optimize_(model)
    x = torch.randn(4, 8, 20, 24, device="cuda").to(memory_format=form)
    for training in (False, True):
        model.train(training)
        compiled = torch.compile(model, mode=mode, fullgraph=True)
        made = []
        for run in (model, compiled, compiled, compiled):
            with torch.autocast("cuda", torch.float16), torch.set_grad_enabled(training):
                y = run(x)
            made.append([y.detach().clone()])
            if training:
                own = list(model.parameters())
                made[-1] += [g.clone() for g in torch.autograd.grad(y.float().mean(), own)]
        for found in made[1:]:
            assert all(error(a, b) < 2e-2 for a, b in zip(found, made[0], strict=True))


def test_a_bias_is_added_by_the_code_behind_on_a_gpu(monkeypatch):
    monkeypatch.setattr(eager, "_adds_by_itself", lambda _, bias: bias is not None)
    torch.manual_seed(0)
    layer, x = nn.Conv2d(4, 8, 3, padding=1, groups=4), torch.randn(2, 4, 9, 8)
    wanted = layer(x)
    tt.optimize_(layer)
    with torch.no_grad():
        found = torch.compile(layer, fullgraph=True)(x)
    assert error(found, wanted) < 1e-6
    (what,) = graph_calls.calls
    assert what.startswith("('depthwise_conv2d', (True, True, False)")


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
        with config.patch(force_layout_optimization=True, fx_graph_cache=False):
            found = torch.compile(f, fullgraph=True)(x)
    assert error(found[0], wanted) < 1e-2
    assert error(found[1], mean) < 1e-5
    (what,) = graph_calls.calls
    assert "(2, 8, 9, 8), (576, 1, 64, 8)" in what
