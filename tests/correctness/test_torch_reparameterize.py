"""Parallel depthwise convolutions merged into one compute what they computed."""

from __future__ import annotations

import copy

import pytest
from tests.support.torch_checks import close

torch = pytest.importorskip("torch")
pytestmark = [pytest.mark.needs_torch, pytest.mark.usefixtures("plain_code")]
nn = torch.nn

from tests.support.large_kernels import (  # noqa: E402
    CHANNELS,
    NETWORKS,
    Block,
    Parallel,
    normalised,
)

import tilewright.torch as tt  # noqa: E402

#: What the modules of each network become.
MERGED = {"RepLKNet": ["31x31"], "SLaK": ["51x5", "5x51"], "UniRepLKNet": ["13x13"]}


def with_statistics(model):
    """A model in evaluation mode whose normalisations have learned something."""
    torch.manual_seed(0)
    for m in model.modules():
        if isinstance(m, nn.BatchNorm2d):
            for t, low in (
                (m.running_mean, -1),
                (m.running_var, 0.5),
                (m.weight, 0.5),
                (m.bias, -1),
            ):
                nn.init.uniform_(t, low, 2)
    return model.eval()


def image(channels=CHANNELS, size=15):
    return torch.randn(2, channels, size, size + 3)


class Inside(nn.Module):
    """A model with one module in it."""

    def __init__(self, module):
        super().__init__()
        self.inner = module

    def forward(self, x):
        return self.inner(x)


def merged_as_before(module, x=None):
    """The report on a model of this module, whose output is as it was."""
    model = with_statistics(Inside(module))
    x = image() if x is None else x
    with torch.no_grad():
        wanted = model(x)
        report = tt.merge_branches_(model)
        found = model(x)
    assert close(found, wanted, 1e-6)
    return report


@pytest.mark.parametrize("network", NETWORKS)
def test_the_networks_compute_what_they_computed(network):
    model = with_statistics(nn.Sequential(Block(network), Block(network)))
    other, x = copy.deepcopy(model), image()
    report = tt.merge_branches_(model)
    assert report.merged == ["0.large", "1.large"]
    assert report.skipped == {}
    assert [row.after for row in report.rows] == [" + ".join(MERGED[network])] * 2
    with torch.no_grad():
        assert close(model(x), other(x), 1e-6)
    left = [m for m in model.modules() if isinstance(m, nn.Conv2d) and m.groups > 1]
    assert ["x".join(map(str, m.kernel_size)) for m in left] == MERGED[network] * 2
    assert not any(isinstance(m, nn.BatchNorm2d) for m in model.modules())


def test_the_report_is_a_table():
    report = tt.merge_branches_(with_statistics(nn.Sequential(Block("UniRepLKNet"))))
    head, _, line = str(report).splitlines()
    assert head.split() == ["module", "before", "after"]
    assert line.startswith("0.large  13x13 + 5x5 + 7x7 dilation 2 + 3x3 dilation 3 + ")
    assert line.endswith("13x13")


def test_before_and_after_optimize_it_is_the_same():
    first, second = (with_statistics(nn.Sequential(Block("RepLKNet"))) for _ in range(2))
    second.load_state_dict(first.state_dict())
    tt.optimize_(first)
    tt.merge_branches_(first)
    tt.merge_branches_(second)
    tt.optimize_(second)
    assert type(first[0].large) is type(second[0].large) is tt.DepthwiseConv2d
    assert first[0].large.weight.equal(second[0].large.weight)


def test_a_report_puts_the_modules_back():
    model = with_statistics(nn.Sequential(Block("RepLKNet")))
    before = list(model.modules())
    tt.merge_branches_(model).undo()
    assert list(model.modules()) == before


def test_a_module_in_two_places_is_merged_in_both():
    module = Parallel(NETWORKS["RepLKNet"])
    model = with_statistics(nn.Sequential(module, nn.ReLU(), module))
    tt.merge_branches_(model)
    assert type(model[0]) is nn.Conv2d
    assert model[0] is model[2]


class Identity(nn.Module):
    """RepVGG's: a convolution, the input normalised, and the input."""

    def __init__(self):
        super().__init__()
        self.conv, self.norm = normalised(3, 3), nn.BatchNorm2d(CHANNELS)
        self.last = nn.BatchNorm2d(CHANNELS)

    def forward(self, x):
        out = sum([self.conv(x), self.norm(x)])
        out += x
        return self.last(out)


def test_the_input_is_a_filter_of_one_tap():
    assert [r.after for r in merged_as_before(Identity()).rows] == ["3x3"]


class ByName(nn.Module):
    """Branches that are there under names made of numbers, as published code has them."""

    def __init__(self):
        super().__init__()
        self.large = normalised(9, 9)
        for size, dilation in ((5, 1), (3, 3)):
            setattr(self, f"dilated_{size}_{dilation}", normalised(size, size, dilation))

    def forward(self, x):
        if hasattr(self, "merged"):
            return self.merged(x)
        out = self.large(x)
        for size, dilation in ((5, 1), (3, 3)):
            if hasattr(self, f"dilated_{size}_{dilation}"):
                out += self.__getattr__(f"dilated_{size}_{dilation}")(x)
        return out


def test_branches_are_found_whatever_they_are_called():
    assert [r.after for r in merged_as_before(ByName()).rows] == ["9x9"]


@pytest.mark.parametrize("stride", [2, 3])
def test_strides_stay(stride):
    report = merged_as_before(Parallel(((9, 9, 1), (3, 3, 2), (3, 5, 1)), stride))
    assert [r.after for r in report.rows] == ["9x9"]


def test_filters_that_are_all_dilated_stay_so():
    report = merged_as_before(Parallel(((5, 5, 3), (3, 3, 3), (1, 3, 6))))
    assert [r.after for r in report.rows] == ["5x5 dilation 3"]


def conv(kernel, **more):
    return nn.Conv2d(CHANNELS, more.pop("out", CHANNELS), kernel, groups=CHANNELS, **more)


class Sum(nn.Module):
    def __init__(self, *parts):
        super().__init__()
        self.parts = nn.ModuleList(parts)

    def forward(self, x):
        first, *others = self.parts
        made = first(x)
        for part in others:
            made = made + part(x)
        return made


def test_biases_multipliers_and_words_for_padding():
    parts = conv(7, out=12, padding="same"), conv(3, out=12, padding=1, bias=False)
    assert [r.after for r in merged_as_before(Sum(*parts)).rows] == ["7x7"]
    parts = conv(5, padding="valid"), conv(5, padding=0, bias=False)
    assert [r.after for r in merged_as_before(Sum(*parts)).rows] == ["5x5"]


class Scaled(Sum):
    def forward(self, x):
        return 2 * super().forward(x)


class Chain(Sum):
    def forward(self, x):
        return self.parts[1](self.parts[0](x))


class Branching(Sum):
    def forward(self, x):
        return super().forward(x) if x.sum() > 0 else x


class Two(Sum):
    def forward(self, x, y=None):
        return super().forward(x)


def hooked():
    module = Sum(conv(3), conv(3))
    module.parts[1].register_forward_hook(lambda *_: None)
    return module


@pytest.mark.parametrize(
    ("module", "reason"),
    [
        (lambda: Scaled(conv(3), conv(3)), "it does more than adding convolutions"),
        (lambda: Chain(conv(3), conv(3)), "it convolves something else than its input"),
        (lambda: Branching(conv(3), conv(3)), "torch.fx cannot trace it"),
        (lambda: Two(conv(3), conv(3)), "it takes several arguments"),
        (lambda: Sum(conv(3), conv(3, padding_mode="circular")), "pads by 'circular'"),
        (lambda: Sum(conv(3), nn.Conv2d(CHANNELS, CHANNELS, 3)), "is not depthwise"),
        (lambda: Sum(conv(5), conv(5, dilation=1, stride=1, padding=1)), "how far they pad"),
        (lambda: Sum(conv(3), conv(3, dtype=torch.float64)), "differ in type"),
        (lambda: Sum(conv((9, 1), padding=(4, 0)), conv((1, 9), padding=(0, 4))), "more taps"),
        (lambda: nn.Sequential(conv(3), nn.BatchNorm2d(CHANNELS, track_running_stats=False)), ""),
        (lambda: nn.Sequential(conv(3), conv(3)), "it convolves something else"),
        (hooked, "it has hooks"),
    ],
)
def test_what_is_something_else_stays_and_the_report_says_why(module, reason):
    model = Inside(module()).eval()
    before = list(model.modules())
    report = tt.merge_branches_(model)
    assert list(model.modules()) == before
    assert all(reason in text for text in report.skipped.values())
    assert bool(report.skipped) == bool(reason)  # a single convolution is not worth a line


def test_a_model_that_trains_stays_as_it_is():
    model = nn.Sequential(Block("RepLKNet"))
    report = tt.merge_branches_(model)
    assert report.skipped == {"0.large": "it is in training mode: call eval() first"}
    assert isinstance(model[0].large, Parallel)


def test_a_model_that_is_a_sum_itself_stays_one_of_what_its_branches_become():
    model = with_statistics(Parallel(NETWORKS["RepLKNet"]))
    x = image()
    with torch.no_grad():
        wanted = model(x)
        assert tt.merge_branches_(model).merged == ["branches.0", "branches.1"]
        assert close(model(x), wanted, 1e-6)
