"""The loop that all tuners share: propose, measure, record, learn."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Protocol

import numpy as np

from tilewright.tune.config import ConfigEntity
from tilewright.tune.entity import TuningError
from tilewright.tune.measure import MeasureInput, Measurer, MeasureResult
from tilewright.tune.records import Records
from tilewright.tune.task import Task

Pair = tuple[MeasureInput, MeasureResult]
#: Called after each measurement, or batch of them, with the tuner, the inputs and the results.
Callback = Callable[["Tuner", Sequence[MeasureInput], Sequence[MeasureResult]], Any]


class Option(Protocol):
    """What opens a measurer: :class:`~tilewright.tune.local.MeasureOption`, or another place."""

    def open(self, task: Task) -> Measurer:
        """What measures ``task``, until it is closed."""


class Tuner:
    """The base of tuners; each overrides :meth:`propose`, and may override :meth:`learn`.

    Attributes
    ----------
    best_config, best_cost, best_flops, best_iter : the fastest candidate that was right, its
        seconds, its rate in operations a second, and the trial that found it; None, infinite, 0
        and 0 before there is one.
    best_measure_pair : its :class:`MeasureInput` and :class:`MeasureResult`.
    trials : how many candidates were measured, those of a resumed run included.
    recalled : how many of them were on record before this run.
    ended : why this run stopped before the trials it was asked for, "" where it did not.
    """

    def __init__(self, task: Task, *, seed: int | None = None) -> None:
        self.task = task
        self.space = task.config_space
        self.rng = np.random.default_rng(seed)
        self.visited: dict[int, float] = {}  # index to cost, infinite where it failed
        self.trials = 0
        self.recalled = 0
        self.n_trial = 0
        self.ended = ""
        self.errors: dict[int, int] = {}
        self.last_reason = ""  # why the last one that failed did
        self.interrupted = False
        self.failed = False  # whether an error ended the last run
        self.best_measure_pair: Pair | None = None
        self.best_iter = 0

    # -- what a kind of tuner defines ------------------------------------------------------------

    def propose(self, count: int) -> list[int]:
        """At most ``count`` indices that are not in ``visited``."""
        raise NotImplementedError

    def learn(self, found: Sequence[Pair]) -> None:
        """Take in the measurements of a batch; they are in ``visited`` already."""

    def transfer(self, found: Sequence[Pair]) -> None:
        """Take in measurements of other tasks, or of other devices."""

    # -- what is known ---------------------------------------------------------------------------

    @property
    def best_config(self) -> ConfigEntity | None:
        return None if self.best_measure_pair is None else self.best_measure_pair[0].config

    @property
    def best_cost(self) -> float:
        return math.inf if self.best_measure_pair is None else self.best_measure_pair[1].cost

    @property
    def best_flops(self) -> float:
        return 0.0 if self.best_measure_pair is None else self.task.flop / self.best_cost

    def has_next(self) -> bool:
        """Whether there are candidates that were not measured."""
        return len(self.visited) < len(self.space)

    def next_batch(self, count: int) -> list[ConfigEntity]:
        """The configurations to measure next."""
        proposed = dict.fromkeys(i for i in self.propose(count) if i not in self.visited)
        chosen = list(proposed)[:count]
        if len(chosen) < count:
            taken = {*self.visited, *chosen}
            chosen += self.space.sample(count - len(chosen), self.rng, taken)
        return [self.space.get(i) for i in chosen]

    def note(self, found: Sequence[Pair]) -> None:
        """Count measurements of this task."""
        for inp, result in found:
            self.trials += 1
            index = inp.config.index
            self.last_reason = result.reason or self.last_reason
            self.errors[int(result.error_no)] = self.errors.get(int(result.error_no), 0) + 1
            self.visited[index] = min(result.cost, self.visited.get(index, math.inf))
            if result.ok and result.cost < self.best_cost:
                self.best_measure_pair, self.best_iter = (inp, result), self.trials

    def load_history(self, found: Iterable[Any]) -> int:
        """Learn from earlier records, pairs or :class:`~tilewright.tune.records.Record`.

        Those of this very task on this target are not measured again; how many these are.
        """
        own, other = self._split(found)
        self.note(own)
        if other:
            self.transfer(other)
        if own:
            self.learn(own)
        return len(own)

    def _split(self, found: Iterable[Any]) -> tuple[list[Pair], list[Pair]]:
        own: list[Pair] = []
        other: list[Pair] = []
        for record in found:
            inp, result = record if isinstance(record, tuple) else (record.input, record.result)
            same = inp.task.workload == self.task.workload
            index = self.space.find(inp.config.entities) if same else None
            if index is not None and inp.target.kind == self.task.target.kind:
                config = ConfigEntity(index, inp.config.entities)
                own.append((MeasureInput(self.task, config), result))
            else:
                other.append((inp, result))
        return own, other

    # -- the loop --------------------------------------------------------------------------------

    def tune(
        self,
        n_trial: int,
        measure_option: Option,
        early_stopping: int | None = None,
        callbacks: Sequence[Callback] = (),
        si_prefix: str = "G",
        *,
        records: Records | None = None,
        resume: bool = False,
        transfer: bool = True,
        batch: int | None = None,
    ) -> ConfigEntity | None:
        """Measure at most ``n_trial`` candidates; the best configuration, None if none was right.

        Parameters
        ----------
        measure_option : where and how, as :func:`~tilewright.tune.local.measure_option` says.
        early_stopping : stop when this number of trials in a row brought nothing better.
        callbacks : called after each batch; see :mod:`.callback`. What has ``begin(tuner)``,
            ``measured(tuner, done)`` with the trials done so far, or ``end(tuner)`` receives
            these, too.
        si_prefix : AutoTVM's, and without effect: displays choose their units.
        records : where each measurement is committed as it comes; None keeps none.
        resume : take what ``records`` hold of this task, device, driver and version as done: it
            counts among ``n_trial``.
        transfer : let the cost model learn from other records of the same template.
        batch : candidates a batch, by default a few for each process that builds.

        Ctrl-C ends it early, with all that was found; ``interrupted`` then says so. Raises
        :class:`TuningError` where the device does not answer, :class:`RecordsError` where a
        measurement cannot be kept.
        """
        from tilewright.tune.worker import LOADING, LoadedEnough

        if os.environ.get(LOADING):
            raise LoadedEnough
        self.n_trial = n_trial
        self.interrupted, self.failed, self.ended, self.recalled = False, False, "", 0
        measurer: Measurer | None = None
        _tell(callbacks, "begin", self)
        try:
            measurer = measure_option.open(self.task)
            if records is not None:
                self._recall(records, measurer, resume, transfer)
            size = batch or max(8, 4 * measurer.parallel)
            self._loop(measurer, size, early_stopping or n_trial, callbacks, records)
        except KeyboardInterrupt:
            self.interrupted = True
        except BaseException:
            self.failed = True
            raise
        finally:
            if measurer is not None:
                measurer.close()
            _tell(callbacks, "end", self)
        return self.best_config

    def _recall(self, records: Records, measurer: Measurer, resume: bool, transfer: bool) -> None:
        found = records.find(template=self.task.name)
        own: list[Pair] = []
        other: list[Pair] = []
        for record in found:
            same = record.device == measurer.device and record.problem == self.task.key
            (own if same and resume else other).append((record.input, record.result))
        if own:
            self.recalled = self.load_history(own)
        if other and transfer:
            self.transfer([pair for pair in other if pair[0].target.kind == self.task.target.kind])

    def _loop(
        self,
        measurer: Measurer,
        size: int,
        patience: int,
        callbacks: Sequence[Callback],
        records: Records | None,
    ) -> None:
        began = self.trials
        while self.trials < self.n_trial and self.has_next():
            inputs = [
                MeasureInput(self.task, config)
                for config in self.next_batch(min(size, self.n_trial - self.trials))
            ]
            if not inputs:
                self.ended = "the tuner proposes no more"
                return
            found: list[Pair] = []
            try:
                for pair in self._measured(measurer, inputs):
                    if records is not None:
                        records.add([pair], measurer.device)
                    found.append(pair)
                    _tell(callbacks, "measured", self, self.trials + len(found))
            finally:  # Ctrl-C keeps those of the batch that are done
                self.note(found)
                if found:
                    ours, theirs = [p[0] for p in found], [p[1] for p in found]
                    for callback in callbacks:
                        callback(self, ours, theirs)
            self.learn(found)
            if self.trials - max(self.best_iter, began) >= patience and self.trials < self.n_trial:
                self.ended = f"nothing better in {patience} trials"
                return
        if self.trials < self.n_trial:
            self.ended = f"the space has no more than {len(self.space)}"

    def _measured(self, measurer: Measurer, inputs: Sequence[MeasureInput]) -> Iterator[Pair]:
        for k, result in measurer.measure(inputs):
            yield inputs[k], result


def _tell(callbacks: Sequence[Callback], what: str, *args: Any) -> None:
    """Call a method of those callbacks that have it."""
    for callback in callbacks:
        method = getattr(callback, what, None)
        if method is not None:
            method(*args)


def check_positive(name: str, value: int) -> int:
    """``value``, or :class:`TuningError` where it is no count."""
    if value < 1:
        raise TuningError(f"{name}={value}: it takes 1 or more")
    return value
