"""What one thread keeps is not read by another, in kernels drawn at random.

Stages in registers, in the memory of warps and in shared memory are bound to the threads of their
readers, to other threads or to none. What verify proves runs on sim without a finding and gives
the values declared; what runs so, verify rarely refuses. ``python -m tests.fuzz --target
registers`` runs more of these programs, by the same seeds.
"""

from __future__ import annotations

from collections import Counter

import pytest
from tests.support.drawing import Seeded
from tests.support.fuzzing import Drawn
from tests.support.graph_stages import draw_graph
from tests.support.register_plans import RegisterPlan

SHARDS, PROGRAMS = 4, 30


@pytest.mark.parametrize("shard", range(SHARDS))
def test_what_is_proved_reads_only_what_its_thread_wrote(shard: int) -> None:
    tally: Counter[str] = Counter()
    for seed in range(PROGRAMS * shard, PROGRAMS * (shard + 1)):
        dice = Seeded(seed)
        graph = draw_graph(dice)
        drawn = Drawn(graph, RegisterPlan(graph, dice), "sim")
        found = drawn.outcome()
        tally[found.kind] += 1
        told = f"seed {seed}, {found.kind}: {found.detail}\n{drawn}"
        assert found.kind in ("right", "refused", "unproved", "doubted"), told
    assert tally["doubted"] <= 1, tally
    assert tally["right"] > PROGRAMS / 3, tally
    assert tally["unproved"], tally
