"""A module as one CUDA file with a host function that launches its kernels.

The file needs CUDA's toolkit to be compiled and nothing else to run.
"""

from __future__ import annotations

from tilewright.codegen.arguments import variables
from tilewright.codegen.c import describe
from tilewright.codegen.c_like import Printed, written_buffers
from tilewright.codegen.c_like_dialect import Dialect
from tilewright.codegen.c_like_expr import ExpressionPrinter
from tilewright.codegen.c_like_text import KEYWORDS, MUL, code, infix, sanitized, wrapped
from tilewright.codegen.cuda import generate
from tilewright.codegen.cuda_dialect import CudaDialect
from tilewright.codegen.registers import Registers
from tilewright.ir.buffer import Buffer
from tilewright.ir.errors import TargetError
from tilewright.ir.expr import Expr, IntImm
from tilewright.ir.func import Func, Module
from tilewright.ir.ops import const
from tilewright.lower.context import bind_extents
from tilewright.target import Target

_TAGS = ("blockIdx.x", "blockIdx.y", "blockIdx.z"), ("threadIdx.x", "threadIdx.y", "threadIdx.z")


def launcher_name(module: Module) -> str:
    """The name of the launching function: that of the module, where C allows it."""
    name = sanitized(module.name)
    return f"launch_{name}" if name in KEYWORDS else name


def cuda_file(
    module: Module, target: Target, registers: Registers = Registers(), file: str = ""
) -> str:
    """The text of the ``.cu`` file; ``registers`` as in :func:`~tilewright.codegen.cuda.generate`.

    Its last function, named as the module, takes pointers to the device's memory in the order of
    ``module.params``, then the symbolic extents and a stream, and returns CUDA's error code.
    """
    symbol = launcher_name(module)
    made = generate(module, target.arch, launcher=symbol, registers=registers)
    if any(kernel.maps for kernel in made.kernels):
        raise TargetError(
            f"{symbol} copies boxes by tensor maps, which the driver's library makes: "
            "kernel.export(folder) writes a program with it; or copy rows with copy_async"
        )
    arch = target.arch or "native"
    host = _Host(module, symbol, made.kernels, made.aligned)
    head = [
        f"// {symbol}: CUDA kernels and the function that launches them.",
        f"// nvcc -O3 -std=c++17 -arch={arch} -c {file or f'{symbol}.cu'}",
        "#include <cuda_runtime.h>",
        "#include <stdint.h>",
    ]
    return "\n".join(head) + f"\n\n{made.text}\n{host.text()}"


def cuda_header(module: Module, about: str = "") -> str:
    """The text of the header that declares the file's function, for C and C++, and says what it
    takes."""
    symbol = launcher_name(module)
    guard = f"{symbol.upper()}_H"
    host = _Host(module, symbol, (), False)
    signature = host.signature().removeprefix('extern "C" ')
    lines = [
        *describe(module, about, "cudaMallocAsync"),
        "Arrays lie in the device's memory, dense, row by row. The launch does not wait; it keeps",
        "nothing between calls, so that streams and threads may call it at once.",
    ]
    usage = "/* " + "\n   ".join(lines) + " */\n"
    return (
        f"{usage}#ifndef {guard}\n#define {guard}\n#include <cuda_runtime.h>\n#include <stdint.h>\n"
        '#ifdef __cplusplus\nextern "C"\n#endif\n'
        + f"{signature};\n#endif\n".replace("(\n", "(\n    ").replace(",\n", ",\n    ")
    )


class _Host(ExpressionPrinter):
    """Prints the launching function."""

    def __init__(
        self, module: Module, symbol: str, kernels: tuple[Printed, ...], aligned: bool
    ) -> None:
        super().__init__(CudaDialect())
        self.module, self.symbol, self.kernels, self.aligned = module, symbol, kernels, aligned
        for kernel in kernels:
            self.names.fresh(kernel.symbol)
        self.names.fresh(symbol)
        self.params: list[str] = []
        bind_extents(self.analyzer, module.params)
        written = set().union(*(written_buffers(func) for func in module.funcs))
        for p in dict.fromkeys((*module.params, *variables(module))):
            name = self.names.fresh(p.name)
            if isinstance(p, Buffer):
                self.buffers[p] = name
                constant = "" if p in written else "const "
                # as plain C has it, for the header; C has no half
                element = "uint8_t" if p.dtype.is_bool else Dialect.types.get(p.dtype, "void")
                self.params.append(f"{constant}{element}* {name}")
            else:
                self.variables[p] = code(name)
                self.params.append(f"{Dialect.types[p.dtype]} {name}")

    def signature(self) -> str:
        stream = self.names.fresh("stream")
        params = [*self.params, f"cudaStream_t {stream}"]
        return wrapped(f'extern "C" cudaError_t {self.symbol}(', params, ")")

    def text(self) -> str:
        """The function."""
        self.line(f"{self.signature()} {{")
        self.indent = 1
        if self.aligned:
            addresses = " | ".join(f"(size_t){name}" for name in self.buffers.values())
            self.line(f"if (({addresses}) % 16 != 0) return cudaErrorMisalignedAddress;")
        if any(k.dynamic_shared for k in self.kernels) or self.module.workspaces:
            self.line("cudaError_t error;")
        self._allocate()
        for func, kernel in zip(self.module.funcs, self.kernels, strict=True):
            self._launch(func, kernel)
        for w in self.module.workspaces:
            self.line(f"cudaFreeAsync({self.buffers[w]}, stream);")
        self.line("return cudaGetLastError();")
        self.indent = 0
        self.line("}")
        return "\n".join(self.lines) + "\n"

    def _allocate(self) -> None:
        """Workspaces, from the stream's memory pool."""
        for w in self.module.workspaces:
            name = self.buffers[w] = self.names.fresh(w.name)
            nbytes = infix(code(f"(size_t){w.dtype.bytes}"), "*", self.expr(w.size), MUL)
            self.line(f"void* {name} = NULL;")
            self.line(f"error = cudaMallocAsync(&{name}, {nbytes}, stream);")
            self.line("if (error != cudaSuccess) return error;")

    def _launch(self, func: Func, kernel: Printed) -> None:
        grid, block = ([self._extent(func, tag) for tag in tags] for tags in _TAGS)
        if kernel.dynamic_shared:
            self.line(
                f"error = cudaFuncSetAttribute({kernel.symbol}, "
                f"cudaFuncAttributeMaxDynamicSharedMemorySize, {kernel.dynamic_shared});"
            )
            self.line("if (error != cudaSuccess) return error;")
        d = self.dialect
        args: list[str] = []
        written = written_buffers(func)
        for p in func.params:
            if isinstance(p, Buffer):
                constant = "" if p in written else "const "
                element = d.storage_name(p.dtype, "global")
                args.append(f"({constant}{element}*){self.buffers[p]}")
            else:
                args.append(self.variables[p])
        shape = f"dim3({', '.join(map(self.expr, grid))}), dim3({', '.join(map(self.expr, block))})"
        call = wrapped(
            f"{kernel.symbol}<<<{shape}, {kernel.dynamic_shared}, stream>>>(", args, ");"
        )
        varying = [self.expr(g) for g in grid if not isinstance(g, IntImm)]
        if varying:
            self.line(f"if ({' && '.join(f'{g.at(10)} > 0' for g in varying)}) {{")
            self.indent += 1
        self.line(call)
        if varying:
            self.indent -= 1
            self.line("}")

    def _extent(self, func: Func, tag: str) -> Expr:
        found = func.extent(tag)
        return const(1) if found is None else self.analyzer.simplify(found)
