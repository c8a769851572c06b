"""Convolutions of any groups, and transposed ones, are PyTorch's: gradients, layouts, modes."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.torch_checks import error, gradient_errors

torch = pytest.importorskip("torch")
pytestmark = [pytest.mark.needs_torch, pytest.mark.usefixtures("plain_code")]
F = torch.nn.functional

import tilewright.torch as tt  # noqa: E402
from tilewright.ir.errors import ProblemError  # noqa: E402
from tilewright.topi import Conv, Conv3d  # noqa: E402

FORMS = {2: torch.channels_last, 3: torch.channels_last_3d}
OURS = {
    False: {1: tt.conv1d, 2: tt.conv2d, 3: tt.conv3d},
    True: {1: tt.conv_transpose1d, 2: tt.conv_transpose2d, 3: tt.conv_transpose3d},
}
THEIRS = {
    False: {1: F.conv1d, 2: F.conv2d, 3: F.conv3d},
    True: {1: F.conv_transpose1d, 2: F.conv_transpose2d, 3: F.conv_transpose3d},
}


@st.composite
def cases(draw: st.DrawFn, transposed: bool) -> Any:
    """The rank, the operands, and the parameters by name."""
    rank = draw(st.sampled_from([1, 2, 2, 3]))

    def each(values: st.SearchStrategy[int]) -> tuple[int, ...]:
        return tuple(draw(values) for _ in range(rank))

    kernel, stride = each(st.integers(1, 3)), each(st.sampled_from([1, 1, 2, 3]))
    dilation, padding = each(st.sampled_from([1, 1, 2, 3])), each(st.integers(0, 2))
    more = tuple(draw(st.integers(0, max(s, d) - 1)) for s, d in zip(stride, dilation, strict=True))
    image = []
    for k, s, d, p, m in zip(kernel, stride, dilation, padding, more, strict=True):
        window = d * (k - 1) + 1
        least = 1 + -(-max(0, 2 * p + 1 - window - m) // s) if transposed else window - 2 * p
        image.append(max(1, least) + draw(st.integers(0, 4)))
    groups, own, each_ = draw(
        st.sampled_from([(1, 3, 5), (2, 4, 3), (3, 1, 1), (3, 1, 2), (1, 1, 1)])
    )
    n = draw(st.integers(1, 2))
    x = torch.randn(n, groups * own, *image)
    if transposed:
        w = torch.randn(groups * own, each_, *kernel)
    else:
        w = torch.randn(groups * each_, own, *kernel)
    b = draw(st.sampled_from([None, torch.randn(groups * each_)]))
    if rank > 1 and draw(st.booleans()):
        x = x.to(memory_format=FORMS[rank])
    operands = [None if t is None else t.requires_grad_() for t in (x, w, b)]
    found = dict(stride=stride, padding=padding, dilation=dilation, groups=groups)
    return rank, operands, found | ({"output_padding": more} if transposed else {})


@pytest.mark.parametrize("transposed", [False, True])
@settings(max_examples=max(6, settings().max_examples // 12))
@given(data=st.data())
def test_they_are_pytorchs_in_float64(transposed, data):
    rank, (x, w, b), parameters = data.draw(cases(transposed))
    ours = OURS[transposed][rank](x, w, b, **parameters)
    wide = None if b is None else b.double()
    theirs = THEIRS[transposed][rank](x.double(), w.double(), wide, **parameters)
    assert ours.shape == theirs.shape
    assert error(ours, theirs) < 1e-5
    assert all(e < 3e-5 for e in gradient_errors(ours, theirs, (x, w, b)))
    with torch.no_grad():  # the bias is then added by the kernel
        assert error(OURS[transposed][rank](x, w, b, **parameters), theirs) < 1e-5


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("rank", [1, 2, 3])
def test_first_and_second_derivatives_are_right(transposed, rank):
    x = torch.randn(1, 4, *(3, 4, 2)[:rank], dtype=torch.double, requires_grad=True)
    shape = (4, 3) if transposed else (6, 2)
    w = torch.randn(*shape, *[2] * rank, dtype=torch.double, requires_grad=True)
    b = torch.randn(6, dtype=torch.double, requires_grad=True)

    def f(x, w, b):
        return OURS[transposed][rank](x, w, b, stride=2, padding=1, groups=2)

    assert torch.autograd.gradcheck(f, (x, w, b))
    assert torch.autograd.gradgradcheck(f, (x, w, b))


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("form", [torch.contiguous_format, torch.channels_last], ids=str)
def test_pytorchs_kernel_computes_what_it_was_measured_to_be_fastest_at(
    transposed, form, monkeypatch
):
    """All passes, with a bias, and what follows in another policy."""
    monkeypatch.setattr("tilewright.select.choice.MEASURED", 1)
    taken = []
    monkeypatch.setattr(
        "tilewright.select.vendor.Call.seconds", lambda call, _: taken.append(call.problem) or 1e-12
    )
    x = torch.randn(2, 4, 7, 6).to(memory_format=form).requires_grad_()
    w, b = torch.randn(4, 4, 3, 3, requires_grad=True), torch.randn(4)
    before = tt.set_policy("profile")
    try:
        for policy in ("profile", "heuristic", "reproducible"):
            tt.set_policy(policy)
            theirs = THEIRS[transposed][2](x.double(), w.double(), b.double(), stride=2, padding=1)
            ours = OURS[transposed][2](x, w, b, stride=2, padding=1)
            assert ours.is_contiguous(memory_format=form)
            assert error(ours, theirs) < 1e-5
            assert all(e < 1e-5 for e in gradient_errors(ours, theirs, (x, w)))
            with torch.no_grad():
                assert error(OURS[transposed][2](x, w, b, stride=2, padding=1), theirs) < 1e-5
    finally:
        tt.set_policy(before)
    assert {p.pass_ for p in taken} == {"forward", "dgrad", "wgrad"}


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("rank", [2, 3])
def test_the_memory_format_of_the_output_is_that_of_the_input(transposed, rank):
    x = torch.randn(2, 4, *[5] * rank).to(memory_format=FORMS[rank])
    y = OURS[transposed][rank](x, torch.randn(4, 4, *[3] * rank))
    assert y.is_contiguous(memory_format=FORMS[rank])


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("rank", [1, 2, 3])
def test_types_of_16_bits(transposed, rank, dtype):
    given = torch.randn(2, 4, *[5] * rank), torch.randn(4, 4, *[3] * rank), torch.randn(4)
    x, w, b = (t.to(getattr(torch, dtype)) for t in given)
    theirs = THEIRS[transposed][rank](x.double(), w.double(), b.double(), stride=2)
    ours = OURS[transposed][rank](x, w, b, stride=2)
    assert ours.dtype == x.dtype
    assert error(ours, theirs) < (1.5e-2 if dtype == "bfloat16" else 2e-3)
    with torch.autocast("cpu", x.dtype):
        cast = OURS[transposed][rank](*given, stride=2)
    assert torch.equal(cast, ours)


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("rank", [1, 2, 3])
def test_one_image_and_no_image(transposed, rank):
    ours, theirs = OURS[transposed][rank], THEIRS[transposed][rank]
    x, w = torch.randn(4, *[5] * rank), torch.randn(4, 4, *[3] * rank)
    torch.testing.assert_close(ours(x, w), theirs(x, w))
    none = x[None][:0].requires_grad_()
    y = ours(none, w.requires_grad_())
    assert y.shape == theirs(none, w).shape
    y.sum().backward()
    assert not w.grad.any()


@pytest.mark.parametrize("transposed", [False, True])
def test_graphs_and_transformations_of_functions(transposed):
    x, w, b = torch.randn(3, 2, 4, 7, 7), torch.randn(4, 4, 3, 3), torch.randn(4)

    def f(x: Any) -> Any:
        return OURS[transposed][2](x, w, b, stride=2)

    def g(x: Any) -> Any:
        return THEIRS[transposed][2](x, w, b, stride=2)

    torch.testing.assert_close(torch.compile(f, fullgraph=True)(x[0]), g(x[0]))
    torch.testing.assert_close(torch.vmap(f)(x), torch.vmap(g)(x))
    ours = torch.func.grad(lambda x: f(x).square().sum())(x[0])
    theirs = torch.func.grad(lambda x: g(x).square().sum())(x[0])
    torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize(("operator", "rank"), [(Conv, 1), (Conv, 2), (Conv3d, 3)])
def test_a_transposed_convolution_is_a_call_of_an_operator(operator, rank):
    """As ONNX's ConvTranspose: padded otherwise at the end than at the beginning."""
    x, w, b = torch.randn(2, 6, *[4] * rank), torch.randn(6, 2, *[3] * rank), torch.randn(4)
    found = tt.compute(
        operator, x, w, b, pass_="dgrad", groups=2, stride=3, output_padding=1,
        padding=(*[1] * rank, *[0] * rank), epilogue=("bias", "relu"),
    )  # fmt: skip
    whole = THEIRS[True][rank](x, w, b, 3, 0, 1, 2)
    wanted = whole[(..., *[slice(1, None)] * rank)].relu()
    torch.testing.assert_close(found, wanted)


def test_what_is_no_convolution_is_refused():
    x, w = torch.ones(1, 4, 5, 5), torch.ones(4, 4, 3, 3)
    for words, call in (
        ("groups=3: it is a divisor of the channels", lambda: tt.conv2d(x, w, groups=3)),
        ("padded image one of 5", lambda: tt.conv2d(x, torch.ones(4, 4, 7, 7))),
        ("bias is", lambda: tt.conv2d(x, w, torch.ones(3))),
        ("float64", lambda: tt.conv2d(x, w.double())),
        ("dimensions", lambda: tt.conv3d(x, w)),
        ("dimensions", lambda: tt.conv2d(x, w[0])),
        ("unknown dtype", lambda: tt.conv2d(x.int(), w.int())),
        ("a filter for each channel", lambda: tt.conv_transpose2d(x, torch.ones(3, 4, 3, 3))),
        ("use less padding", lambda: tt.conv_transpose2d(x, w, padding=9)),
        ("padding is at least 0", lambda: tt.conv_transpose2d(x, w, padding=-1)),
        ("in numbers", lambda: tt.conv_transpose2d(x, w, padding="same")),
        ("stride is at least 1", lambda: tt.conv_transpose2d(x, w, stride=0)),
        ("stride is an integer", lambda: tt.conv_transpose2d(x, w, stride=(1, 2, 3))),
        ("output_padding 2 is smaller",
         lambda: tt.compute(Conv, x, w, pass_="dgrad", output_padding=2, stride=2)),
        ("output_padding", lambda: tt.compute(Conv, x, w, output_padding=1)),
        ("which filter", lambda: tt.compute(Conv, x, x, pass_="wgrad")),
    ):  # fmt: skip
        with pytest.raises(ProblemError, match=words):
            call()
