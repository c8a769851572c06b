"""Measuring on this machine: candidates are built in a pool of processes, and run in one process a
device.

A candidate that crashes, hangs, computes something else or leaves its device in error costs that
candidate: its process is replaced, and the reason is its result.
"""

from __future__ import annotations

import functools
import queue
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tilewright.target import Target
from tilewright.tune.builders import (
    Builders,
    LocalBuilder,
    first_config,
    lowered,
    naive_text,
    template_request,
)
from tilewright.tune.devices import Devices, LocalRunner
from tilewright.tune.entity import TuningError
from tilewright.tune.measure import Device, MeasureInput, Measurer, MeasureResult
from tilewright.tune.task import Task

__all__ = ["LocalBuilder", "LocalMeasurer", "LocalRunner", "MeasureOption", "measure_option"]

#: Targets whose candidates run elsewhere than on the processor that builds the next ones.
APART = ("cuda",)


@dataclass(frozen=True)
class MeasureOption:
    """What :func:`measure_option` returns."""

    builder: LocalBuilder
    runner: LocalRunner
    scheduler: str | None = None

    def open(self, task: Task) -> Measurer:
        """The processes that measure ``task``; close them."""
        if self.scheduler is not None:
            from tilewright.tune.cluster import ClusterMeasurer

            return ClusterMeasurer(task, self.scheduler, self.builder, self.runner)
        return LocalMeasurer(task, self.builder, self.runner)


def measure_option(
    builder: LocalBuilder | str = "local",
    runner: LocalRunner | str = "local",
    scheduler: str | None = None,
) -> MeasureOption:
    """How a tuner measures: ``measure_option(LocalBuilder(), LocalRunner(repeat=5))``.

    ``scheduler`` is the address of a Dask scheduler, whose workers then build and measure; see
    :mod:`.cluster`.
    """
    if isinstance(builder, str):
        builder = LocalBuilder()
    if isinstance(runner, str):
        runner = LocalRunner()
    if scheduler is not None and runner.remote:
        raise TuningError("a scheduler measures on its workers: leave out remote")
    return MeasureOption(builder, runner, scheduler)


class LocalMeasurer:
    """The processes that measure one task.

    Raises :class:`TuningError` where the device does not answer, or the template cannot be loaded
    in another process, before anything is measured.
    """

    def __init__(self, task: Task, builder: LocalBuilder, runner: LocalRunner) -> None:
        self._folder = tempfile.TemporaryDirectory(
            prefix="tilewright-tune-", ignore_cleanup_errors=True
        )
        folder = Path(self._folder.name)
        self._hello = template_request(task)
        self.devices = Devices(task.target, runner, folder)
        self.builders: Builders | None = None
        self._pools = (
            ThreadPoolExecutor(builder.processes),
            ThreadPoolExecutor(len(self.devices.workers)),
        )
        try:
            found = self.devices.ask()
            self._device = Device(found["device"], found["driver"], found["version"])
            self.task = Task(task.name, task.args, Target.parse(found["target"]))
            self.builders = Builders(self.task, builder, folder, self._hello)
            naive = naive_text(task) if self._hello is None else None
            self.data = self.builders.prepare(first_config(task), runner.seed, naive)
        except BaseException:
            self.close()
            raise

    @property
    def device(self) -> Device:
        return self._device

    @property
    def parallel(self) -> int:
        assert self.builders is not None
        return max(len(self.builders.workers), len(self.devices.workers))

    # -- one batch ---------------------------------------------------------------------------

    def measure(self, inputs: Sequence[MeasureInput]) -> Iterator[tuple[int, MeasureResult]]:
        """See :meth:`Measurer.measure`.

        On a GPU and another machine the first candidates run while the next are built; on the CPU,
        building would disturb the times, so all are built first.
        """
        results: queue.SimpleQueue[tuple[int, MeasureResult] | BaseException] = queue.SimpleQueue()
        build_pool, run_pool = self._pools

        def send(k: int, built: dict[str, Any]) -> None:
            def done(future: Future[MeasureResult]) -> None:
                if future.cancelled():  # as close() does to what waits, after Ctrl-C
                    return
                error = future.exception()
                results.put((k, future.result()) if error is None else error)

            run_pool.submit(self.devices.run, built, self.data).add_done_callback(done)

        def forward(k: int, future: Future[dict[str, Any]]) -> None:
            if future.cancelled():
                return
            error = future.exception()
            if error is None:
                send(k, future.result())
            else:
                results.put(error)

        built: list[Future[dict[str, Any]]] = [
            build_pool.submit(self._build, inp) for inp in inputs
        ]
        if self.task.target.kind in APART or self.devices.runner.remote:
            for k, future in enumerate(built):
                future.add_done_callback(functools.partial(forward, k))
        else:
            for k, found in enumerate([f.result() for f in built]):
                send(k, found)
        try:
            for _ in inputs:
                item = results.get()
                if isinstance(item, BaseException):
                    raise item
                yield item
        finally:
            for future in built:
                future.cancel()

    def _build(self, inp: MeasureInput) -> dict[str, Any]:
        assert self.builders is not None
        text = None
        if self._hello is None:
            found = lowered(self.task, inp)
            if found["error"]:
                return {**found, "path": "", "took": 0.0}
            text = found["module"]
        return self.builders.build(inp.config.to_json_dict(), text)

    def close(self) -> None:
        if self.builders is not None:
            self.builders.close()
        self.devices.close()
        for pool in self._pools:
            pool.shutdown(wait=True, cancel_futures=True)
        self._folder.cleanup()
