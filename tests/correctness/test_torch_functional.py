"""Depthwise convolutions on tensors are what PyTorch's are, gradients, modes and all."""

from __future__ import annotations

import os
import threading
import warnings

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.torch_checks import error, gradient_errors

torch = pytest.importorskip("torch")
pytestmark = [
    pytest.mark.needs_torch,
    pytest.mark.usefixtures("only_kernels", "plain_code"),
    pytest.mark.filterwarnings("error"),
]
F = torch.nn.functional

import tilewright.torch as tt  # noqa: E402
from tilewright.torch import calls, kernels  # noqa: E402

TOLERANCE = {torch.float64: 1e-12, torch.float32: 1e-5, torch.bfloat16: 1.5e-2}
conv = torch.ops.tilewright.depthwise_conv2d.default


@st.composite
def cases(draw):
    """Operands and parameters of ``F.conv2d`` with a group for each channel."""
    kernel = draw(st.integers(1, 5)), draw(st.integers(1, 5))
    dilation = draw(st.integers(1, 2)), draw(st.integers(1, 2))
    padding = draw(st.integers(0, 3)), draw(st.integers(0, 3))
    stride = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    least = [max(1, (k - 1) * d + 1 - 2 * p) for k, d, p in zip(kernel, dilation, padding)]
    image = [e + draw(st.integers(0, 9)) for e in least]
    n, c, m = draw(st.integers(1, 3)), draw(st.sampled_from([1, 3, 16])), draw(st.integers(1, 2))
    dtype = draw(st.sampled_from(list(TOLERANCE)))
    x, w = torch.randn(n, c, *image), torch.randn(c * m, 1, *kernel)
    b = draw(st.sampled_from([None, torch.randn(c * m)]))
    if draw(st.booleans()):
        x, w = (t.to(memory_format=torch.channels_last) for t in (x, w))
    operands = [None if t is None else t.to(dtype).requires_grad_() for t in (x, w, b)]
    return operands, (stride, padding, dilation)


@settings(max_examples=max(4, settings().max_examples // 10))
@given(cases())
def test_it_is_conv2d_with_a_group_for_each_channel(case):
    (x, w, b), parameters = case
    wanted_b = None if b is None else b.double()
    ours = tt.depthwise_conv2d(x, w, b, *parameters)
    wanted = F.conv2d(x.double(), w.double(), wanted_b, *parameters, x.shape[1])
    assert ours.dtype == x.dtype
    assert error(ours, wanted) < TOLERANCE[x.dtype]
    assert all(e < 3 * TOLERANCE[x.dtype] for e in gradient_errors(ours, wanted, (x, w, b)))


@pytest.mark.parametrize("last", [False, True])
def test_the_memory_format_of_the_output_is_that_of_the_input(last):
    form = torch.channels_last if last else torch.contiguous_format
    x = torch.randn(2, 4, 6, 7).to(memory_format=form).requires_grad_()
    w = torch.randn(4, 1, 3, 3)
    y = tt.depthwise_conv2d(x, w, padding=1)
    assert y.is_contiguous(memory_format=form)
    assert y.stride() == F.conv2d(x, w, None, 1, 1, 1, 4).stride()
    (dx,) = torch.autograd.grad(y.sum(), x)
    assert dx.is_contiguous(memory_format=form)


@pytest.mark.parametrize("kernel", [(3, 3), (2, 4), (1, 5)])
@pytest.mark.parametrize("padding", ["same", "valid"])
def test_padding_may_be_named(padding, kernel):
    x, w = torch.randn(1, 3, 8, 9), torch.randn(3, 1, *kernel)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PyTorch's, of copies
        wanted = F.conv2d(x, w, None, 1, padding, 2, 3)
    assert error(tt.depthwise_conv2d(x, w, padding=padding, dilation=2), wanted) < 1e-5


@pytest.mark.parametrize("last", [False, True])
def test_conv1d_is_the_same_along_a_line(last):
    x, w, b = torch.randn(2, 6, 33), torch.randn(12, 1, 5), torch.randn(12)
    if last:
        x = x.transpose(1, 2).contiguous().transpose(1, 2)
    x.requires_grad_()
    wanted = F.conv1d(x, w, b, 2, 3, 2, 6)
    ours = tt.depthwise_conv1d(x, w, b, 2, 3, 2)
    assert error(ours, wanted) < 1e-5
    assert gradient_errors(ours, wanted, [x])[0] < 1e-5


def test_an_image_without_a_batch_is_one():
    x, w = torch.randn(3, 8, 8), torch.randn(3, 1, 3, 3)
    assert tt.depthwise_conv2d(x, w).equal(tt.depthwise_conv2d(x[None], w)[0])
    line = w[:, :, 0]
    assert tt.depthwise_conv1d(x[0, :3], line).shape == (3, 6)


def test_nothing_in_a_batch_gives_nothing():
    w = torch.randn(3, 1, 3, 3, requires_grad=True)
    y = tt.depthwise_conv2d(torch.randn(0, 3, 8, 8), w)
    assert y.shape == (0, 3, 6, 6)
    y.sum().backward()
    assert w.grad.abs().sum() == 0


@pytest.mark.parametrize("parameters", [(1, 1, 1), ((2, 1), (0, 2), (1, 2))])
def test_first_and_second_derivatives_are_right(parameters):
    x = torch.randn(2, 2, 5, 6, dtype=torch.double, requires_grad=True)
    w = torch.randn(4, 1, 3, 2, dtype=torch.double, requires_grad=True)
    b = torch.randn(4, dtype=torch.double, requires_grad=True)

    def f(x, w, b):
        return tt.depthwise_conv2d(x, w, b, *parameters)

    assert torch.autograd.gradcheck(f, (x, w, b))
    assert torch.autograd.gradgradcheck(f, (x, w, b))


@pytest.mark.filterwarnings("ignore:There is a performance drop")  # of PyTorch's batches
@pytest.mark.parametrize("function", [tt.depthwise_conv2d, tt.depthwise_conv_transpose2d])
def test_gradients_are_made_of_many_at_once(function):
    x, w, b = torch.randn(2, 3, 6, 7), torch.randn(3, 1, 3, 3), torch.randn(3)
    operands = [t.double().requires_grad_() for t in (x, w, b)]
    many = torch.randn(4, *function(*operands).shape, dtype=torch.float64)
    for _ in range(2):  # a call, and one like it
        y = function(*operands)
        wanted = [torch.autograd.grad(y, operands, dy, retain_graph=True) for dy in many]
        found = torch.autograd.grad(y, operands, many, is_grads_batched=True)
        for all_of, each in zip(found, zip(*wanted)):
            assert error(all_of, torch.stack(each)) < TOLERANCE[torch.float64]


def test_the_operators_keep_the_rules_of_pytorch():
    x = torch.randn(2, 3, 6, 5, requires_grad=True)
    w, b = torch.randn(3, 1, 3, 3, requires_grad=True), torch.randn(3, requires_grad=True)
    g = torch.randn(2, 3, 6, 5)
    geometry = [1, 1], [1, 1, 1, 1], [1, 1]
    checks = ("test_schema", "test_autograd_registration", "test_faketensor")
    torch.library.opcheck(conv, (x, w, None, *geometry))
    torch.library.opcheck(conv, (x, w, b, *geometry), test_utils=checks)
    torch.library.opcheck(
        torch.ops.tilewright.depthwise_conv2d_dgrad.default,
        (g, w, b, [2, 3, 6, 5], *geometry, True), test_utils=checks,
    )  # fmt: skip
    torch.library.opcheck(
        torch.ops.tilewright.depthwise_conv2d_wgrad.default,
        (x, g, [3, 3], *geometry), test_utils=checks,
    )  # fmt: skip


def test_it_compiles_as_one_graph():
    w, b = torch.randn(4, 1, 3, 3, requires_grad=True), torch.randn(4)

    def f(x, w):
        return F.relu(tt.depthwise_conv2d(x, w, b, padding=1)).sum()

    compiled = torch.compile(f, fullgraph=True, backend="aot_eager")
    x = torch.randn(2, 4, 8, 8)
    assert error(compiled(x, w), f(x, w)) < 1e-5
    for loss in (compiled, f):
        loss(x, w).backward()
    both, w.grad = w.grad.clone(), None
    f(x, w).backward()
    assert error(both, 2 * w.grad) < 1e-5
    with torch.autocast("cpu", torch.bfloat16):
        assert compiled(x, w).isfinite()


def test_it_is_exported():
    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = tt.DepthwiseConv2d(4, kernel_size=3, padding=1)

        def forward(self, x):
            return self.conv(x)

    model, x = Model().eval(), torch.randn(2, 4, 8, 8)
    found = torch.export.export(model, (x,))
    assert "tilewright.depthwise_conv2d" in str(found.graph)
    assert found.module()(x).equal(model(x))


def test_autocast_casts_as_for_conv2d():
    x, w, b = torch.randn(1, 4, 8, 8), torch.randn(4, 1, 3, 3, requires_grad=True), torch.randn(4)
    with torch.autocast("cpu", torch.bfloat16):
        ours, theirs = tt.depthwise_conv2d(x, w, b), F.conv2d(x, w, b, 1, 0, 1, 4)
        kept = tt.depthwise_conv2d(x.double(), w.double())
    assert ours.dtype == theirs.dtype == torch.bfloat16
    assert kept.dtype == torch.float64
    assert error(ours, theirs) < 1.5e-2
    ours.float().sum().backward()
    assert w.grad.dtype == torch.float32


def test_what_pytorch_traces_goes_through_its_dispatcher():
    from torch.fx.experimental.proxy_tensor import make_fx

    x, w = torch.randn(3, 1, 4, 8, 8), torch.randn(4, 1, 3, 3)
    graph = make_fx(lambda x: tt.depthwise_conv2d(x, w))(x[0])
    assert "tilewright.depthwise_conv2d" in graph.code
    with torch.profiler.profile() as profile:
        tt.depthwise_conv2d(x[0], w)
    assert any("tilewright::depthwise_conv2d" in e.key for e in profile.key_averages())


def test_threads_share_kernels():
    x, w = torch.randn(2, 8, 12, 12), torch.randn(8, 1, 3, 3)
    wanted, found = F.conv2d(x, w, None, 1, 1, 1, 8), [None] * 8
    calls.forget()

    def work(k):
        for _ in range(20):
            found[k] = tt.depthwise_conv2d(x, w, None, 1, 1)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert all(error(f, wanted) < 1e-5 for f in found)


def test_kernels_use_as_many_threads_as_pytorch(monkeypatch):
    from tilewright.runtime import llvm_pool

    monkeypatch.delenv("TILEWRIGHT_NUM_THREADS", raising=False)
    told, before = [], torch.get_num_threads()
    monkeypatch.setattr(llvm_pool, "set_num_threads", told.append)
    monkeypatch.setattr(kernels._state, "threads", before)
    x, w = torch.randn(2, 4, 9, 9), torch.randn(4, 1, 3, 3)
    try:
        torch.set_num_threads(before + 1)
        for _ in range(2):
            tt.depthwise_conv2d(x, w)
    finally:
        torch.set_num_threads(before)
    assert told == [before + 1]


def test_a_forked_process_computes():
    x, w = torch.randn(2, 4, 9, 9), torch.randn(4, 1, 3, 3)
    wanted = tt.depthwise_conv2d(x, w)
    child = os.fork()
    if not child:
        torch.set_num_threads(1)
        os._exit(0 if tt.depthwise_conv2d(x, w).equal(wanted) else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_one_kernel_takes_every_batch_on_a_cpu(monkeypatch):
    w = torch.randn(4, 1, 3, 3)
    tt.depthwise_conv2d(torch.randn(1, 4, 9, 9), w)
    monkeypatch.setattr(kernels, "_build", lambda *_: pytest.fail("it was compiled"))
    for n in range(2, 6):
        x = torch.randn(n, 4, 9, 9)
        assert error(tt.depthwise_conv2d(x, w), F.conv2d(x, w, groups=4)) < 1e-5


# -- what is left to PyTorch -------------------------------------------------------------------


def _warnings_of(*runs):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for run in runs:
            run()
    return [str(w.message) for w in caught if "tilewright" in str(w.message)]


def test_what_there_is_no_kernel_for_is_pytorchs_with_one_warning():
    x, w = torch.randn(2, 4, 8, 16)[..., ::2], torch.randn(4, 1, 3, 3, requires_grad=True)
    wanted = F.conv2d(x, w, None, 1, 0, 1, 4)
    calls.forget()

    def run():
        assert tt.depthwise_conv2d(x, w).equal(wanted)

    (said,) = _warnings_of(run, run)
    assert "dense in neither NCHW nor NHWC" in said
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tt.depthwise_conv2d(x, w).sum().backward()
    assert error(w.grad, torch.autograd.grad(wanted.sum(), w)[0]) < 1e-5


def test_transformations_of_functions_are_pytorchs():
    x, w = torch.randn(3, 1, 4, 8, 8), torch.randn(4, 1, 3, 3)

    def f(x, w):
        return tt.depthwise_conv2d(x, w, padding=1)

    def plain(x, w):
        return F.conv2d(x, w, None, 1, 1, 1, 4)

    calls.forget()
    (said,) = _warnings_of(lambda: torch.vmap(f, (0, None))(x, w))
    assert "torch.func's transformations" in said
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        per_sample, wanted = (
            torch.vmap(torch.func.grad(lambda w, x, g=g: g(x, w).square().sum()), (None, 0))(w, x)
            for g in (f, plain)
        )
        assert error(per_sample, wanted) < 1e-5
        _, tangent = torch.func.jvp(lambda w: f(x[0], w), (w,), (w,))
    assert error(tangent, plain(x[0], w)) < 1e-5


def test_what_a_transformation_left_behind_is_a_tensor_again():
    x, w, left = torch.randn(1, 4, 5, 5), torch.randn(4, 1, 3, 3), []
    torch.func.grad(lambda x: (left.append(x), x.sum())[1])(x)
    for _ in range(2):  # the second time by what was remembered
        found = tt.depthwise_conv2d(left[0], w, None, 1, 1)
        torch.testing.assert_close(found.detach(), F.conv2d(x, w, None, 1, 1, 1, 4))


def test_images_of_many_sizes_are_not_all_compiled(monkeypatch):
    monkeypatch.setattr(kernels, "IMAGE_SIZES", 2)
    w = torch.randn(5, 1, 3, 3, requires_grad=True)
    images = [torch.randn(1, 5, 8, width) for width in (8, 9, 10, 11)]
    with torch.no_grad():
        said = _warnings_of(*(lambda x=x: tt.depthwise_conv2d(x, w) for x in images))
    assert said == [
        "tilewright leaves a depthwise convolution to PyTorch: images of more than 2 sizes: the "
        "others are left to PyTorch"
    ]


@pytest.mark.parametrize("padding", [(1, 1, 1, 1), (0, 2, 1, 1), (2, 0, 0, 3)])
@pytest.mark.parametrize("last", [False, True])
def test_pytorchs_own_kernels_take_any_padding(padding, last, monkeypatch):
    form = torch.channels_last if last else torch.contiguous_format
    x = torch.randn(2, 3, 7, 8).to(memory_format=form).requires_grad_()
    w = torch.randn(6, 1, 3, 2, requires_grad=True)
    arguments = (x, w, None, [2, 1], list(padding), [1, 2])
    results = []
    for _ in range(2):
        y = conv(*arguments)
        g = torch.ones_like(y)
        results.append((y, *torch.autograd.grad(y, (x, w), g)))
        calls.forget()
        monkeypatch.setattr("tilewright.torch.passes.find", lambda *_: None)
    calls.forget()
    for ours, theirs in zip(*results):
        assert error(ours, theirs) < 1e-5
        assert ours.stride() == theirs.stride()


@pytest.mark.parametrize(
    ("x", "w", "more"),
    [
        ((1, 4, 8, 8), (4, 4, 3, 3), {}),
        ((1, 4, 8, 8), (6, 1, 3, 3), {}),
        ((1, 4, 8), (4, 1, 3), {}),
        ((1, 4, 2, 2), (4, 1, 3, 3), {}),
        ((1, 4, 8, 8), (4, 1, 3, 3), {"padding": "same", "stride": 2}),
        ((1, 4, 8, 8), (4, 1, 3, 3), {"stride": 0}),
        ((1, 4, 8, 8), (4, 1, 3, 3), {"padding": -1}),
        ((1, 4, 8, 8), (4, 1, 3, 3), {"bias": torch.zeros(3)}),
    ],
)
def test_mistakes_raise_what_conv2d_raises(x, w, more):
    x, w = torch.randn(x), torch.randn(w)
    with pytest.raises(RuntimeError) as theirs:
        F.conv2d(x, w, groups=4, **more)
    with pytest.raises(type(theirs.value)):
        tt.depthwise_conv2d(x, w, **more)
