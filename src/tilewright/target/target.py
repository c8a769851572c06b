"""A target: a kind of machine, its architecture, and its limits."""

from __future__ import annotations

import difflib
import shlex
from contextvars import ContextVar, Token
from dataclasses import dataclass, field, replace
from typing import Any

from tilewright.ir.errors import TargetError

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

    threads_per_block: int = 1024
    block: tuple[int, int, int] = (1024, 1024, 64)
    grid: tuple[int, int, int] = (2**31 - 1, 65535, 65535)
    shared_memory: int = 48 * 1024
    warp_size: int = 32


#: Shared memory that one block may have, by compute capability (CUDA programming guide, table
#: "Technical specifications per compute capability").
_SHARED_KB = {70: 96, 72: 96, 75: 64, 80: 163, 86: 99, 87: 163, 89: 99, 90: 227, 100: 227,
              103: 227, 110: 227, 120: 99, 121: 99}  # fmt: skip

#: Multiprocessors of the large GPUs of each compute capability.
MULTIPROCESSORS = {0: 0, 70: 80, 75: 40, 80: 108, 86: 84, 87: 16, 89: 142, 90: 132, 100: 148,
                   103: 148, 110: 20, 120: 170, 121: 48}  # fmt: skip
#: Threads of a multiprocessor that may have 64 of its 65536 registers each.
_ROOMY = 1024
#: Bytes of shared memory that each block takes beside its own.
_BLOCK = 1024
#: Bytes that it is handed out in.
_GRAIN = 128


@dataclass(frozen=True)
class Target:
    """Where a kernel will run.

    Parameters
    ----------
    kind : "llvm" (the CPU), "cuda", "opencl" or "sim" (a GPU on the CPU).
    arch : "sm_90a" and the like for cuda; for llvm a feature set ("native", "avx2", "avx512",
        "baseline"); for opencl a device's name, or a part of it. Empty: the machine at hand.
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
        words = shlex.split(text)
        kind = _ALIASES.get(words[0], words[0]) if words else ""
        if kind not in KINDS:
            near = difflib.get_close_matches(kind, KINDS, 1)
            hint = f"did you mean {near[0]!r}? The" if near else "the"
            raise TargetError(f"unknown target {text!r}: {hint} kinds are {', '.join(KINDS)}")
        options: dict[str, Any] = {}
        for word in words[1:]:
            name, _, value = word.lstrip("-").partition("=")
            if name in ("arch", "mcpu", "device"):
                options["arch"] = value
            elif name in ("threads", "num-threads"):
                if not value.isdigit():
                    raise TargetError(f"{word!r} of target {kind}: write -threads=N, a number")
                options["threads"] = int(value)
            elif name not in ("keys", "model", "libs", "max_num_threads", "host"):
                raise TargetError(
                    f"unknown option {word!r} of target {kind}: use -arch=NAME or -threads=N"
                )
        return Target(Kind(kind), **options, limits=_limits(kind, options.get("arch", "")))

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


_tokens: list[Token[Target | None]] = []


def compute_capability(arch: str) -> int:
    """90 for "sm_90a"; raises :class:`TargetError` for anything that is not such a name."""
    digits = arch.removeprefix("sm_").rstrip("af")
    if not arch.startswith("sm_") or not digits.isdigit():
        raise TargetError(f"unknown CUDA architecture {arch!r}: it is written like sm_80 or sm_90a")
    return int(digits)


def overlaps(arch: str) -> bool:
    """Whether kernels for an architecture may be launched while the one before them ends.

    They wait for its results before they touch memory, so that only the time it takes to launch is
    saved (CUDA programming guide, "Programmatic Dependent Launch and Synchronization").
    """
    return bool(arch) and compute_capability(arch) >= 90


def blocks_each(arch: str, blocks: int, threads: int, shared: int = 0) -> int:
    """How many blocks, of so many threads and bytes of shared memory, a multiprocessor has at once
    of a launch so small that each of its threads may have 64 registers, and more; 0 of a larger
    one.

    A compiler that is not told saves registers, so that more threads find room, of which there are
    none: it puts loads off until others have come, and a thread then waits for memory several times
    instead of once, with few others to run meanwhile.
    """
    count = multiprocessors(arch) if arch else 0
    each = -(-blocks // count) if count else 0
    if each * -(-threads // 32) * 32 > _ROOMY:
        return 0
    room = _room(arch) // _taken(shared) if shared else each
    return min(each, max(1, room))


def shared_apart(arch: str, blocks: int, threads: int, shared: int) -> int:
    """The bytes of shared memory, at least ``shared``, with which a multiprocessor has no more
    blocks of a launch at once than :func:`blocks_each` says.

    Where it had room for more, a launch that begins while another one ends would put them where
    that is done first, and leave other multiprocessors with less to do: all wait for the fullest.
    It is not for a GPU with fewer multiprocessors than :func:`multiprocessors` says.
    """
    each = blocks_each(arch, blocks, threads, shared)
    if not each:
        return shared
    taken = _room(arch) // (each + 1) // _GRAIN * _GRAIN + _GRAIN
    return max(shared, taken - _BLOCK) if each * taken <= _room(arch) else shared


def _room(arch: str) -> int:
    """Bytes of shared memory of a multiprocessor, with what the system keeps for a block."""
    return _limits("cuda", arch).shared_memory + _BLOCK


def _taken(shared: int) -> int:
    """What a block takes of them."""
    return -(-(shared + _BLOCK) // _GRAIN) * _GRAIN


def multiprocessors(arch: str) -> int:
    """Of the large GPUs of an architecture, which it stands for; of an unknown one, those of the
    nearest older one, 0 where there is none."""
    capability = compute_capability(arch)
    return MULTIPROCESSORS[max(c for c in MULTIPROCESSORS if c <= capability)]


def _limits(kind: str, arch: str) -> Limits:
    if kind == "cuda" and arch:
        return Limits(shared_memory=_SHARED_KB.get(compute_capability(arch), 48) * 1024)
    if kind == "sim":
        return Limits(shared_memory=_SHARED_KB[90] * 1024)
    if kind == "opencl":
        return Limits(grid=(2**31 - 1,) * 3, block=(1024, 1024, 1024), warp_size=1)
    return Limits()


def current_target() -> Target | None:
    """The target of the innermost ``with target:``, None outside of any."""
    return _current.get()
