"""Variants of running a model, each in a process of its own that receives commands.

So they are got ready at the same time, which for torch.compile takes minutes, and take turns
afterwards; one that fails, or that is not ready in time, costs the others nothing. A process is
told a line of JSON and answers with one.
"""

from __future__ import annotations

import argparse
import contextlib
import copy
import fcntl
import json
import os
import queue
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from kernel_classes import profiled
from models import TOLERANCE, Side

#: Inference once more with parallel branches merged into one convolution.
MERGED = "merged inference"
PASSES = ("training", "inference", MERGED)
_ANSWER = "answer "


@dataclass(frozen=True)
class Variant:
    """Who convolves, "PyTorch" or "tilewright"; the engine, "eager" or "compile"; the layout."""

    side: str
    engine: str
    layout: str
    passes: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.side} {self.engine} {self.layout}"


class Failed(Exception):
    """A variant cannot run; the message is its own."""


class Worker:
    """The process of a variant, from the side that controls it."""

    def __init__(self, variant: Variant, threads: int) -> None:
        self.variant = variant
        text = json.dumps([variant.side, variant.engine, variant.layout, variant.passes])
        self.process = subprocess.Popen(
            [sys.executable, *sys.argv, "--variant", text],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,  # with whatever compiles for it
            env={**os.environ, "TORCHINDUCTOR_COMPILE_THREADS": str(threads)},
        )
        self.answers: queue.Queue[dict[str, Any]] = queue.Queue()
        self.busy = False  # did not answer in time
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.startswith(_ANSWER):
                self.answers.put(json.loads(line.removeprefix(_ANSWER)))
            else:
                print(f"  {self.variant}: {line.rstrip()}", flush=True)
        self.answers.put({"failed": f"the process ended with {self.process.wait()}"})

    def tell(self, **what: Any) -> None:
        """Tell it what to do, and do not wait."""
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # its answer says so
            self.process.stdin.write(json.dumps(what) + "\n")
            self.process.stdin.flush()

    def answer(self, seconds: float) -> dict[str, Any]:
        """What it says; raises :class:`Failed` where it failed or is silent for so long."""
        try:
            found = self.answers.get(timeout=max(seconds, 0.01))
        except queue.Empty:
            self.busy = True
            raise Failed("it was not done in time") from None
        if "failed" in found:
            raise Failed(found["failed"])
        return found

    def ask(self, seconds: float, **what: Any) -> dict[str, Any]:
        """Tell it what to do and wait for what it says."""
        self.tell(**what)
        return self.answer(seconds)

    def end(self) -> None:
        """End the process and those that it has started, whatever they are doing."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


def serve(make: Callable[[], Any], options: argparse.Namespace) -> None:
    """Be the process of the variant that ``--variant`` says, until there is nothing more to do.

    ``make`` makes the model on the default device. ``options`` are those of models.py, with
    ``lock``, the name of a file that who measures or tries out algorithms holds.
    """
    side, engine, layout, passes = json.loads(options.variant)
    if engine == "compile":  # the others are ready soon; what all are compared with comes next
        os.nice(10 if side == "tilewright" else 5)
    here = _Served(make, Variant(side, engine, layout, tuple(passes)), options)
    for line in sys.stdin:
        told = json.loads(line)
        try:
            found = getattr(here, told.pop("do"))(**told)
        except Exception as error:
            text = f"{type(error).__name__}: {error}".strip().splitlines()[0][:300]
            found = {"failed": text}
        print(_ANSWER + json.dumps(found), flush=True)


class _Served:
    def __init__(
        self, make: Callable[[], Any], variant: Variant, options: argparse.Namespace
    ) -> None:
        self.make, self.variant, self.options = make, variant, options
        self.sides: dict[str, Side] = {}

    def prepare(self, name: str) -> dict[str, Any]:
        """Make the model for a pass, compile it, try out algorithms; how long that took."""
        import torch

        import tilewright.torch

        begin = time.perf_counter()
        tilewright.torch.set_policy(self.options.policy)
        form = torch.channels_last if self.variant.layout == "NHWC" else torch.contiguous_format
        torch.manual_seed(0)
        with torch.device(self.options.device):
            model = self.make().to(memory_format=form)
            size = self.options.image
            images = torch.randn(self.options.batch, 3, size, size)
        images = images.contiguous(memory_format=form)
        plain = None
        if name == MERGED:
            with torch.no_grad():
                model(images)  # the statistics of normalisations are then those of something
            plain = copy.deepcopy(model.eval())
            tilewright.torch.merge_branches_(model)
        replaced = 0
        if self.variant.side == "tilewright":
            replaced = len(tilewright.torch.optimize_(model).replaced)
        side = Side(model, images, self.options)
        side.set_pass("training" if name == "training" else "inference")
        if self.variant.engine == "compile":
            side.compile()
        # What is compiled is compiled while others do so too; what is tried out, is alone.
        torch.backends.cudnn.benchmark = False
        self.patiently(side)
        torch.backends.cudnn.benchmark = True
        with self.alone():
            found = self.patiently(side)
            _finished(side)
            if plain is not None:
                _agree(Side(plain, images, self.options).infer(), found, self.options)
        self.sides[name] = side
        self.free()
        output = found.float().flatten()[:1000].tolist() if name == "inference" else []
        took = time.perf_counter() - begin
        return {"seconds": took, "replaced": replaced, "output": output}

    def time(self, name: str, steps: int) -> dict[str, Any]:
        """Milliseconds a step, after one that does not count."""
        side = self.sides[name]
        _finished(side)
        begin = time.perf_counter()
        for _ in range(steps):
            side.step()
        side.wait()
        took = (time.perf_counter() - begin) * 1e3 / steps
        self.free()
        return {"ms": took}

    def profile(self, name: str) -> dict[str, Any]:
        """Milliseconds of a step by class of kernels."""
        side = self.sides[name]
        _finished(side)
        found = profiled(side.step, self.options.device)
        self.free()
        return {"ms": found}

    def free(self) -> None:
        """Leave the memory of a step to the next variant."""
        if self.options.device == "cuda":
            import torch

            torch.cuda.empty_cache()

    def patiently(self, side: Side) -> Any:
        """A step, where memory that others are about to free is waited for."""
        for _ in range(4):
            try:
                return _finished(side)
            except RuntimeError as error:  # cuDNN has errors of its own for it
                if not re.search("memory|alloc", str(error), re.IGNORECASE):
                    raise
            self.free()
            time.sleep(4)
        return _finished(side)

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        with open(self.options.lock, "w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield


def _finished(side: Side) -> Any:
    made = side.step()
    side.wait()
    return made


def _agree(wanted: Any, found: Any, options: argparse.Namespace) -> None:
    difference = float((wanted.float() - found.float()).norm() / wanted.float().norm())
    if not difference < TOLERANCE[options.dtype]:
        raise AssertionError(f"with merged branches the output differs by {difference:.1e}")
