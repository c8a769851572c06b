"""Measuring on many devices and hosts: the workers of a Dask cluster build and measure.

A worker says by its resources what it has to measure on: ``dask worker ADDRESS --resources GPU=1``
for "cuda" and "opencl" (``GPU=2``: two devices of that process), ``CPU=1`` for "llvm" and "sim".
Workers without build only. Each candidate is a task of Dask's, which runs again elsewhere when its
worker is lost.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import queue
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tilewright.target import Target
from tilewright.tune import cluster_worker as remote
from tilewright.tune.builders import (
    LocalBuilder,
    first_config,
    lowered,
    naive_text,
    template_request,
)
from tilewright.tune.devices import LocalRunner
from tilewright.tune.entity import TuningError
from tilewright.tune.local import APART
from tilewright.tune.measure import Device, MeasureErrorNo, MeasureInput, MeasureResult
from tilewright.tune.task import Task

#: The name of the resource that a worker with a device for a kind of target has.
RESOURCES = {"cuda": "GPU", "opencl": "GPU", "llvm": "CPU", "sim": "CPU"}
#: Seconds that a run waits for a worker with a device, when there is none left.
PATIENCE = 60.0
#: Dask gives a task up when this many of its workers died; it gets this many more chances,
#: since those workers may have died of something else.
_CHANCES = 1
CONNECT = 10.0
#: Seconds in which a worker has to say what it is: it may have to import everything first.
ANSWER = 180.0


@dataclass
class _Flight:
    """A candidate under way; ``future`` is Dask's, of its result."""

    input: MeasureInput
    future: Any = None
    chances: int = _CHANCES


class ClusterMeasurer:
    """Measures one task on the workers of a scheduler, all on devices of one name.

    Raises :class:`TuningError` where Dask is not installed, the scheduler or the devices do not
    answer, and, while measuring, where the scheduler is gone or no worker with a device is left.
    """

    def __init__(
        self, task: Task, address: str, builder: LocalBuilder, runner: LocalRunner
    ) -> None:
        self.address, self.task = address, task
        self._client = _connect(address)
        self._resource = RESOURCES[task.target.kind]
        self._banned: set[str] = set()
        self._alone_since = 0.0
        self._serial = itertools.count()
        self._id = uuid.uuid4().hex
        try:
            self._open(task, builder, runner)
        except BaseException:
            self.close()
            raise

    # -- what there is -----------------------------------------------------------------------

    def _open(self, task: Task, builder: LocalBuilder, runner: LocalRunner) -> None:
        hello = template_request(task)
        if hello is not None:
            hello["digest"] = remote.digest(hello)
        workers = self._workers()
        if not self._fit(workers):
            raise TuningError(self._nobody())
        found = self._describe(task.target, hello, workers)
        self._choose_device(found)
        if not all(said["knows"] for said in found.values()):
            hello = None
        self.task = Task(task.name, task.args, self._target)
        self._sends_loops = hello is None
        self._text = json.dumps({
            "id": self._id, "task": self.task.to_json(), "config": first_config(task),
            "hello": hello, "naive": naive_text(task) if hello is None else None,
            "builder": {"timeout": builder.timeout, "verify": builder.verify},
            "runner": {"timeout": runner.timeout, "number": runner.number, "seed": runner.seed,
                       "repeat": runner.repeat, "min_repeat_ms": runner.min_repeat_ms},
            "processes": builder.n_parallel, "resource": self._resource,
        })  # fmt: skip

    def _workers(self) -> dict[str, Any]:
        """Address to what the scheduler knows of each worker."""
        found: Mapping[str, Any] = {}
        if self._client.status == "running":
            with contextlib.suppress(OSError):
                found = self._client.scheduler_info(n_workers=-1)
        if "workers" not in found:
            raise TuningError(self._gone())
        return dict(found["workers"])

    def _fit(self, workers: Mapping[str, Any]) -> list[str]:
        """The addresses of those with a device that is not known to be another or dead."""
        return [
            a for a, w in workers.items()
            if w["resources"].get(self._resource, 0) >= 1 and a not in self._banned
        ]  # fmt: skip

    def _describe(
        self, target: Target, hello: Any, workers: Mapping[str, Any]
    ) -> dict[str, dict[str, Any]]:
        having = set(self._fit(workers))
        asked = {
            a: self._client.submit(
                remote.describe, str(target), hello, a in having, workers=[a],
                key=f"tilewright-describe-{self._id}-{k}",
            )
            for k, a in enumerate(workers)
        }  # fmt: skip
        found = {}
        for address, future in asked.items():
            said = self._answer(address, future)
            if said is not None:
                found[address] = said
        return found

    def _answer(self, address: str, future: Any) -> dict[str, Any] | None:
        """What a worker says of itself; None where it is lost before it answers."""
        end = time.monotonic() + ANSWER
        while True:
            try:
                return dict(future.result(timeout=1.0))
            except Exception as error:  # whatever a worker of another make raises
                # An answer may come just after the time was over.
                waits = isinstance(error, TimeoutError) and future.status in ("pending", "finished")
                if waits and time.monotonic() < end:
                    if address in self._workers():
                        continue
                    future.cancel()  # else Dask keeps it for a worker at that address
                    return None
                raise TuningError(
                    f"the worker {address} cannot measure ({type(error).__name__}: {error}): has "
                    "it the same tilewright as this machine, with tilewright[dask]?"
                ) from None

    def _choose_device(self, found: Mapping[str, Mapping[str, Any]]) -> None:
        """The device that most workers have; others do not take part."""
        known: dict[tuple[str, ...], list[str]] = {}
        problems = []
        for address, said in found.items():
            if "device" in said:
                known.setdefault(_name(said), []).append(address)
            elif "error" in said:
                problems.append(f"{address}: {said['error']}")
        if not known:
            why = "; ".join(problems) or "those with a device are gone"
            raise TuningError(f"no worker of {self.address} can measure: {why}")
        chosen = max(known, key=lambda name: len(known[name]))
        self._device = Device(*chosen[:3])
        self._target = Target.parse(chosen[3])
        chosen_by = known[chosen]
        self._banned |= {
            a for a, said in found.items()
            if a not in chosen_by and ("device" in said or "error" in said)
        }  # fmt: skip

    @property
    def device(self) -> Device:
        return self._device

    @property
    def parallel(self) -> int:
        workers = self._workers()
        devices = sum(int(workers[a]["resources"][self._resource]) for a in self._fit(workers))
        threads = sum(int(w["nthreads"]) for w in workers.values())
        return max(1, devices, threads if self.task.target.kind in APART else 0)

    # -- one batch ---------------------------------------------------------------------------

    def measure(self, inputs: Sequence[MeasureInput]) -> Iterator[tuple[int, MeasureResult]]:
        """See :meth:`~tilewright.tune.measure.Measurer.measure`."""
        done: queue.SimpleQueue[tuple[int, Any]] = queue.SimpleQueue()
        pending = {k: _Flight(inp) for k, inp in enumerate(inputs)}
        try:
            for k, flight in pending.items():
                self._send(k, flight, done)
            while pending:
                try:
                    k, future = done.get(timeout=1.0)
                except queue.Empty:
                    self._look_around()
                    continue
                if k not in pending or future is not pending[k].future:
                    continue
                result = self._result(k, pending[k], done)
                if result is not None:
                    del pending[k]
                    yield k, result
        finally:
            with contextlib.suppress(Exception):  # the scheduler may be gone
                self._client.cancel([f.future for f in pending.values() if f.future is not None])

    def _send(self, k: int, flight: _Flight, done: queue.SimpleQueue[tuple[int, Any]]) -> None:
        """Give a candidate to the scheduler."""
        candidate: dict[str, Any] = {"config": flight.input.config.to_json_dict()}
        if self._sends_loops:
            candidate |= lowered(self.task, flight.input)
            if candidate.get("error"):
                flight.future = candidate
                done.put((k, candidate))
                return
        where: dict[str, Any] = {"resources": {self._resource: 1}}
        able = self._workers() if self._banned else {}
        if self._fit(able):
            where["workers"] = self._fit(able)
        name = f"tilewright-{self._id}-{next(self._serial)}"
        if self.task.target.kind in APART:
            built = self._client.submit(
                remote.build, self._text, candidate, key=f"{name}-build",
                workers=[a for a in able if a not in self._banned] or None,
            )  # fmt: skip
            future = self._client.submit(remote.run, self._text, built, key=name, **where)
        else:
            future = self._client.submit(
                remote.build_and_run, self._text, candidate, key=name, **where
            )
        flight.future = future
        future.add_done_callback(lambda f: done.put((k, f)))

    def _result(
        self, k: int, flight: _Flight, done: queue.SimpleQueue[tuple[int, Any]]
    ) -> MeasureResult | None:
        """What came of a candidate; None where it was sent out once more."""
        from distributed import CancelledError, KilledWorker

        if isinstance(flight.future, dict):
            return MeasureResult(
                (), MeasureErrorNo(flight.future["error"]), flight.future["reason"],
                timestamp=time.time(),
            )  # fmt: skip
        try:
            found = flight.future.result(timeout=CONNECT)
        except KilledWorker as error:
            if not flight.chances:
                return MeasureResult(
                    (), MeasureErrorNo.RUNTIME_DEVICE,
                    f"the workers that measured it died: {error}", timestamp=time.time(),
                )  # fmt: skip
            flight.chances -= 1
            self._send(k, flight, done)
            return None
        except (CancelledError, TimeoutError, OSError):
            raise TuningError(self._gone()) from None
        except Exception as error:  # Dask's, or of a worker of another make
            raise TuningError(
                f"a worker of {self.address} failed: {type(error).__name__}: {error}"
            ) from None
        unfit = found.get("worker") if "unfit" in found else ""
        if unfit or Device(*found["device"]) != self._device:
            address = unfit or self._who(flight.future)
            self._banned.add(address)
            self._look_around(found.get("unfit", "its device is another one"))
            self._send(k, flight, done)
            return None
        return MeasureResult(
            tuple(found["costs"]), MeasureErrorNo(found["error"]), found["reason"],
            found["all_cost"], found["timestamp"], found["extra"],
        )  # fmt: skip

    def _who(self, future: Any) -> str:
        """The worker that holds a result, which is the one that measured it."""
        with contextlib.suppress(Exception):
            return str(next(iter(self._client.who_has([future])[future.key])))
        return ""

    def _look_around(self, why: str = "") -> None:
        """Raise where nothing more can come."""
        if self._fit(self._workers()):
            self._alone_since = 0.0
            return
        now = time.monotonic()
        self._alone_since = self._alone_since or now
        if why or now - self._alone_since > PATIENCE:
            raise TuningError(self._nobody(why and f" ({why})"))

    def _gone(self) -> str:
        return (
            f"the scheduler at {self.address} is gone. What was measured is on record: start it "
            "and its workers, and go on with --resume"
        )

    def _nobody(self, why: str = "") -> str:
        return (
            f"no worker of {self.address} has a {self._resource} to measure on{why}: start `dask "
            f"worker {self.address} --resources {self._resource}=1`. What was measured is on record"
        )

    def close(self) -> None:
        with contextlib.suppress(Exception):  # the scheduler may be gone
            if self._client.status == "running":
                self._client.run(remote.end, self._id, on_error="ignore")
        with contextlib.suppress(Exception):
            self._client.close(timeout=5)


def _connect(address: str) -> Any:
    try:
        from distributed import Client
    except ImportError:
        raise TuningError(
            "a scheduler needs Dask: python -m pip install 'tilewright[dask]'"
        ) from None
    try:
        return Client(address, timeout=CONNECT, set_as_default=False)
    except TypeError as error:  # what it says of a transport that needs certificates
        raise TuningError(
            f"the Dask scheduler at {address} cannot be spoken to: {error}; for TLS, name the "
            "authority, a certificate and its key in Dask's configuration: distributed.comm.tls"
        ) from None
    except (OSError, ValueError, TimeoutError) as error:
        raise TuningError(f"no Dask scheduler answers at {address}: {error}") from None


def _name(said: Mapping[str, Any]) -> tuple[str, str, str, str]:
    return said["device"], said["driver"], said["version"], said["target"]
