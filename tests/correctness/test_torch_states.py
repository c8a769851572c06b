"""A call that is made again in another state of PyTorch's, or on tensors of another kind, is
distinguished: who asks for it sees the operator, and results are as PyTorch's are there."""

from __future__ import annotations

import threading
import warnings

import pytest
from tests.support.torch_checks import error, gradient_errors

torch = pytest.importorskip("torch")
pytestmark = [pytest.mark.needs_torch, pytest.mark.usefixtures("plain_code")]
F = torch.nn.functional

import tilewright.torch as tt  # noqa: E402
from tilewright.torch import calls, eager_fast_path  # noqa: E402


def ours(x, w):
    return tt.depthwise_conv2d(x, w, None, 1, 1)


def theirs(x, w):
    return F.conv2d(x, w, None, 1, 1, 1, 4)


@pytest.fixture
def operands():
    """An image and a parameter whose call, and its gradients, are remembered."""
    torch.manual_seed(0)
    x, w = torch.randn(2, 4, 6, 6), torch.nn.Parameter(torch.randn(4, 1, 3, 3))
    calls.forget()
    for _ in range(3):
        ours(x, w).sum().backward()
        with torch.no_grad():
            ours(x, w)
    assert calls.seen
    w.grad = None
    return x, w


class Watched(torch.utils._python_dispatch.TorchDispatchMode):
    """The operators that a mode sees."""

    def __init__(self):
        super().__init__()
        self.names = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        self.names.append(str(function))
        return function(*args, **kwargs or {})


class Functions(torch.overrides.TorchFunctionMode):
    def __init__(self):
        super().__init__()
        self.names = []

    def __torch_function__(self, function, types, args=(), kwargs=None):
        self.names.append(str(function))
        return function(*args, **kwargs or {})


@pytest.mark.parametrize("mode", [Watched, Functions])
def test_modes_see_the_operator_and_those_of_its_gradients(operands, mode):
    x, w = operands
    with mode() as forward:
        y = ours(x, w)
    assert any("tilewright.depthwise_conv2d" in name for name in forward.names)
    y = ours(x, w)
    with mode() as backward:
        y.backward(torch.ones_like(y))
    if mode is Watched:
        assert any("tilewright.depthwise_conv2d_wgrad" in name for name in backward.names)
    assert error(w.grad, torch.autograd.grad(theirs(x, w).sum(), w)[0]) < 1e-5


def test_a_profile_names_the_operator(operands):
    with torch.profiler.profile() as profile:
        ours(*operands)
    assert any("tilewright::depthwise_conv2d" in e.key for e in profile.key_averages())


def test_who_explains_is_told(operands):
    module = tt.DepthwiseConv2d(4, padding=1, bias=False)
    module.weight = operands[1]
    for _ in range(2):
        assert len(tt.explain(module, operands[0]).lines) == 1


@pytest.mark.filterwarnings("ignore:tilewright leaves")
def test_tensors_of_other_kinds_are_told_apart(operands):
    x, w = operands

    class Sub(torch.Tensor):
        pass

    for other in (
        torch._neg_view(x), x.as_subclass(Sub), x[:, :, :5], x.double()[:1].float(), x[:1],
        x.to(memory_format=torch.channels_last), torch._efficientzerotensor(2, 4, 6, 6),
    ):  # fmt: skip
        with torch.no_grad():
            found = ours(other, w)
        assert type(found) is type(other)
        assert error(found, theirs(other + 0, w)) < 1e-5
    b = torch._neg_view(torch.randn(4))
    for _ in range(2):
        assert error(tt.depthwise_conv2d(x, w, b, 1, 1), F.conv2d(x, w, b, 1, 1, 1, 4)) < 1e-5
    with torch.no_grad():
        assert ours(x.to("meta"), w.to("meta")).is_meta
        assert ours(x.double(), w.double()).dtype == torch.float64
        with pytest.raises(RuntimeError):
            ours(x.double(), w)
        with torch.inference_mode():
            assert ours(x, w).is_inference()
        assert not ours(x, w).is_inference()


def test_another_weight_is_not_taken_for_one_that_is_remembered(operands):
    x, w = operands
    for other in (torch.randn(8, 1, 3, 3), w.detach(), torch.randn(4, 1, 5, 5), w.double()):
        image = x.double() if other.dtype == torch.float64 else x
        found, wanted = ours(image, other), theirs(image, other)
        assert found.requires_grad == wanted.requires_grad
        assert error(found, wanted) < 1e-5
    bias = torch.randn(4)
    assert error(tt.depthwise_conv2d(x, w, bias, 1, 1), theirs(x, w) + bias[:, None, None]) < 1e-5


def test_settings_that_change_are_seen(operands):
    x, w = operands
    padding = [1, 1]
    for _ in range(2):
        tt.depthwise_conv2d(x, w, None, 1, padding)
    padding[0] = 0
    assert tt.depthwise_conv2d(x, w, None, 1, padding).shape == (2, 4, 4, 6)


def test_transformations_and_forward_gradients_are_pytorchs(operands):
    x, w = operands
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for f in (ours, theirs):
            # Operands that are no argument of what is transformed look as they always do.
            got = torch.vmap(lambda a, f=f: f(x, w) * a.sum())(x)
            assert got.shape == (2, 2, 4, 6, 6)
        (got, tangent), (wanted, right) = (
            torch.func.jvp(lambda a, f=f: f(a, w), (x,), (x,)) for f in (ours, theirs)
        )
        assert max(error(got, wanted), error(tangent, right)) < 1e-5
        with torch.autograd.forward_ad.dual_level():
            dual = torch.autograd.forward_ad.make_dual(x, x)
            tangents = [torch.autograd.forward_ad.unpack_dual(f(dual, w)) for f in (ours, theirs)]
        assert error(*(t.tangent for t in tangents)) < 1e-5
        grads = [torch.func.grad(lambda a, f=f: f(a, w).sum())(x) for f in (ours, theirs)]
    assert error(*grads) < 1e-5


def test_a_trace_has_the_operator_in_it(operands):
    x, w = operands
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        traced = torch.jit.trace(ours, (x, w.detach()))
    assert "depthwise_conv2d" in str(traced.graph)


def test_gradients_may_come_in_any_layout_and_through_hooks_on_what_is_saved(operands):
    x, w = operands
    x = x.requires_grad_()
    shape = (2, 4, 6, 6)
    gradients = [
        torch.randn(shape), torch.randn(4, 1, 1).expand(shape), torch.randn(shape)[:, [2, 1, 0, 3]],
        torch.randn(shape).to(memory_format=torch.channels_last), torch.zeros(()).expand(shape),
    ]  # fmt: skip

    def change(t):
        return t.to(memory_format=torch.channels_last) if t.dim() == 4 else t

    for hooks in ((lambda t: t, lambda t: t), (lambda t: t, change)):
        for g in gradients * 2:
            with torch.autograd.graph.saved_tensors_hooks(*hooks):
                y = ours(x, w)
            found = torch.autograd.grad(y, (x, w), g)
            wanted = torch.autograd.grad(theirs(x, w), (x, w), g)
            for a, b in zip(found, wanted, strict=True):
                assert torch.allclose(a, b, atol=1e-4)


@pytest.mark.parametrize("asking", ["xwb", "xw", "xb", "wb", "x", "w", "b"])
@pytest.mark.parametrize("function", ["conv1d", "conv2d", "conv_transpose2d"])
def test_whoever_asks_for_gradients_gets_them_each_time(asking, function):
    torch.manual_seed(0)
    flat = function == "conv1d"
    x = torch.randn(2, 4, 7) if flat else torch.randn(2, 4, 7, 6)
    w, b = torch.randn(4, 1, *[3] * (x.dim() - 2)), torch.randn(4)
    for letter, t in zip("xwb", (x, w, b), strict=True):
        t.requires_grad_(letter in asking)
    asked = [t for t in (x, w, b) if t.requires_grad]
    for _ in range(4):
        found = getattr(tt, f"depthwise_{function}")(x, w, b, 1, 1)
        wanted = getattr(F, function)(x, w, b, 1, 1, groups=4)
        assert max(gradient_errors(found, wanted, asked)) < 1e-5
        with torch.no_grad():
            assert not getattr(tt, f"depthwise_{function}")(x, w, b, 1, 1).requires_grad


def test_a_gradient_has_gradients_also_after_many_that_had_none(operands):
    x, w = operands
    (first,) = torch.autograd.grad(ours(x, w).square().sum(), w, create_graph=True)
    (wanted,) = torch.autograd.grad(theirs(x, w).square().sum(), w, create_graph=True)
    second = [torch.autograd.grad(g.square().sum(), w)[0] for g in (first, wanted)]
    assert error(*second) < 1e-5


@pytest.mark.filterwarnings("ignore:Anomaly Detection")
def test_a_node_is_one_of_pytorchs(operands):
    """It has hooks, is freed after use unless it is retained, and says where it found no number."""
    x, w = operands
    y, seen = ours(x, w), []
    y.grad_fn.register_hook(lambda made, given: seen.append((made[1].shape, given[0].shape)))
    y.grad_fn.register_prehook(lambda given: tuple(2 * g for g in given))
    g = torch.ones_like(y)
    y.backward(g, retain_graph=True)
    assert seen == [(w.shape, y.shape)]
    assert error(w.grad, 2 * torch.autograd.grad(theirs(x, w), w, g)[0]) < 1e-5
    y.backward(g)
    with pytest.raises(RuntimeError, match="a second time"):
        y.backward(g)
    with torch.no_grad():
        w.grad = None
    with pytest.raises(RuntimeError, match="ConvolutionBackward.* returned nan"):
        with torch.autograd.detect_anomaly():
            ours(x, w).backward(g * float("nan"))


def test_what_was_changed_before_its_gradient_is_an_error(operands):
    x, w = operands
    image = x.clone()
    y = ours(image, w)
    image.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


def test_gradients_accumulate_into_the_memory_that_they_came_in(operands):
    """Nobody else holds them, and so nothing is copied."""
    x, w = operands
    made = []
    y = ours(x, w)
    y.grad_fn.register_hook(lambda grads, _: made.append(grads[1].data_ptr()))
    y.sum().backward()
    assert w.grad.data_ptr() == made[0]


def test_threads_have_regions_of_autocast_of_their_own(operands):
    x, w = operands
    found = {}
    inside, done = threading.Event(), threading.Event()

    def cast():
        with torch.autocast("cpu", torch.bfloat16):
            ours(x, w)
            inside.set()
            done.wait(10)
            found["there"] = ours(x, w).dtype

    thread = threading.Thread(target=cast)
    thread.start()
    inside.wait(10)
    found["here"] = ours(x, w).dtype
    done.set()
    thread.join()
    assert found == {"there": torch.bfloat16, "here": torch.float32}


def test_without_a_private_part_of_pytorch_calls_go_by_the_dispatcher(operands, monkeypatch):
    """As in a version that lacks one."""
    monkeypatch.setattr(eager_fast_path, "_KNOWN", False)
    calls.forget()
    x, w = operands
    for _ in range(2):
        found, wanted = ours(x, w), theirs(x, w)
        assert "depthwise_conv2d" in type(found.grad_fn).__name__
        assert max(gradient_errors(found, wanted, (w,))) < 1e-5
    assert not calls.seen
