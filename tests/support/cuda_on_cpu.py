"""Running the text of CUDA kernels on the CPU, by a C++ compiler and a header that stands in."""

from __future__ import annotations

import ctypes
import functools
import re
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tilewright.codegen.arguments import variables
from tilewright.codegen.cuda_export import cuda_file, launcher_name
from tilewright.ir import Module
from tilewright.target import Target

COMPILER = shutil.which("g++") or shutil.which("c++")
_HEADER = Path(__file__).with_name("cuda_on_cpu.h")
_LAUNCH = re.compile(r"(\w+)<<<(dim3\([^;]*?\)), (dim3\([^;]*?\)), (\d+), stream>>>\(")


def aligned(a: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """A copy that starts at a multiple of 16 bytes."""
    buffer = np.zeros(a.nbytes + 16, "uint8")
    start = -buffer.ctypes.data % 16
    made = buffer[start : start + a.nbytes].view(a.dtype).reshape(a.shape)
    made[...] = a
    return made


#: C++ without optimising, which takes a compiler less time than kernels of tests take to run.
_FLAGS = ("-std=c++20", "-O0", "-w", "-fPIC", "-pthread", "-ffp-contract=off")


@functools.cache
def _folder() -> tempfile.TemporaryDirectory[str]:
    """A folder with the header, translated once for all kernels, where compilers look for it."""
    folder = tempfile.TemporaryDirectory(prefix="cuda-on-cpu-", ignore_cleanup_errors=True)
    header = shutil.copy(_HEADER, folder.name)
    made = f"{header}.gch"
    subprocess.run([COMPILER, *_FLAGS, "-x", "c++-header", header, "-o", made], check=False)
    return folder


def run(
    module: Module,
    arrays: Sequence[np.ndarray[Any, Any]],
    extents: Mapping[str, int],
    folder: Path,
) -> int:
    """Run the exported file of ``module`` on host arrays; the error code that it returns."""
    text = cuda_file(module, Target.parse("cuda -arch=sm_90a"))
    text = re.sub(r"#include <cuda\w*\.h>\n", "", text)
    text = text.replace("extern __shared__", "extern")
    text = _LAUNCH.sub(r"launch(\1, \2, \3, \4, stream, ", text)
    source, library = folder / "kernel.cc", folder / "kernel.so"
    source.write_text(text)
    assert COMPILER is not None
    command = [COMPILER, *_FLAGS, "-shared", "-include", f"{_folder().name}/{_HEADER.name}"]
    command += [str(source), "-o", str(library)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{done.stderr[:3000]}\n{text}"
    function = getattr(ctypes.CDLL(str(library)), launcher_name(module))
    pointers = [ctypes.c_void_p(a.ctypes.data) for a in arrays]
    scalars = [ctypes.c_int64(extents[v.name]) for v in variables(module)]
    return int(function(*pointers, *scalars, None))
