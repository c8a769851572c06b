"""Gradients by the filter in TF32 whose operands are turned: on sim and on Hopper GPUs."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.tiles import HOPPER, TARGETS, check_tile, module_of

from tilewright.ir.errors import ScheduleError
from tilewright.target import Target
from tilewright.topi import Conv
from tilewright.topi.gpu.turned_gradient_tiles import turned_gradient_times
from tilewright.topi.nn.turned_gradients import as_forward
from tilewright.topi.pieces.box_tiles import BoxProductTile
from tilewright.topi.templates import TEMPLATES, candidates

_NAME = "gpu.turned_gradient"


def _conv(input: tuple[int, ...], filter: tuple[int, ...], **values: Any) -> Conv:
    kind = {"layout": "NHWC", "dtype": "float32", "precision": "tf32", "pass_": "wgrad"}
    return Conv.parse(input, filter, 1, **kind | values)


#: Batches that fill no step, channels that fill no tile or vector, pixels behind the last window.
_PROBLEMS = (
    _conv((5, 37, 9, 8), (50, 37, 3, 3), padding=1, stride=2),
    _conv((3, 40, 9, 8), (60, 40, 3, 3), padding=1),
    _conv((9, 20, 7, 10), (24, 20, 2, 3), padding=(0, 1, 2, 1), stride=(1, 2)),
    _conv((9, 20, 11, 10), (23, 20, 3, 2), padding=(2, 1, 0, 0), dilation=2),
    _conv((33, 16, 8, 6), (16, 16, 2, 2), stride=2),
)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("p", _PROBLEMS, ids=str)
def test_images_become_channels_of_a_forward_pass(p: Conv, target: str) -> None:
    """With results as rows and as columns, in one part and in several."""
    found = TEMPLATES[_NAME].candidates(p, Target.parse(target))
    tiles = (found[0], BoxProductTile(64, 1, 1, 64, 3), BoxProductTile(80, 1, 1, 64, 3, turned=1))
    check_tile(_NAME, p, tiles[_PROBLEMS.index(p) % 3], target)
    steps = p.out_image[0] * p.out_image[1] * -(-as_forward(p).channels // 32)
    parts = next((n for n in range(2, 9) if steps % n == 0), 1)
    check_tile(_NAME, p, BoxProductTile(64, 1, 1, 64, 4, splits=parts), target)


def test_copies_read_and_write_whole_sectors() -> None:
    """Both operands are turned in shared memory, as is the sum of the parts."""
    p = _conv((32, 64, 4, 4), (64, 64, 3, 3), padding=1)
    module = module_of(_NAME, p, BoxProductTile(64, 1, 1, 64, 3, splits=2))
    first, second, _, last = (str(func) for func in module.funcs)
    assert "data_shared" in first.replace(".", "_")
    assert "grad_shared" in second.replace(".", "_")
    assert "Sums" in last


def test_they_are_chosen_where_copies_are_small_beside_the_products() -> None:
    small = _conv((64, 256, 14, 14), (256, 256, 3, 3), padding=1)
    large = _conv((64, 64, 56, 56), (64, 64, 3, 3), padding=1)
    names = [next(iter(candidates(p, HOPPER)))[0].name for p in (small, large)]
    assert names == [_NAME, "gpu.tap_gradient"]


def test_the_batch_is_known() -> None:
    from tilewright import te

    p = _PROBLEMS[1]
    with pytest.raises(ScheduleError, match="batch that is known"):
        TEMPLATES[_NAME].declare(p, BoxProductTile(64, 1, 1, 64, 3), te.var("n"))


def test_a_channel_alone_is_depthwise() -> None:
    assert turned_gradient_times(_PROBLEMS[0])
    assert not turned_gradient_times(_conv((8, 1, 9, 8), (50, 1, 3, 3), padding=1))
