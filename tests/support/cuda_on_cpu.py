"""Running the text of CUDA kernels on the CPU, by a C++ compiler and a header that stands in."""

from __future__ import annotations

import ctypes
import re
import shutil
import subprocess
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
    command = [COMPILER, "-std=c++20", "-O0", "-w", "-fPIC", "-shared", "-pthread"]
    command += ["-ffp-contract=off", "-include", str(_HEADER), str(source), "-o", str(library)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{done.stderr[:3000]}\n{text}"
    function = getattr(ctypes.CDLL(str(library)), launcher_name(module))
    pointers = [ctypes.c_void_p(a.ctypes.data) for a in arrays]
    scalars = [ctypes.c_int64(extents[v.name]) for v in variables(module)]
    return int(function(*pointers, *scalars, None))
