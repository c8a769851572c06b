"""Graphs of inference, replayed where that is right."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx

from tilewright.torch import recording
from tilewright.torch.frozen import Frozen
from tilewright.torch.recording import Recording, Run, addresses
from tilewright.torch.region import Region
from tilewright.torch.steps import device_of, may_replay, obstacle

#: Calls alike that are launched before one is recorded, how often one is recorded at most, and how
#: many recordings are kept: those that were made last.
_BEFORE, _TIMES, _KEPT = 2, 64, 16
#: More than the results of any graph.
_MANY = 1 << 20


@dataclass
class _Recorded:
    """What replays calls of one kind; ``frozen`` says whether parameters that are constants of its
    kernels still are what they were, and ``kept`` are these kernels."""

    call: Recording
    frozen: Frozen | None
    kept: list[Any]


class ReplayedCalls:
    """What runs a graph of inference, by ``run`` at first and, where calls were alike, by a CUDA
    graph of them.

    Alike are calls with inputs of the same shapes, with the same numbers, and with parameters at
    the same addresses. Inputs are copied to where the graph reads them, and results from where it
    writes them: they are the caller's. ``reason`` says why no call is recorded.
    """

    def __init__(self, graph: fx.GraphModule, static: Collection[fx.Node]) -> None:
        inputs = graph.graph.find_nodes(op="placeholder")
        self._static = [k for k, n in enumerate(inputs) if n in static]
        self._others = [k for k, n in enumerate(inputs) if n not in static]
        self._device, self._regions = device_of(graph), list[Region]()
        self.reason = obstacle(graph, ())
        self._lock = threading.RLock()
        self._record: recording.Record | None = None
        self._recorded: dict[Any, _Recorded] = {}
        #: By kind, how many were launched one after the other with parameters that are what they
        #: were, and what these were.
        self._calls: dict[Any, tuple[int, Any]] = {}
        self._times = 0
        self._stream: Any = None

    def __deepcopy__(self, memo: Any) -> ReplayedCalls:
        return self

    def of(self, run: Run, regions: list[Region]) -> Run:
        """What replays ``run``, by regions, or runs it; ``run`` itself where nothing can be
        recorded."""
        self._regions = regions
        if self.reason or recording.recorder(self._device) is None:
            return run

        def run_or_replay(given: list[Any]) -> Any:
            results = None
            if self._lock.acquire(blocking=False):  # or another thread is here
                try:
                    results = self._replay(run, given)
                finally:
                    self._lock.release()
            return run(given) if results is None else results

        return recording.as_boxed(run_or_replay)

    def _replay(self, run: Run, given: list[Any]) -> list[Any] | None:
        if self.reason or not may_replay(self._device):
            return None
        static = [given[k] for k in self._static]
        others = [
            (x.shape, x.stride()) if isinstance(x := given[k], torch.Tensor) else x
            for k in self._others
        ]
        kind = (torch.is_inference_mode_enabled(), *others, *addresses(given, self._static))
        found = self._recorded.get(kind)
        if found is None or (found.frozen is not None and not found.frozen.holds(static)):
            self._recorded.pop(kind, None)
            if found is not None:
                self._calls.pop(kind, None)
            found = self._recorded_now(run, given, kind, static)
            if found is None:
                return None
        self._stream = recording.follow(self._device, self._stream)
        results = found.call(given)
        given.clear()
        return results

    def _recorded_now(
        self, run: Run, given: list[Any], kind: Any, static: Sequence[torch.Tensor]
    ) -> _Recorded | None:
        """A recording of calls like this one, where it is due."""
        if len(self._calls) > 64 * _KEPT:  # of shapes that do not come again
            self._calls.clear()
        freezes = [r.freezes for r in self._regions]
        if any(freezes) and any(t.is_inference() for t in static):
            self.reason = "a parameter or buffer of inference mode counts no versions"
            return None
        # Constants that have changed are compiled again, which is not to be recorded.
        now = freezes, [t._version for t in static] if any(freezes) else None
        count, before = self._calls.get(kind, (0, now))
        count = count if before == now else 0
        if count < _BEFORE or self._times >= _TIMES:
            self._calls[kind] = count + 1, now
            return None
        self._times += 1
        if self._record is None:
            self._record = recording.recorder(self._device)
        assert self._record is not None
        frozen = Frozen(static) if any(freezes) else None
        try:
            call = Recording(self._record, run, given, self._static, _MANY)
            _check_apart(call)
        except Exception as error:  # memory that is short, or whatever cannot be recorded
            self.reason = f"{type(error).__name__}: {error}"
            self._recorded.clear()
            return None
        if len(self._recorded) >= _KEPT:
            del self._recorded[next(iter(self._recorded))]
        kept = [kernels for r in self._regions for kernels in r.compiled]
        self._recorded[kind] = found = _Recorded(call, frozen, kept)
        return found


def _check_apart(call: Recording) -> None:
    """Raises :class:`RuntimeError` where two results, which are dense, lie in the same memory: each
    is copied, and what is written to one of them would not be seen in the other. Those that lie in
    inputs AOTAutograd makes of these again."""
    tensors = [x for k, x in enumerate(call.results) if k not in call.passed]
    lie = sorted(
        (x.data_ptr(), x.data_ptr() + x.nbytes)
        for x in tensors if isinstance(x, torch.Tensor) and x.numel() and not call.is_input(x)
    )  # fmt: skip
    if any(end > begin for (_, end), (begin, _) in itertools.pairwise(lie)):
        raise RuntimeError("results lie in one another's memory")
