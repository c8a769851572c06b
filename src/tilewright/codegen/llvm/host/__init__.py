"""C functions beside compiled programs, as LLVM IR: scratch memory, threads, launches.

The LLVM IR of each C file here stands beside it and is what the package uses: a C compiler is not
needed. :mod:`tilewright.codegen.llvm.host.renew` writes it again after a change. It names no
machine, so one text serves all 64-bit ones, and every version of LLVM from llvmlite's first on.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from tilewright.codegen.llvm.generated import Generated

FOLDER = Path(__file__).parent
#: What launches the kernels of a call.
LAUNCH = ("launch",)
#: By machine, the instruction of a thread that waits for another one.
_PAUSE = {"x86_64": "pause", "amd64": "pause", "aarch64": "yield", "arm64": "yield"}


def pool(posix: bool) -> tuple[str, ...]:
    """The files of the thread pool and the scratch memory, for the threads of a system."""
    return ("loops", "heap", *(("threads", "openmp") if posix else ("no_threads",)))


def linked(names: Sequence[str], machine: str) -> Generated:
    """Files as one program for a machine ("x86_64")."""
    first, *others = ((FOLDER / f"{name}.ll").read_text() for name in names)
    pause = f'call void asm sideeffect "{_PAUSE.get(machine, "")}", "~{{memory}}"()'
    others.append(f"define void @tw_pause() {{\n  {pause}\n  ret void\n}}\n")
    return Generated(first, tuple(others), plain=True)


def imports(code: Generated) -> list[str]:
    """The functions that a program calls and does not define: those of C libraries."""
    text = "\n".join((code.text, *code.linked))
    found = {
        kind: set(re.findall(rf"^{kind} [^@\n]*@([\w.]+)\(", text, re.MULTILINE))
        for kind in ("declare", "define")
    }
    names = found["declare"] - found["define"]
    return sorted(name for name in names if not name.startswith("llvm."))
