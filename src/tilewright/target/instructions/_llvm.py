"""What the instructions share when they are written through llvmlite."""

from __future__ import annotations

from functools import cache
from typing import Any


def address(builder: Any, pointer: Any, element: Any, *terms: tuple[Any, int]) -> Any:
    """``pointer`` moved by the sum of stride times count, in elements of type ``element``.

    A stride is an int or an integer value of llvmlite.
    """
    from llvmlite import ir

    i64 = ir.IntType(64)
    known = 0
    moved = _typed(builder, pointer, element)
    kind = element if moved.type.is_opaque else None
    for stride, count in terms:
        if isinstance(stride, int):
            known += stride * count
        elif count:
            wide = stride if stride.type == i64 else builder.sext(stride, i64)
            step = builder.mul(wide, ir.Constant(i64, count))
            moved = builder.gep(moved, [step], source_etype=kind)
    if known:
        moved = builder.gep(moved, [ir.Constant(i64, known)], source_etype=kind)
    return moved


def read(builder: Any, pointer: Any, kind: Any, align: int) -> Any:
    """A value of type ``kind`` from memory."""
    return builder.load(_typed(builder, pointer, kind), typ=kind, align=align)


def write(builder: Any, value: Any, pointer: Any, align: int) -> None:
    """``value`` to memory."""
    builder.store(value, _typed(builder, pointer, value.type), align=align)


def _typed(builder: Any, pointer: Any, kind: Any) -> Any:
    """``pointer`` as one to ``kind``, where llvmlite's pointers have types."""
    if pointer.type.is_opaque or pointer.type.pointee == kind:
        return pointer
    return builder.bitcast(pointer, kind.as_pointer(pointer.type.addrspace))


def splat(builder: Any, scalar: Any, lanes: int) -> Any:
    """``scalar`` in every lane of a vector."""
    from llvmlite import ir

    vector = ir.VectorType(scalar.type, lanes)
    first = builder.insert_element(
        ir.Constant(vector, ir.Undefined), scalar, ir.Constant(ir.IntType(32), 0)
    )
    mask = ir.Constant(ir.VectorType(ir.IntType(32), lanes), [0] * lanes)
    return builder.shuffle_vector(first, ir.Constant(vector, ir.Undefined), mask)


def intrinsic(builder: Any, name: str, result: Any, arguments: list[Any]) -> Any:
    """A call of an LLVM intrinsic, declared in the module where it is not yet."""
    from llvmlite import ir

    module = builder.module
    function = module.globals.get(name)
    if function is None:
        function = ir.Function(module, ir.FunctionType(result, [a.type for a in arguments]), name)
    return builder.call(function, arguments)


@cache
def named_type(name: str) -> Any:
    """A type of LLVM's that llvmlite has no class for, as "bfloat"."""
    from llvmlite import ir

    class Named(ir.Type):  # type: ignore[misc]
        def _to_string(self) -> str:
            return name

        def __eq__(self, other: object) -> bool:
            return str(self) == str(other)

        def __hash__(self) -> int:
            return hash(name)

    return Named()
