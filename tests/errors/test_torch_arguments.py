"""Arguments that replaced modules do not take are refused as PyTorch refuses them."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.needs_torch

import tilewright.torch  # noqa: E402
from tilewright.ir.errors import ArgumentError  # noqa: E402

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
