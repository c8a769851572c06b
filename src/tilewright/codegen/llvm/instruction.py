"""Declared instructions in LLVM IR.

An instruction writes itself through llvmlite's builder, into a function of its own over the
pointers of its operands and those strides that are not constant. That module is linked with ours
and the function always inlined.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tilewright.codegen.llvm.builder import Value, constant
from tilewright.ir import stmt as S

if TYPE_CHECKING:
    from tilewright.codegen.llvm.stmt import Statements


def write(w: Statements, s: S.Instr) -> bool:
    """Call the instruction; False where it has no form for this processor."""
    declared = s.instruction
    lacks = getattr(declared, "lacks", None)
    if lacks is None or lacks("llvm", features=w.features):
        return False
    from llvmlite import ir

    from tilewright.target.instruction import views

    operands = views(s)
    i64 = ir.IntType(64)
    arguments: list[Value] = []
    strides: list[list[int | Value]] = []
    for operand in operands:
        element = w.types.memory(operand.buffer.dtype)
        offset = w.offset(operand.buffer, operand.indices)
        arguments.append(w.b.element(element, w.pointer(operand.buffer), offset))
        held = [w.index(stride) for stride in operand.strides]
        known = [constant(value) for value in held]
        strides.append([v if k is None else k for k, v in zip(known, held, strict=True)])
    symbolic = [v for row in strides for v in row if isinstance(v, Value)]
    name = f"instruction.{len(w.sources)}"
    module = ir.Module(name)
    pointers = [_pointer_type(ir, w, o.buffer.dtype) for o in operands]
    kind = ir.FunctionType(ir.VoidType(), [*pointers, *[i64] * len(symbolic)])
    function = ir.Function(module, kind, name)
    function.attributes.add("alwaysinline")
    builder = ir.IRBuilder(function.append_basic_block("entry"))
    given = iter(function.args[len(operands) :])
    rows: list[list[Any]] = [
        [next(given) if isinstance(v, Value) else v for v in row] for row in strides
    ]
    if not declared.emit_llvm(builder, function.args[: len(operands)], rows):
        return False
    if not builder.block.is_terminated:
        builder.ret_void()
    w.sources.append(str(module))
    w.b.call("void", name, [*arguments, *symbolic])
    return True


def _pointer_type(ir: Any, w: Statements, t: Any) -> Any:
    kinds = {"float": ir.FloatType, "double": ir.DoubleType, "half": ir.HalfType}
    name = w.types.memory(t)
    element = kinds[name]() if name in kinds else ir.IntType(int(name[1:]))
    return element.as_pointer()
