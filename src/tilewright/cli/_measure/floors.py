"""What the machine can do at best: how fast it copies, and how fast it multiplies and adds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import tilewright
from tilewright import te
from tilewright.cli._measure.turns import of_graph, quick
from tilewright.ir.dtype import FLOAT8
from tilewright.ir.errors import TilewrightError
from tilewright.schedule import Schedule
from tilewright.te import Tensor
from tilewright.topi.problem import Problem

if TYPE_CHECKING:
    from tilewright.cli._measure.machine import Machine

#: Bytes that the copy which measures the memory reads: more than caches hold.
_COPIED = {"llvm": 2**27, "cuda": 2**29, "opencl": 2**26}
_ROUNDS = 3


@dataclass(frozen=True)
class Roof:
    """``bandwidth`` in bytes a second, ``rate`` in additions and multiplications a second."""

    bandwidth: float
    rate: float

    def seconds(self, problem: Problem) -> float:
        """The least that a problem takes: every tensor moved once, every tap inside multiplied."""
        return problem.floor(self.bandwidth, self.rate)


def roof(machine: Machine, dtype: str) -> Roof:
    """Measure it; 0 stands for what cannot be measured.

    On CUDA the better of kernels of our own and of PyTorch's copy and matrix product in ``dtype``
    (of float32 without TF32), where that is installed; elsewhere float32 arithmetic in vectors,
    and nothing for types of 8 bits and integers.
    """
    return Roof(bandwidth(machine), rate(machine, dtype))


def bandwidth(machine: Machine) -> float:
    nbytes = _COPIED[machine.kind]
    found = []
    try:
        made = machine.copying(2 * nbytes)
        if made is not None:
            batch, scale = made
            found.append(2 * nbytes / (min(quick(batch) for _ in range(_ROUNDS)) * scale))
    except TilewrightError:  # a device without so much memory
        pass
    torch = _torch(machine)
    if torch is not None:
        source = torch.empty(nbytes, dtype=torch.uint8, device="cuda")
        sink = torch.empty_like(source)
        batch = of_graph(lambda _: sink.copy_(source))
        found.append(2 * nbytes / min(quick(batch) for _ in range(_ROUNDS)))
    return max(found, default=0.0)


def rate(machine: Machine, dtype: str) -> float:
    if "int" in dtype or dtype in FLOAT8:
        return 0.0
    found = [machine.peak]
    torch = _torch(machine)
    if torch is not None and dtype != "float64":
        n = 8192
        torch.backends.cuda.matmul.allow_tf32 = False
        a, b = (torch.randn(n, n, device="cuda").to(getattr(torch, dtype)) for _ in range(2))
        out = torch.empty_like(a)
        batch = of_graph(lambda _: torch.matmul(a, b, out=out))
        found.append(2 * n**3 / min(quick(batch) for _ in range(_ROUNDS)))
    return max(found)


def _torch(machine: Machine) -> Any:
    """PyTorch where it runs on the machine's GPU."""
    if machine.kind != "cuda":
        return None
    try:
        import torch
    except ImportError:
        return None
    return torch if torch.cuda.is_available() else None


def copy_on_cpu(nbytes: int, lanes: int) -> tuple[list[Tensor], Schedule]:
    """A copy that reads about ``nbytes / 2``, in vectors of ``lanes`` float32."""
    chunks = max(1, round(nbytes / 8 / 64 / lanes))
    source = te.placeholder((chunks * 64, lanes), name="Source")
    sink = te.compute(source.shape, lambda i, j: source[i, j], name="Sink")
    s = te.create_schedule(sink.op)
    chunk, _ = s[sink].split(sink.op.axis[0], factor=64)
    s[sink].parallel(chunk)
    s[sink].vectorize(sink.op.axis[1])
    return [source, sink], s


def copy_on_gpu(nbytes: int) -> tuple[list[Tensor], Schedule]:
    """A copy that reads about ``nbytes / 2``: 4 accesses of 16 bytes a thread."""
    blocks = max(1, round(nbytes / 8 / (4 * 256 * 4)))
    source = te.placeholder((blocks * 4 * 256, 4), name="Source")
    sink = te.compute(source.shape, lambda i, j: source[i, j], name="Sink")
    s = te.create_schedule(sink.op)
    row, lane = sink.op.axis
    block, inner = s[sink].split(row, factor=4 * 256)
    part, thread = s[sink].split(inner, factor=256)
    s[sink].reorder(block, thread, part, lane)
    s[sink].bind(block, te.thread_axis("blockIdx.x"))
    s[sink].bind(thread, te.thread_axis("threadIdx.x"))
    s[sink].unroll(part)
    s[sink].vectorize(lane)
    return [source, sink], s


def multiply_add(
    tasks: int, vectors: int, lanes: int, terms: int, gpu: bool
) -> tuple[list[Tensor], Schedule]:
    """Sums in registers: ``tasks * vectors * lanes`` of them, of ``terms`` products each.

    Each task adds the products of a vector and a number to its sums; a task is a chunk of a
    parallel loop, or on a GPU a thread.
    """
    number = te.placeholder((terms,), name="Number")
    vector = te.placeholder((vectors, lanes), name="Vector")
    k = te.reduce_axis((0, terms), name="k")
    out = te.compute(
        (tasks, vectors, lanes),
        lambda _, v, lane: te.sum(number[k] * vector[v, lane], axis=k),
        name="Sums",
    )
    s = te.create_schedule(out.op)
    local = s.cache_write(out, "local")
    task, v, lane = out.op.axis
    if gpu:
        block, task = s[out].split(task, factor=256)
        s[out].bind(block, te.thread_axis("blockIdx.x"))
        s[out].bind(task, te.thread_axis("threadIdx.x"))
    else:
        s[out].parallel(task)
    s[out].unroll(v)
    s[out].vectorize(lane)
    s[local].compute_at(s[out], task)
    _, v, lane = s[local].op.axis
    if gpu:
        held = s.cache_read(vector, "local", [local])
        s[held].compute_at(s[out], task)
        for axis in s[held].op.axis:
            s[held].unroll(axis)
        outer, inner = s[local].split(s[local].op.reduce_axis[0], factor=8)
        s[local].reorder(outer, inner, v, lane)
        for axis in (inner, v, lane):
            s[local].unroll(axis)
    else:
        s[local].reorder(s[local].op.reduce_axis[0], v, lane)
        s[local].unroll(v)
        s[local].vectorize(lane)
    return [number, vector, out], s


def best_rate(machine: Machine) -> float:
    """float32 multiplications and additions a second, by :func:`multiply_add`; 0: unknown."""
    import numpy as np

    gpu, lanes, terms = machine.target.is_gpu, machine.lanes, 1024
    tasks = 2**18 if gpu else 64 * machine.threads
    best = 0.0
    try:
        for vectors in (8, 12):
            args, schedule = multiply_add(tasks, vectors, lanes, terms, gpu)
            kernel = tilewright.build(schedule, args, machine.target, "multiply_add")
            shapes = (terms,), (vectors, lanes), (tasks, vectors, lanes)
            arrays = machine.arrays(*(np.ones(shape, np.float32) for shape in shapes))
            batch = machine.batch(kernel, *arrays)
            seconds = min(quick(batch) for _ in range(2))
            best = max(best, 2 * tasks * vectors * lanes * terms / seconds)
    except TilewrightError:
        return best
    return best
