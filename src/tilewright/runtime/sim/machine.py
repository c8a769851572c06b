"""Running a kernel: its launch in batches of blocks, each batch driven from barrier to barrier."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, TypeAlias

import numpy as np

from tilewright.ir import stmt as S
from tilewright.ir.buffer import Buffer
from tilewright.ir.expr import Load, Var
from tilewright.ir.func import Func
from tilewright.ir.visit import walk
from tilewright.lower.analysis.clusters import blocks_of_cluster
from tilewright.lower.async_.proxy_fences import beside_threads
from tilewright.runtime.array_view import dense_strides
from tilewright.runtime.signature import evaluate
from tilewright.runtime.sim.cluster_memory import ClusterMemory
from tilewright.runtime.sim.cost import Cost
from tilewright.runtime.sim.findings import Findings, Sites
from tilewright.runtime.sim.fragment import Fragment, groups_of
from tilewright.runtime.sim.frame import Batch, Frame, Grid
from tilewright.runtime.sim.memory import Form, Memory, Private
from tilewright.runtime.sim.proxies import Unfenced
from tilewright.runtime.sim.races import Races
from tilewright.runtime.sim.report import Finding, Place
from tilewright.runtime.sim.statements import StatementCompiler, pass_barrier
from tilewright.runtime.sim.values import numpy_type
from tilewright.target.devices import WARP

#: Threads a batch: enough that NumPy's cost a call is small against the work.
_BATCH_THREADS = 16384
#: Elements of shared and local memory a batch.
_BATCH_ELEMENTS = 1 << 22

#: Symbolic extents and scalar parameters, by the names of their variables.
Scalars: TypeAlias = Mapping[str, int]


def form(buffer: Buffer, scalars: Scalars) -> Form:
    """A buffer's shape and strides as integers."""

    shape = tuple(max(0, evaluate(extent, scalars)) for extent in buffer.shape)
    if buffer.layout is None:
        return Form(shape, dense_strides(shape), 0, None, math.prod(shape))
    layout = buffer.layout
    strides = tuple(evaluate(stride, scalars) for stride in layout.strides)
    made = Form(shape, strides, evaluate(layout.base, scalars), layout.swizzle, 0)
    made.size = int(made.offsets().max()) + 1 if all(shape) else 0
    return made


def written_buffers(body: S.Stmt) -> set[Buffer]:
    """The buffers that statements of ``body`` write."""
    found: set[Buffer] = set()
    for node in walk(body):
        if isinstance(node, S.Store):
            found.add(node.buffer)
        elif isinstance(node, S.AllReduce):
            found.update(node.buffers)
    return found


def read_buffers(body: S.Stmt) -> set[Buffer]:
    """The buffers that ``body`` reads."""
    found: set[Buffer] = set()
    for node in walk(body):
        if isinstance(node, Load):
            found.add(node.buffer)
    return found


class KernelCode:
    """One function of a module, compiled.

    Raises :class:`tilewright.ir.errors.LoweringError` for what no lowered kernel holds.
    """

    def __init__(self, func: Func, sites: Sites, profile: bool) -> None:
        self.func = func
        made = StatementCompiler(func.name, sites, func.launch, profile)
        x = made.expressions
        for p in func.params:
            if isinstance(p, Var):
                x.slot(p)
            else:
                x.places.setdefault(p, len(x.places))
        for axis in func.launch:
            x.slot(axis.var)
        self.steps = made.stmt(func.body)
        self.slots, self.places, self.scratch = x.slots, x.places, made.scratch
        self.written = written_buffers(func.body)
        self.read = read_buffers(func.body)
        self.beside = beside_threads(func.body)
        self.cluster = blocks_of_cluster(func)

    def run(
        self, memories: Mapping[Buffer, Memory], scalars: Scalars, findings: Findings,
        cost: Cost | None,
    ) -> None:  # fmt: skip
        """Execute the launch; ``memories`` hold the module's buffers."""
        grid = self._grid(scalars)
        if not grid.blocks or not grid.threads:
            return
        one = grid.blocks == 1 and grid.threads == 1
        width = grid.warps * WARP
        for p in self.func.params:
            if isinstance(p, Buffer):
                memory, read = memories[p], p in self.read
                tracked = p in self.written and not one
                memory.races = Races(memory.form.size, width, True, read) if tracked else None
        forms = {buffer: form(buffer, scalars) for buffer in self.scratch}
        shared = [memories.get(p) for p in self.places]
        for buffer in self.scratch:
            if buffer.scope == "global":
                made = Memory(buffer, forms[buffer])
                made.races = None if one else Races(made.form.size, width, True, True)
                shared[self.places[buffer]] = made
        time = 0
        step = self._blocks_at_once(grid, forms)
        for first in range(0, grid.blocks, step):
            count = min(step, grid.blocks - first)
            batch = Batch(self.func.name, grid, first, count, findings, time, self.cluster)
            batch.cost = cost
            here = list(shared)
            for buffer in self.scratch:
                if buffer.scope != "global":
                    memory = _scratch(buffer, forms[buffer], batch, one)
                    if buffer in self.beside:
                        memory.unfenced = Unfenced(len(memory.data))
                    here[self.places[buffer]] = memory
            frame = Frame(batch, self._environment(batch, scalars), here)
            with np.errstate(all="ignore"):  # overflow wraps and NaN is a value, as on a GPU
                for event in self.steps(frame):
                    pass_barrier(event)
            for own in here:
                if isinstance(own, ClusterMemory):
                    own.end(batch, findings, frame)
            for queue, lane in batch.flights.unfinished():
                self._unfinished(batch, queue, lane)
            time = batch.time + 1
        if cost is not None:
            report = cost.report
            report.blocks[self.func.name] = report.blocks.get(self.func.name, 0) + grid.blocks

    def _unfinished(self, batch: Batch, queue: str, lane: int) -> None:
        thread, block = batch.thread_of(int(batch.who[lane]))
        batch.findings.put(
            ("unfinished instruction", self.func.name, queue),
            Finding(
                "unfinished instruction",
                self.func.name,
                Place(thread, block, "the end of the kernel"),
                "",
                (),
                f"ends while its instructions of queue {queue!r} are under way",
            ),
        )

    def _grid(self, scalars: Scalars) -> Grid:
        extents = {axis.tag: evaluate(axis.extent, scalars) for axis in self.func.launch}
        block, grid = (
            tuple(extents.get(f"{kind}.{d}", 1) for d in "xyz")
            for kind in ("threadIdx", "blockIdx")
        )
        return Grid((block[0], block[1], block[2]), (grid[0], grid[1], grid[2]))

    def _blocks_at_once(self, grid: Grid, forms: Mapping[Buffer, Form]) -> int:
        elements = 1
        for buffer, made in forms.items():
            if buffer.scope != "global":
                elements += made.size * _copies(buffer, grid)
        most = max(1, min(_BATCH_THREADS // grid.threads, _BATCH_ELEMENTS // elements))
        return -(-most // self.cluster) * self.cluster  # whose blocks run side by side

    def _environment(self, batch: Batch, scalars: Scalars) -> list[Any]:
        env: list[Any] = [None] * len(self.slots)
        for p in self.func.params:
            if isinstance(p, Var):
                env[self.slots[p]] = numpy_type(p.dtype).type(scalars[p.name])
        for axis in self.func.launch:
            kind, _, d = axis.tag.partition(".")
            extents = batch.grid.block if kind == "threadIdx" else batch.grid.grid
            linear = batch.thread if kind == "threadIdx" else batch.first + batch.slot
            below = 1
            for name, extent in zip("xyz", extents, strict=True):
                if name == d:
                    index = linear // below % extent
                    break
                below *= extent
            index = index.astype(numpy_type(axis.var.dtype))
            same = extent == 1 or (kind == "blockIdx" and batch.count == 1)
            env[self.slots[axis.var]] = index[0] if same else index
        return env


def _copies(buffer: Buffer, grid: Grid) -> int:
    """Copies of a buffer a block."""
    if buffer.scope == "fragment":
        return groups_of(buffer, grid.threads)
    return {"local": grid.threads, "warp": grid.warps_of_rows}.get(buffer.scope, 1)


def _scratch(buffer: Buffer, made: Form, batch: Batch, one: bool) -> Memory:
    """Storage for a buffer that the kernel allocates, for all blocks of a batch."""
    if buffer.scope == "fragment":
        return Fragment(buffer, made, batch)
    grid = batch.grid
    copies = _copies(buffer, grid) * batch.count
    if one:
        return Memory(buffer, made)
    if buffer.scope == "local":
        return Private(buffer, made, copies)
    if buffer.scope == "cluster":
        shared = ClusterMemory(buffer, made, batch)
        shared.races = Races(len(shared.data), grid.warps * WARP, False, True, cluster=True)
        return shared
    owner = None
    if copies > 1:
        owner = batch.warp_of_row if buffer.scope == "warp" else batch.slot
    memory = Memory(buffer, made, copies, owner)
    if grid.threads > 1:
        memory.races = Races(copies * made.size, grid.warps * WARP, False, True)
    return memory
