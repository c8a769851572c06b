"""A picture of a memory plan has each value where it lies."""

from __future__ import annotations

import re

from tilewright.report.memory_map import Stay, memory_map


def test_rectangles_lie_where_values_do():
    stays = [Stay("a", 0, 1, 0, 512), Stay("b", 1, 3, 512, 512), Stay("c <", 2, 3, 0, 256)]
    chart = memory_map("Plan", stays, steps=4, nbytes=1024)
    found = re.findall(
        r'<rect x="([\d.]+)%" y="([\d.]+)" width="([\d.]+)%" height="([\d.]+)"', chart
    )
    places = [tuple(map(float, each)) for each in found]
    top, whole = 22, 260
    assert places == [
        (0, top, 50, whole / 2), (25, top + whole / 2, 75, whole / 2), (50, top, 50, whole / 4),
    ]  # fmt: skip
    assert "c &lt;: 256 bytes at 0, steps 2 to 3" in chart
    assert "3 values in 1.00 KiB, 4 steps" in chart


def test_a_model_without_values_between_its_kernels_has_a_picture_too():
    assert "0 values in 0 bytes, 1 step" in memory_map("Plan", [], 1, 0)
