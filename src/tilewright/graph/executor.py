"""A graph as kernels in order, on memory that is planned."""

from __future__ import annotations

import contextlib
import copy
import math
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from tilewright.graph.arenas import Arenas
from tilewright.graph.batches import works_of
from tilewright.graph.branches import Branches, branches
from tilewright.graph.constants import Array, Constants, Pool
from tilewright.graph.errors import ModelError
from tilewright.graph.graph import Graph
from tilewright.graph.kernels import Built, build_all
from tilewright.graph.memory import Lifetime, Plan, plan
from tilewright.graph.passes.own_outputs import owner
from tilewright.graph.state import HostState, State
from tilewright.graph.stretches import divided
from tilewright.graph.value import Constant, Node, Value
from tilewright.graph.views import VIEWS, View, views
from tilewright.ir.dtype import dtype
from tilewright.ir.errors import TargetError
from tilewright.runtime.array import view
from tilewright.runtime.array_view import ArrayView
from tilewright.runtime.kernel import Kernel
from tilewright.runtime.ndarray import Device
from tilewright.target import Target
from tilewright.topi.problem import Problem, TensorType

#: What launches a kernel on the addresses of its arguments.
Launch = Callable[[tuple[int, ...]], None]
#: Of launches, the places of their arguments among some addresses, and how many these are: one
#: launch for all of them, or None where there is none.
Join = Callable[[Sequence[Launch], Sequence[Sequence[int]], int], Launch | None]
#: Addresses that one launch of several kernels is given, at most.
_ADDRESSES = 192


@dataclass(frozen=True)
class Step:
    """A kernel with the places of its arguments among the buffers, how many bytes behind the
    beginning of each they are, and what it sees there, the result last; and the ``counts`` that it
    is launched with where it is for any batch."""

    node: Node
    kernel: Kernel
    arguments: tuple[int, ...]
    offsets: tuple[int, ...]
    types: tuple[TensorType, ...]
    counts: tuple[int, ...] = ()

    def addresses(self, pointers: Sequence[int]) -> tuple[int, ...]:
        """Those of its arguments, by those of the buffers."""
        found = zip(self.arguments, self.offsets, strict=True)
        return tuple([pointers[k] + offset for k, offset in found])


class Executor:
    """What runs a graph. Any number of threads may, each with memory of its own.

    ``progress`` is given the number of kernels that are built, and of all; ``launcher`` makes of
    each what :meth:`launch` launches it by on addresses, by default as the kernel does by itself,
    and ``join`` of several of these one, by which the host is in the driver once for all of them.
    On a GPU, launches of :meth:`run` are recorded in a CUDA graph with ``capture``; in OpenCL,
    kernels have their arguments set once. With ``images``, the batch that the inputs ``named`` have
    first, kernels are for any batch where there are such (:mod:`.batches`). Graphs of a model share
    constants on a GPU by a ``pool``. Kernels that were ``saved`` with a model, by name, are taken
    as they are; ``names`` has those of ``kernels``. One that is only written out may be for a GPU
    ``abroad``: constants stay with the host, and ``ahead`` says what is to be prepared of them.
    :meth:`launch_on` drops memory behind each of some ``stretches`` of kernels. On a CPU, calls
    take memory for what lies between from ``arenas``.
    """

    def __init__(
        self,
        graph: Graph,
        target: Target,
        progress: Callable[[int, int], None] | None = None,
        launcher: Callable[[Kernel, Problem, tuple[int, ...]], Launch] | None = None,
        capture: bool = True,
        join: Join | None = None,
        images: int = 0,
        named: Collection[str] = (),
        pool: Pool | None = None,
        saved: Mapping[str, Kernel] = MappingProxyType({}),
        abroad: bool = False,
        stretches: int = 1,
        arenas: Arenas | None = None,
    ) -> None:
        self.graph, self.target, self.capture = graph, target, capture
        nodes = kernels_of(graph)
        lies, works = views(graph), works_of(graph, nodes, images, named)
        problems = [work.problem for work in works]
        built = build_all(works, target, progress, saved)
        self.kernels = tuple(found.kernel for found in built.values())
        self.names = tuple(found.name for found in built.values())
        # Beside one another is for what is recorded: the streams of callers are their own.
        beside = target.kind == "cuda" and capture and launcher is None
        self.branches = branches(_reads(nodes)) if beside else None
        self.lifetimes, places = _lifetimes(graph, nodes, self.branches)
        self.plan: Plan = plan(self.lifetimes)
        # Buffers: intermediate values, inputs and outputs, then constants and what is prepared.
        index = dict(places)
        for value in (*graph.inputs, *graph.outputs.values()):
            index.setdefault(lies[value].owner, len(index))
        self.index: Mapping[Value, int] = index
        self.device = device_of(target)
        self.known = known = Constants(len(index), self.device, pool, abroad)
        self.steps = tuple(
            _step(n, p, built[p.key], lies, index, known)
            for n, p in zip(nodes, problems, strict=True)
        )
        known.together()
        self.constants: Mapping[int, Array] = known.arrays
        self.buffers = len(index) + len(known.arrays)
        if not abroad:
            Device.parse(self.device).sync()  # what is prepared is there, for every stream
        #: Addresses within buffers, behind those of these: by buffer and bytes, their numbers.
        self._within: dict[tuple[int, int], int] = {}
        launch = launcher or _launch_of
        launches = [
            (launch(s.kernel, p, s.counts), tuple(map(self._numbered, s.arguments, s.offsets)))
            for s, p in zip(self.steps, problems, strict=True)
        ]
        read = {lies[x].owner: k for k, n in enumerate(nodes) for x in n.inputs}
        last = [read.get(x, -1) for x in graph.inputs]
        self._stretches = divided(self.lifetimes, last, len(nodes), stretches)
        self._launches = [
            _joined(launches[s.begin : s.end], join) if join else launches[s.begin : s.end]
            for s in self._stretches
        ]
        self.given = [index[lies[x].owner] for x in (*graph.inputs, *graph.outputs.values())]
        self.arenas = arenas or Arenas()
        self._own_states()

    def _numbered(self, buffer: int, offset: int) -> int:
        """The number of an address among those that a launch is given."""
        if not offset:
            return buffer
        return self._within.setdefault((buffer, offset), self.buffers + len(self._within))

    def _own_states(self) -> None:
        self._free: list[State] = []
        self._bound: list[tuple[State, list[int]]] = []
        self._lock = threading.Lock()

    def clone(self, arenas: Arenas | None = None) -> Executor:
        """Another one of the same kernels and constants, with memory of its own for values, on a
        CPU from some ``arenas``."""
        made = copy.copy(self)
        made.arenas = arenas or Arenas()
        made._own_states()
        return made

    def run(
        self,
        inputs: Mapping[str, Any],
        times: list[float] | None = None,
        outputs: Mapping[str, Any] = MappingProxyType({}),
    ) -> dict[str, Any]:
        """The outputs by name, in new arrays where ``outputs`` has none; ``times`` takes the
        seconds of each step.

        Arrays are NumPy's, on a GPU also views of its memory, and then outputs are there, too.
        """
        with self._lock:
            state = self._free.pop() if self._free else None
        state = self._state() if state is None else state
        try:
            return state.run(inputs, outputs, times)
        finally:
            with self._lock:
                self._free.append(state)

    def launch(self, inputs: Sequence[int], outputs: Sequence[int]) -> None:
        """Run on memory of the caller's: the addresses of dense tensors in the order of the graph's
        inputs, and of its outputs, of which none is a constant."""
        with self._lock:
            found = self._bound.pop() if self._bound else None
        if found is None:
            state = self._state()
            found = state, state.pointers() + [0] * len(self._within)
        pointers = found[1]
        try:
            for k, pointer in zip(self.given, (*inputs, *outputs), strict=True):
                pointers[k] = pointer
            for launches in self._launches:
                self._launch(launches, pointers)
        finally:
            with self._lock:
                self._bound.append(found)

    def launch_on(
        self, inputs: list[Any], outputs: Sequence[Any], empty: Callable[[int], Any]
    ) -> None:
        """:meth:`launch` on tensors of a GPU, on the stream that the launcher takes.

        What is between lies in tensors that ``empty`` makes of a number of bytes. These are dropped
        once all that reads them is launched, and so are ``inputs``, which becomes a list of None.
        """
        pointers = [0] * (self.buffers + len(self._within))
        for k, constant in self.constants.items():
            pointers[k] = view(constant).pointer
        for k, tensor in zip(self.given, (*inputs, *outputs), strict=True):
            pointers[k] = tensor.data_ptr()
        blocks: list[Any] = []
        for stretch, launches in zip(self._stretches, self._launches, strict=True):
            blocks.append(empty(stretch.nbytes) if stretch.nbytes else None)
            if stretch.nbytes:
                base = blocks[-1].data_ptr()
                for k, offset in stretch.offsets.items():
                    pointers[k] = base + offset
            self._launch(launches, pointers)
            for k in stretch.inputs:
                inputs[k] = None
            for k in stretch.blocks:
                blocks[k] = None

    def _launch(
        self, launches: Sequence[tuple[Launch, tuple[int, ...]]], pointers: list[int]
    ) -> None:
        for (k, offset), within in self._within.items():
            pointers[within] = pointers[k] + offset
        for run, arguments in launches:
            run(tuple([pointers[k] for k in arguments]))

    def bind(
        self, inputs: Mapping[str, ArrayView], outputs: Mapping[str, ArrayView]
    ) -> Callable[[], None]:
        """A function that runs the graph on these arrays, with memory of its own between them.

        Raises :class:`ModelError` where an output is a constant, which nothing writes.
        """
        fixed = [n for n, v in self.graph.outputs.items() if isinstance(owner(v), Constant)]
        if fixed:
            raise ModelError(f"{', '.join(fixed)} of {self.graph.name} is a constant: use run")
        return self._state().bind(inputs, outputs)

    def _state(self) -> State:
        if self.target.kind == "cuda":
            from tilewright.graph.cuda_state import CudaState

            return CudaState(self)
        if self.target.kind == "opencl":
            from tilewright.graph.opencl_state import OpenCLState

            return OpenCLState(self)
        return (HostState if self.target.kind == "llvm" else State)(self)


def device_of(target: Target) -> str:
    """Where the arrays of a target's kernels are."""
    return {"cuda": "cuda:0", "opencl": "opencl:0"}.get(target.kind, "cpu")


def _joined(
    launches: list[tuple[Launch, tuple[int, ...]]], join: Join
) -> list[tuple[Launch, tuple[int, ...]]]:
    """Launches of as many kernels each as one can be of, in their order."""
    if len(launches) < 2:
        return launches
    buffers = list(dict.fromkeys(k for _, arguments in launches for k in arguments))
    if len(buffers) <= _ADDRESSES:
        at = {k: place for place, k in enumerate(buffers)}
        takes = [[at[k] for k in arguments] for _, arguments in launches]
        made = None
        with contextlib.suppress(TargetError):  # more arguments than one call has
            made = join([run for run, _ in launches], takes, len(buffers))
        if made is not None:
            return [(made, tuple(buffers))]
    half = len(launches) // 2
    return [*_joined(launches[:half], join), *_joined(launches[half:], join)]


def _launch_of(kernel: Kernel, problem: Problem, counts: tuple[int, ...]) -> Launch:
    return lambda pointers: kernel.program.launch_raw(pointers, counts)  # type: ignore[attr-defined]


def _step(
    node: Node, problem: Problem, built: Built, lies: Mapping[Value, View],
    index: Mapping[Value, int], known: Constants,
) -> Step:  # fmt: skip
    """A step whose arguments are constants, what its kernel prepares of them, and other values."""
    found = [lies[x] for x in (*node.inputs, node)]
    values = [view.owner for view in found]
    types = [*problem.inputs().values(), problem.result]
    offsets = [v.offset * dtype(t.dtype).bytes for v, t in zip(found, types, strict=True)]
    made: Sequence[int] = ()
    takes: Sequence[int] = range(len(values))
    if (ahead := built.kernel.preparation) is not None:
        made, takes = known.prepared(ahead, [values[k] for k in ahead.reads]), ahead.takes
        types += reversed([TensorType(*t) for t in ahead.types])  # from the end on, as in ``takes``
        offsets += [0] * len(ahead.types)

    def place(k: int) -> int:
        if k < 0:
            return made[-1 - k]
        x = values[k]
        return known[x] if isinstance(x, Constant) else index[x]

    places, into = tuple(map(place, takes)), tuple(offsets[k] for k in takes)
    seen = tuple(types[k] for k in takes)
    return Step(node, built.kernel, places, into, seen, built.counts)


def kernels_of(graph: Graph) -> list[Node]:
    """The nodes that are kernels."""
    return [n for n in graph.nodes if n.operator not in VIEWS]


def lifetimes_of(graph: Graph) -> list[Lifetime]:
    """Of the intermediate values of a graph, in the order in which they are made."""
    return _lifetimes(graph, kernels_of(graph))[0]


def _reads(nodes: Sequence[Node]) -> list[set[int]]:
    """Of each node, the numbers of those that it reads from."""
    number: dict[Value, int] = {n: k for k, n in enumerate(nodes)}
    return [{number[x] for x in map(owner, n.inputs) if x in number} for n in nodes]


def _lifetimes(
    graph: Graph, nodes: Sequence[Node], beside: Branches | None = None
) -> tuple[list[Lifetime], dict[Value, int]]:
    """Of each intermediate value, and its number; of nodes that run one after the other, or some
    ``beside`` others."""
    lies = views(graph)
    outputs = {lies[x].owner for x in graph.outputs.values()}
    until = range(len(nodes)) if beside is None else beside.until
    begin: dict[Value, int] = {}
    end: dict[Value, int] = {}
    for k, node in enumerate(nodes):
        own = lies[node].owner
        if own not in outputs:
            begin.setdefault(own, k)
        for x in (own, *(lies[x].owner for x in node.inputs)):
            if x in begin:
                end[x] = max(end.get(x, 0), until[k])
    sizes = {n: math.prod(n.shape) * dtype(n.dtype).bytes for n in begin}
    return (
        [Lifetime(begin[n], end[n], sizes[n]) for n in begin],
        {n: k for k, n in enumerate(begin)},
    )
