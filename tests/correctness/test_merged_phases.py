"""Gradients by the input with strides of few channels, whose phases are channels of one result: on
sim and on Hopper GPUs."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.tiles import HOPPER, TARGETS, check_tile

from tilewright.target import Target
from tilewright.topi import Conv
from tilewright.topi.gpu.merged_phase_tiles import merged_times
from tilewright.topi.templates import TEMPLATES, candidates

_NAME = "gpu.merged_phases"


def _conv(input: tuple[int, ...], filter: tuple[int, ...], **values: Any) -> Conv:
    kind = {"layout": "NHWC", "dtype": "float32", "precision": "tf32", "pass_": "dgrad"}
    return Conv.parse(input, filter, 1, **kind | values)


#: Images of odd extents, phases that lack taps, strides that differ, channels that fill no tile.
_PROBLEMS = (
    _conv((2, 3, 18, 20), (32, 3, 7, 7), stride=2, padding=3),
    _conv((3, 3, 17, 21), (40, 3, 3, 3), stride=2, padding=1),
    _conv((2, 5, 9, 11), (16, 5, 2, 3), stride=(1, 2), padding=(0, 1, 1, 1)),
    _conv((1, 2, 16, 13), (16, 2, 4, 5), stride=(3, 2), padding=2),
)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("p", _PROBLEMS, ids=str)
def test_phases_are_channels_of_a_forward_pass(p: Conv, target: str) -> None:
    found = TEMPLATES[_NAME].candidates(p, Target.parse(target))
    for tile in (found[0], found[-1]):
        check_tile(_NAME, p, tile, target)


def test_a_stem_has_them_merged() -> None:
    p = _conv((64, 3, 224, 224), (64, 3, 7, 7), stride=2, padding=3)
    template, _ = next(iter(candidates(p, HOPPER)))
    assert template.name == _NAME


def test_others_have_each_phase_by_itself() -> None:
    """Of more channels than are few, one for each group, with an epilogue, or of float16."""
    p = _PROBLEMS[0]
    assert merged_times(p)
    wide = _conv((2, 3, 16, 16), (32, 3, 4, 4), stride=4)
    alone = _conv((1, 1, 16, 13), (16, 1, 4, 5), stride=2)
    half = p.replace(dtype="float16", precision="exact")
    assert not any(merged_times(q) for q in (wide, alone, half, p.replace(epilogue="relu")))
