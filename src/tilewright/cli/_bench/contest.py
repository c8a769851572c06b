"""One problem: our kernel and the libraries on the same data, taking turns."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tilewright import select
from tilewright.cli._measure import torch_peer
from tilewright.cli._measure.floors import Roof
from tilewright.cli._measure.machine import Machine
from tilewright.cli._measure.peers import Peers
from tilewright.cli._measure.turns import Batch, of_calls, of_graph, take_turns
from tilewright.ir.dtype import dtype as as_dtype
from tilewright.ir.errors import TilewrightError
from tilewright.runtime.narrow_floats import from_storage, round_to
from tilewright.select.algorithm import BuiltKernel
from tilewright.select.choice import Choice
from tilewright.select.first_buildable import first_buildable, spills_of
from tilewright.select.profile_cache import ProfileCache
from tilewright.topi.problem import Problem

OURS = "tilewright"
#: Under this many bytes a problem's data may stay in the caches of a GPU, as in a network.
_CACHED = 8e6
#: The relative error norm from PyTorch's result in float64 that a right answer stays under.
TOLERANCE = {
    "float64": 1e-12, "float32": 1e-5, "float16": 2e-3, "bfloat16": 1.5e-2,
    "int32": 1e-12, "int8": 2e-2, "uint8": 2e-2,  # the others round in their last place
}  # fmt: skip
#: At least that of floats of 8 bits, of whose sums tensor cores keep fewer digits than of others.
_FLOAT8 = 2e-3
#: Sums in the type of 16-bit data, which the caller has to allow, lose more digits.
_HALF = 10
#: Multiplications up to which a gradient of filters is checked against float64 on a CPU.
_CHECKED = 2e9


@dataclass
class Row:
    """What was measured of one problem.

    Attributes
    ----------
    times : seconds by name (:data:`OURS`, "PyTorch", ...), one a round.
    floor : the least seconds that it takes on this machine, None where that is not known.
    copy : the least seconds of a copy of as many bytes in the same rounds, on a CPU.
    schedule : our choice, in words.
    error : the relative error norm of our result, None where PyTorch is missing or it is not known.
    failure : why there is no kernel of ours.
    """

    problem: Problem
    section: str = ""
    times: dict[str, list[float]] = field(default_factory=dict)
    floor: float | None = None
    copy: float | None = None
    schedule: str = ""
    error: float | None = None
    failure: str = ""

    def median(self, name: str) -> float | None:
        """Seconds."""
        found = self.times.get(name)
        return statistics.median(found) if found else None

    @property
    def best_peer(self) -> str | None:
        """The name of the fastest of the others."""
        peers = [name for name in self.times if name != OURS]
        return min(peers, key=lambda n: statistics.median(self.times[n]), default=None)

    @property
    def ratio(self) -> float | None:
        """The time of the fastest of the others for each unit of ours."""
        ours, peer = self.median(OURS), self.best_peer
        return (self.median(peer) or 0) / ours if ours and peer else None

    def of_floor(self, name: str) -> float | None:
        """How near the floor a time is: 1 is the best that the machine can do."""
        found = self.median(name)
        return self.floor / found if found and self.floor else None

    @property
    def unsteady(self) -> bool:
        """Whether a time varied much between rounds, as where other programs run."""
        for found in self.times.values():
            low, middle, high = statistics.quantiles(found, n=4)
            if high - low > 0.3 * middle:
                return True
        return False


class WrongResult(TilewrightError):
    """A kernel that computes something else."""


@dataclass
class Contest:
    """How problems are measured.

    Attributes
    ----------
    roofs : by type, what the machine can do at best.
    rounds, seconds : of a problem, at most.
    cache : where the policy "profile" keeps its measurements, by default in the cache folder.
    """

    machine: Machine
    peers: Peers
    policy: str
    roofs: Mapping[str, Roof]
    rounds: int
    seconds: float
    cache: ProfileCache | None = None

    def run(self, problem: Problem, section: str = "") -> Row:
        """Measure one problem; what of it fails is left out, and said in the row."""
        (row,) = self.together([problem], section)
        return row

    def together(self, problems: Sequence[Problem], section: str = "") -> list[Row]:
        """Measure one problem in several layouts, a row each: all take turns, the others once."""
        first = problems[0]
        rows = {f"{OURS} {k}": Row(p, section) for k, p in enumerate(problems)}
        arrays = random_arrays(first)
        sets = self._sets(first)
        batches: dict[str, Batch] = {}
        for name, row in rows.items():
            try:
                batches[name] = self._ours(row, arrays, sets)
            except TilewrightError as error:
                row.failure = str(error).partition("\n")[0]
        batches |= self.peers.batches(first, arrays, sets)
        times: dict[str, list[float]] = {}
        copying = self.machine.copying(first.bytes) if self.machine.kind == "llvm" else None
        if batches:
            batches |= {"copy": copying[0]} if copying else {}
            with self.peers.threads():
                times = take_turns(batches, self.rounds, 0.004, self.seconds, self.machine.rest)
        copies = times.pop("copy", None)
        roof = self.roofs[first.dtype]
        for name, row in rows.items():
            row.times = {OURS: times[name]} if name in times else {}
            row.times |= {other: found for other, found in times.items() if other not in rows}
            if copying and copies:
                row.copy = min(copies) * copying[1]
            if row.copy and roof.rate:
                row.floor = max(row.copy, first.flops / roof.rate)
            elif roof.bandwidth and roof.rate:
                row.floor = roof.seconds(first)
        return list(rows.values())

    def _sets(self, problem: Problem) -> int:
        """How many copies of the data take turns, so that a GPU's cache does not hold them."""
        if self.machine.kind != "cuda" or problem.bytes < _CACHED:
            return 1
        from tilewright.runtime.cuda_driver import device

        cache = device(0).attribute("L2_CACHE_SIZE")
        return max(2, math.ceil(2 * cache / problem.bytes))

    def _ours(self, row: Row, arrays: Mapping[str, Any], sets: int) -> Batch:
        """The kernel that is chosen, checked; raises :class:`TilewrightError` without one."""
        problem, target = row.problem, self.machine.target
        every = select.options(problem, target, self.policy, cache=self.cache)
        found = first_buildable(
            (choice for choice in every if not choice.algorithm.vendor),
            Choice.build,
            lambda built: spills_of(built.kernel) if isinstance(built, BuiltKernel) else 0,
        )
        if found is None:
            raise select.SelectError(select.reason(problem, target))
        built, choice = found
        values = choice.algorithm.to_values(choice.config)
        row.schedule = ", ".join([choice.algorithm.name, *(f"{k} {v}" for k, v in values.items())])
        copies = [self._device_arrays(problem, arrays) for _ in range(sets)]
        built(*copies[0])
        row.error = self._error(problem, arrays, copies[0][-1].numpy())
        allowed = max(TOLERANCE[problem.result.dtype], _FLOAT8 if problem.is_float8 else 0)
        allowed *= _HALF if problem.precision == "half" else 1
        if row.error is not None and not row.error < allowed:
            raise WrongResult(
                f"{row.schedule} computes something else: its relative error is {row.error:.1e}"
            )
        if self.machine.kind != "cuda":
            kernel = getattr(built, "kernel", None)
            if kernel is None:
                return of_calls(lambda: built(*copies[0]), self.machine.clock)
            return self.machine.batch(kernel, *kernel.prepared(copies[0]))
        if self.peers.with_torch:
            return of_graph(lambda i: built(*copies[i % sets]), sets)
        return _driver_graphs(built, copies)

    def _device_arrays(self, problem: Problem, arrays: Mapping[str, Any]) -> list[Any]:
        """In calling order and in the problem's layout, the result last and full of NaN, or of an
        integer that is rare."""
        import numpy as np

        empty = 77 if "int" in problem.result.dtype else np.nan
        result = np.full(problem.result.shape, empty, np.float32)
        dtypes = problem.dtypes()
        made = [
            self.machine.array(in_layout(problem, name, values), dtypes[name])
            for name, values in arrays.items()
        ]
        return [*made, self.machine.array(result, problem.result.dtype)]

    def _error(self, problem: Problem, arrays: Mapping[str, Any], found: Any) -> float | None:
        """The relative error norm against PyTorch in float64, of an excerpt."""
        try:
            import torch
        except ImportError:
            return None
        import numpy as np

        got = to_float(found, problem.result.dtype)
        p, given, got = problem.excerpt(arrays, got)
        device = "cuda" if self.machine.kind == "cuda" else "cpu"
        if p.flops > _CHECKED and device == "cpu":
            return None
        p = p.plain() if p.is_8bit else p.plain().replace(dtype="float64", precision="exact")
        call = p.torch_function(torch)
        if call is None:
            return None
        with torch.no_grad():
            tensors = torch_peer.operands(p, given, device, False)
            wanted = call(*tensors).cpu().double().numpy()
        wanted = problem.lay("result", wanted)
        return float(np.linalg.norm(got - wanted) / np.linalg.norm(wanted))


def random_arrays(problem: Problem) -> dict[str, Any]:
    """Normal numbers that the problem's type holds exactly, as float32, in the shapes of its
    ``plain``; variances are not negative. Integers are of 8 bits, and scales such that results
    are, too."""
    import numpy as np

    rng = np.random.default_rng(0)
    found = {}
    for name, (shape, dtype) in problem.plain().inputs().items():
        values = rng.standard_normal(shape, np.float32)
        if "int" in dtype:
            low = 0 if dtype[0] == "u" else -128
            values = rng.integers(low, low + 256, shape).astype(np.float32)
        elif name == "sum_scale":
            values = abs(values) * (1.0 if problem.is_float8 else 2.0**-14)
        values = abs(values) if name == "variance" else values
        if problem.is_float8:
            values = round_to(values, as_dtype(problem.dtype))
        elif problem.dtype == "bfloat16":
            values = (values.view(np.uint32) & 0xFFFF0000).view(np.float32)
        elif problem.dtype == "float16":
            values = values.astype(np.float16).astype(np.float32)
        found[name] = values
    return found


def in_layout(problem: Problem, name: str, values: Any) -> Any:
    """A tensor as it lies in the problem's layout."""
    import numpy as np

    return np.ascontiguousarray(problem.lay(name, values))


def to_float(values: Any, dtype: str) -> Any:
    """float64, also of floats that NumPy lacks, as their bits."""
    return from_storage(values, as_dtype(dtype)).astype("float64")


def _driver_graphs(built: Any, copies: Sequence[Sequence[Any]]) -> Batch:
    """CUDA graphs without PyTorch; each batch captures its own."""
    from tilewright.runtime.cuda_driver import device
    from tilewright.runtime.cuda_launch import measure

    count = 0

    def once(stream: int) -> None:
        nonlocal count
        built.kernel(*copies[count % len(copies)], stream=stream)
        count += 1

    return lambda number: measure(device(0), once, max(number, len(copies)), 1)[0]
