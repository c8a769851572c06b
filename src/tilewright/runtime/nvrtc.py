"""CUDA C++ to machine code by NVRTC; needs neither a GPU nor a driver nor nvcc."""

from __future__ import annotations

import atexit
import importlib.metadata
import os
import re
import signal
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from typing import Any

from tilewright.ir.errors import TargetError
from tilewright.runtime.program import Resources

#: The line that installs what is missing.
INSTALL = "python -m pip install 'tilewright[cuda]'"


@dataclass(frozen=True)
class Cubin:
    """Machine code for one architecture.

    Attributes
    ----------
    data : the ELF file.
    arch : "sm_90a" and the like.
    log : what the compiler said.
    resources : by kernel name; registers, and shared memory, spills and stack in bytes.
    """

    data: bytes
    arch: str
    log: str = ""
    resources: Mapping[str, Resources] = field(default_factory=dict)


def load_nvrtc() -> Any:
    """The module ``cuda.bindings.nvrtc``; raises :class:`TargetError` where it is missing."""
    try:
        from cuda.bindings import nvrtc
    except ImportError as error:
        raise TargetError(
            f"compiling for CUDA needs cuda-bindings ({error}): {INSTALL}. The target sim runs "
            "schedules for GPUs without one"
        ) from None
    try:
        nvrtc.nvrtcVersion()
    except RuntimeError as error:
        first = str(error).strip().splitlines()[0]
        raise TargetError(f"compiling for CUDA needs NVRTC ({first}): {INSTALL}") from None
    return nvrtc


@cache
def version() -> str:
    """NVRTC's version, "13.0.88" of a wheel; without loading it where there is one."""
    try:
        return importlib.metadata.version("nvidia-cuda-nvrtc")
    except importlib.metadata.PackageNotFoundError:
        _, major, minor = load_nvrtc().nvrtcVersion()
        return f"{major}.{minor}"


@cache
def include_folders() -> tuple[str, ...]:
    """Folders with CUDA's headers: of the runtime's wheel, else of a toolkit."""
    candidates = [Path(p) / "nvidia" / "cu13" / "include" for p in sys.path]
    candidates += [Path(p) / "nvidia" / "cuda_runtime" / "include" for p in sys.path]
    for name in ("CUDA_HOME", "CUDA_PATH"):
        if os.environ.get(name):
            candidates.append(Path(os.environ[name]) / "include")
    candidates.append(Path("/usr/local/cuda/include"))
    found = next((p for p in candidates if (p / "cuda_fp16.h").exists()), None)
    return () if found is None else (str(found),)


def compile_cubin(
    source: str, arch: str, *, fmad: bool = True, options: tuple[str, ...] = ()
) -> Cubin:
    """Compile CUDA C++.

    Parameters
    ----------
    source : one translation unit.
    arch : "sm_80", "sm_90a", "sm_120" and the like; sm_75 and newer.
    fmad : whether a product and a sum may become one fused instruction.
    options : more of NVRTC's options.

    Raises :class:`TargetError`, with the source's lines, where it does not compile, and where
    NVRTC or the headers that the source includes are missing.
    """
    nvrtc = load_nvrtc()
    folders = include_folders()
    if "#include" in source and not folders:
        raise TargetError(
            "cuda_fp16.h was not found: python -m pip install 'nvidia-cuda-runtime==13.0.*', or "
            "set CUDA_HOME"
        )
    flags = [
        f"--gpu-architecture={arch}",
        "--std=c++17",
        "--no-cache",  # what NVRTC itself has kept comes without the log that holds the resources
        "--ptxas-options=-v",
        f"--fmad={'true' if fmad else 'false'}",
        *(f"--include-path={folder}" for folder in folders),
        *options,
    ]
    program = _checked(nvrtc, nvrtc.nvrtcCreateProgram(source.encode(), b"kernel.cu", 0, [], []))
    try:
        # Few texts name what NVRTC declares beside the language, as textures; else it need not.
        for all_flags in ([*flags, "--minimal"], flags):
            given = [f.encode() for f in all_flags]
            status = nvrtc.nvrtcCompileProgram(program, len(given), given)[0]
            if int(status) == 0:
                break
        # NVRTC installs the handler again, so that waits, as those of locks, go on after Ctrl-C.
        if hasattr(signal, "siginterrupt"):  # Windows has none
            signal.siginterrupt(signal.SIGINT, True)
        log = _text(nvrtc, nvrtc.nvrtcGetProgramLogSize, nvrtc.nvrtcGetProgramLog, program).decode()
        if int(status) != 0:
            raise TargetError(_explain(status.name, arch, log, source))
        data = _text(nvrtc, nvrtc.nvrtcGetCUBINSize, nvrtc.nvrtcGetCUBIN, program, False)
    finally:
        nvrtc.nvrtcDestroyProgram(program)
    return Cubin(data, arch, log, parse_resources(log))


#: Seconds after which a wait for NVRTC sees a signal.
_PATIENCE = 0.1
#: Seconds that the end of a process waits for it at most.
_LONGEST = 10.0
#: What is compiled at the moment.
_under_way: set[Future[Cubin]] = set()
if hasattr(os, "register_at_fork"):  # the child has none of the threads that compile
    os.register_at_fork(after_in_child=_under_way.clear)


@atexit.register
def _await() -> None:
    """A process that ends while NVRTC compiles, as after a proof that failed, crashes in it."""
    wait(set(_under_way), _LONGEST)


def compile_all(texts: Sequence[str], arch: str) -> list[Cubin]:
    """Machine code of each text, compiled side by side."""
    begun = [begin(text, arch) for text in texts]
    return [compiled() for compiled in begun]


def begin(text: str, arch: str) -> Callable[[], Cubin]:
    """What returns the machine code, or raises why there is none: NVRTC, which holds no lock of
    Python, compiles in a thread, unless none can begin, as while the interpreter ends. Nothing
    waits for that thread but the call of what is returned, which Ctrl-C ends, and the process."""
    # Before: of two threads that import, the one that Ctrl-C ends may keep the lock of imports.
    load_nvrtc()
    found: Future[Cubin] = Future()

    def run() -> None:
        try:
            found.set_result(compile_cubin(text, arch))
        except BaseException as error:
            found.set_exception(error)
        _under_way.discard(found)

    _under_way.add(found)
    try:
        threading.Thread(target=run, name="tilewright-nvrtc", daemon=True).start()
    except RuntimeError:
        _under_way.discard(found)
        return partial(compile_cubin, text, arch)

    def compiled() -> Cubin:
        # By turns: as long as NVRTC compiles, a signal does not end a wait.
        while not wait([found], _PATIENCE).done:
            pass
        return found.result()

    return compiled


def _checked(nvrtc: Any, result: Any) -> Any:
    status, *values = result
    if int(status) != 0:
        raise TargetError(f"NVRTC: {nvrtc.nvrtcGetErrorString(status)[1].decode()}")
    return values[0] if values else None


def _text(nvrtc: Any, size: Any, read: Any, program: Any, terminated: bool = True) -> bytes:
    count = _checked(nvrtc, size(program))
    # NVRTC writes into the object: two bytes at least, since Python shares those of one byte
    buffer = bytes(max(count, 1) + 1)
    _checked(nvrtc, read(program, buffer))
    return buffer[:count].rstrip(b"\0") if terminated else buffer[:count]


def _explain(status: str, arch: str, log: str, source: str) -> str:
    if "INVALID_OPTION" in status or "invalid value for --gpu-architecture" in log:
        return (
            f"NVRTC {version()} cannot compile for {arch}: it knows sm_75 to sm_121. {log.strip()}"
        )
    wanted = {int(n) for n in re.findall(r"kernel\.cu\((\d+)\)", log)}
    lines = source.splitlines()
    shown = [
        f"{n + 1:5d}{'>' if n + 1 in wanted else ' '} {line}"
        for n, line in enumerate(lines)
        if len(lines) <= 60 or any(abs(n + 1 - w) <= 3 for w in wanted)
    ]
    listing = "\n".join(shown)
    return f"the CUDA source does not compile for {arch}:\n{log.strip()}\n{listing}"


_ENTRY = re.compile(r"Compiling entry function '(\S+)' for")
_STACK = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
_USED = re.compile(r"Used (\d+) registers")
_SHARED = re.compile(r"(\d+) bytes smem")


def parse_resources(log: str) -> dict[str, Resources]:
    """What each kernel takes, from the log of ``ptxas -v``.

    >>> parse_resources(
    ...     "ptxas info    : Compiling entry function 'k' for 'sm_90a'\\n"
    ...     "ptxas info    : Function properties for k\\n"
    ...     "    8 bytes stack frame, 4 bytes spill stores, 12 bytes spill loads\\n"
    ...     "ptxas info    : Used 24 registers, used 1 barriers, 512 bytes smem\\n"
    ... )
    {'k': Resources(registers=24, shared_memory=512, spills=16, stack=8)}
    """
    found: dict[str, Resources] = {}
    name, stack, spills = "", 0, 0
    for line in log.splitlines():
        if entry := _ENTRY.search(line):
            name, stack, spills = entry[1], 0, 0
        elif frame := _STACK.search(line):
            stack, spills = int(frame[1]), int(frame[2]) + int(frame[3])
        elif (used := _USED.search(line)) and name:
            shared = _SHARED.search(line)
            found[name] = Resources(int(used[1]), int(shared[1]) if shared else 0, spills, stack)
    return found
