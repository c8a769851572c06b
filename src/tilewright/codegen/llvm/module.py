"""Modules as LLVM IR, with one function for the host to call.

``i32 entry(ptr arrays, ptr scalars)``: addresses of the buffers of ``module.params``, and the
symbolic extents as i64, in the order of :func:`tilewright.codegen.arguments.variables`. It returns
0, or 1 where memory ran out.
"""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.codegen.arguments import variables
from tilewright.codegen.llvm.builder import Builder, Value
from tilewright.codegen.llvm.generated import ENTRY, Generated
from tilewright.codegen.llvm.stmt import Statements, wants_facts
from tilewright.codegen.llvm.sums import I64
from tilewright.codegen.llvm.types import Types
from tilewright.ir.buffer import Buffer
from tilewright.ir.errors import TargetError
from tilewright.ir.expr import Var
from tilewright.ir.func import Func, Module
from tilewright.lower.context import bind_extents
from tilewright.lower.pipeline import for_backend


def generate(
    module: Module, threads: int = 0, features: frozenset[str] = frozenset(), vector_bits: int = 0
) -> Generated:
    """Write ``module`` as LLVM IR.

    Parameters
    ----------
    threads : how many threads PARALLEL loops use; 0 leaves it to the pool, 1 uses none.
    features : what the processor has, in LLVM's names.
    vector_bits : the width of vectors that LLVM is to prefer, 0 for its own choice.
    """
    builder = Builder()
    native_half = "f16c" in features or "neon" in features or "fullfp16" in features
    rounds = {"avx512bf16", "avx512dq"} <= features
    writer = Statements(builder, Types(native_half, rounds), threads, features)
    for func in module.funcs:
        _function(writer, for_backend(func, "llvm", vector_bytes=_vector_bytes(features)))
    _entry(writer, module)
    prefer = f' "prefer-vector-width"="{vector_bits}"' if vector_bits else ""
    text = f"{builder.text()}\nattributes #0 = {{ nounwind{prefer} }}\n"
    return Generated(text, tuple(writer.sources), tuple(sorted(builder.symbols)))


def _vector_bytes(features: frozenset[str]) -> int:
    """The width of the processor's vectors."""
    if "avx512vl" in features:
        return 64
    return 32 if "avx2" in features else 16


def _function(w: Statements, func: Func) -> None:
    if func.launch:
        raise TargetError(
            f"kernel {func.name} is launched over {func.launch[0].tag}, which a CPU does not have: "
            "use parallel, or build for a GPU or for sim"
        )
    w.reasons = wants_facts(func.body)
    w.variables, w.pointers = {}, {}
    params = []
    bind_extents(w.analyzer, func.params)
    for k, p in enumerate(func.params):
        if isinstance(p, Var):
            w.variables[p] = Value(I64, f"%a{k}")
            params.append(f"i64 %a{k}")
        else:
            w.pointers[p] = Value("ptr", f"%a{k}")
            params.append(f"ptr noalias{_promises(p)} %a{k}")
    # Not copied into the entry, where LLVM would optimise all of it a second time.
    head = f"define internal i32 @{_symbol(func)}({', '.join(params)}) noinline #0"
    w.function(head, lambda: w.stmt(func.body))


def _promises(buffer: Buffer) -> str:
    """What is known about a parameter: it may be read everywhere, and how it is aligned."""
    text = f" align {max(buffer.align, buffer.dtype.bytes)}"
    shape = buffer.constant_shape
    if shape is not None and buffer.layout is None and 0 not in shape:
        size = buffer.dtype.bytes
        for extent in shape:
            size *= extent
        text += f" dereferenceable({size})"
    return text


def _symbol(func: Func) -> str:
    return f'"f.{func.name}"'


def _entry(w: Statements, module: Module) -> None:
    def body() -> None:
        b = w.b
        w.variables, w.pointers = {}, {}
        for k, v in enumerate(variables(module)):
            at = b.element(I64, Value("ptr", "%scalars"), Value(I64, str(k)))
            w.variables[v] = b.op(I64, f"load i64, {at}")
        buffers = [p for p in module.params if isinstance(p, Buffer)]
        for k, buffer in enumerate(buffers):
            at = b.element("ptr", Value("ptr", "%arrays"), Value(I64, str(k)))
            w.pointers[buffer] = b.op("ptr", f"load ptr, {at}")
        _calls(w, module)

    w.function(f"define i32 @{ENTRY}(ptr %arrays, ptr %scalars) #0", body)


def _calls(w: Statements, module: Module) -> None:
    """The functions one after the other, with the workspaces alive around them."""
    b, taken = w.b, []
    for buffer in module.workspaces:
        size = w.arithmetic("mul", w.index(buffer.size), Value(I64, str(buffer.dtype.bytes)))
        pointer = b.call("ptr", "tw_alloc", [size], external=True)
        w.fail_if(b.compare("icmp eq", pointer, Value("ptr", "null")))
        w.pointers[buffer] = pointer
        taken.append(pointer)
    for func in module.funcs:
        args = _arguments(w, func.params)
        status = b.op("i32", f"call i32 @{_symbol(func)}({', '.join(map(str, args))})")
        w.fail_if(b.compare("icmp ne", status, Value("i32", "0")))
    for pointer in taken:
        b.call("void", "tw_free", [pointer], external=True)


def _arguments(w: Statements, params: Sequence[Buffer | Var]) -> list[Value]:
    return [w.variables[p] if isinstance(p, Var) else w.pointers[p] for p in params]
