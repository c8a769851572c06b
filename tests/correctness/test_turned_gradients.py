"""Gradients by the filter in TF32 of which an operand is turned, in shared memory or in a copy: on
sim and on Hopper GPUs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.support.tiles import HOPPER, TARGETS, built, check_tile, module_of

from tilewright import te
from tilewright.ir.errors import ScheduleError
from tilewright.topi import Conv, Conv3d
from tilewright.topi.gpu.copied_gradient_tiles import copied_gradient_times
from tilewright.topi.gpu.turned_gradient_tiles import turned_gradient_times
from tilewright.topi.nn.turned_gradients import turns_grad
from tilewright.topi.pieces.box_tiles import BoxGradientTile
from tilewright.topi.templates import TEMPLATES, candidates

_NAME, _COPIED = "gpu.turned_gradient", "gpu.copied_gradient"


def _conv(input: tuple[int, ...], filter: tuple[int, ...], **values: Any) -> Conv:
    kind = {"layout": "NHWC", "dtype": "float32", "precision": "tf32", "pass_": "wgrad"}
    return Conv.parse(input, filter, 1, **kind | values)


#: Pixels that fill no step, steps that fill no part, channels that fill no tile; strides, padding
#: and dilation; blocks of a cluster that share dy or x, or add parts.
_CASES = (
    (_conv((3, 64, 5, 4), (64, 64, 1, 1)), BoxGradientTile(64, 64, 3)),
    (_conv((4, 128, 5, 4), (128, 128, 1, 1)), BoxGradientTile(128, 128, 2, 2)),
    (_conv((5, 40, 9, 8), (60, 40, 3, 3), padding=1, stride=2), BoxGradientTile(64, 64, 3, 3)),
    (_conv((3, 40, 7, 6), (72, 40, 3, 3), padding=1), BoxGradientTile(64, 128, 2)),
    (_conv((9, 72, 5, 4), (40, 72, 1, 1), stride=2), BoxGradientTile(64, 64, 3, 2, dy_to=2)),
    (_conv((8, 64, 4, 4), (128, 64, 1, 1)), BoxGradientTile(64, 64, 3, 4, x_to=2)),
    (_conv((8, 64, 4, 4), (64, 64, 1, 1)), BoxGradientTile(64, 64, 3, 4, cluster=2)),
    (_conv((2, 20, 5, 7), (24, 20, 3, 2), padding=(2, 1, 0, 0), dilation=2),
     BoxGradientTile(64, 64, 2)),
)  # fmt: skip


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(("p", "tile"), _CASES, ids=str)
def test_threads_turn_what_a_tap_sees_and_hold_what_they_multiply(
    p: Conv, tile: BoxGradientTile, target: str
) -> None:
    kernel = check_tile(_NAME, p, tile, target)
    assert f"wgmma_m64n{tile.channels}k8_tf32" in kernel.ir


def test_no_bank_is_met_twice() -> None:
    p = _conv((4, 128, 4, 4), (128, 128, 1, 1))
    kernel = built(_NAME, p, BoxGradientTile(128, 128, 2), "sim")
    x, dy = (np.ones(shape, "float32") for shape in (p.input_shape, p.output_shape))
    report = kernel.simulate(x, dy, np.zeros(p.filter_shape, "float32"))
    assert report.ok
    assert not report.conflicts()


def test_images_of_three_dimensions_have_windows() -> None:
    p = Conv3d.parse(
        (2, 20, 3, 4, 4), (24, 20, 2, 3, 3), 1, padding=1, stride=(1, 2, 1), layout="NDHWC",
        dtype="float32", precision="tf32", pass_="wgrad",
    )  # fmt: skip
    check_tile(_NAME, p, BoxGradientTile(64, 64, 2), "sim")


def test_they_are_for_what_tma_can_bring_as_it_lies() -> None:
    assert turned_gradient_times(_CASES[0][0])
    for others in (
        _conv((8, 6, 9, 8), (64, 6, 3, 3)), _conv((8, 64, 9, 8), (50, 64, 3, 3)),
        _CASES[0][0].replace(precision="tf32x3"), _CASES[0][0].replace(pass_="dgrad"),
        _conv((8, 1, 9, 8), (50, 1, 3, 3)),
    ):  # fmt: skip
        assert not turned_gradient_times(others)


#: Batches that fill no step, channels that fill no tile or vector of either operand, pixels behind
#: the last window, a tap that sees some pixels alone; and tiles whose last part has fewer steps, or
#: whose clusters add parts.
_COPIES = (
    (_conv((5, 37, 5, 4), (60, 37, 3, 3), padding=1, stride=2),
     BoxGradientTile(64, 64, 3, producer=1)),
    (_conv((3, 40, 5, 4), (61, 40, 3, 3), padding=1), BoxGradientTile(128, 64, 4, 3)),
    (_conv((9, 20, 5, 6), (23, 20, 3, 2), padding=(2, 1, 0, 0), dilation=2),
     BoxGradientTile(64, 64, 3, 3, producer=1)),
    (_conv((33, 72, 5, 4), (40, 72, 1, 1), stride=2),
     BoxGradientTile(64, 64, 3, 4, producer=1, cluster=2)),
    (_conv((40, 64, 5, 4), (128, 64, 1, 1)), BoxGradientTile(64, 64, 3, x_to=2, producer=1)),
)  # fmt: skip


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(("p", "tile"), _COPIES, ids=str)
def test_an_operand_is_copied_with_images_last(p: Conv, tile: BoxGradientTile, target: str) -> None:
    kernel = check_tile(_COPIED, p, tile, target)
    assert f"wgmma_m64n{tile.channels}k8_tf32_s0" in kernel.ir


def test_the_operand_of_fewer_elements_is_copied_if_the_other_can_be_brought() -> None:
    assert [turns_grad(p) for p, _ in _COPIES] == [False, True, True, True, False]
    assert not copied_gradient_times(_conv((8, 6, 9, 8), (50, 6, 3, 3), padding=1))


def test_a_copy_reads_and_writes_whole_sectors() -> None:
    """An operand is turned in shared memory, as is the sum of the parts where dy is turned."""
    p = _conv((32, 64, 4, 4), (32, 64, 3, 3), padding=1)
    first, _, last = map(str, module_of(_COPIED, p, BoxGradientTile(64, 64, 3, 2)).funcs)
    assert "grad_shared" in first.replace(".", "_")
    assert "Sums" in last


def test_operands_are_copied_where_that_is_little_beside_the_products() -> None:
    names = [
        next(iter(candidates(_conv((64, c, e, e), (f, c, k, k), padding=k // 2), HOPPER)))[0].name
        for c, f, k, e in ((256, 256, 3, 14), (64, 64, 3, 56), (128, 512, 1, 28))
    ]
    assert names == [_COPIED, "gpu.tap_gradient", _NAME]


def test_the_batch_of_a_copy_is_known() -> None:
    tile = BoxGradientTile(64, 64, 3)
    with pytest.raises(ScheduleError, match="batch that is known"):
        TEMPLATES[_COPIED].declare(_COPIES[0][0], tile, te.var("n"))
