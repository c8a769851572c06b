"""The processes of this machine that build candidates, and compute what they must give."""

from __future__ import annotations

import os
import queue
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tilewright.topi.problem import Problem
from tilewright.tune.entity import TuningError
from tilewright.tune.measure import MeasureErrorNo, MeasureInput
from tilewright.tune.process import Worker, WorkerDied, WorkerTimeout
from tilewright.tune.task import Task
from tilewright.tune.template import find_template

#: For the processes that build and run: candidates would drive out what is in use.
NO_CACHE = {"TILEWRIGHT_CACHE": "off"}
NOTHING = {"do": "nothing"}
#: Seconds that computing the reference may take.
_REFERENCE = 600.0


@dataclass(frozen=True)
class LocalBuilder:
    """How candidates are built.

    Parameters
    ----------
    timeout : seconds that one may take.
    n_parallel : how many processes build, by default as many as there are cores.
    verify : whether each is proved in bounds and free of races first. The winner is, whenever it
        is built by :func:`tilewright.build`.
    build_func, do_fork : AutoTVM's, and without effect.

    Raises :class:`TuningError` for another ``build_func`` than "default".
    """

    timeout: float = 30.0
    n_parallel: int | None = None
    verify: bool = False
    build_func: str = "default"
    do_fork: bool = False

    def __post_init__(self) -> None:
        if self.build_func != "default":
            raise TuningError(
                f"build_func={self.build_func!r}: candidates run where they are built, or on "
                "workers of measure_option(scheduler=ADDRESS); leave it out"
            )

    @property
    def processes(self) -> int:
        from tilewright.runtime.llvm_host import available_cores

        return self.n_parallel or available_cores()


class Builders:
    """A pool of processes that build one task's candidates into ``folder``.

    Parameters
    ----------
    task : its target has the architecture of the device.
    hello : makes the template known to a process, as :func:`template_request` says; None where
        candidates come lowered.
    """

    def __init__(
        self, task: Task, settings: LocalBuilder, folder: Path, hello: dict[str, Any] | None
    ) -> None:
        self.task, self.settings, self.folder = task, settings, folder
        self.workers = [
            Worker(folder / f"builder-{k}.log", hello or NOTHING, NO_CACHE)
            for k in range(settings.processes)
        ]
        self._free: queue.SimpleQueue[Worker] = queue.SimpleQueue()
        for worker in self.workers:
            self._free.put(worker)
        self._serial = 0

    def prepare(self, config: dict[str, Any], seed: int, naive: str | None) -> Path:
        """Random inputs and right outputs in a file.

        ``naive`` is the unscheduled program in JSON, where the template is not known there.
        Raises :class:`TuningError` where the template cannot be loaded, or the reference fails.
        """
        path = self.folder / "data.npz"
        request = {
            "do": "prepare", "task": self.task.to_json(), "config": config, "path": str(path),
            "seed": seed,
        }  # fmt: skip
        if naive is not None:
            request["naive"] = naive
        worker = self._free.get()
        try:
            worker.start()
            if "error" in worker.greeting:
                raise TuningError(
                    f"template {self.task.name!r} cannot be loaded in the processes that build: "
                    f"{worker.greeting['reason']}"
                )
            answer = worker.call(request, _REFERENCE)
        except (WorkerDied, WorkerTimeout) as error:
            raise TuningError(
                f"the reference of {self.task} could not be computed: {error}"
            ) from None
        finally:
            self._free.put(worker)
        if answer["error"]:
            raise TuningError(f"the reference of {self.task} failed: {answer['reason']}")
        return path

    def build(self, config: dict[str, Any], module: str | None = None) -> dict[str, Any]:
        """The answer to "build", with the "path" of the kernel and the seconds that it "took".

        ``module`` is the program in JSON, where it is lowered already.
        """
        worker = self._free.get()
        begin = time.perf_counter()
        self._serial += 1
        path = self.folder / f"{self._serial}-{config['index']}.tw"
        request = {
            "do": "build", "task": self.task.to_json(), "config": config, "path": str(path),
            "verify": self.settings.verify,
        }  # fmt: skip
        if module is not None:
            request["module"] = module
        try:
            found = worker.call(request, self.settings.timeout)
        except WorkerTimeout as error:
            found = failure(MeasureErrorNo.BUILD_TIMEOUT, f"building: {error}")
        except WorkerDied as error:
            found = failure(MeasureErrorNo.COMPILE_DEVICE, f"building: {error}")
        finally:
            self._free.put(worker)
        return {**found, "path": str(path), "took": time.perf_counter() - begin}

    def close(self) -> None:
        for worker in self.workers:
            worker.close()


def failure(kind: MeasureErrorNo, reason: str) -> dict[str, Any]:
    """An answer of the processes for a candidate that failed."""
    return {"error": int(kind), "reason": reason}


def template_request(task: Task) -> dict[str, Any] | None:
    """What makes a task's template, and the operator of its problem, known to another process; None
    where they are in no file."""
    home = find_template(task.name).module
    for value in task.args:  # an operator of a user's, by a template of ours
        if isinstance(value, Problem) and home.startswith("tilewright."):
            home = type(value).__module__
    path = str(getattr(sys.modules.get(home), "__file__", None) or "")
    if home == "__main__" and not os.path.isfile(path):
        return None
    path = os.path.abspath(path) if path else path
    return {
        "do": "load", "name": task.name, "module": home, "path": path, "argv": sys.argv,
    }  # fmt: skip


def first_config(task: Task) -> dict[str, Any]:
    """A configuration of the task, as JSON has it."""
    return task.config_space.get(next(task.config_space.indices())).to_json_dict()


def naive_text(task: Task) -> str:
    """The task's unscheduled program in JSON."""
    from tilewright.runtime.serialize import to_json
    from tilewright.tune.data import naive_module

    config = task.config_space.get(next(task.config_space.indices()))
    return to_json(naive_module(task.instantiate(config)[1]))


def lowered(task: Task, inp: MeasureInput) -> dict[str, Any]:
    """A candidate lowered in this process, "module" in JSON, or why it cannot be.

    For templates that no other process can load.
    """
    from tilewright.lower.pipeline import lower
    from tilewright.runtime.serialize import to_json

    try:
        s, args = task.instantiate(inp.config)
        return {"error": 0, "module": to_json(lower(s, args, task.target))}
    except Exception as error:  # whatever a user's template raises
        reason = f"{type(error).__name__}: {error}"
        return failure(MeasureErrorNo.INSTANTIATION_ERROR, reason)
