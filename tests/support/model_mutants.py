"""Mutants of ONNX files, each decided by one integer, and what becomes of them.

A mutant lies in a folder with the data that it may read, and paths that lead out of it: links, a
pipe, a file of a terabyte without blocks. An audit hook says what Python opens.
"""

from __future__ import annotations

import math
import os
import pickle
import resource
import signal
import sys
import tempfile
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from tests.support.drawing import Replayed, Seeded
from tests.support.drawn_programs import Outcome
from tests.support.model_mutations import mutate
from tests.support.model_seeds import SEEDS, seeds
from tests.support.models import NETWORKS, by_onnxruntime

import tilewright
from tilewright.graph.pipeline import optimized
from tilewright.graph.value import Input
from tilewright.ir.errors import TilewrightError

#: What is run at all: elements that its kernels compute and read, and bytes of its inputs.
MOST_WORK, MOST_INPUT = 1 << 26, 1 << 22
#: Extents of dimensions that a model leaves open.
OPEN = 2
#: Part of the mutants that are compared with ONNX Runtime, in percent.
COMPARED = 30
#: Part of them that is run at all; the others are converted and planned.
RUN = 45
#: How often a small model is drawn for each of a network.
SMALL = 5


class Folder:
    """``model`` with what mutants name, beside ``outside``, of which they may open nothing."""

    def __init__(self) -> None:
        self.root = Path(tempfile.mkdtemp(prefix="mutants-")).resolve()
        self.model, self.outside = self.root / "model", self.root / "outside"
        self.opened: list[str] = []
        self.model.mkdir()
        self.outside.mkdir()
        (self.outside / "secret.bin").write_bytes(b"\x77" * 4096)
        (self.model / "w.bin").write_bytes(np.linspace(-1, 1, 400, dtype="float32").tobytes())
        (self.model / "link.bin").symlink_to(self.outside / "secret.bin")
        (self.model / "folder").symlink_to(self.outside)
        (self.model / "loop.bin").symlink_to("loop.bin")
        os.mkfifo(self.model / "pipe")
        with open(self.model / "sparse.bin", "wb") as file:
            file.truncate(1 << 40)
        sys.addaudithook(self._heard)

    def _heard(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open" and isinstance(arguments[0], (str, bytes)):
            path = os.path.realpath(os.fsdecode(arguments[0]).split("\0")[0])
            if path.startswith((f"{self.outside}/", "/etc/passwd", "/dev/zero", "/proc/self/mem")):
                self.opened.append(path)

    def write(self, data: bytes) -> Path:
        """The file of a mutant."""
        path = self.model / "m.onnx"
        path.write_bytes(data)
        return path


_folder: Folder | None = None


def folder() -> Folder:
    """That of this process."""
    global _folder
    if _folder is None:
        _folder = Folder()
    return _folder


class Mutant:
    """The mutant of a seed, or of the choices that were made for one."""

    def __init__(self, target: str, of: int | Sequence[int]) -> None:
        self.dice = Seeded(of) if isinstance(of, int) else Replayed(of)
        _, _, only = target.partition("/")
        self.only = only
        self.name, self.data, self.done = "", b"", list[str]()

    def draw(self) -> Mutant:
        """Make it."""
        if not self.data:
            names = [n for n in SEEDS for _ in range(1 if n in NETWORKS else SMALL)]
            self.name = self.dice.pick([n for n in names if self.only in ("", n)])
            data, self.done = mutate(self.dice, seeds()[self.name])
            self.data = data.replace(b"{outside}", b"../outside")
        return self

    def outcome(self) -> Outcome:
        """What becomes of it; a word about what was done stands before."""
        self.draw()
        place = folder()
        place.opened.clear()
        try:
            found = self._run(place.write(self.data))
        except TilewrightError as error:
            found = Outcome("refused", f"{error}".replace(str(place.root), ""))
            if not str(error).strip():
                found = Outcome("internal", "an error without words")
        except MemoryError:
            found = Outcome("memory", traceback.format_exc())
        except Exception:
            found = Outcome("internal", traceback.format_exc())
        if place.opened:
            return Outcome("escaped", ", ".join(place.opened))
        return found

    def _run(self, path: Path) -> Outcome:
        model = tilewright.load(path)
        shapes = [shape(p) for p in model.inputs]
        if sum(math.prod(s) for s in shapes) > MOST_INPUT:
            values = [Input(p.name, s, p.dtype) for p, s in zip(model.inputs, shapes, strict=True)]
            model.source.graph(values)
            return Outcome("large", "inputs")
        rng = np.random.default_rng(0)
        given = {p.name: drawn(rng, s, p.dtype) for p, s in zip(model.inputs, shapes, strict=True)}
        if not self.dice.chance(RUN):
            optimized(model.graph(given), target=model.target)
            return Outcome("right", "converted")
        executor = model.compile(given)
        work = sum(n.problem.flops for n in executor.graph.nodes if n.operator != "reshape")
        if work > MOST_WORK:
            return Outcome("large", "work")
        found = model.run(given)
        if not self.dice.chance(COMPARED) or not all(map(_tame, model.source.constants.values())):
            return Outcome("right", "run")
        wanted = _forked(path, given)
        if isinstance(wanted, str):
            return Outcome("right", f"ONNX Runtime refuses it: {wanted}")
        return _compared(list(found.values()), wanted)

    def __repr__(self) -> str:
        import onnx

        self.draw()
        head = f"# {self.name}, changed in {', '.join(self.done)}"
        try:
            text = onnx.printer.to_text(onnx.load_from_string(self.data))
        except Exception:
            text = repr(self.data)
        return f"{head}\n{text[:20000]}"


def shape(p: Any) -> tuple[int, ...]:
    """Of an input of a model, whose open dimensions are :data:`OPEN`."""
    return tuple(e if isinstance(e, int) else OPEN for e in p.shape or ())


def drawn(rng: Any, shape: tuple[int, ...], dtype: str) -> Any:
    """An array for an input."""
    if dtype == "bfloat16":
        return np.zeros(shape, "uint16")
    if dtype.startswith("float"):
        return rng.standard_normal(shape).astype(dtype)
    return rng.integers(0, 2 if dtype == "bool" else 5, shape).astype(dtype)


def _tame(x: Any) -> bool:
    """Whether numbers are such that sums of them in another order are nearly the same."""
    if np.dtype(x.array.dtype).kind not in "fV" or not x.array.size:
        return True
    return bool(np.abs(x.array.astype("float64")).max() < 1e3)


def _forked(path: Path, given: dict[str, Any]) -> list[Any] | str:
    """What ONNX Runtime gives, in a process beside this one, which it may end; or why nothing."""
    read, write = os.pipe()
    if not (child := os.fork()):
        try:
            signal.alarm(20)
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            with os.fdopen(write, "wb") as out:
                try:
                    pickle.dump(by_onnxruntime(str(path), given), out)
                except Exception as error:
                    pickle.dump(f"{error}", out)
        finally:
            os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as answer:
        data = answer.read()
    os.waitpid(child, 0)
    try:
        return pickle.loads(data)  # type: ignore[no-any-return]
    except Exception:
        return "it died"


def _compared(found: list[Any], wanted: list[Any]) -> Outcome:
    if len(found) != len(wanted):
        return Outcome("wrong", f"{len(found)} outputs, not {len(wanted)}")
    for k, (x, y) in enumerate(zip(found, wanted, strict=True)):
        if x.shape != y.shape or x.dtype != y.dtype:
            return Outcome("wrong", f"output {k}: {x.dtype}{x.shape}, not {y.dtype}{y.shape}")
        if not x.size or x.dtype == bool or x.dtype.kind not in "fiu":
            continue
        x, y = x.astype("float64"), y.astype("float64")
        both = np.isfinite(x) & np.isfinite(y)
        if not both.any():
            continue
        scale = max(1.0, np.abs(y[both]).max())
        far = np.abs(x - y)[both].max() / scale > 1e-3
        if far or (np.isnan(x) != np.isnan(y)).mean() > 0.1:
            return Outcome("wrong", f"output {k} differs: {x.ravel()[:8]}, not {y.ravel()[:8]}")
    return Outcome("right", "equal to ONNX Runtime's")
