"""``tvm.contrib.cc`` and ``tvm.contrib.clang``: compilers of C that stand on the machine."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tilewright.ir.errors import TilewrightError
from tilewright.tvm.machines import load_module


def _call(command: Sequence[str]) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError as error:
        raise TilewrightError(f"{command[0]} cannot be run: {error}") from None
    if done.returncode:
        raise TilewrightError(f"{' '.join(command)} failed:\n{done.stdout}{done.stderr}")


def create_shared(
    output: str, objects: Any, options: Sequence[str] | None = None, cc: str | None = None
) -> None:
    """A shared library of object files, by the compiler ``cc``, gcc by default.

    A saved kernel stands alone: of one, this is a copy, which ``tvm.runtime.load_module`` reads.
    Raises :class:`TilewrightError` where the compiler does.
    """
    given = [objects] if isinstance(objects, (str, os.PathLike)) else list(objects)
    if len(given) == 1 and _is_kernel(given[0]):
        shutil.copyfile(given[0], output)
        return
    _call([cc or "gcc", "-shared", "-fPIC", "-o", output, *map(str, given), *(options or ())])


def _is_kernel(path: Any) -> bool:
    try:
        load_module(str(path))
    except TilewrightError:
        return False
    return True


def create_llvm(
    inputs: Any, output: str | None = None, options: Sequence[str] | None = None,
    cc: str | None = None,
) -> str:  # fmt: skip
    """LLVM IR of C code or of a file of it, by clang; also written to ``output``.

    Raises :class:`TilewrightError` where clang is not installed, or refuses the code.
    """
    compiler = cc or shutil.which("clang")
    if compiler is None:
        raise TilewrightError("clang.create_llvm: clang is not found: install it, or give cc=PATH")
    with tempfile.TemporaryDirectory() as folder:
        files = []
        for k, code in enumerate([inputs] if isinstance(inputs, str) else inputs):
            path = Path(code) if code.endswith((".c", ".cc", ".cpp")) else Path(folder, f"{k}.cc")
            if path.parent == Path(folder):
                path.write_text(code)
            files.append(str(path))
        made = output or str(Path(folder, "made.ll"))
        _call([compiler, "-S", "-emit-llvm", *(options or ()), "-o", made, *files])
        return Path(made).read_text()
