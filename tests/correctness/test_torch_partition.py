"""Where a graph of PyTorch's is cut into regions."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
pytestmark = [pytest.mark.needs_torch, pytest.mark.usefixtures("plain_code")]


def mean_and_deviation(x):
    mean, logarithm = (x * 2).chunk(2, 1)
    return mean, (logarithm / 2).exp()


def a_part_that_is_sorted(x):
    first, second, third = (x * 2).unbind(1)
    return first.exp(), second.reshape(2, 2), third.sort().values


def a_part_that_is_turned(x):
    first, second = (x * 2).split([1, 2], 1)
    return (first.t() + 1).sum(), second.t(), first.amax()


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("f", [mean_and_deviation, a_part_that_is_sorted, a_part_that_is_turned])
def test_parts_of_a_result_may_be_read_here_and_by_pytorch(f, training):
    torch._dynamo.reset()
    run = torch.compile(f, backend="tilewright")
    x = torch.randn(4, 3 if f is not mean_and_deviation else 6, requires_grad=training)
    with torch.set_grad_enabled(training):
        found, expected = run(x), f(x)
        for y, e in zip(found, expected, strict=True):
            torch.testing.assert_close(y, e, rtol=1e-5, atol=1e-6)
    if training:
        gradients = [torch.autograd.grad(sum(y.sum() for y in z), x) for z in (found, expected)]
        torch.testing.assert_close(*gradients, rtol=1e-5, atol=1e-6)
