"""Kernels for calls of PyTorch's: found once for a shape, kept, and never too many of them.

On a CPU one kernel takes every batch. On a GPU, where that costs index arithmetic, the first
batches of a layer have kernels of their own, and one for all batches serves the others. Images of
so many sizes that compiling would cost more than it gains are left to PyTorch.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from dataclasses import dataclass, field

import torch

from tilewright import select
from tilewright.ir.errors import TilewrightError
from tilewright.runtime.kernel import Kernel
from tilewright.select import Choice
from tilewright.select.algorithm import Scheduled
from tilewright.target import Target
from tilewright.topi.problem import Problem

#: Batches of a layer that have kernels of their own on a GPU.
OWN_BATCHES = 2
#: Sizes of images for which kernels are compiled, of layers that are else the same.
IMAGE_SIZES = 12

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
class _State:
    policy: str = "heuristic"
    threads: int = 0  # PyTorch's, when kernels were last told
    lock: threading.RLock = field(default_factory=threading.RLock)
    kernels: dict[tuple[Problem, Target], dict[int, tuple[Kernel, Choice]]] = field(
        default_factory=dict
    )
    sizes: dict[tuple[Problem, Target], set[tuple[int, int]]] = field(default_factory=dict)


_state = _State()
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
        _state.sizes.clear()
        for forget in on_change:
            forget()
    return before


def find(problem: Problem, target: Target) -> Found:
    """The kernel for a problem, compiled where it has to be."""
    with _state.lock:
        try:
            return _find(problem, target)
        except _Theirs as found:
            return Found(None, found.choice, "it is the fastest")
        except TilewrightError as error:
            return Found(None, reason=str(error))


def _find(problem: Problem, target: Target) -> Found:
    anyhow = problem.replace(batch=1)
    found = _state.kernels.setdefault((anyhow, target), {})
    if not found and not _room(anyhow, target):
        return Found(
            None,
            reason=f"images of more than {IMAGE_SIZES} sizes: the others are left to PyTorch",
        )
    any_batch = 0
    batch = problem.batch
    if batch not in found:
        if any_batch in found:
            batch = any_batch
        elif not target.is_gpu or len(found) >= OWN_BATCHES:
            batch = any_batch
            found[batch] = _build(problem, target, True)
        else:
            found[batch] = _build(problem, target, False)
    kernel, choice = found[batch]
    raw = kernel.program.launch_raw  # type: ignore[attr-defined]
    scalars = (problem.batch,) if batch == any_batch else ()

    def launch(pointers: tuple[int, ...]) -> None:
        raw(pointers, scalars)

    def launch_on_cpu(pointers: tuple[int, ...]) -> None:
        if threads() != _state.threads:
            _follow_threads()
        raw(pointers, scalars)

    threads = torch.get_num_threads
    return Found(launch if target.is_gpu else launch_on_cpu, choice)


def _follow_threads() -> None:
    """Use as many threads as PyTorch does, unless the environment says how many."""
    from tilewright.runtime.llvm_pool import set_num_threads

    _state.threads = torch.get_num_threads()
    if not os.environ.get("TILEWRIGHT_NUM_THREADS"):
        set_num_threads(_state.threads)


def _room(problem: Problem, target: Target) -> bool:
    """Whether images of this size may have a kernel."""
    least = (problem.kernel[0] - 1) * problem.dilation[0] + 1
    wide = (problem.kernel[1] - 1) * problem.dilation[1] + 1
    sizes = _state.sizes.setdefault((problem.replace(height=least, width=wide), target), set())
    if problem.image not in sizes and len(sizes) >= IMAGE_SIZES:
        return False
    sizes.add(problem.image)
    return True


def _build(problem: Problem, target: Target, symbolic: bool) -> tuple[Kernel, Choice]:
    error: TilewrightError | None = None
    for k, choice in enumerate(select.options(problem, target, _state.policy)):
        algorithm = choice.algorithm
        if not isinstance(algorithm, Scheduled):
            raise _Theirs(choice)
        try:
            return algorithm.kernel(problem, choice.config, target, symbolic), choice
        except TilewrightError as found:
            error = error or found
        if k == 3:  # the others will hardly do
            break
    raise error or select.SelectError(select.reason(problem, target))
