"""Machine code with tiles of AMX on a processor that has none, one instruction at a time."""

from __future__ import annotations

import ctypes
import platform
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from tilewright.codegen.llvm.module import generate
from tilewright.lower.pipeline import lower
from tilewright.runtime.kernel import Kernel
from tilewright.runtime.llvm import LLVMProgram
from tilewright.runtime.llvm_host import compile_object, host_features, processor
from tilewright.runtime.signature import outputs
from tilewright.schedule import Schedule
from tilewright.target import Target

_TILES = frozenset(("amx-tile", "amx-bf16", "amx-int8"))
#: What is counted, in the order of the emulator.
_KINDS = ("configured", "released", "cleared", "loaded", "stored", "multiplied")
_COMPILER = shutil.which("gcc") or shutil.which("cc")

emulates = pytest.mark.skipif(
    platform.system() != "Linux" or platform.machine() != "x86_64" or _COMPILER is None,
    reason="illegal instructions are caught on Linux on x86-64, by what a C compiler makes",
)


def has_tiles() -> bool:
    """Whether this processor needs no emulator."""
    return host_features() >= _TILES


@cache
def _library() -> Any:
    source = Path(__file__).with_suffix(".c")
    with TemporaryDirectory() as folder:
        made = Path(folder) / "emulator.so"
        # Nothing wider than SSE, which the trap saves: the program's registers stay as they are.
        command = [str(_COMPILER), "-O2", "-shared", "-fPIC", "-ffp-contract=off"]
        subprocess.run([*command, str(source), "-o", str(made)], check=True)
        return ctypes.CDLL(str(made))


def with_tiles(s: Schedule, args: Sequence[Any]) -> Kernel:
    """A kernel of one thread for this processor, as if it had tiles."""
    here = processor("")
    features = here.features | _TILES
    flags = ",".join(f"+{name}" for name in sorted(features))
    cpu = replace(here, flags=flags, features=features)
    module = lower(s, args)
    code = generate(module, 1, cpu.features, cpu.vector_bits)
    target = Target.parse("llvm -threads=1")
    return Kernel(LLVMProgram(module, target, code, compile_object(code, cpu)), outputs(module))


@contextmanager
def emulated() -> Iterator[dict[str, int]]:
    """Tiles work in this thread; afterwards holds how many instructions of each kind there were.

    An instruction that would fault on a processor that has tiles ends the process.
    """
    found: dict[str, int] = {}
    if has_tiles():
        yield found
        return
    library, counts = _library(), (ctypes.c_long * len(_KINDS))()
    library.install()
    try:
        yield found
    finally:
        left = library.removed(counts)
        found.update(zip(_KINDS, counts), left=left)
