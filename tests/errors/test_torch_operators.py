"""Operators are called by programs that were traced for other operands: what does not fit is an
error, and nothing is read or written beyond it."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.needs_torch

import tilewright.torch  # noqa: E402

ops = torch.ops.tilewright
ONES, GEOMETRY = torch.ones, ([1, 1], [1, 1, 1, 1], [1, 1])
IMAGE, FILTER = (2, 4, 8, 8), (4, 1, 3, 3)

FORWARD = {
    "channels": ((2, 3, 8, 8), FILTER, None, GEOMETRY),
    "filters": (IMAGE, (6, 1, 3, 3), None, GEOMETRY),
    "groups": (IMAGE, (4, 2, 3, 3), None, GEOMETRY),
    "bias": (IMAGE, FILTER, (3,), GEOMETRY),
    "bias of one": (IMAGE, FILTER, (1,), GEOMETRY),
    "no batch": ((4, 8, 8), FILTER, None, GEOMETRY),
    "flat filter": (IMAGE, (4, 1, 3), None, GEOMETRY),
    "small image": ((2, 4, 2, 2), FILTER, None, ([1, 1], [0] * 4, [1, 1])),
    "stride": (IMAGE, FILTER, None, ([0, 1], [1] * 4, [1, 1])),
    "padding": (IMAGE, FILTER, None, ([1, 1], [-1, 1, 1, 1], [1, 1])),
    "dilation": (IMAGE, FILTER, None, ([1, 1], [1] * 4, [1, 0])),
}


@pytest.mark.parametrize("case", FORWARD)
def test_a_convolution_refuses_operands_that_do_not_fit(case):
    image, weight, bias, geometry = FORWARD[case]
    bias = None if bias is None else ONES(bias)
    with pytest.raises(RuntimeError):
        ops.depthwise_conv2d(ONES(image), ONES(weight), bias, *geometry)


BY_INPUT = {
    "fewer channels": (IMAGE, FILTER, None, (2, 3, 8, 8)),
    "a larger image": (IMAGE, FILTER, None, (2, 4, 18, 8)),
    "a smaller image": (IMAGE, FILTER, None, (2, 4, 8, 7)),
    "a larger batch": (IMAGE, FILTER, None, (3, 4, 8, 8)),
    "filters": (IMAGE, (6, 1, 3, 3), None, IMAGE),
    "groups": (IMAGE, (4, 2, 3, 3), None, IMAGE),
    "bias": (IMAGE, FILTER, (3,), IMAGE),
}


@pytest.mark.parametrize("case", BY_INPUT)
def test_the_gradient_by_the_input_refuses_operands_that_do_not_fit(case):
    grad, weight, bias, size = BY_INPUT[case]
    bias = None if bias is None else ONES(bias)
    with pytest.raises(ValueError, match="a gradient of"):
        ops.depthwise_conv2d_dgrad(ONES(grad), ONES(weight), bias, size, *GEOMETRY, False)


@pytest.mark.parametrize("grad", [(2, 4, 9, 8), (2, 6, 8, 8), (3, 4, 8, 8), (1, 4, 8, 8)])
def test_the_gradient_by_the_weight_refuses_operands_that_do_not_fit(grad):
    with pytest.raises(ValueError, match="is of no depthwise convolution"):
        ops.depthwise_conv2d_wgrad(ONES(IMAGE), ONES(grad), [3, 3], *GEOMETRY)


def test_a_traced_program_refuses_other_channels():
    model = torch.nn.Sequential(torch.nn.Conv2d(4, 4, 3, padding=1, groups=4))
    tilewright.torch.optimize_(model)
    program = torch.jit.trace(model, ONES(IMAGE))
    for channels in (3, 8):
        with pytest.raises(RuntimeError, match="groups|channels"):
            program(ONES(2, channels, 8, 8))


def test_a_scripted_program_refuses_other_channels():
    model = torch.nn.Sequential(torch.nn.Conv2d(4, 4, 3, padding=1, groups=4))
    tilewright.torch.optimize_(model)
    program = torch.jit.script(model)
    for channels in (1, 2, 3, 8):
        with pytest.raises(torch.jit.Error, match="for 4 channels"):
            program(ONES(2, channels, 8, 8))
