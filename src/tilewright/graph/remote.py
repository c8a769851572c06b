"""Models on another machine, where ``tilewright serve`` runs them: kernels are compiled here.

The other machine gets a model as :mod:`.saved` writes it, and kernels for each shape that it is
called with; it compiles those that it cannot take, as of another processor.
"""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tilewright.graph.executor import Executor
from tilewright.graph.saved import check_name, parts_of, write_kernels
from tilewright.graph.signature import arrays
from tilewright.ir.dtype import dtype
from tilewright.ir.errors import ArgumentError
from tilewright.runtime.kernel import Kernel
from tilewright.runtime.narrow_floats import storage_type
from tilewright.runtime.save import write_archive
from tilewright.runtime.timing import Timing
from tilewright.target import Target
from tilewright.tune.remote import Remote

if TYPE_CHECKING:
    from tilewright.graph.model import Model


class File(NamedTuple):
    """What travels once, and is named by its contents there."""

    name: str
    data: bytes

    @staticmethod
    def of(write: Callable[[Path], None]) -> File:
        """The file that a function writes."""
        with tempfile.TemporaryDirectory() as folder:
            write(Path(folder) / "file")
            data = (Path(folder) / "file").read_bytes()
        return File(hashlib.sha256(data).hexdigest(), data)


class Ready(NamedTuple):
    """A model for inputs of some shapes: what runs there, and the file of its kernels."""

    executor: Executor
    kernels: File


class Run(NamedTuple):
    """Calls of a model there.

    Attributes
    ----------
    outputs : those of the first call, by name.
    seconds : of each iteration behind it; nothing travels within.
    steps : of as many others, the seconds of each kernel.
    prepared : seconds until it could run: reading kernels, packing weights, and compiling.
    compiled : how many of the kernels were compiled there.
    """

    outputs: dict[str, np.ndarray[Any, Any]]
    seconds: list[float]
    steps: list[list[float]]
    prepared: float
    compiled: int


class RemoteModel:
    """A model on another machine, called with arrays of this one, which travel with each call.

    Kernels are compiled here, for each shape that it is called with, and the model then travels
    with them. ``machine`` says what it runs on there. :meth:`Remote.load` makes one, and raises
    :class:`~tilewright.tune.remote.RemoteError` where it cannot run there.
    """

    def __init__(self, model: Model, there: Remote) -> None:
        self.machine = there.machine(model.target)
        target = Target.parse(self.machine["target"])  # with its GPU's architecture
        self._model = model if target == model.target else model.again(target)
        self._remote = there
        self.name, self.inputs, self.outputs = model.name, model.inputs, model.outputs
        self._ready: dict[Any, Ready] = {}
        self._file = File.of(lambda path: write_archive(path, *parts_of(self._model, {})))
        # Before anything is compiled for it: there may be no package that reads models.
        there.ask({"do": "model", "path": self._file.name}, dict([self._file]))

    def compile(
        self, inputs: Mapping[str, Any], progress: Callable[[int, int], None] | None = None
    ) -> Executor:
        """What is run there for inputs of these shapes, compiled here; see :meth:`Model.compile`.
        Its arrays are not on any device."""
        return self.ready(inputs, progress).executor

    def ready(
        self, inputs: Mapping[str, Any], progress: Callable[[int, int], None] | None = None
    ) -> Ready:
        """What :meth:`compile` made, and what of it travels."""
        given = arrays(self.inputs, inputs)
        found = self._ready.get(self._model.key(given))
        if found is None:
            made = self._model.written(given, progress)
            found = Ready(made, File.of(lambda path: write_kernels(_kernels([made]), path)))
            self._ready[self._model.key(given)] = found
        return found

    @property
    def nbytes(self) -> int:
        """What has travelled, or will, but for inputs and outputs."""
        return len(self._file.data) + sum(len(r.kernels.data) for r in self._ready.values())

    def run(self, inputs: Mapping[str, Any]) -> dict[str, np.ndarray[Any, Any]]:
        """The outputs by name, for inputs by name; raises as :meth:`Model.run` does, and
        :class:`~tilewright.tune.remote.RemoteError` for what goes wrong there."""
        return self.measure(inputs, 0, 0).outputs

    def __call__(self, *inputs: Any) -> Any:
        """The output, or a tuple of several, for inputs in order."""
        if len(inputs) != len(self.inputs):
            takes = "; ".join(map(str, self.inputs)) or "none"
            raise ArgumentError(f"{len(inputs)} inputs: the model takes {takes}")
        names = (p.name for p in self.inputs)
        found = tuple(self.run(dict(zip(names, inputs, strict=True))).values())
        return found[0] if len(found) == 1 else found

    def time(self, inputs: Mapping[str, Any], repeat: int = 10, warmup: int = 1) -> Timing:
        """Measure calls there one by one, behind some that do not count; nothing travels within."""
        return Timing(tuple(self.measure(inputs, repeat, warmup).seconds), 1)

    def measure(
        self, inputs: Mapping[str, Any], iterations: int, warmup: int, steps: bool = False
    ) -> Run:
        """A call for its outputs, ``warmup`` others and ``iterations`` for their times, and where
        ``steps`` are wanted as many again for those of each kernel."""
        if iterations < 0 or warmup < 0:
            raise ArgumentError(f"repeat={iterations} and warmup={warmup} are not negative")
        ready, given = self.ready(inputs), arrays(self.inputs, inputs)
        files: dict[str, bytes | memoryview] = dict([self._file, ready.kernels])
        named: dict[str, list[Any]] = {}
        for k, (p, array) in enumerate(zip(self.inputs, given.values(), strict=True)):
            files[f"in{k}"] = array.tobytes()
            named[p.name] = [f"in{k}", list(array.shape), p.dtype]
        request = {
            "do": "infer", "path": self._file.name, "data": ready.kernels.name, "folder": "",
            "inputs": named, "iterations": iterations, "warmup": warmup, "steps": steps,
        }  # fmt: skip
        types = {name: value.type for name, value in ready.executor.graph.outputs.items()}
        found, contents = self._remote.ask(request, files, [f"out{k}" for k in range(len(types))])
        outputs = {
            name: np.frombuffer(data, storage_type(dtype(kind))).reshape(shape).copy()
            for (name, (shape, kind)), data in zip(types.items(), contents, strict=True)
        }
        return Run(
            outputs, found["seconds"], found["steps"], found["prepared"], found["compiled"]
        )  # fmt: skip

    def save(self, path: str | Path) -> None:
        """Write the model with the kernels of all shapes that it was compiled for to a file that
        :func:`tilewright.load` reads there; raises as :meth:`Model.save` does."""
        check_name(Path(path))
        if not self._ready:
            raise ArgumentError(f"the model {self.name} has no kernels to save: call it first")
        made = [ready.executor for ready in self._ready.values()]
        write_archive(Path(path), *parts_of(self._model, _kernels(made)))

    def __repr__(self) -> str:
        return f"<RemoteModel {self.name} on {self._remote.address}, {self.machine['device']}>"


def _kernels(executors: Iterable[Executor]) -> dict[str, Kernel]:
    return {n: k for e in executors for n, k in zip(e.names, e.kernels, strict=True)}
