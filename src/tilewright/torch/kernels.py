"""Kernels for calls of PyTorch's: found once for a shape, kept, and never too many of them.

On a CPU one kernel takes every batch. On a GPU, where that costs index arithmetic, the first
shapes of a layer have kernels of their own, and then a size of image one for all its batches.
Images of so many sizes that compiling would cost more than it gains are left to PyTorch.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch

from tilewright import select
from tilewright.ir.errors import TilewrightError
from tilewright.runtime.kernel import Kernel
from tilewright.runtime.llvm import LLVMProgram
from tilewright.select import Choice
from tilewright.select.algorithm import Scheduled, most_batch
from tilewright.select.building import first_built, spills_of
from tilewright.target import Target
from tilewright.topi.problem import Problem

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
class Found:
    """A kernel for a problem: how to launch it, and how it was chosen; else the reason.

    Without ``launch``, ``choice`` is given where PyTorch's own kernel was chosen.
    """

    launch: Launch | None
    choice: Choice | None = None
    reason: str = ""


class _Theirs(Exception):
    """The choice is PyTorch's own kernel."""

    def __init__(self, choice: Choice) -> None:
        super().__init__(str(choice))
        self.choice = choice


@dataclass
class _Layer:
    """What is known of problems that differ in batch and image alone."""

    images: set[tuple[int, int]] = field(default_factory=set)
    own: int = 0  # kernels for one batch


@dataclass
class _State:
    policy: str = "heuristic"
    threads: int = 0  # PyTorch's, when kernels were last told
    shares: bool = True  # PyTorch's threads
    lock: threading.RLock = field(default_factory=threading.RLock)
    kernels: dict[tuple[Problem, Target], dict[int, tuple[Kernel, Choice]]] = field(
        default_factory=dict
    )
    layers: dict[tuple[Problem, Target], _Layer] = field(default_factory=dict)
    refused: dict[tuple[Problem, Target], str] = field(default_factory=dict)


_state = _State()
if hasattr(os, "register_at_fork"):
    # No other thread is compiling while a process forks: the child would inherit locks, this one
    # and the compiler's, that nobody there lets go.
    os.register_at_fork(
        before=_state.lock.acquire,
        after_in_parent=_state.lock.release,
        after_in_child=_state.lock.release,
    )


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


def find(problem: Problem, target: Target, ordinal: int | None = None) -> Found:
    """The kernel for a problem, compiled where it has to be.

    ``ordinal`` is the number of the GPU that it is launched on; without it, that which the
    addresses belong to.
    """
    with _state.lock:
        try:
            return _find(problem, target, ordinal)
        except _Theirs as found:
            return Found(None, found.choice, "it is the fastest")
        except TilewrightError as error:
            # Trying again with each batch would take as long each time.
            _state.refused[problem.replace(batch=1), target] = str(error)
            return Found(None, reason=str(error))


def _find(problem: Problem, target: Target, ordinal: int | None) -> Found:
    anyhow = problem.replace(batch=1)
    if (anyhow, target) in _state.refused:
        return Found(None, reason=_state.refused[anyhow, target])
    found = _state.kernels.setdefault((anyhow, target), {})
    layer = _layer(anyhow, target)
    if problem.image not in layer.images:
        if len(layer.images) >= IMAGE_SIZES:
            return Found(
                None,
                reason=f"images of more than {IMAGE_SIZES} sizes: the others are left to PyTorch",
            )
        layer.images.add(problem.image)
    any_batch = 0
    batch = problem.batch
    if batch not in found:
        few = target.is_gpu and any_batch not in found and layer.own < OWN_SHAPES
        own = few or batch > most_batch(problem)
        if own:
            found[batch] = _build(problem, target, False)
            layer.own += 1
        elif any_batch not in found:
            found[any_batch] = _build(problem, target, True)
        batch = batch if own else any_batch
    kernel, choice = found[batch]
    program = kernel.program
    if _state.shares and isinstance(program, LLVMProgram) and torch.backends.openmp.is_available():
        shared = program.on_openmp(torch._C.__file__)
        small = shared is not program and problem.flops < SMALL
        program = program.alone() if small else shared
    raw = program.launch_raw  # type: ignore[attr-defined]
    scalars = (problem.batch,) if batch == any_batch else ()

    caller = getattr(kernel.program, "caller", None)
    if caller is not None and ordinal is not None:
        return Found(caller(scalars, ordinal, torch), choice)

    def launch(pointers: tuple[int, ...]) -> None:
        raw(pointers, scalars, None, ordinal)

    def launch_on_cpu(pointers: tuple[int, ...]) -> None:
        if threads() != _state.threads:
            _follow_threads()
        raw(pointers, scalars)

    threads = torch.get_num_threads
    return Found(launch if target.is_gpu else launch_on_cpu, choice)


def join(
    launches: Sequence[Launch],
    takes: Sequence[Sequence[int]],
    addresses: int,
    temporaries: Sequence[int] = (),
) -> Launch | None:
    """One launch for several that follow each other on a GPU; None where there is none.

    Each takes those addresses, of ``addresses`` given and then of memory between them, of so many
    bytes, whose numbers it has in ``takes``.
    """
    if not all(hasattr(launch, "part") for launch in launches):
        return None
    from tilewright.runtime import cuda_quick

    return cuda_quick.join(launches, takes, addresses, torch, temporaries)


def _follow_threads() -> None:
    """Use as many threads as PyTorch does, unless the environment says how many."""
    from tilewright.runtime.llvm_pool import set_num_threads

    _state.threads = torch.get_num_threads()
    if not os.environ.get("TILEWRIGHT_NUM_THREADS"):
        set_num_threads(_state.threads)


def _layer(problem: Problem, target: Target) -> _Layer:
    least = (problem.kernel[0] - 1) * problem.dilation[0] + 1
    wide = (problem.kernel[1] - 1) * problem.dilation[1] + 1
    anyhow = problem.replace(height=least, width=wide)
    return _state.layers.setdefault((anyhow, target), _Layer())


def policy(target: Target) -> str:
    """How to choose now: measuring waits for the device, which ends the capture of a graph."""
    if _state.policy == "profile" and target.kind == "cuda" and torch.cuda.is_initialized():
        if torch.cuda.is_current_stream_capturing():
            return "heuristic"
    return _state.policy


def _build(problem: Problem, target: Target, symbolic: bool) -> tuple[Kernel, Choice]:
    def build(choice: Choice) -> Kernel:
        if not isinstance(choice.algorithm, Scheduled):
            raise _Theirs(choice)
        return choice.algorithm.kernel(problem, choice.config, target, symbolic)

    found = first_built(select.options(problem, target, policy(target)), build, spills_of)
    if found is None:
        raise select.SelectError(select.reason(problem, target))
    return found
