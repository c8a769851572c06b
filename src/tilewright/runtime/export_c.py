"""Kernels as source files that need nothing of Tilewright's."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from tilewright.ir.errors import TargetError
from tilewright.runtime.files import check_writable

if TYPE_CHECKING:
    from tilewright.runtime.kernel import Kernel


def export_c(kernel: Kernel, path: Path) -> None:
    """Write ``kernel`` to ``path``: C99 for llvm, CUDA C++ with its host launcher for cuda.

    The file begins with a comment that says how to compile it, and its last function is the kernel.
    Beside ``x.c`` or ``x.cu``, a header ``x.h`` declares that function for C and C++.

    Raises :class:`TargetError` for opencl and sim, :class:`FileError` where there is no such
    folder, or it cannot be written to.
    """
    check_writable(path)
    kind = kernel.target.kind
    if kind == "llvm":
        from tilewright.codegen.c import c_header, c_source

        text = c_source(kernel.module)
        path.with_suffix(".h").write_text(c_header(kernel.module))
    elif kind == "cuda":
        from tilewright.codegen import cuda_export
        from tilewright.codegen.registers import Registers
        from tilewright.runtime.cuda import CudaProgram

        told = kernel.program.told if isinstance(kernel.program, CudaProgram) else Registers()
        text = cuda_export.cuda_file(kernel.module, kernel.target, told)
        path.with_suffix(".h").write_text(cuda_export.cuda_header(kernel.module))
    else:
        raise TargetError(
            f"there is no export of a kernel for {kind}: build it for llvm (C) or cuda (CUDA C++); "
            "kernel.source is the text of its kernels"
        )
    path.write_text(text)
