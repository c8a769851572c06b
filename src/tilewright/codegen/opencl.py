"""A module as OpenCL C."""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.codegen.c_like import CLikePrinter, Printed
from tilewright.codegen.c_like_text import Names
from tilewright.codegen.opencl_dialect import OpenCLDialect, prelude
from tilewright.ir.buffer import Buffer
from tilewright.ir.func import Module
from tilewright.ir.stmt import Sync
from tilewright.ir.visit import statements
from tilewright.lower.pipeline import for_backend


@dataclass(frozen=True)
class Source:
    """The text of a module's kernels, and by position in the module their symbols."""

    text: str
    kernels: tuple[Printed, ...]


def generate(
    module: Module, half: bool = False, warp_size: int = 1, aligned: bool = False
) -> Source:
    """OpenCL C 1.2 for all kernels of ``module``.

    Parameters
    ----------
    half : whether the device computes in float16 (cl_khr_fp16).
    warp_size : threads in step with each other.
    aligned : whether arrays begin where vectors of their elements may, as memory that a device
        other than the host hands out does.

    Raises :class:`tilewright.ir.errors.TargetError` where OpenCL cannot say what the program says.

    >>> from tilewright import ir
    >>> from tilewright.ir.expr import Var
    >>> from tilewright.ir.ops import const
    >>> from tilewright.ir.stmt import Store
    >>> i = Var.make("i")
    >>> A = ir.Buffer("A", (const(256),), ir.dtype("float32"))
    >>> B = ir.Buffer("B", (const(256),), ir.dtype("float32"))
    >>> body = Store(B, (i,), A[i] * 2.0)
    >>> launch = (ir.LaunchAxis("threadIdx.x", i, const(256)),)
    >>> print(generate(ir.Module("m", (A, B), (ir.Func("twice", (A, B), body, launch),))).text)
    __kernel __attribute__((reqd_work_group_size(256, 1, 1))) void twice(
        __global const float* restrict A,
        __global float* restrict B) {
      const int i = (int)get_local_id(0);
      B[i] = A[i] * 2.0f;
    }
    <BLANKLINE>
    """
    dialect = OpenCLDialect(half, aligned)
    symbols = Names(dialect.reserved)
    kernels, workspaces = [], set(module.workspaces)
    for func in module.funcs:
        printer, flat = CLikePrinter(dialect, warp_size), for_backend(func, dialect.kind)
        pairs = zip(func.params, flat.params, strict=True)
        dialect.holds_barrier = any(isinstance(s, Sync) for s in statements(flat.body))
        dialect.own = {b for a, b in pairs if isinstance(b, Buffer) and a in workspaces}
        kernels.append(printer.function(flat, symbols.fresh(func.name)))
    body = "\n".join(kernel.text for kernel in kernels)
    return Source(prelude(dialect.needs) + body, tuple(kernels))
