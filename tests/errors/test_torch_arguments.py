"""Arguments that replaced modules do not take are refused as PyTorch refuses them."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.needs_torch

import tilewright.torch  # noqa: E402
from tilewright.ir.errors import ArgumentError, ProblemError  # noqa: E402

MODULES = {
    "conv2d": (lambda: torch.nn.Conv2d(16, 16, 3, groups=16), (9, 9)),
    "multiplier": (lambda: torch.nn.Conv2d(16, 32, 3, groups=16), (9, 9)),
    "conv1d": (lambda: torch.nn.Conv1d(16, 16, 3, groups=16), (9,)),
    "transposed": (lambda: torch.nn.ConvTranspose2d(16, 16, 3, groups=16), (9, 9)),
    "sequence": (
        lambda: torch.nn.Sequential(
            torch.nn.Conv2d(16, 16, 3, groups=16), torch.nn.BatchNorm2d(16), torch.nn.ReLU()
        ).eval(),
        (9, 9),
    ),
}


@pytest.mark.parametrize("channels", [4, 8, 15, 32])
@pytest.mark.parametrize("batch", [(), (2,)], ids=["one", "batch"])
@pytest.mark.parametrize("name", MODULES)
def test_an_input_of_other_channels_is_refused_in_the_words_of_pytorch(name, batch, channels):
    """4 and 8 divide the filters: the weight alone would fit a convolution with a multiplier."""
    make, image = MODULES[name]
    if name == "sequence" and not batch:
        pytest.skip("BatchNorm2d takes batches")
    module, x = make(), torch.zeros(*batch, channels, *image)
    with pytest.raises(RuntimeError) as theirs:
        module(x)
    tilewright.torch.optimize_(module)
    with torch.no_grad():
        module(torch.zeros(*batch, 16, *image))
        with pytest.raises(RuntimeError) as ours:
            module(x)
    assert str(ours.value) == str(theirs.value)
    assert "16 channels" in str(ours.value)


def test_an_example_in_the_place_of_the_filter_is_refused():
    with pytest.raises(ArgumentError, match="is a Tensor: inputs .* are given as example="):
        tilewright.torch.optimize_(torch.nn.Conv2d(4, 4, 3, groups=4), torch.ones(1, 4, 5, 5))


@pytest.mark.parametrize("given", [{}, None, [torch.nn.ReLU()], torch.nn.Conv2d])
def test_what_is_no_module_is_not_optimized(given):
    with pytest.raises(ArgumentError, match="optimize_ takes a torch.nn.Module, got a"):
        tilewright.torch.optimize_(given)


IMAGE, FILTER = torch.ones(2, 4, 5, 5), torch.ones(8, 4, 3, 3)
EIGHT = IMAGE.to(torch.float8_e4m3fn), FILTER.to(torch.float8_e4m3fn)


@pytest.mark.parametrize(("call", "problem"), [
    (lambda f: f.conv2d(IMAGE.numpy(), FILTER), "conv2d: input is a tensor, got a ndarray"),
    (lambda f: f.conv2d([1, 2], FILTER), "conv2d: input is a tensor, got a list"),
    (lambda f: f.conv2d(IMAGE, None), "conv2d: weight is a tensor, got a NoneType"),
    (lambda f: f.conv2d(IMAGE.to_sparse(), FILTER), r"torch.sparse_coo: give input.to_dense\(\)"),
    (lambda f: f.conv2d(torch.nested.nested_tensor([IMAGE[0]]), FILTER), "input is nested: give"),
    (lambda f: f.conv2d(IMAGE, FILTER, 1.0), "conv2d: bias is a tensor, got a float"),
    (lambda f: f.conv1d(IMAGE, FILTER), "over 1 dimensions: .* each has 3 dimensions"),
    (lambda f: f.conv2d(*EIGHT, scale="half"), "conv2d: scale is a tensor, got a str"),
    (lambda f: f.conv2d(*EIGHT, scale=torch.ones(3)), r"a scale is one number or 8, .* got \(3,\)"),
    (lambda f: f.linear(IMAGE, torch.ones(3, 4)), r"of \(3, 4\): give \(..., in_features\)"),
    (lambda f: f.linear(IMAGE, torch.ones(5)), r"of \(5,\): give \(..., in_features\)"),
    (lambda f: f.linear(IMAGE.numpy(), FILTER), "linear: input is a tensor, got a ndarray"),
    (lambda f: f.conv_transpose2d(IMAGE, torch.ones(4, 2, 3, 3), stride=2, output_padding=-1),
     "output_padding is at least 0, got -1"),
    (lambda f: f.conv_transpose1d(3, FILTER), "conv_transpose1d: input is a tensor, got a int"),
])  # fmt: skip
def test_functions_say_which_operand_does_not_fit(call, problem):
    with pytest.raises(ProblemError, match=problem):
        call(tilewright.torch)


def test_a_scale_may_be_a_number():
    found = tilewright.torch.conv2d(*EIGHT, scale=0.5)
    assert torch.equal(found, tilewright.torch.conv2d(*EIGHT, scale=torch.full((8,), 0.5)))


@pytest.mark.parametrize("name", ["conv2d", "conv1d", "conv_transpose2d"])
def test_depthwise_functions_refuse_operands_in_the_words_of_pytorch(name):
    ours = getattr(tilewright.torch, f"depthwise_{name}")
    weight = torch.ones(4, 1, 3) if name == "conv1d" else torch.ones(4, 1, 3, 3)
    for operands in (
        (torch.ones(5), weight),
        (weight.numpy(), weight),
        (weight, None),
        (None, weight),
    ):
        with pytest.raises((RuntimeError, TypeError), match=name):
            ours(*operands)


def test_a_depthwise_module_has_channels():
    with pytest.raises(ValueError, match="in_channels=0: there is at least one"):
        tilewright.torch.DepthwiseConv2d(0, kernel_size=3)


@pytest.mark.parametrize("function", ["undo_", "merge_branches_", "explain"])
def test_functions_of_models_take_modules(function):
    more = (IMAGE,) if function == "explain" else ()
    with pytest.raises(ArgumentError, match=f"{function} takes a torch.nn.Module, got a function"):
        getattr(tilewright.torch, function)(lambda x: x, *more)


def test_an_explanation_of_a_model_without_kernels_says_how_to_get_them():
    model = torch.nn.Conv2d(1, 1, 1)
    assert "optimize_(model)" in str(tilewright.torch.explain(model, torch.ones(1, 1, 2, 2)))


def test_an_example_that_does_not_fit_is_refused_by_the_name_of_the_model():
    model, x = MODULES["sequence"][0](), torch.zeros(1, 15, 9, 9)
    with pytest.raises(ArgumentError, match="optimize_: Sequential cannot be called with"):
        tilewright.torch.optimize_(model, example=x)
    assert type(model) is torch.nn.Sequential
