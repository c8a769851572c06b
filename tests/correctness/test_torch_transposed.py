"""Transposed depthwise convolutions are PyTorch's: gradients, layouts, modules and modes."""

from __future__ import annotations

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
nn, F = torch.nn, torch.nn.functional

import tilewright.torch as tt  # noqa: E402
from tilewright.torch import calls  # noqa: E402


@st.composite
def cases(draw):
    """Operands and parameters of ``F.conv_transpose2d`` with a group for each channel."""
    pairs = {}
    for name, most in (("kernel", 5), ("stride", 3), ("dilation", 2)):
        pairs[name] = draw(st.integers(1, most)), draw(st.integers(1, most))
    extra, padding, image = [], [], []
    for s, d, k in zip(pairs["stride"], pairs["dilation"], pairs["kernel"]):
        more = draw(st.integers(0, max(s, d) - 1))
        padding.append(draw(st.integers(max(0, more - s + 1), 3)))  # less is PyTorch's
        extra.append(more)
        shortest = (2 * padding[-1] - d * (k - 1) - more) // s + 1
        image.append(max(1, shortest + draw(st.integers(0, 5))))
        while (image[-1] - 1) * s - 2 * padding[-1] + d * (k - 1) + more + 1 < 1:
            image[-1] += 1
    n, c, m = draw(st.integers(1, 3)), draw(st.sampled_from([1, 3, 16])), draw(st.integers(1, 2))
    x, w = torch.randn(n, c, *image), torch.randn(c, m, *pairs["kernel"])
    b = draw(st.sampled_from([None, torch.randn(c * m)]))
    if draw(st.booleans()):
        x = x.to(memory_format=torch.channels_last)
    operands = [None if t is None else t.requires_grad_() for t in (x, w, b)]
    return operands, (pairs["stride"], tuple(padding), tuple(extra), pairs["dilation"])


@settings(max_examples=max(4, settings().max_examples // 10))
@given(cases())
def test_it_is_conv_transpose2d_with_a_group_for_each_channel(case):
    (x, w, b), (stride, padding, more, dilation) = case
    ours = tt.depthwise_conv_transpose2d(x, w, b, stride, padding, more, dilation)
    theirs = F.conv_transpose2d(
        x.double(), w.double(), None if b is None else b.double(), stride, padding, more,
        x.shape[1], dilation,
    )  # fmt: skip
    assert error(ours, theirs) < 1e-5
    assert all(e < 3e-5 for e in gradient_errors(ours, theirs, (x, w, b)))


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("multiplier", [1, 2])
def test_the_memory_format_of_the_output_is_that_of_the_input(last, multiplier):
    form = torch.channels_last if last else torch.contiguous_format
    x = torch.randn(2, 4, 6, 7).to(memory_format=form).requires_grad_()
    y = tt.depthwise_conv_transpose2d(x, torch.randn(4, multiplier, 3, 3), None, 2, 1, 1)
    assert y.stride() == torch.empty(y.shape, memory_format=form).stride()
    (dx,) = torch.autograd.grad(y.square().sum(), x)
    assert dx.is_contiguous(memory_format=form)


@pytest.mark.parametrize("parameters", [(2, 1, 1, 1), ((1, 2), (2, 0), (1, 1), (2, 1))])
def test_first_and_second_derivatives_are_right(parameters):
    x = torch.randn(2, 2, 4, 3, dtype=torch.double, requires_grad=True)
    w = torch.randn(2, 2, 3, 2, dtype=torch.double, requires_grad=True)
    b = torch.randn(4, dtype=torch.double, requires_grad=True)

    def f(x, w, b):
        return tt.depthwise_conv_transpose2d(x, w, b, *parameters)

    assert torch.autograd.gradcheck(f, (x, w, b))
    assert torch.autograd.gradgradcheck(f, (x, w, b))


def test_it_casts_compiles_and_takes_what_has_no_batch():
    x, w, b = torch.randn(2, 4, 6, 6), torch.randn(4, 1, 3, 3), torch.randn(4)

    def f(x, w):
        return tt.depthwise_conv_transpose2d(x, w, b, 2, 1, 1)

    compiled = torch.compile(f, fullgraph=True, backend="aot_eager")
    w.requires_grad_()
    assert error(compiled(x, w), f(x, w)) < 1e-6
    (found,) = torch.autograd.grad(compiled(x, w).square().sum(), w)
    assert error(found, torch.autograd.grad(f(x, w).square().sum(), w)[0]) < 1e-5
    assert f(x[0], w).equal(f(x[:1], w)[0])
    with torch.autocast("cpu", torch.bfloat16):
        assert f(x, w).dtype == F.conv_transpose2d(x, w, b, 2, 1, 1, 4).dtype == torch.bfloat16
    assert f(x[:0], w).shape == (0, 4, 12, 12)


def test_the_module_is_pytorchs_with_another_forward_pass():
    theirs = nn.ConvTranspose2d(4, 8, (3, 2), 2, 1, 1, groups=4)
    model = nn.Sequential(nn.Identity(), theirs)
    x = torch.randn(2, 4, 5, 6)
    wanted, sized = theirs(x), theirs(x, output_size=(9, 10))
    report = tt.optimize_(model)
    assert report.replaced == ["1"]
    ours = model[1]
    assert type(ours) is tt.DepthwiseConvTranspose2d
    assert error(ours(x), wanted) < 1e-5
    assert error(ours(x, output_size=(9, 10)), sized) < 1e-5
    assert tt.explain(model, x).lines[0].kernel.startswith("cpu.")
    report.undo()
    assert type(ours) is nn.ConvTranspose2d
    mine = tt.DepthwiseConvTranspose2d(4, 8, (3, 2), 2, 1, 1)
    mine.load_state_dict(theirs.state_dict())
    assert error(mine(x), wanted) < 1e-5


def test_more_output_than_stride_and_padding_account_for_is_pytorchs():
    x, w = torch.randn(1, 3, 5, 5), torch.randn(3, 1, 3, 3)
    calls.forget()
    with pytest.warns(UserWarning, match="an output_padding beyond the stride and the padding"):
        y = tt.depthwise_conv_transpose2d(x, w, None, 1, 0, 1, 2)
    assert y.equal(F.conv_transpose2d(x, w, None, 1, 0, 1, 3, 2))
    calls.forget()
    torch._dynamo.reset()

    def f(x):
        return tt.depthwise_conv_transpose2d(x, w, None, 1, 0, 1, 2)

    assert torch.compile(f, backend="aot_eager", fullgraph=True)(x).equal(y)


@pytest.mark.parametrize(
    ("x", "w", "more"),
    [
        ((1, 4, 8, 8), (3, 1, 3, 3), {}),
        ((1, 4, 8), (4, 1, 3), {}),
        ((1, 4, 8, 8), (4, 1, 3, 3), {"output_padding": 1}),
        ((1, 4, 2, 2), (4, 1, 3, 3), {"padding": 3}),
        ((1, 4, 8, 8), (4, 1, 3, 3), {"stride": 0}),
        ((1, 4, 8, 8), (4, 1, 3, 3), {"padding": -1}),
        ((1, 4, 8, 8), (4, 1, 3, 3), {"bias": torch.zeros(3)}),
    ],
)
def test_mistakes_raise_what_conv_transpose2d_raises(x, w, more):
    x, w = torch.randn(x), torch.randn(w)
    with pytest.raises(RuntimeError) as theirs:
        F.conv_transpose2d(x, w, groups=4, **more)
    with pytest.raises(type(theirs.value)):
        tt.depthwise_conv_transpose2d(x, w, **more)
