"""Products of matrices by four warps: wgmma of Hopper's tensor cores (PTX ISA, "wgmma.mma_async").

``C[i, j] += A[i, k] * B[k, j]`` for 64 i, 16 k and 8 to 256 j, of 16-bit floats into float32. C
lies in the registers of 128 threads, A there or in shared memory, B in shared memory, from where
the tensor cores read it themselves: in blocks of 8 by 8, each 128 bytes without gaps, in which
neighbours along k lie side by side, or those along i or j. So the axes of what lies there are
declared as i = 8 ``io`` + ``ii``, j = 8 ``jo`` + ``ji`` and k = 8 ``ko`` + ``ki``; how far blocks
are apart along ``io``, ``jo`` and ``ko`` is free, a constant multiple of 16 bytes.

It goes on while its threads do, and is waited for on the queue "wgmma".
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

from tilewright.ir.errors import LanguageError, TargetError
from tilewright.target.instruction import Argument, Axis, Instruction, decl_instruction
from tilewright.target.instructions._contract import contract

_EIGHT = ("lane 2", "lane 3", "lane 4")
_BLOCKS = ("slot 1", "lane 5", "lane 6")
_PAIRS = ("slot 0", "lane 0", "lane 1")
_TYPES = {"float16": "f16", "bfloat16": "bf16"}

#: The widths that an instruction may have here: powers of two, since a fragment's are.
WIDTHS = (8, 16, 32, 64, 128, 256)
#: Where A may lie, and along what neighbours of B may lie side by side.
LEFT, RIGHT = ("registers", "k", "i"), ("k", "j")


def wgmma(
    columns: int, element: str = "float16", left: str = "registers", right: str = "k"
) -> Instruction:
    """The instruction for ``columns`` j, of ``element`` "float16" or "bfloat16".

    Parameters
    ----------
    left : "registers", or for A in shared memory along which axis, "k" or "i", neighbours lie side
        by side.
    right : the same of B, "k" or "j".

    Raises :class:`LanguageError` where there is none.
    """
    if columns not in WIDTHS or element not in _TYPES:
        raise LanguageError(
            f"there is no wgmma of {columns} columns of {element}: it has {WIDTHS} columns, of "
            f"{' or '.join(_TYPES)}"
        )
    if left not in LEFT or right not in RIGHT:
        raise LanguageError(
            f"there is no wgmma with left={left!r} and right={right!r}: left is one of {LEFT}, "
            f"right one of {RIGHT}"
        )
    return _declared(columns, element, left, right)


@cache
def _declared(columns: int, element: str, left: str, right: str) -> Instruction:
    name = _TYPES[element]
    blocks = columns // 8
    of_blocks = tuple(f"slot {2 + b}" for b in range(blocks.bit_length() - 1))
    rows: tuple[tuple[str, int, tuple[str, ...]], ...] = (("i", 64, _EIGHT + _BLOCKS),)
    if left != "registers":
        rows = (("io", 8, _BLOCKS), ("ii", 8, _EIGHT))
    names, extents, bits = zip(*rows, strict=True)
    if left == "registers":
        a = Argument(
            "A", ("i", "ko", "ki"), element, align=4, scopes=("fragment",),
            fragment=(*bits, ("slot 2",), _PAIRS),
        )  # fmt: skip
    else:
        a = _blocks("A", ("io", "ii"), element, left == "i")
    return decl_instruction(
        f"wgmma_m64n{columns}k16_{name}" + _suffix(left, right),
        axes=(
            *(Axis(axis, extent) for axis, extent in zip(names, extents, strict=True)),
            Axis("jo", blocks),
            Axis("ji", 8),
            Axis("ko", 2, reduce=True),
            Axis("ki", 8, reduce=True),
        ),
        operands=(
            Argument(
                "C", (*names, "jo", "ji"), "float32", align=4, scopes=("fragment",),
                fragment=(*bits, of_blocks, _PAIRS),
            ),
            a,
            _blocks("B", ("jo", "ji"), element, right == "j"),
        ),
        body=lambda c, a, b: c + a.astype("float32") * b.astype("float32"),
        emissions={
            "cuda": lambda pointers, places: _emit(columns, name, left, right, pointers, places)
        },
        cuda_family="sm_90a",
        simulate=contract,
        queue="wgmma",
    )  # fmt: skip


def _suffix(left: str, right: str) -> str:
    """What names of instructions whose operands lie otherwise end in."""
    if (left, right) == ("registers", "k"):
        return ""
    return f"_{'r' if left == 'registers' else left}{right}"


def orders_of(suffix: str) -> tuple[str, str]:
    """``left`` and ``right`` of an instruction from the end of its name.

    >>> orders_of("_ij"), orders_of("")
    (('i', 'j'), ('registers', 'k'))
    """
    if not suffix:
        return "registers", "k"
    return "registers" if suffix[1] == "r" else suffix[1], suffix[2]


def _blocks(name: str, axes: tuple[str, str], element: str, turned: bool) -> Argument:
    """An operand in shared memory; ``turned`` where neighbours along its own axis, not k, lie side
    by side."""
    strides = (None, 1, None, 8) if turned else (None, 8, None, 1)
    return Argument(
        name, (*axes, "ko", "ki"), element, align=16, scopes=("shared",), strides=strides
    )


def _emit(
    columns: int,
    name: str,
    left: str,
    right: str,
    pointers: Sequence[str],
    places: Sequence[Sequence[str]],
) -> str:
    sums = [f"({pointers[0]})[{slot}]" for slot in places[0]]
    count = len(sums)
    c = ", ".join(f"%{k}" for k in range(count))
    if left == "registers":
        halves = places[1][::2]
        ins = [f'"r"(*reinterpret_cast<const unsigned *>({pointers[1]} + {h}))' for h in halves]
        a = "{" + ", ".join(f"%{count + k}" for k in range(4)) + "}"
        turned = ""
    else:
        ins = [f'"l"({_descriptor(pointers[1], places[1][0], places[1][4])})']
        a, turned = f"%{count}", f"{int(left == 'i')}, "
    along_j, along_k = places[2][-4], places[2][-2]
    ins.append(f'"l"({_descriptor(pointers[2], along_j, along_k)})')
    outs = ", ".join(f'"+f"({x})' for x in sums)
    return (
        f'asm volatile("wgmma.mma_async.sync.aligned.m64n{columns}k16.f32.{name}.{name} '
        f'{{{c}}}, {a}, %{count + len(ins) - 1}, 1, 1, 1, {turned}{int(right == "j")};"\n'
        f"    : {outs}\n"
        f"    : {', '.join(ins)});"
    )


def _descriptor(pointer: str, across: str, along_k: str) -> str:
    """Of blocks in shared memory: address, distance along k, distance along the other axis, each
    in 16 bytes; no swizzle."""
    return (
        f"((unsigned long long)((__cvta_generic_to_shared({pointer}) & 0x3ffff) >> 4) | "
        f"{_units(along_k)}ull << 16 | {_units(across)}ull << 32)"
    )


def _units(stride: str) -> int:
    """A distance of ``stride`` 16-bit elements in units of 16 bytes."""
    try:
        elements = int(stride)
    except ValueError:
        elements = 0 if stride == "" else -1
    if elements % 8 or not 0 <= elements // 8 < 1 << 14:
        raise TargetError(
            f"wgmma: the blocks of an operand are {stride} elements apart, which has to be a "
            "constant multiple of 8, and less than 131072"
        )
    return elements // 8
