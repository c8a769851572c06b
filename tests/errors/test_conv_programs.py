"""What are no programs of a convolution's results."""

from __future__ import annotations

import pytest

from tilewright.topi import Conv, ConvProgram, ProblemError
from tilewright.topi.operators.conv_program import max_pool

CONV = Conv.parse("1x8x9x9", "16x8x3x3", groups=1, padding=1, layout="NHWC")
BODY = (str(max_pool(2, (4, 4))),)


def refused(text, **values):
    with pytest.raises(ProblemError, match=text):
        ConvProgram(**{"conv": CONV.to_json(), "body": BODY, **values})


@pytest.mark.parametrize("conv", ["", "3", "{"])
def test_the_convolution_is_no_json(conv):
    refused("conv is ", conv=conv)


def test_the_convolution_is_a_gradient():
    refused("conv is the forward pass", conv=CONV.replace(pass_="dgrad").to_json())


def test_the_convolution_has_an_epilogue_of_its_own():
    refused(
        "its epilogue and constants are the program's", conv=CONV.replace(epilogue="relu").to_json()
    )


def test_types_differ():
    refused("dtype is that of the convolution, 'float32'", dtype="float16")


def test_a_function_reads_what_is_not_there():
    refused("there is no tensor a1", body=("add(a0, a1)",))


def test_there_is_no_function():
    refused("at least one call", body=())
