"""Of a pipeline that is proved, sim finds nothing used before it has arrived."""

from __future__ import annotations

import numpy as np
import pytest
from tests.support.drawn_pipelines import ROWS, THREADS, drawn

from tilewright.runtime.array import view
from tilewright.runtime.sim import SimulationError, compile_module
from tilewright.target import Target
from tilewright.verify import check

#: What is not about waits: rows of the result, or of the ring, that a program leaves out.
_OTHER = ("unwritten output", "uninitialised read")


@pytest.mark.parametrize("first", range(0, 400, 100))
def test_what_is_proved_uses_nothing_before_it_has_arrived(first: int) -> None:
    proved = 0
    for seed in range(first, first + 100):
        module = drawn(seed)
        if check(module.funcs[0]):
            continue
        proved += 1
        arrays = np.ones((ROWS, THREADS), "float32"), np.zeros((ROWS + 8, THREADS), "float32")
        try:
            compile_module(module, Target.parse("sim")).launch([view(a) for a in arrays], {})
        except SimulationError as error:
            wrong = [str(x) for x in error.findings if x.kind not in _OTHER]
            assert not wrong, f"seed {seed}: {wrong[0]}\n{module}"
    assert proved >= 10
