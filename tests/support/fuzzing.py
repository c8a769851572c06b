"""Programs that one integer decides, and what becomes of them."""

from __future__ import annotations

import traceback
from collections.abc import Sequence

from tests.support.drawing import Replayed, Seeded
from tests.support.drawn_programs import Case, Outcome, judge
from tests.support.gpu_plans import GPUPlan
from tests.support.graph_stages import STAGES, draw_graph
from tests.support.graphs import Graph
from tests.support.machine_stages import MACHINE
from tests.support.plans import CPUPlan, Plan
from tests.support.register_plans import RegisterPlan
from tests.support.scalar_stages import SCALARS
from tests.support.wide_extents import Wide
from tests.support.window_plans import CPUWindowPlan, GPUWindowPlan

from tilewright.ir.errors import LanguageError, ScheduleError, TargetError, TilewrightError

ALL = (*STAGES, *MACHINE, *SCALARS)


class Drawn:
    """A graph and a schedule of it for a kind of target."""

    def __init__(self, graph: Graph, plan: Plan, target: str) -> None:
        self.graph, self.plan, self.target = graph, plan, target
        self.refusal = ""
        try:
            plan.draw()
        except ScheduleError as error:
            self.refusal = str(error)

    def cases(self) -> list[Case]:
        """The inputs: where values or extents matter, several of them."""
        graph = self.graph
        sizes = [graph.sizes(k) for k in range(4)]
        said = [size for k, size in enumerate(sizes) if size not in sizes[:k]]
        count = max(len(said), 3 if graph.wild and not graph.n else 1)
        return [Case.of(graph, said[k % len(said)], 7 + k) for k in range(count)]

    def outcome(self) -> Outcome:
        if self.refusal:
            return Outcome("refused", self.refusal)
        promised = self.graph.promised and self.plan.promised
        return judge(self.cases(), self.plan.s, self.target, promised)

    def __repr__(self) -> str:
        inputs = ", ".join(k.name for k in self.graph.inputs)
        said = ", ".join(f"{name}: {value}" for name, value in self.graph.sizes(0).items())
        sizes = f", {{{said}}}" if said else ""
        outputs = ", ".join(self.graph.outputs)
        return f"\n{self.plan.text}\nagree(s, [{inputs}], [{outputs}], {self.target!r}{sizes})\n"


class Program:
    """The program of a seed, or of the choices that were made for one.

    ``target`` is "llvm", "sim" or "opencl", each also with "-windows" behind it for windows that
    become matrices, "registers" for stages on sim in memory that some
    threads share, or "lowered" for extents too large to run.
    """

    def __init__(self, target: str, of: int | Sequence[int]) -> None:
        self.target, _, only = target.partition("/")
        self.stages = tuple((f, n) for f, n in ALL if only in ("", f.__name__))
        self.symbolic = 80 if only in ("symbolic_index", "mirrored") else 12
        self.dice = Seeded(of) if isinstance(of, int) else Replayed(of)
        self.drawn: Drawn | Wide | None = None

    def draw(self) -> Drawn | Wide:
        """Declare and schedule it."""
        if self.target == "lowered":
            self.drawn = Wide(self.dice)
            return self.drawn
        plan: Plan
        if self.target == "registers":
            graph = draw_graph(self.dice)
            plan = RegisterPlan(graph, self.dice)
            plan.promised = False
            self.drawn = Drawn(graph, plan, "sim")
            return self.drawn
        graph = draw_graph(self.dice, self.stages, self.symbolic)
        kind, _, windows = self.target.partition("-")
        if kind == "llvm":
            plan = CPUWindowPlan(graph, self.dice) if windows else CPUPlan(graph, self.dice)
        elif windows:
            plan = GPUWindowPlan(graph, self.dice)
        else:
            plan = GPUPlan(graph, self.dice, careless=15)
        self.drawn = Drawn(graph, plan, kind)
        return self.drawn

    def outcome(self) -> Outcome:
        """What became of it; "internal" is an error that is not Tilewright's own."""
        try:
            return self.draw().outcome()
        except LanguageError as error:
            return Outcome("refused", f"{error}")
        except TargetError as error:
            lacks = any(words in str(error) for words in ("lacks", "has no", "not a constant"))
            return Outcome("refused" if lacks else "internal", f"TargetError: {error}")
        except TilewrightError as error:
            return Outcome("refused", f"{error}")
        except Exception:
            return Outcome("internal", traceback.format_exc())

    def __repr__(self) -> str:
        return repr(self.drawn) if self.drawn is not None else "no program"
