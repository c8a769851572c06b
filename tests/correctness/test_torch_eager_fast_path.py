"""A call like one before takes the short way, and makes the same."""

from __future__ import annotations

import pytest
from tests.support.torch_checks import error, gradient_errors

torch = pytest.importorskip("torch")
pytestmark = [pytest.mark.needs_torch, pytest.mark.usefixtures("only_kernels", "plain_code")]
F = torch.nn.functional

import tilewright.torch as tt  # noqa: E402
from tilewright.torch import calls, functional, transposed  # noqa: E402


def one(size, **settings):
    """Ours and PyTorch's convolution in one dimension, their image, weight and bias."""
    x, w, b = torch.randn(2, 4, size), torch.randn(8, 1, 3), torch.randn(8)
    return tt.depthwise_conv1d, lambda *a: F.conv1d(*a, **settings, groups=4), (x, w, b), settings


def two(size, **settings):
    x, w, b = torch.randn(2, 4, size, 6), torch.randn(4, 1, 3, 3), torch.randn(4)
    return tt.depthwise_conv2d, lambda *a: F.conv2d(*a, **settings, groups=4), (x, w, b), settings


def back(size, **settings):
    def theirs(*a):
        return F.conv_transpose2d(*a, **settings, groups=4)

    x, w, b = torch.randn(2, 4, size, 6), torch.randn(4, 1, 3, 3), torch.randn(4)
    return tt.depthwise_conv_transpose2d, theirs, (x, w, b), settings


@pytest.fixture
def only_once(monkeypatch):
    """Whatever is not remembered is an error from now on."""

    def forbid():
        for where, name in ((functional, "convolve"), (transposed, "transpose")):
            monkeypatch.setattr(where, name, lambda *_, **__: pytest.fail("it was not remembered"))

    calls.forget()
    return forbid


def channels_last(x):
    """Channels next to one another, also in one dimension."""
    return x.movedim(1, -1).contiguous().movedim(-1, 1)


CASES = [
    lambda: one(9), lambda: one(9, padding=1, stride=2), lambda: one(9, padding="same"),
    lambda: two(7, padding=1), lambda: two(7, padding=[1, 0], stride=[2, 1]),
    lambda: two(7, padding="valid", dilation=(2, 1)), lambda: back(5, padding=1),
    lambda: back(5, stride=2, padding=[1, 1], output_padding=1),
]  # fmt: skip


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("with_bias", [False, True])
@pytest.mark.parametrize("case", range(len(CASES)))
def test_a_call_is_remembered_with_its_gradients(case, with_bias, last, only_once):
    torch.manual_seed(case)
    ours, theirs, (x, w, b), settings = CASES[case]()
    x = channels_last(x) if last else x
    first = ours(x, w, b if with_bias else None, **settings)
    only_once()
    for gradients in (False, True):
        operands = [t.detach().requires_grad_(gradients) for t in (x, w, b)]
        operands[2] = operands[2] if with_bias else None
        found = ours(*operands, **settings)
        wanted = theirs(*(t if t is None else t.double() for t in operands))
        assert found.stride() == first.stride()
        assert error(found, wanted) < 1e-5
        if gradients:
            assert max(gradient_errors(found, wanted, operands)) < 1e-5


@pytest.mark.parametrize("case", [0, 3, 6])
def test_a_remembered_call_has_second_derivatives(case, only_once):
    ours, _, (x, w, b), settings = CASES[case]()
    operands = [t.double().requires_grad_() for t in (x[:1, :, :4], w[:4], b[:4])]
    if case == 0:
        operands[0] = x[:1].double().requires_grad_()
    ours(*operands, **settings)
    only_once()
    assert torch.autograd.gradgradcheck(lambda *a: ours(*a, **settings), operands)


def test_what_differs_from_what_is_remembered_is_told_apart(only_once):
    """In any one of the things that a launch depends on."""
    x, w = torch.randn(1, 4, 6, 6), torch.randn(4, 1, 3, 3)
    variants = [
        (x, w, None), (x[..., :5].contiguous(), w, None), (x.double(), w.double(), None),
        (channels_last(x), w, None), (x, channels_last(w), None), (x, w, torch.randn(4)),
        (x, torch.randn(8, 1, 3, 3), None), (x, torch.randn(4, 1, 1, 3), None), (x[0], w, None),
    ]  # fmt: skip
    for _ in range(2):
        for a, f, b in variants:
            for padding in (0, 1, (1, 0)):
                wanted = F.conv2d(a, f, b, 1, padding, 1, 4)
                assert error(tt.depthwise_conv2d(a, f, b, 1, padding), wanted) < 1e-5


def test_what_one_function_remembers_is_still_a_mistake_to_another(only_once):
    x, w = torch.randn(2, 4, 9), torch.randn(4, 1, 3)
    tt.depthwise_conv1d(x, w, None, 1, 1)
    with pytest.raises(RuntimeError):
        tt.depthwise_conv2d(x, w, None, 1, 1)


def test_settings_may_be_any_sequence(only_once):
    class Pair:
        """Neither a list nor a tuple, and without a hash."""

        __hash__ = None

        def __init__(self, *values):
            self.values = values

        def __len__(self):
            return len(self.values)

        def __getitem__(self, k):
            return self.values[k]

    x, w = torch.randn(1, 4, 6, 6), torch.randn(4, 1, 3, 3)
    for padding in ((1, 0), (0, 1)):
        wanted = F.conv2d(x, w, None, 1, padding, 1, 4)
        assert error(tt.depthwise_conv2d(x, w, None, 1, Pair(*padding)), wanted) < 1e-5
