"""Small graphs drawn at random, under schedules drawn at random, mean what they declare.

Every value is an integer that its type holds exactly, so llvm and sim have to agree with NumPy bit
for bit, with proofs on and without a finding of sim. A schedule that the compiler refuses with a
clear message is no failure, but few may be refused.

``HYPOTHESIS_PROFILE=long`` searches long; see CONTRIBUTING.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, seed, settings
from hypothesis import strategies as st
from tests.support.drawing import Dice
from tests.support.fuzzing import Drawn
from tests.support.gpu_plans import GPUPlan
from tests.support.graph_stages import draw_graph
from tests.support.plans import CPUPlan

#: Parts of the search, which workers run side by side; more where there are more cores.
SHARDS = int(os.environ.get("TILEWRIGHT_FUZZ_SHARDS", "8"))
#: Of a hundred schedules, how many the compiler may refuse.
REFUSED = 20


@st.composite
def programs(draw: Callable[..., Any]) -> tuple[Drawn, Drawn]:
    """One graph, scheduled for CPUs and for GPUs."""
    dice = Dice(draw)
    graph = draw_graph(dice)
    return (
        Drawn(graph, CPUPlan(graph, dice), "llvm"),
        Drawn(graph, GPUPlan(graph, dice), "sim"),
    )


@pytest.mark.parametrize("shard", range(SHARDS))
def test_programs_mean_what_they_declare(shard: int) -> None:
    tally: Counter[str] = Counter()

    @settings(max_examples=max(5, 4 * settings().max_examples // SHARDS), database=None)
    @given(both=programs())
    def check(both: tuple[Drawn, Drawn]) -> None:
        for drawn in both:
            found = drawn.outcome()
            tally[found.kind] += 1
            assert found.kind in ("right", "refused"), f"{found.kind}: {found.detail}\n{drawn}"

    (seed(shard)(check) if settings().derandomize else check)()
    assert 100 * tally["refused"] <= REFUSED * tally.total(), tally
