"""Models that run."""

from __future__ import annotations

import math
import operator
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn
from weakref import WeakKeyDictionary

import numpy as np

from tilewright.graph.arenas import Arenas
from tilewright.graph.batches import Batches, batch_of
from tilewright.graph.constants import Pool
from tilewright.graph.errors import ModelError, NeedsData, in_memory
from tilewright.graph.executor import Executor, device_of, kernels_of
from tilewright.graph.graph import Graph
from tilewright.graph.late import Late, divided
from tilewright.graph.passes.allow_precision import ALLOWED
from tilewright.graph.passes.narrow_types import TYPES
from tilewright.graph.passes.quantize_products import Quantization
from tilewright.graph.pipeline import optimized
from tilewright.graph.signature import (
    Argument,
    Parameter,
    Source,
    arrays,
    check_apart,
    places,
    shares,
)
from tilewright.graph.value import Constant, Input, Node, Value
from tilewright.runtime.array import view
from tilewright.runtime.array_view import ArrayView
from tilewright.runtime.compile import uncollected
from tilewright.runtime.kernel import Kernel
from tilewright.runtime.narrow_floats import storage_type
from tilewright.runtime.progress import shown
from tilewright.target import Target
from tilewright.topi.problem import Problem

if TYPE_CHECKING:
    from tilewright.graph.remote import RemoteModel
    from tilewright.tune.remote import Remote

#: Shapes of inputs for which a model keeps kernels and memory.
SHAPES = 16
#: Elements of an input whose data may decide shapes, at most.
_DECIDES = 4096


class Model:
    """A model, compiled for each shape that it is called with. Threads may share it.

    ``inputs`` and ``outputs`` say what it takes and gives; :func:`tilewright.load` makes one.
    ``quantization`` says what is computed in int8, and what is not: it prints; None without any.
    """

    def __init__(
        self,
        source: Source,
        target: str | Target = "llvm",
        dtype: str | None = None,
        capture: bool = True,
        quantization: Quantization | None = None,
        precision: str | None = None,
    ) -> None:
        if dtype is not None and dtype not in TYPES:
            raise ModelError(
                f"products in {dtype!r}: there are {', '.join(TYPES)}, and by load int8, with "
                "samples for calibration"
            )
        if precision is not None and precision not in ALLOWED:
            raise ModelError(f"precision {precision!r}: there is {', '.join(ALLOWED)}")
        self.dtype, self.quantization = dtype or "", quantization
        self.precision = precision or ""
        self.source, self.target, self.capture = source, Target.parse(target), capture
        self.device = device_of(self.target)
        self.name = source.name
        self.inputs, self.outputs = tuple(source.inputs), tuple(source.outputs)
        # What clones share, and what a clone has of each for itself.
        self._compiled: OrderedDict[Any, Executor] = OrderedDict()
        self._own: WeakKeyDictionary[Executor, Executor] | None = None
        self._decisive: set[str] = set()
        self._batches, self._pool = Batches(batch_of(self.inputs)), Pool()
        self._arenas = Arenas()
        self._saved: dict[str, Kernel] = {}
        self._late: Late | None = None
        self._lock = threading.RLock()

    def clone(self) -> Model:
        """The same model with memory of its own for intermediate values; weights and kernels are
        shared, also those of shapes that either is called with later.

        Threads may share one model, too, which then keeps memory for as many calls as there were at
        one time; a clone goes with its thread, and its memory with it.
        """
        made = object.__new__(type(self))
        made.__dict__.update(self.__dict__)
        made._own, made._arenas = WeakKeyDictionary(), Arenas()
        made._late = self._late and self._late.clone()
        return made

    def save(self, path: str | Path) -> None:
        """Write the model and the kernels of the shapes that it was called with or compiled for, of
        which it keeps the last 16, to one file, which :func:`tilewright.load` reads in another
        process, without the ONNX file and the cache folder: nothing is compiled there for these
        shapes on a machine of this kind.

        The file holds compiled code, which runs where the model is called: give it a name that does
        not end in ``.onnx``, and load files from people whose shared libraries you would load.
        Raises :class:`ModelError` before any call, and
        :class:`~tilewright.runtime.files.FileError` where it cannot be written.
        """
        from tilewright.graph.saved import save  # beside load, which makes models

        if not (self._compiled or self._saved or self._late):
            raise ModelError(
                f"the model {self.name} has no kernels to save: call it, or model.compile(inputs), "
                "with inputs of the shapes that it is to be ready for"
            )
        save(self, Path(path))

    def kernels(self) -> dict[str, Kernel]:
        """What was compiled for all shapes, by names that :meth:`restore` takes."""
        if self._late is not None:
            return self._late.head.kernels()
        with self._lock:
            pairs = (zip(e.names, e.kernels, strict=True) for e in self._compiled.values())
            return self._saved | {name: kernel for e in pairs for name, kernel in e}

    @property
    def first_batches(self) -> list[Any]:
        """Of other sizes of inputs, the batches that have kernels of their own."""
        return [[rest, images] for rest, images in self._batches.own.items()]

    def restore(self, kernels: Mapping[str, Kernel], batches: Sequence[Any]) -> None:
        """Take what :meth:`kernels` and :attr:`first_batches` were of a model that was saved."""
        self._saved.update(kernels)
        for rest, images in batches:
            self._batches.own[tuple(map(tuple, rest))] = int(images)

    @property
    def brought(self) -> frozenset[str]:
        """The names of the kernels that :meth:`restore` took."""
        return frozenset(self._saved)

    def __copy__(self) -> Model:
        return self.clone()

    def __deepcopy__(self, memo: dict[int, Any]) -> Model:
        return self.clone()  # nothing else of it can change

    def __reduce__(self) -> NoReturn:
        raise ModelError(
            f"the model {self.name} is not pickled: load it in each process, which finds its "
            "kernels in the cache folder, or in the file of model.save(path); threads may share it"
        )

    def run(
        self, inputs: Mapping[str, Any], outputs: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        """The outputs by name, for inputs by name.

        They are new arrays of NumPy's, or those of ``outputs``, by name. On a GPU, arrays may be
        there already (PyTorch's, CuPy's, whatever has DLPack or ``__cuda_array_interface__``), are
        taken in the order of the current stream, and then all outputs are there, too.

        The first call with other shapes compiles for them. Where a model ends in operators whose
        shapes depend on data, as those that choose boxes, NumPy computes these. Raises
        :class:`ModelError` where an input is missing, unknown, or does not fit.
        """
        into: Mapping[str, Any] = {} if outputs is None else outputs
        if self._late is not None:
            return self._late.run(inputs, into)
        given = arrays(self.inputs, inputs, self.device)
        try:
            executor = self._executor(given)
        except NeedsData:
            values = [self._value(p, given[p.name]) for p in self.inputs]
            self._late = divided(self.source, values, self._of_half)
            if self._late is None:
                raise
            return self._late.run(inputs, into)
        made = self._places(executor, into)
        # An output of the host's that lies on an input is written when all has been read.
        read = {n: x for n, x in given.items() if isinstance(x, ArrayView)}
        check_apart(read, {n: view(x) for n, x in made.items()})
        try:
            found = executor.run(given, outputs=made)
        except MemoryError as error:
            held = f"{self.name} with {executor.plan.nbytes:,} bytes of intermediate values"
            raise ModelError(f"{held} needs more memory than there is: {error}") from error
        return {name: into.get(name, x) for name, x in found.items()}

    def bind(self, inputs: Mapping[str, Any], outputs: Mapping[str, Any]) -> Callable[[], None]:
        """A function that reads these inputs and writes all outputs when it is called: nothing is
        checked or copied then. On a GPU, arrays are there, and it runs on the current stream.

        The arrays must neither move nor be dropped while it is in use. Raises :class:`ModelError`
        as :meth:`run` does, and for arrays of another device.
        """
        given = arrays(self.inputs, inputs, self.device)
        executor = self._executor(given)
        made = self._places(executor, outputs)
        missing = [name for name in self.outputs if name not in made]
        if missing:
            raise ModelError(f"bind needs a place for each output: {', '.join(missing)}")
        views = {name: view(x) for name, x in {**given, **made}.items()}
        # OpenCL's kernels take arrays of the host, too: they are copied at each call.
        there = {self.device, "cpu"} if self.target.kind == "opencl" else {self.device}
        elsewhere = [name for name, x in views.items() if x.device not in there]
        if elsewhere:
            raise ModelError(f"bind needs arrays on {self.device}: {', '.join(elsewhere)}")
        # An input that was copied to be dense would not be the caller's.
        copied = [
            n for n, x in given.items()
            if views[n].device == "cpu" and not shares(n, x, inputs[n])
        ]  # fmt: skip
        if copied:
            raise ModelError(f"bind needs dense arrays: {', '.join(copied)}")
        read, written = ({n: views[n] for n in names} for names in (given, made))
        check_apart(read, written)
        return executor.bind(read, written)

    def _places(self, executor: Executor, outputs: Mapping[str, Any]) -> dict[str, Any]:
        types = {name: value.type for name, value in executor.graph.outputs.items()}
        return places(types, outputs, self.device)

    def __call__(self, *inputs: Any) -> Any:
        """The output, or a tuple of several, for inputs in order."""
        if len(inputs) != len(self.inputs):
            raise ModelError(f"{len(inputs)} inputs: the model takes {self._signature()}")
        names = (p.name for p in self.inputs)
        found = tuple(self.run(dict(zip(names, inputs, strict=True))).values())
        return found[0] if len(found) == 1 else found

    def compile(
        self, inputs: Mapping[str, Any], progress: Callable[[int, int], None] | None = None
    ) -> Executor:
        """What :meth:`run` runs for inputs of these shapes; ``progress`` is given the number of
        kernels that are built, and of all; a terminal shows it by default."""
        return self._executor(arrays(self.inputs, inputs, self.device), progress)

    def export(
        self,
        inputs: Mapping[str, Any],
        folder: str | Path,
        name: str | None = None,
        progress: Callable[[int, int], None] | None = None,
        batches: Sequence[int] = (),
    ) -> list[Path]:
        """Write the model for inputs of these shapes as sources that need nothing of Tilewright's
        into ``folder``, which is made: C for a CPU, C and CUDA C++ or OpenCL C for a GPU, with
        weights, a header, a program that runs it on files, and a Makefile. Returns the files.

        Functions begin with ``name``, by default the folder's. With ``batches``, they take the
        batch, one of these, which the inputs have whose first extent a call decides; weights, and
        memory as the largest needs it, are shared by all. For CUDA, no GPU is needed where the
        target has an architecture; for OpenCL, the device that the target names is.

        Raises :class:`ModelError` where there is no such form, and
        :class:`~tilewright.runtime.files.FileError` where the folder cannot be written to.
        """
        from tilewright.graph.export import export  # which few programs need

        each = self._given(inputs, batches).items()
        made = {batch: self._made(given, progress, abroad=True) for batch, given in each}
        return export(made, Path(folder), name)

    def _given(
        self, inputs: Mapping[str, Any], batches: Sequence[int]
    ) -> dict[int, Mapping[str, Argument]]:
        """The inputs of each batch; as they are given, and batch 0, where there are none."""
        wanted = sorted({operator.index(batch) for batch in batches})
        if not wanted:
            return {0: arrays(self.inputs, inputs, self.device)}
        names = self._batches.names
        if not names or not 1 <= wanted[0] <= wanted[-1] < 2**31:
            why = f"no input of {self._signature()} has one"
            if names:
                why = "they are at least 1, and less than 2**31"
            raise ModelError(f"batches {', '.join(map(str, wanted))} are not written: {why}")
        made: dict[int, Mapping[str, Argument]] = {}
        for batch in wanted:
            sized = {n: _resized(x, batch) if n in names else x for n, x in inputs.items()}
            made[batch] = arrays(self.inputs, sized, self.device)
        return made

    def problems(self, inputs: Mapping[str, Any], batches: Sequence[int] = ()) -> list[Problem]:
        """What kernels compute for inputs of these shapes, or of these ``batches``, each problem
        once, in the order in which they run. None is built, and the device need not be there."""
        with in_memory(self.name):
            graphs = [self._optimized(x) for x in self._given(inputs, batches).values()]
        return list(dict.fromkeys(node.problem for graph in graphs for node in kernels_of(graph)))

    def again(self, target: Target | None = None) -> Model:
        """The same model, compiled again: by what was measured or tuned since, or for another
        target."""
        return self.quantized(self.quantization, target)

    def quantized(self, quantization: Quantization | None, target: Target | None = None) -> Model:
        """The model with products in int8, by ranges that were measured."""
        return Model(
            self.source, target or self.target, self.dtype or None, self.capture, quantization,
            self.precision or None,
        )  # fmt: skip

    def remote(self, there: Remote) -> RemoteModel:
        """The model on another machine; see :meth:`Remote.load`."""
        from tilewright.graph.remote import RemoteModel  # which few programs need

        return RemoteModel(self, there)

    def written(
        self, given: Mapping[str, Any], progress: Callable[[int, int], None] | None = None
    ) -> Executor:
        """What another machine runs for inputs of these shapes: its device need not be here."""
        return self._made(arrays(self.inputs, given), progress, abroad=True)

    def graph(self, inputs: Mapping[str, Any]) -> Graph:
        """The graph as it was imported, for inputs of these shapes."""
        with in_memory(self.name):
            return self._graph(arrays(self.inputs, inputs, self.device))

    def _graph(self, given: Mapping[str, Argument]) -> Graph:
        while True:
            values = [self._value(p, given[p.name]) for p in self.inputs]
            try:
                return self.source.graph(values)
            except NeedsData as error:
                found = {x.name for x in _inputs_of(error.value)}
                size = sum(math.prod(given[name].shape) for name in found)
                if not found or found <= self._decisive or size > _DECIDES:
                    raise NeedsData(
                        f"{error}. A model is compiled again for such data: of inputs of at most "
                        f"{_DECIDES} elements, with no convolution or product of matrices between. "
                        "Call model.run, in which NumPy computes what follows if that is none "
                        "either, or split the model here, as onnx.utils.extract_model does",
                        error.value,
                    ) from error
                self._decisive |= found

    def _value(self, p: Parameter, given: Argument) -> Value:
        # A dimension without elements leaves nothing to compute.
        if p.name in self._decisive or 0 in given.shape:
            return Constant(self._of_host(p.name, given).copy(), p.name)
        return Input(p.name, given.shape, p.dtype)

    def _of_host(self, name: str, given: Argument) -> np.ndarray[Any, Any]:
        if not isinstance(given, np.ndarray):
            raise ModelError(f"the data of {name} decides shapes: give an array of the host")
        return given

    def _of_half(self, source: Source) -> Model:
        made = Model(
            source, self.target, self.dtype or None, self.capture, self.quantization,
            self.precision or None,
        )  # fmt: skip
        made._saved = self._saved
        return made

    def _executor(
        self,
        given: Mapping[str, Argument],
        progress: Callable[[int, int], None] | None = None,
    ) -> Executor:
        with self._lock:
            key = self.key(given)
            found = self._compiled.get(key)
            if found is None:
                shapes = {name: tuple(x.shape) for name, x in given.items()}
                found = self._made(given, progress, self._batches.images(shapes))
                self._compiled[self.key(given)] = found
                while len(self._compiled) > SHAPES:
                    self._compiled.popitem(last=False)
            else:
                self._compiled.move_to_end(key)
            if self._own is None:
                return found
            if found not in self._own:
                self._own[found] = found.clone(self._arenas)
            return self._own[found]

    def _made(
        self,
        given: Mapping[str, Argument],
        progress: Callable[[int, int], None] | None = None,
        images: int = 0,
        abroad: bool = False,
    ) -> Executor:
        with in_memory(self.name), shown(progress) as told:
            return Executor(
                self._optimized(given), self.target, told, capture=self.capture, images=images,
                named=self._batches.names, pool=self._pool, saved=self._saved, abroad=abroad,
                arenas=self._arenas,
            )  # fmt: skip

    def _optimized(self, given: Mapping[str, Argument]) -> Graph:
        with uncollected():
            return optimized(
                self._graph(given), target=self.target, dtype=self.dtype,
                quantization=self.quantization, precision=self.precision,
            )  # fmt: skip

    def key(self, given: Mapping[str, Argument]) -> Any:
        """What tells apart arguments for which a model is compiled."""
        return tuple(
            (
                array.shape,
                self._of_host(name, array).tobytes() if name in self._decisive else b"",
            )
            for name, array in given.items()
        )

    def _signature(self) -> str:
        return "; ".join(map(str, self.inputs)) or "none"

    def __repr__(self) -> str:
        gives = ", ".join(self.outputs)
        return f"<Model {self.name}({self._signature()}) -> {gives} for {self.target}>"


def _resized(x: Any, batch: int) -> np.ndarray[Any, Any]:
    """An array of another batch, whose numbers do not matter and take no memory."""
    found = view(np.asarray(x) if isinstance(x, list | tuple) else x)
    return np.zeros((batch, *found.shape[1:]), storage_type(found.dtype))


def _inputs_of(value: Value) -> set[Input]:
    """The inputs that a value depends on."""
    found: set[Input] = set()
    waiting, seen = [value], {value}
    while waiting:
        x = waiting.pop()
        if isinstance(x, Input):
            found.add(x)
        elif isinstance(x, Node):
            new = set(x.inputs) - seen
            seen |= new
            waiting += new
    return found
