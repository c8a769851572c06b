"""Machine code of NVIDIA's GPUs as text; needs no GPU."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path

from tilewright.ir.errors import TargetError

INSTALL = "python -m pip install 'tilewright[sass]'"


@cache
def _tool(name: str) -> str | None:
    for folder in sys.path:
        for place in (
            f"nvidia/cu13/bin/{name}",
            f"nvidia/{name.replace('nv', 'cuda_nv')}/bin/{name}",
        ):
            path = Path(folder) / place
            if path.exists():
                return str(path)
    return shutil.which(name) or shutil.which(f"/usr/local/cuda/bin/{name}")


def disassemble(cubin: bytes) -> str:
    """The instructions (SASS) of a cubin.

    Uses nvdisasm, else cuobjdump, of NVIDIA's wheels or of a toolkit on the PATH. Raises
    :class:`TargetError` where there is neither.
    """
    nvdisasm, cuobjdump = _tool("nvdisasm"), _tool("cuobjdump")
    if nvdisasm is None and cuobjdump is None:
        raise TargetError(f"showing SASS needs nvdisasm or cuobjdump: {INSTALL}")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "kernel.cubin"
        path.write_bytes(cubin)
        if nvdisasm is not None:
            command = [nvdisasm, "--print-code", str(path)]
        else:
            assert cuobjdump is not None
            command = [cuobjdump, "--dump-sass", str(path)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise TargetError(f"{Path(command[0]).name} failed: {done.stderr.strip()}")
    return done.stdout


def opcodes(sass: str) -> dict[str, int]:
    """How often each instruction occurs, modifiers included: ``{"LDG.E.128.CONSTANT": 2, ...}``.

    >>> opcodes("  /*0000*/  LDC R1, c[0x0][0x28] ;\\n  /*0010*/  @P0 EXIT ;")
    {'LDC': 1, 'EXIT': 1}
    """
    found: dict[str, int] = {}
    for match in re.finditer(r"/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+\s+)?([A-Z][\w.]*)", sass):
        found[match[1]] = found.get(match[1], 0) + 1
    return found
