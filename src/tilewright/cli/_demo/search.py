"""The demo's search: build every candidate of a layer, check it, time it, keep the best."""

from __future__ import annotations

import statistics
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import tilewright
from tilewright.cli._demo.layers import Layer, reference
from tilewright.cli._demo.space import Candidate, candidates
from tilewright.cli._measure import turns
from tilewright.cli._measure.machine import Machine
from tilewright.cli._measure.peers import Peers
from tilewright.ir.errors import TargetError, TilewrightError, VerificationError
from tilewright.lower.pipeline import form

if TYPE_CHECKING:
    from tilewright.runtime import Kernel

#: The largest relative error norm of a float32 result that counts as right.
TOLERANCE = 1e-5

OURS = "tilewright"

#: Half of the rounds lie within such a part of the median, else their times vary much.
VARIED = 0.3


@dataclass(frozen=True)
class Point:
    """A candidate that ran: ``cost`` is microseconds, on the simulator memory transactions."""

    index: int
    label: str
    cost: float


@dataclass
class Result:
    """What was found for one layer.

    Attributes
    ----------
    tried, total : candidates built so far, and those that there are.
    points : those that ran and were right; ``failures`` why others were not.
    best : the label of the best; "" where there is none.
    error : its relative error norm.
    times : seconds by name ("tilewright", "PyTorch", ...), one a round.
    limit : seconds that the machine needs for the layer's memory traffic or its arithmetic,
        whichever is more; None where that is not known.
    traffic : on the simulator, what the best moves and how well.
    loops, ir, source : its program as scheduled, as lowered, and the generated text.
    """

    layer: Layer
    total: int = 0
    tried: int = 0
    points: list[Point] = field(default_factory=list)
    failures: Counter[str] = field(default_factory=Counter)
    best: str = ""
    error: float | None = None
    times: dict[str, list[float]] = field(default_factory=dict)
    limit: float | None = None
    traffic: dict[str, float] = field(default_factory=dict)
    loops: str = ""
    ir: str = ""
    source: str = ""
    stopped: str = ""

    def us(self, name: str) -> float | None:
        """The median time of ``name`` in microseconds."""
        found = self.times.get(name)
        return statistics.median(found) * 1e6 if found else None

    @property
    def unsteady(self) -> bool:
        """Whether a time varied between rounds by more than :data:`VARIED`."""
        for found in self.times.values():
            low, middle, high = statistics.quantiles(found, n=4)
            if high - low > VARIED * middle:
                return True
        return False

    @property
    def ratio(self) -> float | None:
        """The time of the fastest library for each unit of ours: above 1 we are faster."""
        ours = self.us(OURS)
        peers = [us for name in self.times if name != OURS and (us := self.us(name))]
        return min(peers) / ours if ours and peers else None

    @property
    def of_limit(self) -> float | None:
        """The part of the machine's limit that is reached, 0 to 1."""
        ours = self.us(OURS)
        return self.limit * 1e6 / ours if ours and self.limit else None


class Search:
    """A search of one layer; :meth:`run` may be interrupted, :meth:`finish` uses what it found."""

    def __init__(self, layer: Layer, machine: Machine, most: int) -> None:
        self.machine, self.most = machine, most
        small = layer.cut(2, 28 if layer.kernel <= 7 else 14)  # NumPy takes its time
        self.result = Result(layer if machine.timed else small)
        self.error: Exception | None = None
        self._kernels: dict[str, tuple[Kernel, Candidate, float]] = {}

    def run(self, seconds: float, report: Callable[[Result], None]) -> None:
        """Try all candidates, or as many as ``seconds`` allow; ``report`` after every one."""
        result, layer = self.result, self.result.layer
        self.x, self.w, y = layer.arrays()
        self.wanted = reference(layer, self.x, self.w)
        self.arrays = self.machine.arrays(self.x, self.w, y)
        space = candidates(layer, self.machine, self.most)
        result.total = len(space)
        end = time.monotonic() + seconds
        report(result)
        for index, candidate in enumerate(space):
            if time.monotonic() > end and result.points:
                result.stopped = f"stopped after {result.tried} of {result.total}, to end in time"
                break
            try:
                self._try(index, candidate)
            except Exception as error:  # whatever it is, other candidates may do better
                result.failures[_reason(error)] += 1
                self.error = error
            result.tried += 1
            report(result)

    @property
    def unable(self) -> TargetError | None:
        """Why the target can do nothing at all, where every candidate failed for that reason."""
        alike = not self.result.points and len(self.result.failures) == 1
        return self.error if alike and isinstance(self.error, TargetError) else None

    def _try(self, index: int, candidate: Candidate) -> None:
        """Build, check and time one; raises where it is no use."""
        schedule, args = candidate.program(self.result.layer)
        kernel = tilewright.build(schedule, args, self.machine.target, "depthwise")
        error = self._run(kernel)
        if not error < TOLERANCE:
            raise _WrongResult(f"wrong result: relative error above {TOLERANCE:.0e}")
        best = min((p.cost for p in self.result.points), default=float("inf"))
        if self.machine.timed:
            batch = self.machine.batch(kernel, *self.arrays)
            cost = turns.quick(batch, 3e-6 * best) * 1e6
        else:
            cost = float(sum(self._traffic(kernel).values()))
        self._kernels[candidate.label] = kernel, candidate, error
        self.result.points.append(Point(index, candidate.label, cost))
        if cost < best:
            self.result.best, self.result.error = candidate.label, error

    def _run(self, kernel: Kernel) -> float:
        """The relative error norm of what the kernel writes."""
        import numpy as np

        data, weight, out = self.arrays
        if self.machine.kind in ("llvm", "sim"):
            out.fill(np.nan)
        else:
            out.copyfrom(np.full(out.shape, np.nan, np.float32))
        kernel(data, weight, out)
        found = self.machine.fetch(out)
        return float(np.linalg.norm(found - self.wanted) / np.linalg.norm(self.wanted))

    def _traffic(self, kernel: Kernel) -> dict[str, float]:
        """Sectors of global memory and passes over shared memory, as a GPU would need them."""
        seen = kernel.simulate(*self.arrays).accesses
        return {
            "sectors": sum(a.transactions for a in seen if a.scope == "global"),
            "shared passes": sum(a.transactions for a in seen if a.scope == "shared"),
        }

    def finish(self, peers: Peers, seconds: float) -> Result:
        """Time the best candidates beside the libraries, in about ``seconds``, and take down the
        best one's program."""
        result = self.result
        if not result.points:
            return result
        if self.machine.timed:
            self._compare(peers, seconds)
        kernel, candidate, result.error = self._kernels[result.best]
        if not self.machine.timed:
            result.traffic = self._traffic(kernel)
        schedule, args = candidate.program(result.layer)
        scheduled = form(schedule, args, self.machine.target, "depthwise")
        result.loops, result.ir, result.source = repr(scheduled), kernel.ir, kernel.source
        return result

    def _compare(self, peers: Peers, seconds: float) -> None:
        """The three fastest take turns with the libraries and with a copy of as many bytes."""
        result, layer = self.result, self.result.layer
        first = sorted(result.points, key=lambda p: p.cost)[:3]
        batches = {
            p.label: self.machine.batch(self._kernels[p.label][0], *self.arrays) for p in first
        }
        batches |= peers.batches(
            layer.problem, {"data": self.x, "filter": self.w}, cuda_launches=20
        )
        cpu = self.machine.kind == "llvm"  # on a GPU one layer alone fits its caches
        copying = self.machine.copying(layer.bytes) if cpu else None
        if copying:
            batches["copy"] = copying[0]
        with peers.threads():
            times = turns.take_turns(batches, limit=seconds, rest=self.machine.rest)
        result.best = min((p.label for p in first), key=lambda n: statistics.median(times[n]))
        result.times = {OURS: times[result.best]}
        result.times |= {name: times[name] for name in peers.names if name in times}
        if copying and self.machine.peak:
            memory = min(times["copy"]) * copying[1]
            result.limit = max(memory, layer.flops / self.machine.peak)


class _WrongResult(TilewrightError):
    """A kernel that computes something else."""


def _reason(error: Exception) -> str:
    """Why a candidate failed, in a few words that many may share."""
    text = (str(error).strip() or type(error).__name__).splitlines()[0]
    text = text.partition(" (stage")[0]
    if isinstance(error, VerificationError):
        text = f"refuted by the proofs: {text}"
    elif not isinstance(error, TilewrightError):
        text = f"{type(error).__name__}: {text}"
    return text if len(text) <= 400 else text[:397] + "..."
