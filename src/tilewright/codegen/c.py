"""A module as one file of C99 that needs nothing but libc and libm."""

from __future__ import annotations

import math

from tilewright.codegen.arguments import outputs, variables
from tilewright.codegen.c_dialect import CDialect, prelude
from tilewright.codegen.c_like import CLikePrinter
from tilewright.codegen.c_like_text import MUL, Names, code, infix, sanitized
from tilewright.ir import stmt as S
from tilewright.ir.buffer import Buffer
from tilewright.ir.expr import IntImm, Var
from tilewright.ir.func import Func, Module
from tilewright.ir.visit import Steps, children, statements, symbolic_extents
from tilewright.lower.pipeline import for_backend

#: Elements of a parallel loop, at most, that one thread stores: sharing them takes OpenMP some
#: microseconds, and where other programs run the time that a thread waits for a core.
_FEW = 1 << 13
#: Arrays up to this many bytes are variables; larger ones are malloc'ed.
STACK_BYTES = 32 * 1024


def c_source(module: Module, file: str = "") -> str:
    """The text of a file. Its last function, named as the module, is the only one to be seen.

    >>> from tilewright.lower.ir_builder import *
    >>> (i,) = axes("i")
    >>> A, B = buffer("A", 100), buffer("B", 100)
    >>> from tilewright.ir import Func, Module
    >>> f = Func("f", (A, B), loop(i, 100, store(B[i], A[i] * 2.0)))
    >>> print(c_source(Module("twice", (A, B), (f,))).split("#include <string.h>")[1].strip())
    static void twice_1(
            const float* restrict A,
            float* restrict B) {
      for (int32_t i = 0; i < 100; ++i) {
        B[i] = A[i] * 2.0f;
      }
    }
    <BLANKLINE>
    int twice(
        const float* A, /* float32[100] */
        float* B /* float32[100] */) {
      twice_1(A, B);
      return 0;
    }
    """
    dialect = CDialect()
    entry = sanitized(module.name)
    symbols = Names(dialect.reserved)
    symbols.fresh(entry)
    texts: list[str] = []
    calls: list[str] = []
    names = _names(module)
    for func in module.funcs:
        printer = _Printer(dialect)
        made = printer.function(for_backend(func, "c"), symbols.fresh(f"{entry}_{len(calls) + 1}"))
        texts.append(made.text)
        given = [names[p] for p in func.params] + ["&failed"] * bool(printer.failed)
        calls.append(f"{made.symbol}({', '.join(given)});")
    wrapper = _wrapper(module, dialect, names, calls)
    return f"{_comment(entry, file)}{prelude(dialect.needs)}{''.join(texts)}\n{wrapper}"


def c_header(module: Module, file: str = "", about: str = "") -> str:
    """The declaration of the function that :func:`c_source` defines, and what it takes."""
    entry = sanitized(module.name)
    guard = f"{entry.upper()}_H"
    head = "\n".join(_head(module, CDialect(), _names(module)))
    return (
        f"{_comment(entry, file)}{_usage(module, about)}"
        f"#ifndef {guard}\n#define {guard}\n\n#include <stdint.h>\n\n"
        f'#ifdef __cplusplus\nextern "C" {{\n#endif\n\n{head});\n\n'
        f"#ifdef __cplusplus\n}}\n#endif\n\n#endif\n"
    )


def _comment(entry: str, file: str) -> str:
    return (
        f"/* {entry}: written by Tilewright; needs libc and libm only.\n"
        f"   cc -std=c99 -O3 -march=native -ffp-contract=fast -fopenmp -c {file or f'{entry}.c'}\n"
        "   Arrays are dense, row by row; without -fopenmp it runs in one thread. */\n"
    )


def _usage(module: Module, about: str) -> str:
    """What a caller has to know, as a comment."""
    lines = [
        *describe(module, about),
        "Parallel loops run on OpenMP's threads (OMP_NUM_THREADS). Nothing is kept between calls:",
        "threads may call it at the same time, on outputs of their own. Returns 0, or 1 where",
        "there was no memory: then results are not to be used.",
    ]
    return "/* " + "\n   ".join(lines) + " */\n"


def describe(module: Module, about: str = "", allocated: str = "malloc") -> list[str]:
    """What a kernel computes, its arrays in the order of its parameters, and the memory that it
    takes beside them, line by line."""
    written = set(outputs(module))
    lines = [about.replace("*/", "* /")] if about else []
    for k, p in enumerate(module.params):
        if isinstance(p, Buffer):
            extents = ", ".join(map(repr, p.shape))
            rows = ""
            if p.layout is not None:
                rows = f", not dense: strides {', '.join(map(repr, p.strides))} in elements"
            at = f", at a multiple of {p.align} bytes" if p.align > p.dtype.bytes else ""
            use = "written" if k in written else "read"
            lines.append(f"{p.name}: {p.dtype}[{extents}]{rows}, {use}{at}")
        else:
            lines.append(f"{p.name}: {p.dtype}")
    for w in module.workspaces:
        count, size = w.size, f"{w.size!r}"
        if isinstance(count, IntImm):
            size = f"{count.value * w.dtype.bytes} bytes"
        shape = ", ".join(map(repr, w.shape))
        lines.append(
            f"{w.name}: {w.dtype}[{shape}], made from the operands in each call: {size} by "
            f"{allocated}"
        )
    return lines


def _names(module: Module) -> dict[Buffer | Var, str]:
    """What parameters, extents and workspaces are called in the function that is seen."""
    names = Names(CDialect.reserved)
    names.fresh(sanitized(module.name))
    names.fresh("failed")
    everything = [*module.params, *variables(module), *module.workspaces]
    return {p: names.fresh(p.name) for p in dict.fromkeys(everything)}


def _head(module: Module, dialect: CDialect, names: dict[Buffer | Var, str]) -> list[str]:
    """The declaration, up to its closing parenthesis."""
    written = set(outputs(module))
    params = []
    for k, p in enumerate(module.params):
        if isinstance(p, Buffer):
            const_word = "" if k in written else "const "
            element = dialect.storage_name(p.dtype, "global")
            extents = ", ".join(map(repr, p.shape))
            params.append((f"{const_word}{element}* {names[p]}", f"{p.dtype}[{extents}]"))
        else:
            params.append((f"{dialect.type_name(p.dtype)} {names[p]}", ""))
    scalars = {p for p in module.params if isinstance(p, Var)}
    named = {v for p in module.params if isinstance(p, Buffer) for v in symbolic_extents(p)}
    for v in variables(module):
        if v not in scalars:
            remark = "an extent" if v in named else "a stride, or in an extent"
            params.append((f"{dialect.type_name(v.dtype)} {names[v]}", remark))
    lines = [f"int {sanitized(module.name)}("]
    for k, (text, remark) in enumerate(params):
        comma = "," if k < len(params) - 1 else ""
        lines.append(f"    {text}{comma}" + (f" /* {remark} */" if remark else ""))
    return lines


def _wrapper(
    module: Module, dialect: CDialect, names: dict[Buffer | Var, str], calls: list[str]
) -> str:
    """The function that is seen: workspaces, then each kernel."""
    lines = [*_head(module, dialect, names)]
    lines[-1] += ") {"
    for buffer in module.workspaces:
        printer = _Printer(dialect)
        printer.variables = {v: code(names[v]) for v in variables(module)}
        element = dialect.storage_name(buffer.dtype, "global")
        size = infix(code(f"sizeof({element})"), "*", printer.expr(buffer.size), MUL)
        dialect.require("allocate")
        lines.append(f"  {element}* {names[buffer]} = allocate({size});")
    made = " && ".join(names[buffer] for buffer in module.workspaces)
    fails = bool(made) or any("&failed" in text for text in calls)
    lines += ["  int failed = 0;"] * fails
    lines += [f"  if ({made}) {{"] * bool(made)
    lines += [f"  {'  ' * bool(made)}{text}" for text in calls]
    lines += ["  } else failed = 1;"] * bool(made)
    lines += [f"  free({names[buffer]});" for buffer in module.workspaces]
    return "\n".join([*lines, f"  return {'failed' if fails else 0};", "}"]) + "\n"


def _is_large(buffer: Buffer) -> bool:
    size = buffer.size
    return not isinstance(size, IntImm) or size.value * buffer.dtype.bytes > STACK_BYTES


class _Printer(CLikePrinter):
    """Adds what only a CPU has: threads, and memory of any size. What says that there was none is
    called ``failed``, where there may be none."""

    failed = ""

    def more_parameters(self, func: Func) -> list[str]:
        found = (x.buffer for x in statements(func.body) if isinstance(x, S.Allocate))
        if any(map(_is_large, found)):
            self.failed = self.names.fresh("failed")
        return [f"int* {self.failed}"] * bool(self.failed)

    def _allocate(self, s: S.Allocate) -> Steps:
        buffer, size = s.buffer, s.buffer.size
        if not _is_large(buffer):
            yield super()._allocate(s)
            return
        name = self.names.fresh(buffer.name)
        self.buffers[buffer] = name
        self.dialect.require("allocate")
        element = self.dialect.storage_name(buffer.dtype, buffer.scope)
        count = self.expr(self.analyzer.simplify(size))
        total = infix(code(f"sizeof({element})"), "*", count, MUL)
        self.line(f"{element}* {name} = allocate({total});")
        self.line(f"if (!{name}) {{")
        self.line("#pragma omp atomic write")
        self.line(f"  *{self.failed} = 1;")
        self.line("} else {")
        self.indent += 1
        yield self._steps(s.body)
        self.line(f"free({name});")
        self.indent -= 1
        self.line("}")

    def _loop(self, s: S.For, unroll: bool) -> None:
        if s.kind is S.ForKind.PARALLEL and self._stored(s) > _FEW:
            self.line("#pragma omp parallel for")
        super()._loop(s, unroll)

    def _stored(self, s: S.Stmt) -> float:
        """How many elements it stores at most; infinite where that is not known."""
        match s:
            case S.Store():
                return s.value.dtype.lanes
            case S.For() if (count := self.analyzer.bounds(s.extent).hi) is not None:
                with self.analyzer.scope():
                    self.analyzer.bind(s.var, s.min, s.extent)
                    return max(1, count) * self._stored(s.body)
            case S.Seq() | S.If() | S.Allocate() | S.Let() | S.Remark() | S.Instr():
                return sum(self._stored(x) for x in children(s) if isinstance(x, S.Stmt))
        return math.inf
