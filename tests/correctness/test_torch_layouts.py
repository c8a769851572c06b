"""Channels-last tensors whose convolution is better done in NCHW are copied there and back."""

from __future__ import annotations

import pytest
from tests.support.torch_checks import close, gradient_errors

torch = pytest.importorskip("torch")
pytestmark = [pytest.mark.needs_torch, pytest.mark.usefixtures("only_kernels", "plain_code")]
F = torch.nn.functional

import tilewright.torch as tt  # noqa: E402
from tilewright import Target  # noqa: E402
from tilewright.graph.by_nchw import is_faster_by_nchw  # noqa: E402
from tilewright.select import Choice  # noqa: E402
from tilewright.topi.operators.conv import Conv  # noqa: E402
from tilewright.torch import calls, gradients, passes  # noqa: E402

HOPPER = Target.parse("cuda -arch=sm_90a")


def problem(channels, image, kernel, **more):
    rows, columns = kernel if isinstance(kernel, tuple) else (kernel, kernel)
    given = {
        "batch": 64, "channels": channels, "height": image, "width": image, "kernel_h": rows,
        "kernel_w": columns, "padding": (rows // 2, columns // 2), "dtype": "float16",
        "layout": "NHWC",
    }  # fmt: skip
    return Conv(**given | more)


@pytest.mark.parametrize("pass_", ["forward", "dgrad", "wgrad"])
@pytest.mark.parametrize(
    ("channels", "image", "kernel"),
    [(128, 56, 31), (256, 28, 29), (512, 14, 27), (96, 56, (51, 5))],
)
def test_large_filters_go_by_nchw_where_tensor_cores_take_them_there(
    pass_, channels, image, kernel
):
    p = problem(channels, image, kernel, pass_=pass_)
    assert is_faster_by_nchw(p, HOPPER)
    assert not is_faster_by_nchw(p, Target.parse("cuda -arch=sm_75"))
    assert not is_faster_by_nchw(p.replace(layout="NCHW"), HOPPER)
    assert not is_faster_by_nchw(p, Target.parse("llvm"))


@pytest.mark.parametrize(("pass_", "faster"), [("forward", 0), ("dgrad", 0), ("wgrad", 1)])
def test_filters_of_few_rows_are_for_tensor_cores_as_images_lie(pass_, faster):
    """By products of pairs of channels, which gradients by the filter are not."""
    p = problem(96, 56, (5, 51), pass_=pass_)
    assert is_faster_by_nchw(p, HOPPER) == faster


@pytest.mark.parametrize(("channels", "image", "kernel"), [(96, 56, 7), (144, 56, 3), (128, 56, 5)])
def test_copies_cost_more_than_small_filters(channels, image, kernel):
    assert not is_faster_by_nchw(problem(channels, image, kernel), HOPPER)


@pytest.mark.parametrize(("there", "answer"), [(100e-6, True), (400e-6, False)])
def test_what_was_measured_counts_with_the_copies(monkeypatch, there, answer):
    p = problem(128, 56, 13)  # copies of 103 MB in all, read and written
    seconds = {"NHWC": 500e-6, "NCHW": there}

    def options(problem, target, policy):
        yield Choice(problem, target, None, None, seconds[problem.layout])

    monkeypatch.setattr("tilewright.select.choice.options", options)
    assert is_faster_by_nchw(p, HOPPER) == answer


@pytest.fixture
def by_nchw(monkeypatch):
    """As if every channels-last call were better done in NCHW."""
    calls.forget()
    monkeypatch.setattr(passes, "is_by_nchw", lambda *args: bool(args[-1]))
    yield
    calls.forget()


def operands():
    torch.manual_seed(0)
    x = torch.randn(2, 4, 9, 11).to(memory_format=torch.channels_last).requires_grad_()
    return x, torch.randn(8, 1, 5, 3, requires_grad=True), torch.randn(8, requires_grad=True)


def test_results_and_gradients_are_as_before_and_in_the_layout_as_before(by_nchw):
    x, w, b = operands()
    with torch.no_grad():
        lines = tt.explain(tt.DepthwiseConv2d(4, kernel_size=3), x).lines
    assert lines[0].problem.layout == "NCHW"
    for _ in range(2):  # the second time by the short way
        y, wanted = tt.depthwise_conv2d(x, w, b, 2, 1), F.conv2d(x, w, b, 2, 1, 1, 4)
        assert close(y, wanted)
        assert y.is_contiguous(memory_format=torch.channels_last)
        assert max(gradient_errors(y, wanted, (x, w, b))) < 1e-5
        y = tt.depthwise_conv2d(x, w, b, 2, 1)
        dx = torch.autograd.grad(y, x, torch.ones_like(y))[0]
        assert dx.is_contiguous(memory_format=torch.channels_last)


def test_a_gradient_is_copied_once_for_both(by_nchw):
    x, w, _ = operands()
    y = tt.depthwise_conv2d(x, w, None, 2, 1)
    g = torch.randn_like(y)
    torch.autograd.grad(y, (x, w), g)
    y = tt.depthwise_conv2d(x, w, None, 2, 1)
    copies = []

    class Count(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            copies.append(str(function))
            return function(*args, **kwargs or {})

    with torch.no_grad(), Count():
        gradients._both(g, w, x, x.shape, w.shape[2:], y.grad_fn.plan)
    # The gradient and the input to NCHW, the result back.
    assert sum("clone" in name or "_to_copy" in name for name in copies) == 3


def test_compiled_and_transposed_convolutions_are_as_before(by_nchw):
    x, w, b = operands()
    run = torch.compile(
        lambda x, w, b: tt.depthwise_conv2d(x, w, b, 2, 1), fullgraph=True, backend="aot_eager"
    )
    y, wanted = run(x, w, b), F.conv2d(x, w, b, 2, 1, 1, 4)
    assert close(y, wanted)
    assert max(gradient_errors(y, wanted, (x, w, b))) < 1e-5
    z = wanted.detach().contiguous(memory_format=torch.channels_last).requires_grad_()
    w2 = torch.randn(8, 1, 5, 3, requires_grad=True)
    y, wanted = (f(z, w2, None, 2, 1) for f in (tt.depthwise_conv_transpose2d,
                 lambda *a: F.conv_transpose2d(*a, 0, 8)))  # fmt: skip
    assert close(y, wanted)
    assert y.is_contiguous(memory_format=torch.channels_last)
    assert max(gradient_errors(y, wanted, (z, w2))) < 1e-5


@pytest.mark.needs_cuda
def test_on_a_gpu_a_large_filter_is_explained_in_nchw():
    layer = tt.DepthwiseConv2d(8, kernel_size=31, padding=15, device="cuda", dtype=torch.float16)
    x = torch.randn(4, 8, 32, 32, device="cuda", dtype=torch.float16)
    x = x.contiguous(memory_format=torch.channels_last)
    (line,) = tt.explain(layer, x).lines
    assert line.problem.layout == (
        "NCHW" if torch.cuda.get_device_capability() >= (8, 0) else "NHWC"
    )
    with torch.no_grad():
        y = layer(x)
        wanted = F.conv2d(x.double(), layer.weight.double(), layer.bias.double(), 1, 15, 1, 8)
    assert close(y, wanted, 2e-3)
    assert y.is_contiguous(memory_format=torch.channels_last)
