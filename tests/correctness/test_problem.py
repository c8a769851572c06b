"""A problem names one piece of work: it compares, sorts, prints, and survives JSON."""

from __future__ import annotations

import dataclasses
import itertools

import pytest
from hypothesis import given
from tests.support.depthwise import problems

from tilewright.topi import Conv
from tilewright.topi.problem import Problem

SMALL = Conv(batch=2, channels=3, height=8, width=9, kernel_h=3, kernel_w=3)


@given(problems())
def test_a_problem_survives_json(p):
    assert Problem.from_json(p.to_json()) == p
    assert Problem.from_dict(p.to_dict()).key == p.key


@given(problems(), problems())
def test_keys_are_equal_where_problems_are(p, q):
    assert (p.key == q.key) == (p == q) == (p.to_json() == q.to_json())
    assert (p < q) or (q < p) or p == q
    assert hash(p) == hash(Problem.from_json(p.to_json()))
    assert set(p.key) <= set(
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+.(),"
    )


@given(problems())
def test_flops_are_counted_tap_by_tap(p):
    inside = 0
    (oh, ow), (kh, kw) = p.out_image, p.kernel
    for i, j, y, x in itertools.product(range(oh), range(ow), range(kh), range(kw)):
        h = i * p.stride[0] + y * p.dilation[0] - p.padding[0]
        w = j * p.stride[1] + x * p.dilation[1] - p.padding[1]
        inside += 0 <= h < p.height and 0 <= w < p.width
    assert p.flops == 2 * p.batch * p.channels * p.multiplier * inside
    assert p.nominal_flops >= p.flops


def test_a_problem_is_frozen():
    with pytest.raises(dataclasses.FrozenInstanceError):
        SMALL.batch = 4


def test_both_forms_of_a_filter_mean_the_same():
    ours = Conv.parse("1x256x96x96", "256x2x5x5", padding=2)
    assert Conv.parse((1, 256, 96, 96), (512, 1, 5, 5), padding=(2, 2)) == ours
    assert ours.multiplier == 2
    assert ours.output_shape == (1, 512, 96, 96)
    assert ours.filter_shape == (256, 2, 5, 5)


def test_three_dimensions_are_the_flat_operator():
    p = Conv.parse("2x3x20", "3x2x5", stride=2, padding="CAUSAL", layout="NWC")
    assert p.operator == "depthwise_conv1d"
    assert p.padding == (0, 4, 0, 0)
    assert p.input_shape == (2, 20, 3)
    assert p.output_shape == (2, 10, 6)
    assert p.filter_shape == (3, 2, 5)
    assert Conv.parse("2x3x20", "3x2x5", padding=(1, 2)).padding == (0, 1, 0, 2)


@pytest.mark.parametrize("extent", range(5, 12))
@pytest.mark.parametrize("stride", [1, 2, 3])
@pytest.mark.parametrize("kernel", [1, 2, 3, 5])
def test_same_keeps_the_image_by_stride(extent, stride, kernel):
    for name in ("SAME", "same_lower"):
        p = Conv.parse((1, 1, extent, extent), (1, 1, kernel, kernel), stride=stride, padding=name)
        assert p.out_image == (-(-extent // stride),) * 2
        before, after = p.padding[0], p.padding[2]
        assert abs(before - after) <= 1
        assert (before <= after) if name == "SAME" else (before >= after)


def test_bytes_count_every_tensor_once():
    x, y, f = 2 * 3 * 8 * 9, 2 * 3 * 6 * 7, 27
    assert SMALL.bytes == 4 * (x + y + f)
    assert SMALL.replace(pass_="wgrad", dtype="float16").bytes == 2 * (x + y + f)
    fused = SMALL.replace(epilogue="bias+scale_shift+residual+relu")
    assert fused.bytes == 4 * (x + y + f + 3 * 3 + y)
    assert fused.replace(pass_="dgrad").bytes == 4 * (x + y + f + 3 * 3 + x)


def test_the_floor_is_of_bytes_or_of_flops():
    p = Conv.parse("64x384x32x32", "384x1x31x31", padding=15)
    assert p.floor(4.3e12, 60e12, nominal=True) == pytest.approx(806.1e-6, rel=1e-3)
    assert p.floor(4.3e12, 60e12) < p.floor(4.3e12, 60e12, nominal=True)
    assert p.floor(4.3e12, 1e30) == pytest.approx(46.8e-6, rel=2e-2)


def test_a_problem_prints_on_one_line():
    p = Conv.parse("64x384x32x32", "384x1x7x7", padding=3, dtype="float16",
                      epilogue=["bias", "leaky_relu(0.1)"])  # fmt: skip
    assert str(p) == (
        "depthwise_conv2d forward 64x384x32x32 K7 s1 p3,3,3,3 float16 NCHW + bias + leaky_relu(0.1)"
    )


def test_sums_of_half_floats_are_floats():
    assert SMALL.replace(dtype="float16").accumulate == "float32"
    assert SMALL.replace(dtype="float16", accumulate="float16", precision="half").accumulate == (
        "float16"
    )


def test_a_dense_convolution_reads_all_channels_of_its_group():
    p = Conv.parse("2x6x8x9", "10x3x3x3", groups=2, padding=1)
    assert (p.operator, p.groups, p.multiplier, p.out_channels) == ("conv2d", 2, 5, 10)
    assert p.filter_shape == (10, 3, 3, 3)
    assert p.output_shape == (2, 10, 8, 9)
    assert p.nominal_flops == 2 * 2 * 10 * 8 * 9 * 3 * 3 * 3
    assert Problem.from_json(p.to_json()) == p
    assert p.key != p.replace(groups=1, multiplier=10).key


def test_a_convolution_with_as_many_groups_as_channels_is_depthwise():
    p = Conv.parse("2x6x8x9", "12x1x3x3", groups=6)
    assert p == Conv.parse("2x6x8x9", "6x2x3x3")
    assert p.operator == "depthwise_conv2d"


def test_a_depthwise_convolution_of_other_channels_stays_one():
    assert SMALL.replace(channels=7).groups == 7
