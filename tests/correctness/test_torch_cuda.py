"""On a GPU: streams, graphs, memory, several devices, and modes are honoured as PyTorch does."""

from __future__ import annotations

import gc
import threading
import warnings

import pytest
from tests.support.torch_checks import error, gradient_errors

torch = pytest.importorskip("torch")
pytestmark = [
    pytest.mark.needs_torch,
    pytest.mark.needs_cuda,
    pytest.mark.usefixtures("only_kernels"),
]
F = torch.nn.functional

import tilewright.torch as tt  # noqa: E402
from tilewright.runtime import cuda_launch  # noqa: E402
from tilewright.torch import kernels  # noqa: E402

BOUND = {torch.float32: 1e-5, torch.float16: 2e-3, torch.bfloat16: 1.5e-2}
FORMATS = (torch.contiguous_format, torch.channels_last)


def operands(batch=4, channels=32, image=28, kernel=3, dtype=torch.float32, device="cuda"):
    """An image, a filter and a bias that ask for gradients."""
    make = {"device": device, "dtype": dtype, "requires_grad": True}
    shapes = (batch, channels, image, image), (channels, 1, kernel, kernel), (channels,)
    return [torch.randn(s, **make) for s in shapes]


def step(x, w, b, conv=tt.depthwise_conv2d):
    """A forward and a backward pass: y and the three gradients."""
    more = () if conv is tt.depthwise_conv2d else (1, w.shape[0])
    y = conv(x, w, b, 1, w.shape[-1] // 2, *more)
    return y, *torch.autograd.grad(y, (x, w, b), torch.ones_like(y))


def exact(x, w, b):
    return step(*(t.detach().double().requires_grad_() for t in (x, w, b)), conv=F.conv2d)


def busy():
    """Keep the current stream busy for some tenths of a second."""
    torch.cuda._sleep(500_000_000)


@pytest.mark.parametrize("form", FORMATS, ids=str)
@pytest.mark.parametrize("kernel", [3, 7])
@pytest.mark.parametrize("dtype", BOUND, ids=str)
def test_values_and_gradients_are_right(form, kernel, dtype):
    x, w, b = operands(kernel=kernel, dtype=dtype)
    x = x.detach().to(memory_format=form).requires_grad_()
    ours = step(x, w, b)
    assert ours[0].stride() == ours[1].stride() == x.stride()
    for found, wanted in zip(ours, exact(x, w, b)):
        assert error(found, wanted) < 3 * BOUND[dtype]


@pytest.mark.parametrize("form", FORMATS, ids=str)
def test_transposed_convolutions_are_right(form):
    x, w, b = operands(channels=16, image=9)
    x = x.detach().to(memory_format=form).requires_grad_()
    y = tt.depthwise_conv_transpose2d(x, w, b, 2, 1, 1)
    z = F.conv_transpose2d(x.double(), w.double(), b.double(), 2, 1, 1, 16)
    assert error(y, z) < 1e-5
    assert all(e < 3e-5 for e in gradient_errors(y, z, (x, w, b)))


def test_addresses_need_not_be_aligned():
    x, w, b = operands(image=13)
    larger = torch.randn(x.numel() + 1, device="cuda")
    shifted = larger[1:].view(x.shape).requires_grad_()
    for found, wanted in zip(step(shifted, w, b), exact(shifted, w, b)):
        assert error(found, wanted) < 3e-5


# -- streams and graphs ------------------------------------------------------------------------


def test_the_host_does_not_wait():
    x, w, b = operands()
    step(x, w, b)
    torch.cuda.synchronize()
    done = torch.cuda.Event()
    busy()
    done.record()
    step(x, w, b)
    assert not done.query()


def test_launches_go_to_the_current_stream():
    x, w, b = operands()
    wanted = step(x, w, b)
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        late = torch.zeros_like(x)
        busy()
        late.copy_(x.detach())
        found = step(late.requires_grad_(), w, b)
        assert not side.query()
    torch.cuda.current_stream().wait_stream(side)
    assert all(f.equal(w) for f, w in zip(found, wanted))


@pytest.mark.parametrize("seen", [True, False])
def test_a_graph_holds_a_training_step(seen):
    """Also where the kernels are compiled, and loaded, only while it is captured."""
    x, w, b = operands(channels=24 if seen else 40, image=11)
    side = torch.cuda.Stream()
    if seen:
        with torch.cuda.stream(side):
            step(x, w, b)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=side):
        found = step(x, w, b)
    for _ in range(2):
        with torch.no_grad():
            x.normal_()
            for f in found:
                f.zero_()
        graph.replay()
        for f, e in zip(found, exact(x, w, b)):
            assert error(f, e) < 3e-5


def test_a_graph_is_not_measured_in():
    before = tt.set_policy("profile")
    try:
        x, w, _ = (t.detach() for t in operands(channels=48, image=10))
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            y = tt.depthwise_conv2d(x, w, None, 1, 1)
        graph.replay()
        assert error(y, F.conv2d(x.double(), w.double(), None, 1, 1, 1, 48)) < 1e-5
    finally:
        tt.set_policy(before)


def test_threads_have_streams_of_their_own():
    x, w, b = operands()
    wanted, found = step(x, w, b), {}
    torch.cuda.synchronize()

    def work(k):
        with torch.cuda.stream(torch.cuda.Stream()):
            for _ in range(20):
                found[k] = step(x, w, b)
            torch.cuda.current_stream().synchronize()

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert len(found) == 4
    for results in found.values():
        assert all(f.equal(w) for f, w in zip(results, wanted))


# -- memory ------------------------------------------------------------------------------------


def _peak(run):
    def once():
        gc.collect()  # what goes meanwhile would count as ours
        torch.cuda.synchronize()
        before = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        run()
        torch.cuda.synchronize()
        return torch.cuda.max_memory_allocated() - before

    run()
    # Autograd's thread may hold a tensor of the step before for a moment longer, so that "before"
    # is too much and the difference too little.
    return max(once() for _ in range(3))


@pytest.mark.parametrize("form", FORMATS, ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=str)
def test_a_training_step_takes_no_more_memory_than_pytorchs(form, dtype):
    x, w, b = operands(64, 96, 56, 7, dtype)
    x = x.detach().to(memory_format=form).requires_grad_()
    ours = _peak(lambda: step(x, w, b))
    assert ours <= 1.02 * _peak(lambda: step(x, w, b, conv=F.conv2d))


def test_workspaces_are_pytorchs_memory_on_every_stream(monkeypatch):
    monkeypatch.setattr(cuda_launch, "Memory", lambda *_: pytest.fail("the driver was asked"))
    x, w, b = operands(16, 96, 56)
    wanted = step(x, w, b)
    torch.cuda.synchronize()
    before = torch.cuda.memory_stats()["allocation.all.allocated"]
    for stream in (torch.cuda.Stream(), torch.cuda.Stream()):
        with torch.cuda.stream(stream):
            found = step(x, w, b)
        stream.synchronize()
        assert all(f.equal(e) for f, e in zip(found, wanted))
    # y, the gradient of y, dx, dw, the sums of which dw is made, and db
    assert torch.cuda.memory_stats()["allocation.all.allocated"] - before >= 2 * 6


# -- devices -----------------------------------------------------------------------------------


@pytest.mark.skipif(
    not torch.cuda.is_available() or torch.cuda.device_count() < 2, reason="one CUDA device"
)
def test_tensors_of_another_device_than_the_current_one():
    wanted = exact(*(first := operands()))
    x, w, b = (t.detach().to("cuda:1").requires_grad_() for t in first)
    assert torch.cuda.current_device() == 0
    with torch.cuda.device(1):
        torch.cuda.current_stream().synchronize()
    found = step(x, w, b)
    assert torch.cuda.current_device() == 0
    for f, e in zip(found, wanted):
        assert f.device.index == 1
        assert error(f.to("cuda:0"), e) < 3e-5
    side = torch.cuda.Stream(1)
    side.wait_stream(torch.cuda.current_stream(1))
    with torch.cuda.stream(side):
        again = step(x, w, b)
    torch.cuda.synchronize(1)
    assert all(a.equal(f) for a, f in zip(again, found))


# -- modes -------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_autocast_casts_and_gradients_are_of_the_parameters_types(dtype):
    x, w, b = operands()
    with torch.autocast("cuda", dtype):
        y = tt.depthwise_conv2d(x, w, b, 1, 1)
    assert y.dtype == dtype
    y.float().square().sum().backward()
    assert {t.grad.dtype for t in (x, w, b)} == {torch.float32}
    assert error(y, exact(x, w, b)[0]) < 3 * BOUND[dtype]


def test_gradients_are_the_same_in_every_run():
    x, w, b = operands(16, 96, 56, 7)
    before = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(True)
    try:
        first = step(x, w, b)
        for _ in range(3):
            assert all(f.equal(o) for f, o in zip(first, step(x, w, b)))
    finally:
        torch.use_deterministic_algorithms(before)


@pytest.mark.parametrize("allowed", [False, True])
def test_float32_keeps_its_digits_whether_or_not_tf32_is_allowed(allowed, monkeypatch):
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", allowed)
    x, w, b = operands(kernel=7)
    for found, wanted in zip(step(x, w, b), exact(x, w, b)):
        assert error(found, wanted) < 1e-5


def test_measuring_leaves_random_numbers_alone(monkeypatch):
    monkeypatch.setattr("tilewright.select.choice.MEASURED", 1)
    before = tt.set_policy("profile")
    try:
        x, w, _ = (t.detach() for t in operands(channels=56, image=9))
        torch.manual_seed(1)
        wanted = torch.randn(4, device="cuda")
        torch.manual_seed(1)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            y = tt.depthwise_conv2d(x, w, None, 1, 1)
        assert torch.randn(4, device="cuda").equal(wanted)
        assert error(y, F.conv2d(x.double(), w.double(), None, 1, 1, 1, 56)) < 1e-5
    finally:
        tt.set_policy(before)


@pytest.mark.parametrize("mode", ["default", "reduce-overhead"])
def test_it_compiles_as_one_graph(mode):
    pytest.importorskip("triton")
    x, w, b = operands()

    def f(x, w, b):
        return F.relu(tt.depthwise_conv2d(x * 2, w, b, 1, 1)) + 1

    compiled = torch.compile(f, fullgraph=True, mode=mode)
    for _ in range(3):
        torch.compiler.cudagraph_mark_step_begin()
        y = compiled(x, w, b)
        assert error(y, f(x, w, b)) < 1e-5
        assert all(e < 3e-5 for e in gradient_errors(y, f(x, w, b), (x, w, b)))


# -- how much is compiled ----------------------------------------------------------------------


def test_the_fifth_shape_of_a_layer_gets_a_kernel_for_all_batches(monkeypatch):
    w = torch.randn(5, 1, 3, 3, device="cuda")
    built, build = [], kernels._build
    monkeypatch.setattr(kernels, "_build", lambda *a: built.append(a[2]) or build(*a))
    for n in (1, 2, 3, 4, 1, 5, 6, 7, 2):
        x = torch.randn(n, 5, 9, 9, device="cuda")
        assert error(tt.depthwise_conv2d(x, w), F.conv2d(x.double(), w.double(), groups=5)) < 1e-5
    assert built == [False] * 4 + [True]
    x = torch.randn(3, 5, 8, 8, device="cuda")
    assert error(tt.depthwise_conv2d(x, w), F.conv2d(x.double(), w.double(), groups=5)) < 1e-5
    assert built == [False] * 4 + [True] * 2
