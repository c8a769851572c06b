"""The processes of this machine that check and time candidates, one a device."""

from __future__ import annotations

import contextlib
import os
import queue
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tilewright.target import Target
from tilewright.tune.builders import NO_CACHE, NOTHING, failure
from tilewright.tune.entity import TuningError
from tilewright.tune.measure import MeasureErrorNo, MeasureResult
from tilewright.tune.process import Worker, WorkerDied, WorkerTimeout

if TYPE_CHECKING:
    from tilewright.tune.remote import RemoteWorker


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
    remote : addresses of other machines in place of devices of this, with commas between them, at
        which ``tilewright serve`` runs; they have the same device.
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
    remote: str = ""


class Devices:
    """A process for each device of a runner, or a connection to each other machine."""

    def __init__(self, target: Target, runner: LocalRunner, folder: Path) -> None:
        self.target, self.runner = target, runner
        self.workers: list[Worker] | list[RemoteWorker] = [
            Worker(folder / f"device-{n}.log", NOTHING, NO_CACHE | _visible(target, n))
            for n in runner.devices
        ]
        if runner.remote:
            from tilewright.tune.remote import workers

            self.workers = workers(runner.remote, target)
        self._free: queue.SimpleQueue[Worker | RemoteWorker] = queue.SimpleQueue()
        for worker in self.workers:
            self._free.put(worker)
        self._dead = ""

    def ask(self) -> dict[str, Any]:
        """What the first device is, as :func:`~tilewright.tune.machine.machine` says.

        Raises :class:`TuningError` where it does not answer, and where another machine has another.
        """
        found = [self._ask(w) for w in self.workers[: None if self.runner.remote else 1]]
        for other in found[1:]:
            if other["device"] != found[0]["device"]:
                raise TuningError(
                    f"{self.runner.remote} have {found[0]['device']} and {other['device']}: "
                    "measure on machines with one device"
                )
        return found[0]

    def _ask(self, worker: Worker | RemoteWorker) -> dict[str, Any]:
        """Three attempts, for a device that was just left in error."""
        problem = ""
        for pause in (0.0, 1.0, 5.0):
            time.sleep(pause)
            try:
                found = worker.call({"do": "device", "target": str(self.target)}, 120)
            except (WorkerDied, WorkerTimeout, TuningError) as error:  # or it cannot be reached
                problem = str(error)
                continue
            if not found["error"]:
                return found
            problem = found["reason"]
            worker.stop()
        raise TuningError(f"the device for target {self.target} does not answer: {problem}")

    def run(self, built: dict[str, Any], data: Path) -> MeasureResult:
        """Check and time what :meth:`Builders.build` answered; its file is removed.

        Raises :class:`TuningError` where the device is dead.
        """
        extra = {"features": built["features"]} if "features" in built else {}
        if built["error"]:
            return _result(built, built["took"], extra)
        worker = self._free.get()
        begin = time.perf_counter()
        runner = self.runner
        request = {
            "do": "run", "path": built["path"], "data": str(data), "number": runner.number,
            "repeat": runner.repeat, "min_repeat_ms": runner.min_repeat_ms,
        }  # fmt: skip
        limit = runner.timeout + 2e-3 * runner.repeat * runner.min_repeat_ms
        try:
            if self._dead:
                raise TuningError(self._dead)
            found, suspect = _answer(worker, request, limit)
            if suspect:
                worker.stop()
                self._ask(worker)
        except TuningError as error:
            self._dead = str(error)
            raise
        finally:
            self._free.put(worker)
            with contextlib.suppress(OSError):
                os.unlink(built["path"])
        return _result(found, built["took"] + time.perf_counter() - begin, extra)

    def close(self) -> None:
        for worker in self.workers:
            worker.close()


def _answer(
    worker: Worker | RemoteWorker, request: dict[str, Any], limit: float
) -> tuple[dict[str, Any], bool]:
    """The answer, and whether the device has to be looked at."""
    try:
        found = worker.call(request, limit)
    except WorkerTimeout as error:
        return failure(MeasureErrorNo.RUN_TIMEOUT, f"running: {error}"), True
    except WorkerDied as error:
        return failure(MeasureErrorNo.RUNTIME_DEVICE, f"running: {error}"), True
    return found, bool(found.get("poisoned"))


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
