"""Products of small matrices by a warp: mma.sync of NVIDIA's tensor cores (PTX ISA, "mma").

The matrices lie in the registers of the 32 threads of a warp. ``C[i, j] += A[i, k] * B[k, j]``, the
products exact and the sums in the type of C; B is declared with its reduction first, but any buffer
can be one, whatever the order of its dimensions. The hardware rounds sums of floats towards zero,
so that the error of a long one grows with the number of its instructions, not with the root of it.
"""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.ir.dtype import dtype
from tilewright.ir.errors import LanguageError
from tilewright.ir.expr import Expr
from tilewright.ir.tf32 import truncate_tf32
from tilewright.target.instruction import (
    INSTRUCTIONS,
    Argument,
    Axis,
    Emission,
    Instruction,
    decl_instruction,
)
from tilewright.target.instructions._contract import contract, contract_tf32

_ROWS = ("lane 2", "lane 3", "lane 4", "slot 1")
_COLUMNS = ("lane 2", "lane 3", "lane 4")
_RESULT = ("slot 0", "lane 0", "lane 1")

#: By type and depth, the products that one instruction adds up for each result: how PTX calls the
#: type, and where the bits of a product's number go in A and in B.
_INPUTS: dict[tuple[str, int], tuple[str, tuple[str, ...], tuple[str, ...]]] = {
    ("int8", 16): ("s8", ("slot 0", "slot 1", "lane 0", "lane 1"),
                   ("slot 0", "slot 1", "lane 0", "lane 1")),
    ("uint8", 16): ("u8", ("slot 0", "slot 1", "lane 0", "lane 1"),
                    ("slot 0", "slot 1", "lane 0", "lane 1")),
    ("float16", 16): ("f16", ("slot 0", "lane 0", "lane 1", "slot 2"),
                      ("slot 0", "lane 0", "lane 1", "slot 1")),
    ("bfloat16", 16): ("bf16", ("slot 0", "lane 0", "lane 1", "slot 2"),
                       ("slot 0", "lane 0", "lane 1", "slot 1")),
    ("float16", 8): ("f16", ("slot 0", "lane 0", "lane 1"), ("slot 0", "lane 0", "lane 1")),
    ("bfloat16", 8): ("bf16", ("slot 0", "lane 0", "lane 1"), ("slot 0", "lane 0", "lane 1")),
    ("float32", 8): ("tf32", ("lane 0", "lane 1", "slot 1"), ("lane 0", "lane 1", "slot 0")),
    ("int8", 32): ("s8", ("slot 0", "slot 1", "lane 0", "lane 1", "slot 3"),
                   ("slot 0", "slot 1", "lane 0", "lane 1", "slot 2")),
    ("uint8", 32): ("u8", ("slot 0", "slot 1", "lane 0", "lane 1", "slot 3"),
                    ("slot 0", "slot 1", "lane 0", "lane 1", "slot 2")),
}  # fmt: skip
#: By the type of C, how PTX calls it, and how inline assembly its registers.
_RESULTS = {"float32": ("f32", "f"), "float16": ("f16", "r"), "int32": ("s32", "r")}
#: By the bytes of an element, where the upper eight rows of A go: behind what shares a register.
_UPPER = {1: "slot 2", 2: "slot 1", 4: "slot 0"}


def _mma(
    element: str, depth: int, other: str = "", rows: int = 16, columns: int = 8, result: str = ""
) -> Instruction:
    """The product of A in a type, and of B in the same or in ``other``, into ``result``; of more
    than 16 rows and 8 columns, one instruction for each such tile."""
    name, of_a, of_b = _INPUTS[element, depth]
    second = other or element
    names = f"{name}.{_INPUTS[second, depth][0]}"
    suffix = f"_{result}" if result else ""
    result = result or ("float32" if dtype(element).is_float else "int32")
    upper = (*_COLUMNS, _UPPER[dtype(element).bytes])
    return decl_instruction(
        f"mma_m{rows}n{columns}k{depth}_{names.replace('.', '_') if other else name}{suffix}",
        axes=(Axis("i", rows), Axis("j", columns), Axis("k", depth, reduce=True)),
        operands=(
            _fragment("C", ("i", "j"), result, (_ROWS, _RESULT)),
            _fragment("A", ("i", "k"), element, (upper, of_a)),
            _fragment("B", ("k", "j"), second, (of_b, _COLUMNS)),
        ),
        body=_truncated if element == "float32" else _exact,
        emissions={
            "cuda": _emission(names, depth, result, 4 // dtype(element).bytes, columns // 8)
        },
        cuda_arch=80,
        simulate=contract_tf32 if element == "float32" else contract,
    )


def _exact(c: Expr, a: Expr, b: Expr) -> Expr:
    made: Expr = c + a.astype(c.dtype) * b.astype(c.dtype)
    return made


def _truncated(c: Expr, a: Expr, b: Expr) -> Expr:
    made: Expr = c + truncate_tf32(a) * truncate_tf32(b)
    return made


def _fragment(
    name: str, axes: tuple[str, str], element: str, bits: tuple[tuple[str, ...], tuple[str, ...]]
) -> Argument:
    return Argument(name, axes, element, align=4, scopes=("fragment",), fragment=bits)


def _emission(names: str, depth: int, result: str, packed: int, across: int) -> Emission:
    """One instruction a tile, of the types of A and B; ``packed`` elements of either share a
    register, and ``across`` tiles lie side by side."""
    total, kind = _RESULTS[result]
    # Integers are added modulo 2**32, as sums of int32 are everywhere else.
    opcode = f"mma.sync.aligned.m16n8k{depth}.row.col.{total}.{names}.{total}"
    shared = 4 // dtype(result).bytes

    def cuda(pointers: Sequence[str], slots: Sequence[Sequence[str]]) -> str:
        c, a, b = (
            _tiles(own, size) for own, size in zip(slots, (4, depth // 2, depth // 4), strict=True)
        )
        tiles = ((c[r * across + j], a[r], b[j]) for r in range(len(a)) for j in range(across))
        return "\n".join(product(opcode, pointers, tile, packed, kind, shared) for tile in tiles)

    return cuda


def _tiles(slots: Sequence[str], size: int) -> list[Sequence[str]]:
    return [slots[k : k + size] for k in range(0, len(slots), size)]


def product(
    opcode: str, pointers: Sequence[str], slots: Sequence[Sequence[str]], packed: int,
    constraint: str = "f", shared: int = 1, kept: str = "",
) -> str:  # fmt: skip
    """One instruction that adds the product of A and B to C, ``packed`` elements of A and B in a
    register, and ``shared`` of C; ``kept`` tells, of an A that lacks every other element, which
    ones it has."""
    c = [
        f"({pointers[0]})[{slot}]"
        if shared == 1
        else f"*reinterpret_cast<unsigned *>({pointers[0]} + {slot})"
        for slot in slots[0][::shared]
    ]
    a = [_word(pointers[1], slot) for slot in slots[1][::packed]]
    b = [_word(pointers[2], slot) for slot in slots[2][::packed]]
    numbers = [f"%{k}" for k in range(len(c) + len(a) + len(b))]
    first, second = len(c), len(c) + len(a)
    parts = (numbers[:first], numbers[first:second], numbers[second:], numbers[:first])
    operands = ", ".join("{" + ", ".join(part) + "}" for part in parts)
    outs = ", ".join(f'"+{constraint}"({x})' for x in c)
    ins = ", ".join(f'"r"({x})' for x in (*a, *b, *([kept] if kept else [])))
    behind = f", %{len(numbers)}, 0x0" if kept else ""
    return f'asm("{opcode} {operands}{behind};"\n    : {outs}\n    : {ins});'


def _word(pointer: str, slot: str) -> str:
    """A register of several elements."""
    return f"*reinterpret_cast<const unsigned *>({pointer} + {slot})"


#: ``C[i, j] += A[i, k] * B[k, j]`` for 16 i, 8 j and 16 k, of float16 into float32, from sm_80 on.
mma_f16 = _mma("float16", 16)

#: The same of bfloat16.
mma_bf16 = _mma("bfloat16", 16)

#: Both for 8 k.
mma_f16_8, mma_bf16_8 = _mma("float16", 8), _mma("bfloat16", 8)

#: ``C[i, j] += A[i, k] * B[k, j]`` for 16 i, 8 j and 32 k, of int8 into int32, from sm_80 on.
mma_s8 = _mma("int8", 32)

#: The same of uint8, and of uint8 by int8.
mma_u8, mma_u8_s8 = _mma("uint8", 32), _mma("uint8", 32, "int8")

#: ``C[i, j] += A[i, k] * B[k, j]`` for 16 i, 8 j and 8 k, of float32, of whose elements the tensor
#: cores read what :func:`~tilewright.ir.tf32.truncate_tf32` leaves, so that this is what it is
#: declared to multiply. PTX promises as much of operands whose low 13 bits are zero, as
#: :func:`~tilewright.ir.tf32.round_tf32` makes them; of others the hardware has no use for these.
mma_tf32 = _mma("float32", 8)


def wmma(
    rows: int = 16, columns: int = 16, depth: int = 16, element: str = "float16", result: str = ""
) -> Instruction:
    """The product of a larger tile in one instruction of a schedule, of the sizes that CUDA's
    ``nvcuda::wmma`` has: ``rows * columns * depth`` products of ``element`` into float32, float16
    (``result="float16"``) or int32, from sm_80 on.

    It is written as one ``mma.sync`` for each 16 rows and 8 columns. Raises
    :class:`LanguageError` for other multiples of these, and for types that do not multiply so.

    >>> wmma(32, 8)
    Instruction('mma_m32n8k16_f16')
    """
    known = (element, depth) in _INPUTS and element != "float32"
    into = ("", "int32") if dtype(element).is_int else ("", "float32", "float16")
    if element == "bfloat16":
        into = ("", "float32")
    if rows % 16 or columns % 8 or min(rows, columns) < 1 or not known or result not in into:
        raise LanguageError(
            f"wmma: no tensor core multiplies {rows} x {columns} x {depth} of {element} into "
            f"{result or 'its sums'}: rows are a multiple of 16, columns of 8, and {_listed()}"
        )
    kept = result if result == "float16" else ""
    short = _INPUTS[element, depth][0] + (f"_{kept}" if kept else "")
    made = INSTRUCTIONS.get(f"mma_m{rows}n{columns}k{depth}_{short}")
    return made or _mma(element, depth, "", rows, columns, kept)


def _listed() -> str:
    """The types and depths that are multiplied exactly."""
    return ", ".join(f"{depth} of {kind}" for kind, depth in sorted(_INPUTS) if kind != "float32")


def named(rows: str, columns: str, depth: str, kind: str, result: str) -> Instruction:
    """The instruction of :func:`wmma` whose name has these parts."""
    element = {"f16": "float16", "bf16": "bfloat16", "s8": "int8", "u8": "uint8"}[kind]
    return wmma(int(rows), int(columns), int(depth), element, result.removeprefix("_"))
