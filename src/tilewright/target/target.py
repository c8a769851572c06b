"""A target: a kind of machine, its architecture, and its limits."""

from __future__ import annotations

import difflib
import re
import shlex
from contextvars import ContextVar, Token
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

from tilewright.ir.errors import TargetError
from tilewright.target.devices import (
    ARCHITECTURES,
    BLOCK_THREADS,
    GRAIN,
    H200,
    REGISTERS,
    RESERVED,
    STATIC_SHARED,
    WARP,
    compute_capability,
    known,
    opencl_device,
)

KINDS = ("llvm", "cuda", "opencl", "sim")
_ALIASES = {"cpu": "llvm", "c": "llvm", "gpu": "cuda", "nvptx": "cuda", "cl": "opencl"}

_current: ContextVar[Target | None] = ContextVar("target", default=None)


class Kind(str):
    """The kind of a target, a text; ``kind.name`` is it too, as TVM's programs write."""

    __slots__ = ()

    @property
    def name(self) -> str:
        return str(self)


@dataclass(frozen=True)
class Limits:
    """What one block of threads may use; sizes in bytes, 0 where there is no limit."""

    threads_per_block: int = BLOCK_THREADS
    block: tuple[int, int, int] = (1024, 1024, 64)
    grid: tuple[int, int, int] = (2**31 - 1, 65535, 65535)
    shared_memory: int = STATIC_SHARED
    warp_size: int = WARP


#: Threads of an SM that may have 64 registers each.
ROOMY = REGISTERS // 64
#: Blocks of an SM up to which those that copy no boxes are kept apart: of more, one too many on an
#: SM matters less, and memory that they ask for is the first-level cache's.
APART = 6


@dataclass(frozen=True)
class _Features:
    known: dict[str, bool]
    listed: set[str]

    def __getattr__(self, name: str) -> bool:
        if name.startswith("__"):
            raise AttributeError(name)
        return self.known.get(name, name.removeprefix("has_") in self.listed)


@dataclass(frozen=True)
class Target:
    """Where a kernel will run.

    Parameters
    ----------
    kind : "llvm" (the CPU), "cuda", "opencl" or "sim" (a GPU on the CPU).
    arch : "sm_90a" and the like for cuda; for llvm a feature set ("native", "avx2", "avx512",
        "baseline"), or a machine that is not at hand, to save code for: LLVM's triple, name and
        features, as "aarch64-linux-gnu//+neon" (-mtriple, -mcpu, -mattr); for opencl a device's
        name, or a part of it: one of those that :data:`~tilewright.target.devices.OPENCL` names
        need not be at hand to be lowered for.
        Empty: the machine at hand.
    threads : how many threads PARALLEL loops use on the CPU; 0 means as many as there are cores.
    """

    kind: str
    arch: str = ""
    threads: int = 0
    limits: Limits = field(default_factory=Limits)

    @staticmethod
    def parse(text: str | Target) -> Target:
        """``"cuda -arch=sm_90a"`` and the like.

        Raises :class:`TargetError` for a kind or an option that there is not.
        """
        if isinstance(text, Target):
            return text
        if not isinstance(text, str):
            raise TargetError(f'a target is a text such as "llvm" or a Target, got {text!r}')
        return _parse(text)

    @property
    def max_num_threads(self) -> int:
        """How many threads a block may have."""
        return self.limits.threads_per_block

    @property
    def thread_warp_size(self) -> int:
        return self.limits.warp_size

    @property
    def max_shared_memory_per_block(self) -> int:
        """In bytes."""
        return self.limits.shared_memory

    @property
    def keys(self) -> tuple[str, ...]:
        """What TVM calls its keys: the kind, and "cpu" or "gpu"."""
        return (self.kind, "gpu" if self.is_gpu else "cpu")

    @property
    def features(self) -> Any:
        """TVM's name of what a CPU has, such as ``has_sve``, for one that is described by a triple:
        an attribute for each of its features, and ``is_aarch64``."""
        triple, _, flags = self.arch.partition("/")
        listed = {flag[1:] for flag in re.findall(r"\+[\w.]+", flags)}
        return _Features({"is_aarch64": triple.startswith("aarch64")}, listed)

    @property
    def is_gpu(self) -> bool:
        """Whether schedules for it bind axes to blocks and threads."""
        return self.kind != "llvm"

    def __str__(self) -> str:
        text = self.kind
        if self.arch:
            text += f" -arch={self.arch}"
        return text + (f" -threads={self.threads}" if self.threads else "")

    def with_arch(self, arch: str) -> Target:
        """The same target for another architecture, with its limits."""
        return replace(self, arch=arch, limits=_limits(self.kind, arch))

    def __enter__(self) -> Target:
        _tokens.append(_current.set(self))
        return self

    def __exit__(self, *exc: object) -> None:
        _current.reset(_tokens.pop())


@lru_cache(256)
def _parse(text: str) -> Target:
    words = shlex.split(text)
    kind = _ALIASES.get(words[0], words[0]) if words else ""
    if kind not in KINDS:
        near = difflib.get_close_matches(kind, KINDS, 1)
        hint = f"did you mean {near[0]!r}? The" if near else "the"
        raise TargetError(f"unknown target {text!r}: {hint} kinds are {', '.join(KINDS)}")
    options: dict[str, Any] = {}
    machine: dict[str, str] = {}
    for word in words[1:]:
        name, _, value = word.lstrip("-").partition("=")
        if name in ("arch", "mcpu", "device"):
            options["arch"] = value
        elif name in ("mtriple", "mattr"):
            machine[name] = value
        elif name in ("threads", "num-threads"):
            if not value.isdigit():
                raise TargetError(f"{word!r} of target {kind}: write -threads=N, a number")
            options["threads"] = int(value)
        elif name not in ("keys", "model", "libs", "max_num_threads", "host"):
            raise TargetError(
                f"unknown option {word!r} of target {kind}: use -arch=NAME or -threads=N"
            )
    if "mtriple" in machine:
        parts = (machine["mtriple"], options.get("arch", ""), machine.get("mattr", ""))
        options["arch"] = "/".join(parts)
    return Target(Kind(kind), **options, limits=_limits(kind, options.get("arch", "")))


_tokens: list[Token[Target | None]] = []


def overlaps(arch: str) -> bool:
    """Whether kernels for an architecture may be launched while the one before them ends.

    They wait for its results before they touch memory, so that only the time it takes to launch is
    saved (CUDA programming guide, "Programmatic Dependent Launch and Synchronization").
    """
    return bool(arch) and compute_capability(arch) >= 90


def blocks_each(arch: str, blocks: int, threads: int, shared: int = 0) -> int:
    """How many blocks of ``threads`` threads and ``shared`` bytes of shared memory an SM has at
    once of a launch so small that each of its threads may have 64 registers, and more; 0 of a
    larger one.

    A compiler that is not told saves registers, so that more threads fit, of which there are
    none: it puts loads off until others have come, and a thread then waits for memory several times
    instead of once, with few others to run meanwhile.
    """
    count = sms(arch) if arch else 0
    each = -(-blocks // count) if count else 0
    if each * -(-threads // WARP) * WARP > ROOMY:
        return 0
    fit = _shared_bytes(arch) // _taken(shared) if shared else each
    return min(each, max(1, fit))


def shared_apart(arch: str, blocks: int, threads: int, shared: int) -> int:
    """The bytes of shared memory, at least ``shared``, with which an SM has no more
    blocks of a launch at once than :func:`blocks_each` says.

    Where it had room for more, a launch that begins while another one ends would put them where
    that is done first, and leave other SMs with less to do: all wait for the fullest.
    It is not for a GPU with fewer SMs than :func:`sms` says.
    """
    each = blocks_each(arch, blocks, threads, shared)
    if not each:
        return shared
    taken = _shared_bytes(arch) // (each + 1) // GRAIN * GRAIN + GRAIN
    return max(shared, taken - RESERVED) if each * taken <= _shared_bytes(arch) else shared


def _shared_bytes(arch: str) -> int:
    """Bytes of shared memory of an SM, with what the system keeps for a block."""
    return _limits("cuda", arch).shared_memory + RESERVED


def _taken(shared: int) -> int:
    """What a block takes of them."""
    return -(-(shared + RESERVED) // GRAIN) * GRAIN


def sms(arch: str) -> int:
    """Of the large GPUs of an architecture, which it stands for; of an unknown one, those of the
    nearest older one, 0 where there is none."""
    found = known(arch)
    return 0 if found is None else found.sms


def _limits(kind: str, arch: str) -> Limits:
    if kind == "cuda" and arch:
        exact = ARCHITECTURES.get(compute_capability(arch))
        return Limits() if exact is None else Limits(shared_memory=exact.block_shared)
    if kind == "sim":
        return Limits(shared_memory=H200.block_shared)
    if kind == "opencl":
        place = opencl_device(arch)
        most = BLOCK_THREADS if place is None else place.group
        return Limits(most, grid=(2**31 - 1,) * 3, block=(1024, 1024, 1024), warp_size=1)
    return Limits()


def current_target() -> Target | None:
    """The target of the innermost ``with target:``, None outside of any."""
    return _current.get()
