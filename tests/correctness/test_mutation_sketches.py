"""Take a barrier, a condition or an iteration out of a GPU's schedules of depthwise convolution, or
move a bound: verify, sim or a result tells. ``python -m tests.support.sketch_mutants`` tries all.
"""

from __future__ import annotations

import pytest
from tests.support.sketch_mutants import EQUIVALENT, PROBLEMS, survivors

from tilewright.topi.templates import TEMPLATES

#: One of ``EVERY`` mutants of a template is made here.
EVERY = 30


def test_every_schedule_has_a_problem() -> None:
    found = {t.name for t in TEMPLATES.values() if t.gpu and t.operators and "cuda" in str(t.kinds)}
    depthwise = {name for name in found if "depthwise_conv2d" in TEMPLATES[name].operators}
    assert depthwise <= set(PROBLEMS)


@pytest.mark.parametrize("name", PROBLEMS)
def test_what_is_wrong_is_caught(name: str) -> None:
    tried, found = survivors(name, EVERY)
    assert tried
    assert len(found) <= EQUIVALENT.get(name, 0), f"{found[0].lacks} in\n{found[0].module}"
