"""Compiled and exported programs hold the operators, once for all sizes, and compute the same."""

from __future__ import annotations

import pytest
from tests.support.torch_checks import error

torch = pytest.importorskip("torch")
pytestmark = [pytest.mark.needs_torch, pytest.mark.usefixtures("only_kernels", "plain_code")]
nn, F = torch.nn, torch.nn.functional

import tilewright.torch as tt  # noqa: E402


@pytest.fixture(autouse=True)
def nothing_compiled():
    torch._dynamo.reset()


@pytest.fixture
def channels_last_inside():
    """Inductor computes with channels last, as it does in 16 bits on a GPU."""
    from torch._inductor import config

    with config.patch(force_layout_optimization=True, force_disable_caches=True):
        yield


def test_inductor_calls_the_operators_with_the_memory_formats_of_eager():
    w = torch.randn(4, 1, 3, 3, requires_grad=True)

    def f(x, w):
        return tt.depthwise_conv2d(x, w, None, 1, 1)

    compiled = torch.compile(f, fullgraph=True)
    for form in (torch.contiguous_format, torch.channels_last):
        x = torch.randn(2, 4, 8, 9).to(memory_format=form).requires_grad_()
        y, wanted = compiled(x, w), f(x, w)
        assert y.stride() == wanted.stride()
        assert error(y, wanted) < 1e-6
        g = torch.randn_like(y)
        found, exact = (torch.autograd.grad(out, (x, w), g) for out in (y, wanted))
        assert found[0].stride() == exact[0].stride()
        assert all(error(a, b) < 1e-6 for a, b in zip(found, exact))


def test_one_graph_serves_all_batches_and_images():
    from torch._dynamo.testing import CompileCounterWithBackend

    counter = CompileCounterWithBackend("aot_eager")
    w = torch.randn(4, 1, 3, 3, requires_grad=True)
    layer = torch.compile(
        lambda x: tt.depthwise_conv2d(x, w, None, 2, 1), fullgraph=True, dynamic=True,
        backend=counter,
    )  # fmt: skip
    for n, h, wide in ((2, 8, 9), (3, 11, 9), (5, 8, 14), (4, 20, 21)):
        x = torch.randn(n, 4, h, wide)
        y = layer(x)
        assert error(y, F.conv2d(x, w, None, 2, 1, 1, 4)) < 1e-5
        y.sum().backward()
    assert counter.frame_count == 1


class Model(nn.Module):
    """Each kind of convolution that is swapped."""

    def __init__(self):
        super().__init__()
        self.wide = nn.Conv2d(4, 8, 3, padding=1, groups=4)
        self.back = nn.ConvTranspose2d(8, 8, 3, 2, 1, 1, groups=8)
        self.line = nn.Conv1d(8, 8, 5, padding=2, groups=8)

    def forward(self, x):
        y = self.back(F.relu(self.wide(x)))
        return self.line(y.flatten(2))


def test_a_swapped_model_is_exported_for_every_batch():
    model, x = Model().eval(), torch.randn(2, 4, 6, 6)
    wanted = model(x)
    assert len(tt.optimize_(model).replaced) == 3
    batch = torch.export.Dim("batch", min=1, max=64)
    program = torch.export.export(model, (x,), dynamic_shapes=({0: batch},))
    calls = [n for n in program.graph.nodes if "tilewright" in str(n.target)]
    assert len(calls) == 3
    assert error(program.module()(x), wanted) < 1e-5
    more = torch.randn(7, 4, 6, 6)
    assert error(program.module()(more), model(more)) < 1e-6


def test_training_compiles_as_one_graph_under_autocast():
    model = Model()
    tt.optimize_(model)
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    x = torch.randn(2, 4, 6, 6)
    grads = []
    for run in (model, compiled):
        with torch.autocast("cpu", torch.bfloat16):
            y = run(x)
        assert y.dtype == torch.bfloat16
        grads.append(torch.autograd.grad(y.float().square().mean(), list(model.parameters())))
    assert all(a.dtype == torch.float32 for a in grads[1])
    assert all(error(a, b) < 1e-2 for a, b in zip(*grads))


def test_what_has_no_kernel_is_pytorchs_in_compiled_programs_too():
    x = torch.randn(1, 4, 6, 6, dtype=torch.complex64)
    w = torch.randn(4, 1, 3, 3, dtype=torch.complex64)
    compiled = torch.compile(
        lambda x: tt.depthwise_conv2d(x, w), fullgraph=True, backend="aot_eager"
    )
    assert torch.allclose(compiled(x), F.conv2d(x, w, groups=4), atol=1e-5)


def test_inductor_keeps_the_layout_that_it_computes_in(channels_last_inside):
    from torch._inductor.utils import run_and_get_code

    model = nn.Sequential(
        nn.Conv2d(4, 16, 1), nn.ReLU(), nn.Conv2d(16, 16, 3, padding=1, groups=16), nn.ReLU(),
        nn.Conv2d(16, 4, 1),
    ).eval()  # fmt: skip
    x = torch.randn(2, 4, 9, 8)
    with torch.no_grad():
        wanted = model(x)
        assert len(tt.optimize_(model).replaced) == 1
        found, (code, *_) = run_and_get_code(torch.compile(model, fullgraph=True), x)
    assert error(found, wanted) < 1e-6
    result = next(line for line in code.splitlines() if "'torch.ops.tilewright" in line)
    assert "(2, 16, 9, 8), (1152, 1, 128, 16)" in result  # channels last, as the convolution before


def test_gradients_keep_the_layout_that_inductor_computes_in(channels_last_inside, monkeypatch):
    from torch._inductor.utils import run_fw_bw_and_get_code

    from tilewright.torch import passes

    model = nn.Sequential(
        nn.Conv2d(4, 16, 1), nn.ReLU(), nn.Conv2d(16, 16, 3, padding=1, groups=16), nn.ReLU(),
        nn.Conv2d(16, 4, 1),
    )  # fmt: skip
    x = torch.randn(2, 4, 9, 8)
    model(x).square().sum().backward()
    wanted = [p.grad.clone() for p in model.parameters()]
    model.zero_grad()
    assert len(tt.optimize_(model).replaced) == 1
    seen = []
    for name in ("dgrad_run", "wgrad_run"):
        run = getattr(passes, name)
        monkeypatch.setattr(passes, name, lambda *of, run=run: seen.append(of[:2]) or run(*of))
    compiled = torch.compile(model, fullgraph=True)
    run_fw_bw_and_get_code(lambda: compiled(x).square().sum())
    assert all(error(p.grad, g) < 1e-5 for p, g in zip(model.parameters(), wanted, strict=True))
    images = [t for of in seen for t in of if t.shape[1] == 16]  # the filter has one channel
    assert len(images) == 3
    assert all(passes.is_channels_last(t) for t in images)


@pytest.mark.parametrize("asked", [False, True])
@pytest.mark.parametrize("form", [torch.contiguous_format, torch.channels_last])
def test_a_gradient_by_the_input_lies_as_its_operand_does(form, asked):
    operator = torch.ops.tilewright.depthwise_conv2d_dgrad.default
    dy, w = torch.randn(2, 4, 9, 8).contiguous(memory_format=form), torch.randn(4, 1, 3, 3)
    operands = (dy, w, None, [2, 4, 9, 8], [1, 1], [1, 1, 1, 1], [1, 1], asked)
    made = operator(*operands)
    assert made.is_contiguous(memory_format=form)
    wanted = torch.nn.grad.conv2d_input((2, 4, 9, 8), w, dy.contiguous(), padding=1, groups=4)
    assert error(made, wanted) < 1e-6
    torch.library.opcheck(operator, operands)


@pytest.mark.parametrize("kind", ["convolution", "transposed"])
@pytest.mark.parametrize("transformation", ["jvp", "dual numbers", "grad", "hessian", "vmap"])
def test_transformations_of_compiled_programs_are_pytorchs(kind, transformation):
    from torch.autograd import forward_ad

    torch.manual_seed(0)
    x, tangent, w = torch.randn(2, 4, 9, 8), torch.randn(2, 4, 9, 8), torch.randn(4, 1, 3, 3)

    def ours(x):
        of = tt.depthwise_conv2d if kind == "convolution" else tt.depthwise_conv_transpose2d
        return of(x, w, None, 2, 1).sin()

    def theirs(x):
        of = F.conv2d if kind == "convolution" else F.conv_transpose2d
        settings = (1, 4) if kind == "convolution" else (0, 4)
        return of(x, w, None, 2, 1, *settings).sin()

    def transformed(f, x):
        if transformation == "jvp":
            return torch.func.jvp(f, (x,), (tangent,))[1]
        if transformation == "grad":
            return torch.func.grad(lambda x: f(x).sum())(x)
        if transformation == "hessian":
            return torch.func.hessian(lambda scale: f(scale * x).sum())(torch.tensor(1.0))
        if transformation == "vmap":
            return torch.func.vmap(f)(torch.stack([x, tangent]))
        with forward_ad.dual_level():
            return forward_ad.unpack_dual(f(forward_ad.make_dual(x, tangent))).tangent

    found = torch.compile(lambda x: transformed(ours, x), backend="aot_eager")(x)
    assert error(found, transformed(theirs, x)) < 1e-5


def test_gradients_by_functions_of_compiled_models_in_evaluation_mode():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(4, 8, 3, padding=1, groups=4), nn.BatchNorm2d(8), nn.SiLU())
    model.eval().requires_grad_(False)
    x = torch.randn(2, 4, 9, 8)
    wanted = torch.func.grad(lambda x: model(x).square().sum())(x)
    tt.optimize_(model)
    gradient = torch.func.grad(lambda x: model(x).square().sum())
    assert error(torch.compile(gradient, backend="aot_eager")(x), wanted) < 1e-5


def test_filters_whose_sizes_might_vary():
    torch.manual_seed(0)
    w = torch.randn(6, 1, 5, requires_grad=True)  # no parameter: any size of it is taken to vary
    compiled = torch.compile(lambda x: tt.depthwise_conv1d(x, w, None, 2, 3, 2), dynamic=True)
    for n, wide in ((2, 22), (3, 25)):
        x = torch.randn(n, 3, wide, requires_grad=True)
        y, wanted = compiled(x), F.conv1d(x, w, None, 2, 3, 2, 3)
        found, exact = (torch.autograd.grad(out.square().sum(), (x, w)) for out in (y, wanted))
        assert error(y, wanted) < 1e-5
        assert all(error(a, b) < 1e-4 for a, b in zip(found, exact))
