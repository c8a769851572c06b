"""Products of matrices in tiles: AMX of x86 (Intel SDM volume 1, chapter 18).

A tile is a register of 16 rows of 64 bytes. Here it is a buffer of 1024 bytes without gaps, in the
scope "local", that LLVM keeps in a tile where nothing but these instructions touches it; a loop
that clears sums of products becomes one of them. ``amx_bf16``, ``amx_s8`` and ``amx_u8_s8``
multiply, ``amx_load_...`` and ``amx_store_...`` move tiles from and to rows in memory, however far
apart these are. Of the right operand those 2 elements of bfloat16, or 4 of int8, that are
multiplied with neighbours of the left one lie side by side.

Linux lets a process use tiles once it has asked for them, which
:func:`tilewright.runtime.llvm_host.host_features` does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tilewright.ir.ops import const
from tilewright.target.instruction import Argument, Axis, Instruction, decl_instruction
from tilewright.target.instructions._contract import contract
from tilewright.target.instructions._llvm import intrinsic, named_type, read, write

_ROWS, _BYTES = 16, 64


def _shape() -> list[Any]:
    from llvmlite import ir

    return [ir.Constant(ir.IntType(16), _ROWS), ir.Constant(ir.IntType(16), _BYTES)]


def _tile(builder: Any, pointer: Any) -> Any:
    """What a buffer holds, in a tile."""
    held = read(builder, pointer, _vector(), _BYTES)
    name = "llvm.x86.cast.vector.to.tile.v256i32"
    return intrinsic(builder, name, named_type("x86_amx"), [held])


def _keep(builder: Any, tile: Any, pointer: Any) -> None:
    """A tile as what a buffer holds."""
    name = "llvm.x86.cast.tile.to.vector.v256i32"
    write(builder, intrinsic(builder, name, _vector(), [tile]), pointer, _BYTES)


def _vector() -> Any:
    from llvmlite import ir

    return ir.VectorType(ir.IntType(32), _ROWS * _BYTES // 4)


def _row(builder: Any, stride: Any, size: int) -> Any:
    """A distance in elements in bytes."""
    from llvmlite import ir

    i64 = ir.IntType(64)
    if isinstance(stride, int):
        return ir.Constant(i64, stride * size)
    wide = stride if stride.type == i64 else builder.sext(stride, i64)
    return builder.mul(wide, ir.Constant(i64, size))


def _product(
    name: str, element: str, total: str, opcode: str, feature: str, right: str = ""
) -> Instruction:
    """``C[i, j] += A[i, k] * B[k, j]`` for 16 i and j and 64 bytes of k."""
    together = 2 if element == "bfloat16" else 4

    def llvm(builder: Any, pointers: Sequence[Any], _: Sequence[Sequence[Any]]) -> None:
        rows, size = _shape()
        tiles = [_tile(builder, p) for p in pointers]
        arguments = [rows, size, size, *tiles]
        made = intrinsic(builder, f"llvm.x86.{opcode}.internal", tiles[0].type, arguments)
        _keep(builder, made, pointers[0])

    def tile(name: str, axes: tuple[str, ...], dtype: str) -> Argument:
        strides = (16, 1) if len(axes) == 2 else (16 * together, together, 1)
        return Argument(name, axes, dtype, strides, align=_BYTES, scopes=("local",))

    return decl_instruction(
        name,
        axes=(
            Axis("i", 16),
            Axis("j", 16),
            Axis("ko", 16, reduce=True),
            Axis("ki", together, reduce=True),
        ),
        operands=(
            tile("C", ("i", "j"), total),
            tile("A", ("i", "ko", "ki"), element),
            tile("B", ("ko", "j", "ki"), right or element),
        ),
        body=lambda c, a, b: c + a.astype(total) * b.astype(total),
        llvm=llvm,
        features=("amx-tile", feature),
        simulate=contract,
        clears=amx_zero_f32 if total == "float32" else amx_zero_s32,
    )


def _move(name: str, element: str, emit: Callable[..., None], stores: bool) -> Instruction:
    """Rows of 64 bytes between memory and a tile."""
    size = {"int8": 1, "uint8": 1, "bfloat16": 2}.get(element, 4)

    def llvm(builder: Any, pointers: Sequence[Any], strides: Sequence[Sequence[Any]]) -> None:
        tile, memory = (1, 0) if stores else (0, 1)
        row = _row(builder, strides[memory][0], size)
        emit(builder, pointers[tile], pointers[memory], row)

    columns = _BYTES // size
    held = Argument(
        "T", ("i", "j"), element, (columns, 1), align=_BYTES, scopes=("local",)
    )  # fmt: skip
    memory = Argument("M", ("i", "j"), element, (None, 1))
    return decl_instruction(
        name,
        axes=(Axis("i", _ROWS), Axis("j", columns)),
        operands=(memory, held) if stores else (held, memory),
        body=lambda _, value: value,
        llvm=llvm,
        features=("amx-tile",),
    )


def _load(name: str, element: str) -> Instruction:
    def emit(builder: Any, tile: Any, memory: Any, row: Any) -> None:
        arguments = [*_shape(), _bytes(builder, memory), row]
        kind = named_type("x86_amx")
        made = intrinsic(builder, "llvm.x86.tileloadd64.internal", kind, arguments)
        _keep(builder, made, tile)

    return _move(name, element, emit, stores=False)


def _store(name: str, element: str) -> Instruction:
    def emit(builder: Any, tile: Any, memory: Any, row: Any) -> None:
        from llvmlite import ir

        arguments = [*_shape(), _bytes(builder, memory), row, _tile(builder, tile)]
        intrinsic(builder, "llvm.x86.tilestored64.internal", ir.VoidType(), arguments)

    return _move(name, element, emit, stores=True)


def _bytes(builder: Any, pointer: Any) -> Any:
    from llvmlite import ir

    return builder.bitcast(pointer, ir.IntType(8).as_pointer())


def _zero(name: str, element: str) -> Instruction:
    """``T[i, j] = 0`` by loading one row of zeros 16 times.

    LLVM takes several TILEZERO for one, and a tile goes to another register by way of memory: each
    sum would begin with a store of 1 KiB and a load.
    """

    def llvm(builder: Any, pointers: Sequence[Any], _: Sequence[Sequence[Any]]) -> None:
        from llvmlite import ir

        row = ir.ArrayType(ir.IntType(8), _BYTES)
        zeros = ir.GlobalVariable(builder.module, row, f"{builder.module.name}.zeros")
        zeros.initializer, zeros.global_constant = ir.Constant(row, None), True
        zeros.linkage, zeros.align = "private", _BYTES
        kind = named_type("x86_amx")
        arguments = [*_shape(), _bytes(builder, zeros), ir.Constant(ir.IntType(64), 0)]
        made = intrinsic(builder, "llvm.x86.tileloadd64.internal", kind, arguments)
        _keep(builder, made, pointers[0])

    return decl_instruction(
        name,
        axes=(Axis("i", 16), Axis("j", 16)),
        operands=(Argument("T", ("i", "j"), element, (16, 1), align=_BYTES, scopes=("local",)),),
        body=lambda _: const(0, element),
        llvm=llvm,
        features=("amx-tile",),
    )


#: ``T[i, j] = 0``: TILELOADD of zeros.
amx_zero_f32 = _zero("amx_zero_f32", "float32")
amx_zero_s32 = _zero("amx_zero_s32", "int32")

#: ``C[i, j] += A[i, k] * B[k, j]`` for 16 i, 16 j and 32 k = 2 ``ko`` + ``ki``, of bfloat16 into
#: float32: TDPBF16PS. It takes denormals for zeros.
amx_bf16 = _product("amx_bf16", "bfloat16", "float32", "tdpbf16ps", "amx-bf16")

#: The same for 64 k = 4 ``ko`` + ``ki``, of int8 into int32: TDPBSSD.
amx_s8 = _product("amx_s8", "int8", "int32", "tdpbssd", "amx-int8")

#: The same of uint8 by int8: TDPBUSD.
amx_u8_s8 = _product("amx_u8_s8", "uint8", "int32", "tdpbusd", "amx-int8", "int8")

#: ``T[i, j] = M[i, j]`` for 16 rows of 64 bytes: TILELOADD.
amx_load_bf16 = _load("amx_load_bf16", "bfloat16")
amx_load_s8 = _load("amx_load_s8", "int8")
amx_load_u8 = _load("amx_load_u8", "uint8")
amx_load_f32 = _load("amx_load_f32", "float32")
amx_load_s32 = _load("amx_load_s32", "int32")

#: ``M[i, j] = T[i, j]``: TILESTORED.
amx_store_f32 = _store("amx_store_f32", "float32")
amx_store_s32 = _store("amx_store_s32", "int32")
