"""Programs like the articles' are proved by propagation alone, without the help of isl."""

from __future__ import annotations

from typing import Any

import pytest

from tilewright import te
from tilewright.arith import system
from tilewright.lower.pipeline import lower
from tilewright.schedule import Schedule
from tilewright.topi.cpu.depthwise_conv2d import schedule_rows
from tilewright.topi.gpu.depthwise_registers import schedule_registers
from tilewright.topi.gpu.depthwise_shared import SharedTile, schedule_shared
from tilewright.topi.nn import depthwise_conv2d_nchw
from tilewright.verify import check


def shared(output: te.Tensor) -> Schedule:
    return schedule_shared(output, SharedTile(32, 32, 8, 8, 2, 2))


@pytest.mark.parametrize(
    ("schedule", "target"),
    [(shared, "sim"), (schedule_registers, "sim"), (schedule_rows, "llvm")],
)
@pytest.mark.parametrize(("channels", "size", "k"), [(256, 96, 3), (144, 37, 5), ("n", 20, 3)])
def test_without_isl(
    schedule: Any, target: str, channels: Any, size: int, k: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*args: object) -> None:
        raise AssertionError("isl was asked")

    batch, channels = (te.var("n"), 16) if channels == "n" else (1, channels)
    data = te.placeholder((batch, channels, size, size), name="Input")
    weight = te.placeholder((channels, 1, k, k), name="Filter")
    out = depthwise_conv2d_nchw(data, weight, 1, "SAME")
    module = lower(schedule(out), [data, weight, out], target)
    monkeypatch.setattr(system, "sample", refuse)
    assert [finding for func in module.funcs for finding in check(func)] == []
