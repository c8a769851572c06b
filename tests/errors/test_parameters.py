"""Parameters of schedules that are too small are named, whoever gives them."""

from __future__ import annotations

import dataclasses

import pytest

from tilewright.ir.errors import ScheduleError
from tilewright.topi import Conv
from tilewright.topi.parameters import too_small
from tilewright.topi.templates import TEMPLATES

P = Conv.parse("4x8x16x16", "8x1x3x3", padding=1)
FIELDS = [
    (name, field.name)
    for name, template in TEMPLATES.items()
    for field in dataclasses.fields(template.config)
]


@pytest.mark.parametrize(("name", "field"), FIELDS)
def test_a_parameter_that_is_too_small_is_named(name, field):
    template = TEMPLATES[name]
    config = dataclasses.replace(template.config(), **{field: -1})
    for make in (lambda: template.declare(P, config), lambda: template.parse(vars(config))):
        with pytest.raises(ScheduleError, match=f"template {name}: {field} is -1, where . is the"):
            make()


@pytest.mark.parametrize("name", TEMPLATES)
def test_defaults_are_large_enough(name):
    assert not too_small(TEMPLATES[name].config())


def test_a_flag_may_be_off_and_a_size_may_not():
    config = TEMPLATES["gpu.plane_bands"].config
    assert not too_small(config(boxed=0))
    assert too_small(config(rows=0)) == "rows is 0, where 1 is the least"


@pytest.mark.parametrize(("down", "across"), [(3, 2), (5, 1), (1, 3), (12, 1)])
def test_tiles_that_registers_do_not_hold_are_refused(down, across):
    template = TEMPLATES["cpu.matrix_tiles"]
    p = Conv.parse("1x64x9x9", "64x64x3x3", 1, dtype="int8")
    tile = template.config(down, across)
    with pytest.raises(ScheduleError, match=f"{down} by {across} tiles of sums take .*There are 8"):
        template.schedule(template.declare(p, tile), tile)
