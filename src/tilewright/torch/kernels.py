"""Kernels for calls of PyTorch's: found once for a shape, kept, and never too many of them.

On a CPU one kernel takes every batch. On a GPU, where that costs index arithmetic, the first
shapes of a layer have kernels of their own, and then a size of image one for all its batches.
Images are left to PyTorch where their sizes change so often that compiling costs more than it
gains.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import NamedTuple

import torch

from tilewright import select
from tilewright.ir.errors import TilewrightError
from tilewright.runtime import forks
from tilewright.runtime.kernel import Kernel
from tilewright.runtime.llvm import LLVMProgram
from tilewright.runtime.progress import one_more
from tilewright.runtime.torch_memory import lowest_address, refuse_addresses
from tilewright.select import Choice
from tilewright.select.ahead import NotOurs, Wanted, build_chosen, compile_ahead
from tilewright.target import Target
from tilewright.topi.batch import Batch
from tilewright.topi.operators.conv import Conv

#: Shapes of a layer that have kernels of their own on a GPU: as many as batches for training and
#: validation, each with a last one that is smaller.
OWN_SHAPES = 4
#: Sizes of images for which kernels are compiled, of layers that are else the same.
IMAGE_SIZES = 12
#: Additions and multiplications, some microseconds of one core, below which a kernel does not share
#: PyTorch's threads: one that has lost its core to another process keeps all the others waiting.
SMALL = 2**19

#: Launches on addresses in the order of the declaration, on the current stream.
Launch = Callable[[tuple[int, ...]], None]


@dataclass(frozen=True)
class Selection:
    """A kernel for a problem: how to launch it, and how it was chosen; else the reason.

    Without ``launch``, ``choice`` is given where PyTorch's own kernel was chosen. ``strides`` are
    those of a first operand that is not dense.
    """

    launch: Launch | None
    choice: Choice | None = None
    reason: str = ""
    strides: tuple[int, ...] | None = None


class Asked(NamedTuple):
    """What a call asks a kernel for: the arguments of :func:`find`."""

    problem: Conv
    target: Target
    ordinal: int | None
    strides: tuple[int, ...] | None = None


@dataclass
class _Layer:
    """What is known of problems that differ in batch and image alone."""

    images: set[tuple[int, int]] = field(default_factory=set)
    own: int = 0  # kernels for one batch


#: A problem of batch 1, its target, and the strides of a first operand that is not dense.
_Key = tuple[Conv, Target, tuple[int, ...] | None]


@dataclass
class _State:
    policy: str = "heuristic"
    threads: int = 0  # PyTorch's, when kernels were last told
    shares: bool = True  # PyTorch's threads
    lock: threading.RLock = field(default_factory=threading.RLock)
    kernels: dict[_Key, dict[int, tuple[Kernel, Choice]]] = field(default_factory=dict)
    layers: dict[tuple[Conv, Target], _Layer] = field(default_factory=dict)
    refused: dict[_Key, str] = field(default_factory=dict)
    #: What is asked for by the thread that notes it and builds nothing.
    noted: list[Asked] | None = None
    noting: int = 0  # that thread


_state = _State()
forks.hold(_state.lock, forks.CHOOSING)


def alone() -> threading.RLock:
    """The lock of whoever compiles."""
    return _state.lock


#: Called when kernels found so far may no longer be the ones to take.
on_change: list[Callable[[], None]] = []


def set_policy(policy: str) -> str:
    """How kernels are chosen from now on, of :data:`tilewright.select.POLICIES`; the former policy.

    "profile" measures the candidates, PyTorch's own kernel among them, when a shape is first seen,
    and keeps the answer for later processes.
    """
    if policy not in select.POLICIES:
        raise select.SelectError(f"unknown policy {policy!r}: use {', '.join(select.POLICIES)}")
    with _state.lock:
        before, _state.policy = _state.policy, policy
        _state.kernels.clear()
        _state.layers.clear()
        _state.refused.clear()
        _forget()
    return before


def share_threads(on: bool) -> bool:
    """Whether kernels on a CPU run on PyTorch's own threads from now on; whether they did.

    They do unless this, or the environment by ``TILEWRIGHT_OPENMP=0``, says no, where PyTorch's
    threads are those of an OpenMP runtime that has ``GOMP_parallel``; else in a pool of our own.
    """
    with _state.lock:
        before, _state.shares = _state.shares, on
        _forget()
    return before


def _forget() -> None:
    for forget in on_change:
        forget()


def find(
    problem: Conv,
    target: Target,
    ordinal: int | None = None,
    strides: tuple[int, ...] | None = None,
) -> Selection:
    """The kernel for a problem, compiled where it has to be; with ``strides`` (in elements, in the
    order of the layout) for a first operand that is not dense.

    ``ordinal`` is the number of the GPU that it is launched on; without it, that which the
    addresses belong to.
    """
    with _state.lock:
        if _state.noted is not None and _state.noting == threading.get_ident():
            _state.noted.append(Asked(problem, target, ordinal, strides))
            return Selection(None)
        try:
            return _find(problem, target, ordinal, strides)
        except NotOurs as found:
            return Selection(None, found.choice, "it is the fastest")
        except TilewrightError as error:
            # Trying again with each batch would take as long each time.
            _state.refused[problem.replace(batch=1), target, strides] = str(error)
            return Selection(None, reason=str(error))


@contextmanager
def noting() -> Iterator[list[Asked]]:
    """Calls of this thread note what they ask for and are done by PyTorch; nothing is built, and
    nothing of it is remembered afterwards."""
    with _state.lock:
        _forget()
        noted = _state.noted = []
        _state.noting = threading.get_ident()
    try:
        yield noted
    finally:
        with _state.lock:
            _state.noted = None
            _forget()


def build_ahead(
    asked: Sequence[Asked], progress: Callable[[int, int], None]
) -> dict[Asked, Selection]:
    """What :func:`find` finds for all of these, compiled side by side where it has to be.

    ``progress`` receives how many of how many kernels are built, after each.
    """
    todo = list(dict.fromkeys(asked))
    wanted = {
        Wanted(
            x.problem if x.target.is_gpu else x.problem.replace(batch=1),
            x.target,
            None
            if x.target.is_gpu or x.problem.batch > x.problem.most_batch
            else every_batch(x.problem.replace(batch=1)),
            x.strides,
        ): None
        for x in todo
        if (x.problem.replace(batch=1), x.target, x.strides) not in _state.kernels
    }
    finished = 0
    progress(0, len(wanted))

    def done(_: Wanted) -> None:
        nonlocal finished
        finished += 1
        progress(finished, len(wanted))

    if _state.policy != "profile":  # which measures, one after the other
        compile_ahead(list(wanted), _state.policy, done)
    found = {}
    for x in todo:
        before = len(_state.kernels)
        found[x] = find(*x)
        if finished < len(wanted) and len(_state.kernels) > before:
            done(next(iter(wanted)))
    return found


def _find(
    problem: Conv, target: Target, ordinal: int | None, strides: tuple[int, ...] | None
) -> Selection:
    any_size = problem.replace(batch=1)
    if (any_size, target, strides) in _state.refused:
        return Selection(None, reason=_state.refused[any_size, target, strides])
    found = _state.kernels.setdefault((any_size, target, strides), {})
    layer = _layer(any_size, target)
    if problem.image not in layer.images:
        if len(layer.images) >= IMAGE_SIZES:
            return Selection(
                None,
                reason=f"images of more than {IMAGE_SIZES} sizes: the others are left to PyTorch",
            )
        layer.images.add(problem.image)
    any_batch = 0
    batch = problem.batch
    if batch not in found:
        few = target.is_gpu and any_batch not in found and layer.own < OWN_SHAPES
        own = few or batch > problem.most_batch
        if own:
            found[batch] = _build(problem, target, False, strides)
            layer.own += 1
        elif any_batch not in found:
            found[any_batch] = _build(problem, target, True, strides)
        batch = batch if own else any_batch
    kernel, choice = found[batch]
    scalars = (problem.batch,) if batch == any_batch else ()
    return Selection(launch_of(kernel, problem.flops, scalars, ordinal), choice, strides=strides)


def launch_of(
    kernel: Kernel, flops: int, scalars: tuple[int, ...] = (), ordinal: int | None = None
) -> Launch:
    """What launches a kernel with these scalar arguments: on the current stream of a GPU, of that
    number where it is given, or on PyTorch's threads."""
    program = kernel.program
    if _state.shares and isinstance(program, LLVMProgram) and torch.backends.openmp.is_available():
        shared = program.on_openmp(torch._C.__file__)
        small = shared is not program and flops < SMALL
        program = program.alone() if small else shared
    raw = program.launch_raw  # type: ignore[attr-defined]

    caller = getattr(kernel.program, "caller", None)
    if caller is not None and ordinal is not None:
        quick: Launch = caller(scalars, ordinal, torch)
        return quick
    names, lowest = [p.name for p in kernel.signature.params], lowest_address()

    def launch(pointers: tuple[int, ...]) -> None:
        for p in pointers:
            if p < lowest:
                refuse_addresses(pointers, names)
        raw(pointers, scalars, None, ordinal)

    def launch_on_cpu(pointers: tuple[int, ...]) -> None:
        for p in pointers:
            if p < lowest:
                refuse_addresses(pointers, names)
        if threads() != _state.threads:
            _follow_threads()
        raw(pointers, scalars)

    threads = torch.get_num_threads
    return launch_on_cpu if isinstance(program, LLVMProgram) else launch


def _follow_threads() -> None:
    """Use as many threads as PyTorch does, unless the environment says how many."""
    from tilewright.runtime.llvm_pool import set_num_threads

    _state.threads = torch.get_num_threads()
    if not os.environ.get("TILEWRIGHT_NUM_THREADS"):
        set_num_threads(_state.threads)


def _layer(problem: Conv, target: Target) -> _Layer:
    least = (problem.kernel[0] - 1) * problem.dilation[0] + 1
    wide = (problem.kernel[1] - 1) * problem.dilation[1] + 1
    any_size = problem.replace(height=least, width=wide)
    return _state.layers.setdefault((any_size, target), _Layer())


def every_batch(problem: Conv) -> Batch | None:
    """All of its images, whose number a call decides."""
    return problem.batch_of(problem.batch, problem.shapes())


def policy(target: Target) -> str:
    """How to choose now: measuring waits for the device, which ends the capture of a graph."""
    if _state.policy == "profile" and target.kind == "cuda" and torch.cuda.is_initialized():
        if torch.cuda.is_current_stream_capturing():
            return "heuristic"
    return _state.policy


def _build(
    problem: Conv, target: Target, symbolic: bool, strides: tuple[int, ...] | None = None
) -> tuple[Kernel, Choice]:
    batch = every_batch(problem) if symbolic else None
    with one_more():
        found = build_chosen(problem, target, policy(target), batch, strides)
    if found is None:
        raise select.SelectError(select.reason(problem, target))
    return found
