"""Products of matrices by four warps: wgmma of Hopper's tensor cores (PTX ISA, "wgmma.mma_async").

``C[i, j] += A[i, k] * B[k, j]`` for 64 i, 16 k and 8 to 256 j, of 16-bit floats into float32. C
and A lie in the registers of 128 threads, B in shared memory, from where the tensor cores read it
themselves: in blocks of 8 j by 8 k, each 128 bytes without gaps, a j a row. So the axes are
declared as j = 8 ``jo`` + ``ji`` and k = 8 ``ko`` + ``ki``; how far blocks are apart along ``jo``
and ``ko`` is free, a constant multiple of 16 bytes.

It goes on while its threads do, and is waited for on the queue "wgmma".
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

from tilewright.ir.errors import LanguageError, TargetError
from tilewright.target.instruction import Argument, Axis, Instruction, decl_instruction
from tilewright.target.instructions._contract import contract

_ROWS = ("lane 2", "lane 3", "lane 4", "slot 1", "lane 5", "lane 6")
_PAIRS = ("slot 0", "lane 0", "lane 1")
_TYPES = {"float16": "f16", "bfloat16": "bf16"}

#: The widths that an instruction may have here: powers of two, since a fragment's are.
WIDTHS = (8, 16, 32, 64, 128, 256)


@cache
def wgmma(columns: int, element: str = "float16") -> Instruction:
    """The instruction for ``columns`` j, of ``element`` "float16" or "bfloat16".

    Raises :class:`LanguageError` where there is none.
    """
    if columns not in WIDTHS or element not in _TYPES:
        raise LanguageError(
            f"there is no wgmma of {columns} columns of {element}: it has {WIDTHS} columns, of "
            f"{' or '.join(_TYPES)}"
        )
    name = _TYPES[element]
    blocks = columns // 8
    of_blocks = tuple(f"slot {2 + b}" for b in range(blocks.bit_length() - 1))
    return decl_instruction(
        f"wgmma_m64n{columns}k16_{name}",
        axes=(
            Axis("i", 64),
            Axis("jo", blocks),
            Axis("ji", 8),
            Axis("ko", 2, reduce=True),
            Axis("ki", 8, reduce=True),
        ),
        operands=(
            Argument(
                "C", ("i", "jo", "ji"), "float32", align=4, scopes=("fragment",),
                fragment=(_ROWS, of_blocks, _PAIRS),
            ),
            Argument(
                "A", ("i", "ko", "ki"), element, align=4, scopes=("fragment",),
                fragment=(_ROWS, ("slot 2",), _PAIRS),
            ),
            Argument(
                "B", ("jo", "ji", "ko", "ki"), element, align=16, scopes=("shared",),
                strides=(None, 8, None, 1),
            ),
        ),
        body=lambda c, a, b: c + a.astype("float32") * b.astype("float32"),
        emissions={"cuda": lambda pointers, places: _emit(columns, name, pointers, places)},
        cuda_family="sm_90a",
        simulate=contract,
        queue="wgmma",
    )  # fmt: skip


def _emit(columns: int, name: str, pointers: Sequence[str], places: Sequence[Sequence[str]]) -> str:
    _, along_j, _, along_k, _ = places[2]
    sums = [f"({pointers[0]})[{slot}]" for slot in places[0]]
    left = [
        f"*reinterpret_cast<const unsigned *>({pointers[1]} + {slot})" for slot in places[1][::2]
    ]
    count = len(sums)
    c = ", ".join(f"%{k}" for k in range(count))
    a = ", ".join(f"%{count + k}" for k in range(4))
    # The descriptor: address, distance along k, distance along j, each in 16 bytes; no swizzle.
    descriptor = (
        f"((unsigned long long)((__cvta_generic_to_shared({pointers[2]}) & 0x3ffff) >> 4) | "
        f"{_units(along_k)}ull << 16 | {_units(along_j)}ull << 32)"
    )
    outs = ", ".join(f'"+f"({x})' for x in sums)
    ins = ", ".join(f'"r"({x})' for x in left)
    return (
        f'asm volatile("wgmma.mma_async.sync.aligned.m64n{columns}k16.f32.{name}.{name} '
        f'{{{c}}}, {{{a}}}, %{count + 4}, 1, 1, 1, 0;"\n'
        f"    : {outs}\n"
        f'    : {ins}, "l"({descriptor}));'
    )


def _units(stride: str) -> int:
    """A distance of ``stride`` 16-bit elements in units of 16 bytes."""
    try:
        elements = int(stride)
    except ValueError:
        elements = 0 if stride == "" else -1
    if elements % 8 or not 0 <= elements // 8 < 1 << 14:
        raise TargetError(
            f"wgmma: the blocks of B are {stride} elements apart, which has to be a constant "
            "multiple of 8, and less than 131072"
        )
    return elements // 8
