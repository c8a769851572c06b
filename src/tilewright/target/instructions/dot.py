"""Dot products within 32 bits, added to 32 bits: dp4a of NVIDIA's GPUs, VNNI and BF16 of x86."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilewright.target.instruction import Argument, Axis, Instruction, decl_instruction
from tilewright.target.instructions._llvm import address, intrinsic, named_type, read, splat, write


def _dp4a(name: str, byte: str, accumulator: str, word: str, other: str = "") -> Instruction:
    def cuda(p: Sequence[str], _: Sequence[Sequence[str]]) -> str:
        a, b = (f"*reinterpret_cast<const {word} *>({x})" for x in p[1:])
        if other:  # which CUDA C++ has no function for
            return f'asm("dp4a.u32.s32 %0, %1, %2, %0;" : "+r"(*({p[0]})) : "r"({a}), "r"({b}));'
        return f"*({p[0]}) = __dp4a({a}, {b}, *({p[0]}));"

    return decl_instruction(
        name,
        axes=(Axis("k", 4, reduce=True),),
        operands=(
            Argument("C", (), accumulator),
            Argument("A", ("k",), byte, strides=(1,), align=4),
            Argument("B", ("k",), other or byte, strides=(1,), align=4),
        ),
        body=lambda c, a, b: c + a.astype(accumulator) * b.astype(accumulator),
        emissions={"cuda": cuda},
        cuda_arch=61,
    )


#: ``C += sum(A[k] * B[k] for k in range(4))`` of int8 into int32: ``__dp4a``, from sm_61 on (CUDA
#: math API, "Integer Intrinsics"); plain loops elsewhere.
dp4a = _dp4a("dp4a", "int8", "int32", "int")

#: The same of uint8 into uint32.
dp4a_u8 = _dp4a("dp4a_u8", "uint8", "uint32", "unsigned int")

#: The same of uint8 by int8 into int32: dp4a.u32.s32 (PTX ISA, "dp4a").
dp4a_u8_s8 = _dp4a("dp4a_u8_s8", "uint8", "int32", "unsigned int", "int8")


def _turned_bytes(byte: str) -> Instruction:
    """``T[i, k] = M[k, i]`` for 4 i and k: pairs of words, then pairs of these."""

    def cuda(p: Sequence[str], strides: Sequence[Sequence[str]]) -> str:
        words = (
            f"*reinterpret_cast<const unsigned *>(({p[1]}) + ({strides[1][1]}) * {k})"
            for k in range(4)
        )
        named = ", ".join(f"word{k}_ = {word}" for k, word in enumerate(words))
        pairs = ", ".join(
            f"pair{a}{k}_ = __byte_perm(word{a}_, word{a + 1}_, {mask})"
            for a in (0, 2)
            for k, mask in enumerate(("0x5140", "0x7362"))
        )
        stores = "\n".join(
            f"  reinterpret_cast<unsigned *>({p[0]})[{2 * k + j}] = "
            f"__byte_perm(pair0{k}_, pair2{k}_, {mask});"
            for k in range(2)
            for j, mask in enumerate(("0x5410", "0x7632"))
        )
        return f"{{\n  const unsigned {named};\n  const unsigned {pairs};\n{stores}\n}}"

    return decl_instruction(
        f"turned_bytes_{byte}",
        axes=(Axis("i", 4), Axis("k", 4)),
        operands=(
            Argument("T", ("i", "k"), byte, strides=(4, 1), align=4),
            Argument("M", ("k", "i"), byte, strides=(None, 1), align=4),
        ),
        body=lambda _, value: value,
        emissions={"cuda": cuda},
        cuda_arch=61,
    )


#: ``T[i, k] = M[k, i]`` by type, for 4 i and k: words of four rows, as :data:`dp4a` reads them, by
#: ``__byte_perm`` (CUDA math API, "Integer Intrinsics").
turned_bytes = {byte: _turned_bytes(byte) for byte in ("int8", "uint8")}


def _vnni_llvm(builder: Any, pointers: Sequence[Any], _: Sequence[Sequence[Any]]) -> None:
    from llvmlite import ir

    i32 = ir.IntType(32)
    words, octets = ir.VectorType(i32, 16), ir.VectorType(ir.IntType(8), 64)
    c, a, b = pointers
    total = read(builder, c, words, 4)
    four = read(builder, a, i32, 1)
    left = builder.bitcast(splat(builder, four, 16), octets)
    right = read(builder, b, octets, 1)
    name = "llvm.x86.avx512.vpdpbusd.512"
    write(builder, intrinsic(builder, name, words, [total, left, right]), c, 4)


#: ``C[i] += sum(A[k] * B[i, k] for k in range(4))`` for 16 i, of uint8 times int8 into int32:
#: VPDPBUSD with its first operand broadcast (Intel SDM volume 2C), from Cascade Lake and Zen 4 on.
#: B lies as 16 groups of 4 neighbouring bytes.
vnni = decl_instruction(
    "avx512_vnni",
    axes=(Axis("i", 16), Axis("k", 4, reduce=True)),
    operands=(
        Argument("C", ("i",), "int32", strides=(1,)),
        Argument("A", ("k",), "uint8", strides=(1,)),
        Argument("B", ("i", "k"), "int8", strides=(4, 1)),
    ),
    body=lambda c, a, b: c + a.astype("int32") * b.astype("int32"),
    llvm=_vnni_llvm,
    features=("avx512f", "avx512vnni"),
)


def _vnni_lanes_llvm(builder: Any, pointers: Sequence[Any], _: Sequence[Sequence[Any]]) -> None:
    from llvmlite import ir

    words, octets = ir.VectorType(ir.IntType(32), 16), ir.VectorType(ir.IntType(8), 64)
    c, a, b = pointers
    total = read(builder, c, words, 4)
    left, right = read(builder, a, octets, 1), read(builder, b, octets, 1)
    name = "llvm.x86.avx512.vpdpbusd.512"
    write(builder, intrinsic(builder, name, words, [total, left, right]), c, 4)


#: ``C[i] += sum(A[i, k] * B[i, k] for k in range(4))`` for 16 i: the same with words of its own for
#: each i.
vnni_lanes = decl_instruction(
    "avx512_vnni_lanes",
    axes=(Axis("i", 16), Axis("k", 4, reduce=True)),
    operands=(
        Argument("C", ("i",), "int32", strides=(1,)),
        Argument("A", ("i", "k"), "uint8", strides=(4, 1)),
        Argument("B", ("i", "k"), "int8", strides=(4, 1)),
    ),
    body=lambda c, a, b: c + a.astype("int32") * b.astype("int32"),
    llvm=_vnni_lanes_llvm,
    features=("avx512f", "avx512vnni"),
)


def _rows_of_bytes_llvm(
    builder: Any, pointers: Sequence[Any], strides: Sequence[Sequence[Any]]
) -> None:
    from llvmlite import ir

    octet, i32 = ir.IntType(8), ir.IntType(32)
    t, m = pointers
    rows = [
        read(builder, address(builder, m, octet, (strides[1][1], k)), ir.VectorType(octet, 16), 1)
        for k in range(4)
    ]

    def joined(first: Any, second: Any, turns: Sequence[int]) -> Any:
        mask = ir.Constant(ir.VectorType(i32, len(turns)), list(turns))
        return builder.shuffle_vector(first, second, mask)

    halves = [joined(rows[k], rows[k + 1], range(32)) for k in (0, 2)]
    turns = [16 * (j % 4) + j // 4 for j in range(64)]
    write(builder, joined(halves[0], halves[1], turns), t, 1)


#: ``T[i, k] = M[k, i]`` for 16 i and 4 k of uint8: words of four rows, as :data:`vnni_lanes` reads
#: them.
rows_of_bytes = decl_instruction(
    "rows_of_bytes",
    axes=(Axis("i", 16), Axis("k", 4)),
    operands=(
        Argument("T", ("i", "k"), "uint8", strides=(4, 1)),
        Argument("M", ("k", "i"), "uint8", strides=(None, 1)),
    ),
    body=lambda _, value: value,
    llvm=_rows_of_bytes_llvm,
)


def _words_llvm(builder: Any, pointers: Sequence[Any], strides: Sequence[Sequence[Any]]) -> None:
    """Halves, quarters, eighths and sixteenths of rows change places, of all pairs of rows."""
    from llvmlite import ir

    i32, octet = ir.IntType(32), ir.IntType(8)
    row = ir.VectorType(i32, 16)
    t, m = pointers
    rows = [
        read(builder, address(builder, m, octet, (strides[1][1], i)), row, 1) for i in range(16)
    ]
    for apart in (8, 4, 2, 1):
        masks = [
            [j if not j & apart else 16 + j - apart for j in range(16)],
            [j + apart if not j & apart else 16 + j for j in range(16)],
        ]
        for i in (i for i in range(16) if not i & apart):
            pair = rows[i], rows[i + apart]
            rows[i], rows[i + apart] = (
                builder.shuffle_vector(*pair, ir.Constant(ir.VectorType(i32, 16), mask))
                for mask in masks
            )
    for k, words in enumerate(rows):
        write(builder, words, address(builder, t, octet, (64, k)), 1)


#: ``T[k, i, b] = M[i, k, b]`` for 16 k and i and 4 b: words of 16 rows, as :data:`vnni` reads them.
turned_words = decl_instruction(
    "turned_words",
    axes=(Axis("k", 16), Axis("i", 16), Axis("b", 4)),
    operands=(
        Argument("T", ("k", "i", "b"), "int8", strides=(64, 4, 1)),
        Argument("M", ("i", "k", "b"), "int8", strides=(None, 4, 1)),
    ),
    body=lambda _, value: value,
    llvm=_words_llvm,
)


def _bf16_llvm(builder: Any, pointers: Sequence[Any], _: Sequence[Sequence[Any]]) -> None:
    from llvmlite import ir

    total = ir.VectorType(ir.FloatType(), 16)
    words = ir.VectorType(ir.IntType(32), 16)
    pairs = ir.VectorType(named_type("bfloat"), 32)
    c, a, b = pointers
    left, right = (builder.bitcast(read(builder, x, words, 2), pairs) for x in (a, b))
    name = "llvm.x86.avx512bf16.dpbf16ps.512"
    write(builder, intrinsic(builder, name, total, [read(builder, c, total, 4), left, right]), c, 4)


#: ``C[i] += sum(A[i, k] * B[i, k] for k in range(2))`` for 16 i, of bfloat16 into float32:
#: VDPBF16PS (Intel SDM volume 2C), from Cooper Lake and Zen 4 on. Pairs lie side by side. It takes
#: denormals for zeros, and rounds after each of the two.
dot_bf16 = decl_instruction(
    "avx512_bf16",
    axes=(Axis("i", 16), Axis("k", 2, reduce=True)),
    operands=(
        Argument("C", ("i",), "float32", strides=(1,)),
        Argument("A", ("i", "k"), "bfloat16", strides=(2, 1)),
        Argument("B", ("i", "k"), "bfloat16", strides=(2, 1)),
    ),
    body=lambda c, a, b: c + a.astype("float32") * b.astype("float32"),
    llvm=_bf16_llvm,
    features=("avx512f", "avx512bf16"),
)


def _pairs_llvm(builder: Any, pointers: Sequence[Any], strides: Sequence[Sequence[Any]]) -> None:
    from llvmlite import ir

    half = ir.IntType(16)
    row, i32 = ir.VectorType(half, 16), ir.IntType(32)
    t, m = pointers
    first, second = (
        read(builder, address(builder, m, half, (strides[1][1], k)), row, 2) for k in range(2)
    )
    turns = [ir.Constant(i32, k // 2 + 16 * (k % 2)) for k in range(32)]
    mask = ir.Constant(ir.VectorType(i32, 32), turns)
    write(builder, builder.shuffle_vector(first, second, mask), t, 2)


#: ``T[i, k] = M[k, i]`` for 16 i and 2 k of bfloat16: two rows side by side, as :data:`dot_bf16`
#: reads them.
pairs_bf16 = decl_instruction(
    "pairs_bf16",
    axes=(Axis("i", 16), Axis("k", 2)),
    operands=(
        Argument("T", ("i", "k"), "bfloat16", strides=(2, 1)),
        Argument("M", ("k", "i"), "bfloat16", strides=(None, 1)),
    ),
    body=lambda _, value: value,
    llvm=_pairs_llvm,
)
