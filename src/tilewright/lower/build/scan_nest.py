"""The loops of a scan whose states have different shapes, one state after the other in every
step."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilewright.ir.stmt import Stmt, seq
from tilewright.ir.visit import Steps
from tilewright.lower.build.bounds import Domain
from tilewright.lower.build.stage_nest import StageNest
from tilewright.schedule.stage import Stage
from tilewright.te.scan import ScanOp

if TYPE_CHECKING:
    from tilewright.lower.build.schedule_to_func import Nests


class ScanNest(StageNest):
    """The loops of such a scan."""

    def __init__(self, nests: Nests, stage: Stage, domain: Domain) -> None:
        assert isinstance(stage.op, ScanOp)
        op = stage.op
        self.states = [StageNest(nests, stage, domain, op.part(k)) for k in range(op.num_outputs)]
        super().__init__(nests, stage, domain, op.part(0))
        self.depth = sum(leaf in self.states[1].leaves for leaf in self.leaves)

    def build(self) -> Steps:
        parts: list[Stmt] = []
        for state in self.states:
            parts.append((yield state.in_steps(self.depth)))
        return (yield self._loops(0, self.depth, seq(*parts)))
