"""Random parallel depthwise convolutions compute the same after they are merged."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.torch_checks import close

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.needs_torch
nn = torch.nn

import tilewright.torch as tt  # noqa: E402

CHANNELS = 3


class Sum(nn.Module):
    """The sum of what its parts make of the input, and maybe of the input itself."""

    def __init__(self, parts, adds_input):
        super().__init__()
        self.parts, self.adds_input = nn.ModuleList(parts), adds_input

    def forward(self, x):
        made = self.parts[0](x)
        for part in self.parts[1:]:
            made = made + part(x)
        return x + made if self.adds_input else made


@st.composite
def sums(draw):
    """Branches whose results have one size: filters reach as far beyond the padding in all."""
    stride = draw(st.tuples(st.integers(1, 3), st.integers(1, 3)))
    beyond = draw(st.tuples(st.integers(0, 2), st.integers(0, 2)))
    parts = []
    for _ in range(draw(st.integers(1, 4))):
        kernel, dilation, padding = [], [], []
        for axis in (0, 1):
            sizes = [
                (k, d, ((k - 1) * d - beyond[axis]) // 2)
                for k in range(1, 8)
                for d in range(1, 4)
                if (k - 1) * d >= beyond[axis] and ((k - 1) * d - beyond[axis]) % 2 == 0
            ]
            for into, value in zip((kernel, dilation, padding), draw(st.sampled_from(sizes))):
                into.append(value)
        made = [
            nn.Conv2d(CHANNELS, CHANNELS, kernel, stride, padding, dilation, CHANNELS,
                      bias=draw(st.booleans()))
        ]  # fmt: skip
        if draw(st.booleans()):
            norm = nn.BatchNorm2d(CHANNELS, affine=draw(st.booleans()))
            norm.running_mean.uniform_(-1, 1)
            norm.running_var.uniform_(0.5, 2)
            made.append(norm)
        parts.append(nn.Sequential(*made))
    same = stride == (1, 1) and beyond == (0, 0)
    return Sum(parts, same and draw(st.booleans()))


@given(sums(), st.integers(13, 17), st.integers(13, 17))
def test_a_merged_sum_is_the_sum(module, height, width):
    model = nn.Sequential(module, nn.Identity()).double().eval()
    x = torch.randn(2, CHANNELS, height, width, dtype=torch.float64)
    taps = sum(p[0].weight.numel() for p in module.parts)
    with torch.no_grad():
        wanted = model(x)
        report = tt.merge_branches_(model)
        assert close(model(x), wanted, 1e-12)
    left = sum(m.weight.numel() for m in model.modules() if isinstance(m, nn.Conv2d))
    assert left <= taps + CHANNELS  # the input itself is one tap
    several = len(module.parts) > 1 or len(module.parts[0]) > 1
    assert (
        bool(report.merged)
        or not several
        or set(report.skipped.values())
        == {"one filter would have more taps than the several have together"}
    )
