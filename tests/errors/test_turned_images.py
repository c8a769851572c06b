"""Convolutions whose results lie otherwise than images, which they may not."""

from __future__ import annotations

import pytest

from tilewright.topi import Conv, ProblemError


@pytest.mark.parametrize(
    "values",
    [
        {"dtype": "float32"}, {"dtype": "float16", "layout": "NHWC", "out_layout": "NCHW"},
        {"dtype": "float16", "pass_": "dgrad"},
    ],
    ids=str,
)  # fmt: skip
def test_results_of_floats_lie_as_images(values):
    values = {"layout": "NCHW", "out_layout": "NHWC", **values}
    with pytest.raises(ProblemError, match="out_layout .* leave it out"):
        Conv.parse("1x3x9x9", "16x3x3x3", groups=1, padding=1, **values)


def test_results_of_images_of_many_channels_lie_as_these():
    with pytest.raises(ProblemError, match="2 to 8 channels"):
        Conv.parse(
            "1x16x9x9", "16x16x3x3", groups=1, layout="NCHW", out_layout="NHWC", dtype="float16"
        )
