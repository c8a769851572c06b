"""Measuring on this machine: candidates are built in a pool of processes, and run in one process a
device.

A candidate that crashes, hangs, computes something else or leaves its device in error costs that
candidate: its process is replaced, and the reason is its result.
"""

from __future__ import annotations

import contextlib
import functools
import os
import queue
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tilewright.target import Target
from tilewright.tune.entity import TuningError
from tilewright.tune.measure import (
    Device,
    MeasureErrorNo,
    MeasureInput,
    Measurer,
    MeasureResult,
)
from tilewright.tune.process import Worker, WorkerDied, WorkerTimeout
from tilewright.tune.task import Task
from tilewright.tune.template import find_template

#: Targets whose candidates run elsewhere than on the processor that builds the next ones.
_APART = ("cuda",)


@dataclass(frozen=True)
class LocalBuilder:
    """How candidates are built.

    Parameters
    ----------
    timeout : seconds that one may take.
    n_parallel : how many processes build, by default as many as there are cores.
    verify : whether each is proved in bounds and free of races first. The winner is, whenever it
        is built by :func:`tilewright.build`.
    """

    timeout: float = 30.0
    n_parallel: int | None = None
    verify: bool = False

    @property
    def processes(self) -> int:
        from tilewright.runtime.llvm_host import available_cores

        return self.n_parallel or available_cores()


@dataclass(frozen=True)
class LocalRunner:
    """How candidates are checked and timed.

    Parameters
    ----------
    timeout : seconds that one may take, in addition to ``repeat * min_repeat_ms``.
    number : runs a repetition, at least.
    repeat : repetitions; the median of them counts.
    min_repeat_ms : a repetition lasts at least so long.
    devices : the numbers of the devices that run them (cuda), each in a process of its own.
    seed : of the random inputs.
    cooldown_interval, enable_cpu_cache_flush, n_parallel : AutoTVM's, and without effect.
    """

    timeout: float = 10.0
    number: int = 4
    repeat: int = 5
    min_repeat_ms: float = 0.0
    devices: Sequence[int] = (0,)
    seed: int = 0
    cooldown_interval: float = 0.0
    enable_cpu_cache_flush: bool = False
    n_parallel: int | None = None


@dataclass(frozen=True)
class MeasureOption:
    """What :func:`measure_option` returns."""

    builder: LocalBuilder
    runner: LocalRunner

    def open(self, task: Task) -> Measurer:
        """The processes that measure ``task``; close them."""
        return LocalMeasurer(task, self.builder, self.runner)


def measure_option(
    builder: LocalBuilder | str = "local", runner: LocalRunner | str = "local"
) -> MeasureOption:
    """How a tuner measures: ``measure_option(LocalBuilder(), LocalRunner(repeat=5))``."""
    if isinstance(builder, str):
        builder = LocalBuilder()
    if isinstance(runner, str):
        runner = LocalRunner()
    return MeasureOption(builder, runner)


class LocalMeasurer:
    """The processes that measure one task.

    Raises :class:`TuningError` where the device does not answer, or the template cannot be loaded
    in another process, before anything is measured.
    """

    def __init__(self, task: Task, builder: LocalBuilder, runner: LocalRunner) -> None:
        self.builder, self.runner = builder, runner
        self._folder = tempfile.TemporaryDirectory(
            prefix="tilewright-tune-", ignore_cleanup_errors=True
        )
        self.folder = Path(self._folder.name)
        self._source = task
        self._hello = _template_request(task.name)
        off = {"TILEWRIGHT_CACHE": "off"}  # candidates would drive out what is in use
        count = builder.processes
        self.builders = [self._worker(f"builder-{k}", self._hello, off) for k in range(count)]
        self.runners = [
            self._worker(f"device-{n}", {"do": "nothing"}, off | _visible(task.target, n))
            for n in runner.devices
        ]
        self._free: queue.SimpleQueue[Worker] = queue.SimpleQueue()
        self._devices: queue.SimpleQueue[Worker] = queue.SimpleQueue()
        self._pools = (ThreadPoolExecutor(count), ThreadPoolExecutor(len(self.runners)))
        self._serial = 0
        self._dead = ""
        try:
            self._open(task)
        except BaseException:
            self.close()
            raise
        for worker in self.builders:
            self._free.put(worker)
        for worker in self.runners:
            self._devices.put(worker)

    def _worker(self, name: str, hello: dict[str, Any] | None, off: dict[str, str]) -> Worker:
        return Worker(self.folder / f"{name}.log", hello or {"do": "nothing"}, off)

    def _open(self, task: Task) -> None:
        found = self._ask_device(self.runners[0], task.target)
        self._device = Device(found["device"], found["driver"], found["version"])
        self.task = Task(task.name, task.args, Target.parse(found["target"]))
        self.data = self.folder / "data.npz"
        config = task.config_space.get(next(task.config_space.indices()))
        request = {
            "do": "prepare", "task": self.task.to_json(), "config": config.to_json_dict(),
            "path": str(self.data), "seed": self.runner.seed,
        }  # fmt: skip
        if self._hello is None:
            request["naive"] = _naive_text(task)
        first = self.builders[0]
        try:
            first.start()
            if "error" in first.greeting:
                raise TuningError(
                    f"template {task.name!r} cannot be loaded in the processes that build: "
                    f"{first.greeting['reason']}"
                )
            answer = first.call(request, 600)
        except (WorkerDied, WorkerTimeout) as error:
            raise TuningError(f"the reference of {task} could not be computed: {error}") from None
        if answer["error"]:
            raise TuningError(f"the reference of {task} failed: {answer['reason']}")

    def _ask_device(self, worker: Worker, target: Target) -> dict[str, Any]:
        """What the device is; three attempts, for one that was just left in error."""
        problem = ""
        for pause in (0.0, 1.0, 5.0):
            time.sleep(pause)
            try:
                found = worker.call({"do": "device", "target": str(target)}, 120)
            except (WorkerDied, WorkerTimeout) as error:
                problem = str(error)
                continue
            if not found["error"]:
                return found
            problem = found["reason"]
            worker.stop()
        raise TuningError(f"the device for target {target} does not answer: {problem}")

    @property
    def device(self) -> Device:
        return self._device

    @property
    def parallel(self) -> int:
        return max(len(self.builders), len(self.runners))

    # -- one batch ---------------------------------------------------------------------------

    def measure(self, inputs: Sequence[MeasureInput]) -> Iterator[tuple[int, MeasureResult]]:
        """See :meth:`Measurer.measure`.

        On a GPU the first candidates run while the next are built; on the CPU, building would
        disturb the times, so all are built first.
        """
        results: queue.SimpleQueue[tuple[int, MeasureResult] | BaseException] = queue.SimpleQueue()
        build_pool, run_pool = self._pools

        def send(k: int, built: dict[str, Any]) -> None:
            def done(future: Future[MeasureResult]) -> None:
                error = future.exception()
                results.put((k, future.result()) if error is None else error)

            run_pool.submit(self._run, built).add_done_callback(done)

        def forward(k: int, future: Future[dict[str, Any]]) -> None:
            if not future.cancelled():
                send(k, future.result())

        built: list[Future[dict[str, Any]]] = [
            build_pool.submit(self._build, inp) for inp in inputs
        ]
        if self.task.target.kind in _APART:
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
        """The answer to "build", with "path"."""
        worker = self._free.get()
        begin = time.perf_counter()
        self._serial += 1
        path = self.folder / f"{self._serial}-{inp.config.index}.tw"
        request = {
            "do": "build", "task": self.task.to_json(), "config": inp.config.to_json_dict(),
            "path": str(path), "verify": self.builder.verify,
        }  # fmt: skip
        try:
            if self._hello is None:
                request["module"] = _lowered_text(self.task, inp)
            found = worker.call(request, self.builder.timeout)
        except WorkerTimeout as error:
            found = _failure(MeasureErrorNo.BUILD_TIMEOUT, f"building: {error}")
        except WorkerDied as error:
            found = _failure(MeasureErrorNo.COMPILE_DEVICE, f"building: {error}")
        except Exception as error:  # lowered here, by a template that cannot be loaded elsewhere
            found = _failure(MeasureErrorNo.INSTANTIATION_ERROR, f"{type(error).__name__}: {error}")
        finally:
            self._free.put(worker)
        return {**found, "path": str(path), "took": time.perf_counter() - begin}

    def _run(self, built: dict[str, Any]) -> MeasureResult:
        extra = {"features": built["features"]} if "features" in built else {}
        if built["error"]:
            return _result(built, built["took"], extra)
        worker = self._devices.get()
        begin = time.perf_counter()
        runner = self.runner
        request = {
            "do": "run", "path": built["path"], "data": str(self.data), "number": runner.number,
            "repeat": runner.repeat, "min_repeat_ms": runner.min_repeat_ms,
        }  # fmt: skip
        limit = runner.timeout + 2e-3 * runner.repeat * runner.min_repeat_ms
        try:
            if self._dead:
                raise TuningError(self._dead)
            found, suspect = self._ask_run(worker, request, limit)
            if suspect:
                worker.stop()
                self._ask_device(worker, self.task.target)
        except TuningError as error:
            self._dead = str(error)
            raise
        finally:
            self._devices.put(worker)
            with contextlib.suppress(OSError):
                os.unlink(built["path"])
        return _result(found, built["took"] + time.perf_counter() - begin, extra)

    def _ask_run(
        self, worker: Worker, request: dict[str, Any], limit: float
    ) -> tuple[dict[str, Any], bool]:
        """The answer, and whether the device has to be looked at."""
        try:
            found = worker.call(request, limit)
        except WorkerTimeout as error:
            return _failure(MeasureErrorNo.RUN_TIMEOUT, f"running: {error}"), True
        except WorkerDied as error:
            return _failure(MeasureErrorNo.RUNTIME_DEVICE, f"running: {error}"), True
        return found, bool(found.get("poisoned"))

    def close(self) -> None:
        for worker in (*self.builders, *self.runners):
            worker.close()
        for pool in self._pools:
            pool.shutdown(wait=True, cancel_futures=True)
        self._folder.cleanup()


def _failure(kind: MeasureErrorNo, reason: str) -> dict[str, Any]:
    return {"error": int(kind), "reason": reason}


def _result(found: dict[str, Any], seconds: float, extra: dict[str, Any]) -> MeasureResult:
    return MeasureResult(
        tuple(found.get("costs", ())),
        MeasureErrorNo(found["error"]),
        found.get("reason", ""),
        seconds,
        time.time(),
        extra,
    )


def _visible(target: Target, number: int) -> dict[str, str]:
    """What lets a process see one CUDA device only."""
    if target.kind != "cuda":
        return {}
    known = [d for d in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if d]
    if known and number >= len(known):
        raise TuningError(f"device {number} is not among CUDA_VISIBLE_DEVICES={','.join(known)}")
    return {"CUDA_VISIBLE_DEVICES": known[number] if known else str(number)}


def _template_request(name: str) -> dict[str, Any] | None:
    """What makes a template known to another process; None where it is in no file."""
    found = find_template(name)
    module = sys.modules.get(found.module)
    path = str(getattr(module, "__file__", None) or "")
    if found.module == "__main__" and not os.path.isfile(path):
        return None
    path = os.path.abspath(path) if path else path
    return {
        "do": "load", "name": name, "module": found.module, "path": path, "argv": sys.argv,
    }  # fmt: skip


def _naive_text(task: Task) -> str:
    from tilewright.runtime.serialize import to_json
    from tilewright.tune.data import naive_module

    config = task.config_space.get(next(task.config_space.indices()))
    return to_json(naive_module(task.instantiate(config)[1]))


def _lowered_text(task: Task, inp: MeasureInput) -> str:
    from tilewright.lower.pipeline import lower
    from tilewright.runtime.serialize import to_json

    s, args = task.instantiate(inp.config)
    return to_json(lower(s, args, task.target))
