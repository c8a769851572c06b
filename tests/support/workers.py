"""Programs run in processes of their own, so that one that dies or never ends is an outcome."""

from __future__ import annotations

import multiprocessing
import os
import resource
import signal
import time
import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from typing import Any

import pytest
from tests.support.plain_code import use_plain_code

#: Outcomes that are nobody's mistake.
GOOD = ("right", "refused", "rejected", "large")

#: Bytes that a process may have for itself while it runs an ONNX file.
MODEL_MEMORY = 2**31

#: What a program is run from: its seed, or the choices made for it.
Task = int | Sequence[int]


@dataclass
class Result:
    """What became of a program; ``text`` is the program where that was bad."""

    task: Task
    kind: str
    detail: str = ""
    text: str = ""

    @property
    def good(self) -> bool:
        """Whether it is nobody's mistake."""
        return self.kind in GOOD


@dataclass
class _Worker:
    process: Any
    pipe: Connection
    left: int
    task: Task | None = None
    since: float = 0.0


def program_of(target: str) -> Any:
    """The class of what a target's seeds decide."""
    if target.startswith("onnx"):
        from tests.support.model_mutants import Mutant

        return Mutant
    if target.startswith("problems"):
        from tests.support.drawn_problems import DrawnProblem

        return DrawnProblem
    from tests.support.fuzzing import Program

    return Program


def _serve(pipe: Connection, target: str, memory: int, plain: bool) -> None:
    Program = program_of(target)
    if plain:
        use_plain_code(pytest.MonkeyPatch())  # to the end of the process
    warnings.simplefilter("ignore")
    if target.startswith("onnx"):  # what is written to, of which libraries map much more
        resource.setrlimit(resource.RLIMIT_DATA, (MODEL_MEMORY, MODEL_MEMORY))
    if "cuda" not in target:  # whose driver maps far more than it takes
        resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    if "opencl" in target:
        from tests.support.pocl import name_processors

        name_processors()
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 2)  # what LLVM and drivers say
    while True:
        program = Program(target, pipe.recv())
        found = program.outcome()
        text = "" if found.kind in GOOD else repr(program)
        pipe.send((found.kind, found.detail, text))


class Workers:
    """``count`` processes that run programs for a target.

    ``limit`` is in seconds for one program, ``memory`` in bytes of address space; a process is
    replaced after ``lifetime`` programs. LLVM does not optimise code that is to be ``plain``.
    """

    def __init__(
        self,
        target: str,
        count: int,
        limit: float = 60.0,
        memory: int = 2**34,
        lifetime: int = 400,
        plain: bool = False,
    ) -> None:
        self.target, self.count, self.limit = target, count, limit
        self.memory, self.lifetime, self.plain = memory, lifetime, plain
        if not target.startswith("onnx"):  # whose mutants have most kernels in common
            os.environ["TILEWRIGHT_CACHE"] = "off"
        os.environ.setdefault("POCL_KERNEL_CACHE", "0")
        self._idle: list[_Worker] = []
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload(["tests.support.fuzzing"])

    def run(self, tasks: Iterable[Task]) -> Iterator[Result]:
        """The outcomes, as they come."""
        rest, busy = iter(tasks), list[_Worker]()
        while True:
            while len(busy) < self.count and (task := next(rest, None)) is not None:
                worker = self._idle.pop() if self._idle else self._start()
                worker.pipe.send(task)
                worker.task, worker.since = task, time.monotonic()
                worker.left -= 1
                busy.append(worker)
            if not busy:
                return
            wait([w.pipe for w in busy], timeout=1.0)
            for worker in list(busy):
                found = self._poll(worker)
                if found is not None:
                    busy.remove(worker)
                    ended = found.kind in ("died", "timeout")
                    if ended or worker.left == 0:
                        self._stop(worker)
                    else:
                        self._idle.append(worker)
                    yield found

    def close(self) -> None:
        """End the processes."""
        while self._idle:
            self._stop(self._idle.pop())

    def _poll(self, worker: _Worker) -> Result | None:
        assert worker.task is not None
        if worker.pipe.poll():
            try:
                return Result(worker.task, *worker.pipe.recv())
            except (EOFError, ConnectionResetError):
                worker.process.join()
                code = worker.process.exitcode
                name = signal.Signals(-code).name if code < 0 else f"exit status {code}"
                return Result(worker.task, "died", name)
        if time.monotonic() - worker.since > self.limit:
            worker.process.kill()
            worker.process.join()
            return Result(worker.task, "timeout", f"{self.limit:g} seconds")
        return None

    def _start(self) -> _Worker:
        here, there = self._context.Pipe()
        arguments = (there, self.target, self.memory, self.plain)
        process = self._context.Process(target=_serve, args=arguments, daemon=True)
        process.start()
        there.close()
        return _Worker(process, here, self.lifetime)

    def _stop(self, worker: _Worker) -> None:
        worker.process.kill()
        worker.process.join()
        worker.pipe.close()
