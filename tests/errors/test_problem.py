"""Problems that cannot be are refused in words that say what would make them possible."""

from __future__ import annotations

import pytest

from tilewright.ir.errors import ProblemError
from tilewright.topi import Conv
from tilewright.topi.problem import Problem

IMPOSSIBLE = {
    "pad 2 more, top and bottom": dict(kernel_h=5),
    "pad 1 more, left and right": dict(kernel_w=2, dilation=(1, 3)),
    "batch is at least 1": dict(batch=0),
    "channels is an integer": dict(channels=2.5),
    "padding is at least 0": dict(padding=(0, -1, 0, 0)),
    "stride is at least 1": dict(stride=0),
    "stride is an integer or a pair": dict(stride=(1, 2, 3)),
    "padding is an integer, a pair": dict(padding=(1, 2, 3)),
    "unknown padding 'FULL': use VALID, SAME": dict(padding="full"),
    "unknown layout 'NCW': use NCHW, NHWC": dict(layout="NCW"),
    "unknown dtype 'int16'": dict(dtype="int16"),
    "int8 has no gradients": dict(dtype="int8", pass_="dgrad"),
    "unknown accumulation type 'float32': use int32": dict(dtype="int8", accumulate="float32"),
    "relu is of floats, the sums are int32": dict(dtype="int8", epilogue="bias+relu"),
    "float8_e5m2 has no gradients": dict(dtype="float8_e5m2", pass_="dgrad"),
    "unknown type of the result 'float64'": dict(dtype="float8_e5m2", out_dtype="float64"),
    "leave out_dtype out; it is for float8_e4m3fn": dict(out_dtype="float16"),
    "quantize is for sums of integers, those of float8": dict(
        dtype="float8_e4m3fn", epilogue="quantize(1)"
    ),
    "put dequantize before": dict(dtype="uint8", epilogue="quantize(1)"),
    "relu follows quantize": dict(dtype="int8", epilogue="dequantize+quantize(1)+relu"),
    "the epilogue has dequantize twice": dict(dtype="int8", epilogue="dequantize+dequantize"),
    "dequantize is for sums of integers": dict(epilogue="dequantize"),
    "quantize is for sums of integers": dict(dtype="float16", epilogue="quantize(1)"),
    "its scale is a positive number": dict(dtype="int8", epilogue="dequantize+quantize(0)"),
    "an integer from 0 to 255": dict(dtype="uint8", epilogue="dequantize+quantize(1,-1)"),
    "an integer from -128 to 127, as": dict(
        dtype="int8", epilogue="dequantize+quantized_residual(1,0.5)"
    ),
    "quantize takes 2 values, got 0": dict(dtype="int8", epilogue="dequantize+quantize"),
    "has channels in blocks of 32": dict(dtype="int8", layout="NCHW32"),
    "NCHW to NCHW4 has channels in blocks of 4, and": dict(dtype="int8", out_layout="NCHW4"),
    "those of depthwise_conv2d in float32 and NCHW do not": dict(out_layout="NHWC"),
    "unknown out_layout 'NWC': use NCHW": dict(dtype="int8", out_layout="NWC"),
    "and for what ends in quantize": dict(dtype="int8", out_dtype="uint8"),
    "unknown type of the result 'int16': use int8": dict(
        dtype="int8", epilogue="dequantize+quantize(1)", out_dtype="int16"
    ),
    "an integer from 0 to 255, as": dict(
        dtype="int8", epilogue="dequantize+quantize(1,-1)", out_dtype="uint8"
    ),
    "unknown layout 'NCHW4': use NCHW, NHWC": dict(layout="NCHW4"),
    "has quantized_residual twice": dict(
        dtype="int8", epilogue="dequantize+residual+quantized_residual(1)"
    ),
    'allow precision="half"': dict(dtype="float16", accumulate="float16"),
    "unknown accumulation type 'float16'": dict(accumulate="float16"),
    "unknown pass 'backward': use forward": dict(pass_="backward"),
    "strides of result: 4 numbers, none below 0, got 8x4x1": dict(strides=("result_8x4x1",)),
    "unknown tensor with strides 'residual'": dict(strides=("residual_8x4x2x1",)),
    "strides are written as result_12x4x1, got 'data'": dict(strides=("data",)),
    "has no height": dict(operator="depthwise_conv1d"),
    "a weight gradient has no epilogue": dict(pass_="wgrad", epilogue="relu"),
    "no epilogue has a step 'tanh'": dict(epilogue="tanh"),
    "takes 2 values, got 1": dict(epilogue="clamp(1)"),
    "takes 0 values, got 1": dict(epilogue="relu(1)"),
    "put the lower bound first": dict(epilogue="clamp(2, 1)"),
    "the epilogue has bias twice": dict(epilogue="bias+relu+bias"),
    "the epilogue has wide_batch_norm twice": dict(epilogue="batch_norm+wide_batch_norm"),
    "its eps is a small number": dict(epilogue="batch_norm(-1)"),
    "is written like clamp": dict(epilogue="bias + relu)"),
    "values of step": dict(epilogue="leaky_relu(x)"),
}


@pytest.mark.parametrize("words", IMPOSSIBLE)
def test_an_impossible_problem(words):
    good = dict(batch=1, channels=2, height=3, width=3, kernel_h=3, kernel_w=3)
    with pytest.raises(ProblemError) as caught:
        Conv(**(good | IMPOSSIBLE[words]))
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("shapes", "words"),
    [
        (("1x4x8x8", "3x1x3x3"), "does not fit 4 channels"),
        (("1x4x8x8", "8x2x3x3"), "begins with 4 x multiplier"),
        (("1x4x8x8", "4x1x3"), "an input of 4 and a filter of 3"),
        (("4x8", "4x8"), "give NxCxHxW"),
        (("1x4xax8", "4x1x3x3"), "written like 64x384x32x32"),
    ],
)
def test_shapes_that_do_not_agree(shapes, words):
    with pytest.raises(ProblemError) as caught:
        Conv.parse(*shapes)
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "is a JSON object"),
        ("[1]", "is a JSON object"),
        ('{"batch": 1, "teams": 2}', "has no teams"),
        ('{"batch": 1}', "incomplete"),
    ],
)
def test_text_that_is_no_problem(text, words):
    with pytest.raises(ProblemError) as caught:
        Problem.from_json(text)
    assert words in str(caught.value)
