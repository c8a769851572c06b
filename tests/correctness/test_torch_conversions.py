"""Parameters go from one type to another as PyTorch casts them."""

from __future__ import annotations

import numpy as np
import pytest
from tests.support.torch_checks import error

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.needs_torch

import tilewright.torch as tt  # noqa: E402
from tilewright.target import Target  # noqa: E402
from tilewright.torch import calls, cast_cache, conversions  # noqa: E402

F = torch.nn.functional
WAYS = [
    ("float32", "float16"), ("float32", "bfloat16"), ("float16", "float32"),
    ("bfloat16", "float32"), ("float16", "bfloat16"),
]  # fmt: skip


def values(numbers, dtype):
    """Such as are rounded up, down and to even, beyond the range, and none."""
    torch.manual_seed(0)
    found = torch.randn(numbers) * 10.0 ** torch.randint(-9, 6, (numbers,))
    ties = torch.tensor([1 + 2**-11, 1 + 3 * 2**-11, 1 + 2**-8, 1 + 3 * 2**-8, 65519.99, 65520.0])
    odd = torch.tensor([0.0, -0.0, float("inf"), -float("inf"), 1e-7, 6e-8, 2e-8])
    found[: len(ties) + len(odd)] = torch.cat([ties, odd])[:numbers]
    return found.to(getattr(torch, dtype))


def array(tensor):
    """For a kernel, bfloat16 as its bits."""
    bits = tensor.view(torch.int16) if tensor.dtype == torch.bfloat16 else tensor
    return bits.numpy().view(np.uint16) if tensor.dtype == torch.bfloat16 else bits.numpy()


@pytest.mark.parametrize("numbers", [1, 5, 512, 1003])
@pytest.mark.parametrize(("source", "dtype"), WAYS)
def test_every_number_is_rounded_as_pytorch_rounds_it(source, dtype, numbers):
    kernel = conversions._kernel(source, dtype, Target.parse("sim"))
    given = values(numbers, source)
    wanted = given.to(getattr(torch, dtype))
    made = torch.full_like(wanted, 7)
    kernel(array(given), array(made))
    assert torch.equal(made, wanted)


@pytest.mark.needs_nvrtc
@pytest.mark.parametrize(("source", "dtype"), WAYS)
def test_a_thread_copies_four_numbers_at_once(source, dtype):
    kernel = conversions._kernel(source, dtype, Target.parse("cuda -arch=sm_80"))
    (found,) = kernel.resources.values()
    assert found.spills == 0
    assert found.registers <= 24


@pytest.fixture
def on_a_gpu(monkeypatch):
    """Launches are recorded, and done by PyTorch, on a machine without a GPU."""
    told = []

    class Program:
        def caller(self, scalars, ordinal, torch_):
            def launch(pointers):
                told.append((scalars, pointers))

            return launch

    class Kernel:
        program = Program()

    monkeypatch.setattr(conversions, "target_of", lambda _: Target.parse("cuda -arch=sm_90a"))
    monkeypatch.setattr(conversions, "_kernel", lambda *_: Kernel())
    return told


def test_a_copy_has_the_shape_and_the_strides_of_its_tensor(on_a_gpu):
    like = torch.randn(6, 1, 3, 3).to(memory_format=torch.channels_last)
    convert = conversions.conversion(like, torch.float16)
    other = torch.randn(6, 1, 3, 3)
    made = convert(other)
    assert (made.shape, made.stride(), made.dtype) == (like.shape, like.stride(), torch.float16)
    assert on_a_gpu == [((54,), (other.data_ptr(), made.data_ptr()))]


def test_what_is_better_left_to_pytorch_is(on_a_gpu, monkeypatch):
    x = torch.randn(8, 8)
    assert conversions.conversion(x, torch.float16) is not None
    for other, dtype in (
        (x.T, torch.float16), (x, torch.float32), (x.int(), torch.float16), (x[:0], torch.float16),
        (torch.empty(2**20 + 1), torch.float16),
    ):  # fmt: skip
        assert conversions.conversion(other, dtype) is None
    monkeypatch.undo()
    assert conversions.conversion(x, torch.float16) is None  # a CPU is no GPU


def test_steps_under_autocast_convert_once_there_and_once_back(on_a_gpu, monkeypatch):
    """With a stand-in for kernels: gradients are of the type of the parameter, on both ways."""
    made = []

    def conversion(like, dtype):
        made.append((like.dtype, dtype))
        return lambda t: t.to(dtype)

    monkeypatch.setattr("tilewright.torch.eager_fast_path.conversion", conversion)
    monkeypatch.setattr("tilewright.torch.gradients.conversion", conversion)
    calls.forget()
    torch.manual_seed(0)
    x = torch.randn(2, 4, 6, 6).bfloat16().requires_grad_()
    w, b = (torch.nn.Parameter(torch.randn(s)) for s in ((4, 1, 3, 3), (4,)))
    for _ in range(4):
        with torch.autocast("cpu", torch.bfloat16):
            y, wanted = tt.depthwise_conv2d(x, w, b, 1, 1), F.conv2d(x, w, b, 1, 1, 1, 4)
        g = torch.randn_like(y)
        for found, right in zip(
            torch.autograd.grad(y, (x, w, b), g), torch.autograd.grad(wanted, (x, w, b), g),
            strict=True,
        ):  # fmt: skip
            assert found.dtype == right.dtype
            assert error(found, right) < 1e-2
    calls.forget()
    half, full = torch.bfloat16, torch.float32
    assert made == [(full, half), (full, half), (half, full)]


@pytest.mark.parametrize("with_bias", [False, True])
def test_a_cast_and_its_convolution_are_one_launch(with_bias, monkeypatch):
    """With a stand-in for kernels, which take no bias; what was cast is kept as autocast does."""
    launched = []

    def cast_and_run(convert, run):
        def at_once(made, x, w):
            launched.append(w)
            cast = w.to(torch.bfloat16)
            made.append(run(x, cast, None))
            return cast

        return at_once

    for module in ("eager_fast_path", "gradients"):
        monkeypatch.setattr(
            f"tilewright.torch.{module}.conversion", lambda _, dtype: lambda t: t.to(dtype)
        )
    monkeypatch.setattr("tilewright.torch.eager_fast_path.cast_and_run", cast_and_run)
    # What others have left of it may be passing some regions.
    monkeypatch.setattr("tilewright.torch.cast_cache._cast_cache", cast_cache._CastCache())
    calls.forget()
    torch.manual_seed(0)
    x = torch.randn(2, 4, 6, 6).bfloat16().requires_grad_()
    w = torch.nn.Parameter(torch.randn(4, 1, 3, 3))
    b = torch.nn.Parameter(torch.randn(4)) if with_bias else None
    for _ in range(5):
        launched.clear()
        with torch.autocast("cpu", torch.bfloat16):
            found = [tt.depthwise_conv2d(x, w, b, 1, 1) for _ in range(3)]
        with torch.autocast("cpu", torch.bfloat16):
            wanted = F.conv2d(x, w, b, 1, 1, 1, 4)
        g = torch.randn_like(wanted)
        right = torch.autograd.grad(wanted, (x, w), g)
        for y in found:
            assert error(y, wanted) < 1e-2
            for t, of_torch in zip(torch.autograd.grad(y, (x, w), g), right, strict=True):
                assert t.dtype == of_torch.dtype
                assert error(t, of_torch) < 1e-2
    calls.forget()
    assert len(launched) == (not with_bias)
    assert all(t is w for t in launched)


@pytest.mark.parametrize("with_bias", [False, True])
def test_under_autocast_a_gradient_has_gradients_of_the_parameter(with_bias):
    torch.manual_seed(0)
    x = torch.randn(2, 4, 6, 6).bfloat16().requires_grad_()
    w = torch.nn.Parameter(torch.randn(4, 1, 3, 3))
    b = torch.nn.Parameter(torch.randn(4)) if with_bias else None

    def penalty(conv, *more):
        with torch.autocast("cpu", torch.bfloat16):
            y = conv(x, w, b, 1, 1, *more)
        (g,) = torch.autograd.grad(y.float().square().sum(), x, create_graph=True)
        return torch.autograd.grad(g.float().square().sum(), w)[0]

    for _ in range(3):
        found, wanted = penalty(tt.depthwise_conv2d), penalty(F.conv2d, 1, 4)
        assert found.dtype == torch.float32
        assert error(found, wanted) < 3e-2


def test_under_autocast_a_step_of_the_parameter_does_not_spoil_gradients_to_come():
    """What is saved is what it was cast to, as with PyTorch."""
    torch.manual_seed(0)
    x = torch.randn(2, 4, 6, 6).bfloat16().requires_grad_()
    w = torch.nn.Parameter(torch.randn(4, 1, 3, 3))
    for _ in range(3):
        with torch.autocast("cpu", torch.bfloat16):
            y = tt.depthwise_conv2d(x, w, None, 1, 1)
            wanted = F.conv2d(x, w, None, 1, 1, 1, 4)
        with torch.no_grad():
            w.mul_(-2)
        g = torch.ones_like(y)
        assert error(*(torch.autograd.grad(t, x, g)[0] for t in (y, wanted))) < 1e-2


@pytest.mark.needs_cuda
@pytest.mark.parametrize(("source", "dtype"), WAYS)
@pytest.mark.parametrize("offset", [0, 1])
def test_a_gpu_rounds_as_pytorch_does(source, dtype, offset):
    """Also where a tensor begins anywhere."""
    given = values(1003, source).cuda()[offset:]
    convert = conversions.conversion(given, getattr(torch, dtype))
    assert torch.equal(convert(given), given.to(getattr(torch, dtype)))
