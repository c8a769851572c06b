"""A module as CUDA C++."""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.codegen.c_like import CLikePrinter, Printed
from tilewright.codegen.c_like_text import Names
from tilewright.codegen.cuda_dialect import CudaDialect
from tilewright.codegen.cuda_prelude import prelude
from tilewright.codegen.registers import Registers
from tilewright.ir.func import Func, Module
from tilewright.lower.pipeline import for_backend


@dataclass(frozen=True)
class Source:
    """The text of a module's kernels.

    Attributes
    ----------
    text : one translation unit.
    kernels : by the position of the kernel in the module, its symbol and dynamic shared memory.
    aligned : whether the text needs arguments at multiples of 16 bytes.
    registers : as it was given to :func:`generate`.
    flat : the kernels over flat buffers, as they were written.
    """

    text: str
    kernels: tuple[Printed, ...]
    aligned: bool
    registers: Registers
    flat: tuple[Func, ...]


def generate(
    module: Module,
    arch: str = "",
    aligned: bool = True,
    launcher: str = "",
    flat: tuple[Func, ...] | None = None,
    registers: Registers = Registers(),
) -> Source:
    """CUDA C++ for all kernels of ``module``.

    Parameters
    ----------
    arch : the architecture it is for ("sm_90a"), where instructions depend on it.
    aligned : whether arguments may be taken to lie at multiples of 16 bytes, so that several
        neighbouring elements can be moved by one access.
    launcher : the name of a function that goes with the kernels; none is called so.
    flat : :attr:`Source.flat` of the module, where it has been written before.
    registers : what the compiler receives about them.

    Raises :class:`tilewright.ir.errors.TargetError` where CUDA cannot say what the program says.

    >>> from tilewright import ir
    >>> from tilewright.ir.expr import Var
    >>> from tilewright.ir.ops import const
    >>> from tilewright.ir.stmt import Store
    >>> i, one = Var.make("i"), const(1)
    >>> A = ir.Buffer("A", (const(256),), ir.dtype("float32"))
    >>> B = ir.Buffer("B", (const(256),), ir.dtype("float32"))
    >>> body = Store(B, (i,), A[i] * 2.0)
    >>> launch = (ir.LaunchAxis("threadIdx.x", i, const(256)),)
    >>> print(generate(ir.Module("m", (A, B), (ir.Func("double", (A, B), body, launch),))).text)
    extern "C" __global__ void __launch_bounds__(256) double_1(
        const float* __restrict__ A,
        float* __restrict__ B) {
      const int i = (int)threadIdx.x;
      B[i] = A[i] * 2.0f;
    }
    <BLANKLINE>
    """
    dialect = CudaDialect(arch, aligned, registers)
    symbols = Names((*dialect.reserved, launcher))
    if flat is None:
        flat = tuple(for_backend(func, dialect.kind, arch) for func in module.funcs)
    kernels = []
    for func in flat:
        printer = CLikePrinter(dialect, alone=len(flat) == 1)
        kernels.append(printer.function(func, symbols.fresh(_symbol(func.name, launcher))))
    body = "\n".join(kernel.text for kernel in kernels)
    text = prelude(dialect.needs, registers.own, alone=not launcher) + body
    return Source(text, tuple(kernels), dialect.wide_params, registers, flat)


def _symbol(name: str, launcher: str) -> str:
    return f"{name}_kernel" if name == launcher else name
