"""Products of matrices by four warps: wgmma of Hopper's tensor cores (PTX ISA, "wgmma.mma_async").

``C[i, j] += A[i, k] * B[k, j]`` for 64 i, 8 to 256 j and 32 bytes of k: 16 of 16-bit floats or
32 of 8-bit floats into float32, 32 of 8-bit integers into int32, 8 of float32, as TF32. C lies in
the registers of 128 threads, A there or in shared memory, B in shared memory, from where the tensor
cores read it themselves: in blocks of 8 rows of 16 bytes, 128 bytes without gaps, in which
neighbours along k lie side by side, or of 16-bit types those along i or j. So the axes of what lies
there are declared as i = 8 ``io`` + ``ii``, j = 8 ``jo`` + ``ji`` and k, of which ``ki`` are 16
bytes, by ``ko``; how far blocks are apart along ``io``, ``jo`` and ``ko`` is free, a constant
multiple of 16 bytes.

In memory that is swizzled by 32, 64 or 128 bytes it reads rows of that length, eight of them
without gaps, from any row on: of k, at any multiple of 32 bytes; or of i or j, of which those that
a row does not hold follow in a further tile along ``ip`` or ``jp``: j = ``jp`` * row + 8 ``jo`` +
``ji``.

It goes on while its threads do, and is waited for on the queue "wgmma".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

from tilewright.ir.dtype import dtype
from tilewright.ir.errors import LanguageError, TargetError
from tilewright.ir.swizzle import CHUNK
from tilewright.ir.swizzle import WIDTHS as SWIZZLES
from tilewright.target.instruction import Argument, Axis, Instruction, decl_instruction
from tilewright.target.instructions._contract import contract, contract_tf32

_EIGHT = ("lane 2", "lane 3", "lane 4")
_BLOCKS = ("slot 1", "lane 5", "lane 6")
_PAIRS = ("slot 0", "lane 0", "lane 1")


@dataclass(frozen=True)
class _Element:
    """What is multiplied: its name in PTX, with that of B, the types of A, of B and of C, and what
    stands behind the flag by which sums are added to: signs of A and B, and whether each is
    turned, where there are such."""

    name: str
    left: str
    right: str
    total: str = "float32"
    signs: bool = True
    turns: bool = False

    @property
    def chunk(self) -> int:
        """Elements in 16 bytes."""
        return CHUNK // dtype(self.left).bytes

    @property
    def ptx(self) -> str:
        """The types of C, A and B in the instruction's name."""
        first, _, second = self.name.partition("_")
        return f"{'f32' if self.total == 'float32' else 's32'}.{first}.{second or first}"


_TYPES = {
    "float16": _Element("f16", "float16", "float16", turns=True),
    "bfloat16": _Element("bf16", "bfloat16", "bfloat16", turns=True),
    "tf32": _Element("tf32", "float32", "float32"),
    "float8_e4m3fn": _Element("e4m3", "float8_e4m3fn", "float8_e4m3fn"),
    "float8_e5m2": _Element("e5m2", "float8_e5m2", "float8_e5m2"),
    "int8": _Element("s8", "int8", "int8", "int32", signs=False),
    "uint8": _Element("u8_s8", "uint8", "int8", "int32", signs=False),
}

#: The widths that an instruction may have: multiples of 8, of 8-bit integers beyond 32 those of 16.
WIDTHS = range(8, 257, 8)
#: Where A may lie, and along what neighbours of B may lie side by side.
LEFT, RIGHT = ("registers", "k", "i"), ("k", "j")


def wgmma(
    columns: int,
    element: str = "float16",
    left: str = "registers",
    right: str = "k",
    swizzles: tuple[int, int] = (0, 0),
) -> Instruction:
    """The instruction for ``columns`` j, of ``element`` "float16", "bfloat16", "tf32", of float32
    whose low 13 bits are not read, "float8_e4m3fn", "float8_e5m2", "int8", or "uint8", which B is
    int8 of.

    Parameters
    ----------
    left : "registers", or for A in shared memory along which axis, "k" or "i", neighbours lie side
        by side.
    right : the same of B, "k" or "j".
    swizzles : by how many bytes the memory of A, and of B, is swizzled: 0, 32, 64 or 128.

    Raises :class:`LanguageError` where there is none.
    """
    if element not in _TYPES or not has_columns(columns, element):
        raise LanguageError(
            f"there is no wgmma of {columns} columns of {element}: it has up to 256 columns, a "
            f"multiple of 8, of 8-bit integers beyond 32 one of 16, of {' or '.join(_TYPES)}"
        )
    kind = _TYPES[element]
    # Of bytes in registers a thread has four along k, which no other instruction loads so.
    lies = left == "k" or (left == "registers" and dtype(kind.left).bytes > 1)
    if not kind.turns and not (lies and right == "k"):
        raise LanguageError(
            f"there is no wgmma of {element} with left={left!r} and right={right!r}: those of 16 "
            "bits alone read operands whose neighbours along k do not lie side by side, and none "
            'of bytes from registers: use "k" and "k"'
        )
    if left not in LEFT or right not in RIGHT:
        raise LanguageError(
            f"there is no wgmma with left={left!r} and right={right!r}: left is one of {LEFT}, "
            f"right one of {RIGHT}"
        )
    a, b = swizzles
    if a not in (0, *SWIZZLES) or b not in (0, *SWIZZLES) or (a and left == "registers"):
        raise LanguageError(
            f"there is no wgmma of memory swizzled by {a} and {b} bytes: A in registers is not "
            f"swizzled, what lies in shared memory by one of {(0, *SWIZZLES)}"
        )
    row = b // dtype(kind.right).bytes if right == "j" else 0
    if row and columns % row and columns & (columns - 1):
        raise LanguageError(
            f"there is no wgmma of {columns} columns that lie in rows of {row}: take whole rows, "
            "or a power of two"
        )
    return _declared(columns, element, left, right, a, b)


def has_columns(columns: int, element: str) -> bool:
    """Whether there is an instruction of as many columns."""
    signed = element in ("int8", "uint8")
    return columns in WIDTHS and (not signed or columns <= 32 or columns % 16 == 0)


@cache
def _declared(
    columns: int, element: str, left: str, right: str, left_swizzle: int, right_swizzle: int
) -> Instruction:
    kind = _TYPES[element]
    blocks = columns // 8
    even = (blocks & -blocks).bit_length() - 1  # powers of two in it; what is left counts tiles
    of_blocks = tuple(f"slot {2 + b}" for b in range(even))
    rows: tuple[_Part, ...] = (_Part("i", 64, _EIGHT + _BLOCKS),)
    if left != "registers":
        rows = _parts("i", _BLOCKS, left_swizzle if left == "i" else 0)
    across = _parts("j", of_blocks, right_swizzle if right == "j" else 0, blocks >> even)
    if left == "registers" and kind.chunk == 4:  # words of TF32, of which none has a pair
        a = Argument(
            "A", ("i", "ko", "ki"), kind.left, align=4, scopes=("fragment",),
            fragment=(_EIGHT + ("slot 0", "lane 5", "lane 6"), ("slot 1",), ("lane 0", "lane 1")),
        )  # fmt: skip
    elif left == "registers":
        a = Argument(
            "A", ("i", "ko", "ki"), kind.left, align=4, scopes=("fragment",),
            fragment=(rows[0].bits, ("slot 2",), _PAIRS),
        )  # fmt: skip
    else:
        a = _blocks("A", rows, kind.left, left == "i", left_swizzle)
    matrices = [_Matrix(len(rows), right == "j", right_swizzle, kind.chunk)]
    if left != "registers":
        matrices.insert(0, _Matrix(0, left == "i", left_swizzle, kind.chunk))
    return decl_instruction(
        f"wgmma_m64n{columns}k{2 * kind.chunk}_{kind.name}"
        + _suffix(left, right, left_swizzle, right_swizzle),
        axes=(
            *(Axis(part.axis, part.extent) for part in (*rows, *across)),
            Axis("ko", 2, reduce=True),
            Axis("ki", kind.chunk, reduce=True),
        ),
        operands=(
            Argument(
                "C", tuple(part.axis for part in (*rows, *across)), kind.total, align=4,
                scopes=("fragment",), fragment=tuple(part.bits for part in (*rows, *across)),
            ),
            a,
            _blocks("B", across, kind.right, right == "j", right_swizzle),
        ),
        body=lambda c, a, b: c + a.astype(kind.total) * b.astype(kind.total),
        emissions={
            "cuda": lambda pointers, places: _emit(columns, kind, matrices, pointers, places)
        },
        cuda_family="sm_90a",
        simulate=contract_tf32 if element == "tf32" else contract,
        queue="wgmma",
    )  # fmt: skip


@dataclass(frozen=True)
class _Part:
    """An axis that is part of i or j, and where its bits go in C."""

    axis: str
    extent: int
    bits: tuple[str, ...]


def _parts(
    axis: str, of_blocks: tuple[str, ...], swizzle: int, times: int = 1
) -> tuple[_Part, ...]:
    """i or j in blocks of eight, ``of_blocks`` being the bits of their number, ``times`` as many;
    with a ``swizzle`` of rows along it, those of one row and the rows."""
    inner = _PAIRS if axis == "j" else _EIGHT
    low = len(of_blocks)
    if swizzle:
        low = min(low, (swizzle // 16).bit_length() - 1)
    made = [
        _Part(f"{axis}o", (1 if swizzle else times) << low, of_blocks[:low]),
        _Part(f"{axis}i", 8, inner),
    ]
    if swizzle:
        made.insert(0, _Part(f"{axis}p", times << len(of_blocks) - low, of_blocks[low:]))
    return tuple(made)


def _suffix(left: str, right: str, *swizzles: int) -> str:
    """What names of instructions whose operands lie otherwise end in."""
    of_swizzles = "_s{}_{}".format(*swizzles) if any(swizzles) else ""
    if (left, right) == ("registers", "k"):
        return of_swizzles
    return f"_{'r' if left == 'registers' else left}{right}{of_swizzles}"


def named(columns: str, element: str, orders: str, swizzles: str) -> Instruction:
    """The instruction by the parts of its name.

    >>> named("64", "f16", "_ij", "_s0_128").name
    'wgmma_m64n64k16_f16_ij_s0_128'
    >>> named("64", "u8_s8", "_kk", "").name
    'wgmma_m64n64k32_u8_s8_kk'
    """
    left, right = (orders[1], orders[2]) if orders else ("r", "k")
    a, b = map(int, swizzles[2:].split("_")) if swizzles else (0, 0)
    kind = next(t for t, found in _TYPES.items() if found.name == element)
    return wgmma(int(columns), kind, "registers" if left == "r" else left, right, (a, b))


def _blocks(
    name: str, parts: tuple[_Part, ...], element: str, turned: bool, swizzle: int
) -> Argument:
    """An operand in shared memory; ``turned`` where neighbours along its own axis, not k, lie side
    by side."""
    size = dtype(element).bytes
    own = CHUNK // size
    strides: tuple[int | None, ...] = (None, 1, None, own) if turned else (None, own, None, 1)
    if swizzle:
        row = swizzle // size
        strides = (None, 8, 1, None, row) if turned else (None, row, own, 1)
    return Argument(
        name,
        (*(part.axis for part in parts), "ko", "ki"),
        element,
        align=16,
        scopes=("shared",),
        strides=strides,
        swizzles=(swizzle,),
        # From any row on, since what moves a chunk are bits of its address; of rows along k the
        # tensor cores read any part, others they read whole.
        reach=CHUNK if swizzle and turned else 0,
    )


def _emit(
    columns: int,
    kind: _Element,
    operands: Sequence[_Matrix],
    pointers: Sequence[str],
    places: Sequence[Sequence[str]],
) -> str:
    """``operands`` are those in shared memory, the last of the instruction's."""
    sums = [f"({pointers[0]})[{slot}]" for slot in places[0]]
    count = len(sums)
    c = ", ".join(f"%{k}" for k in range(count))
    descriptors = [
        f'"l"({m.descriptor(pointer, place)})'
        for m, pointer, place in zip(
            operands, pointers[-len(operands) :], places[-len(operands) :], strict=True
        )
    ]
    flags = ["1", *(["1", "1"] if kind.signs else [])]
    flags += [str(int(m.turned)) for m in operands] if kind.turns else []
    if len(operands) == 1:
        words = places[1][:: 4 // dtype(kind.left).bytes]
        ins = [f'"r"(*reinterpret_cast<const unsigned *>({pointers[1]} + {w}))' for w in words]
        a = "{" + ", ".join(f"%{count + k}" for k in range(4)) + "}"
    else:
        ins, a = [], f"%{count}"
    ins += descriptors
    held = "f" if kind.total == "float32" else "r"
    outs = ", ".join(f'"+{held}"({x})' for x in sums)
    return (
        f'asm volatile("wgmma.mma_async.sync.aligned.m64n{columns}k{2 * kind.chunk}.{kind.ptx} '
        f'{{{c}}}, {a}, %{count + len(ins) - 1}, {", ".join(flags)};"\n'
        f"    : {outs}\n"
        f"    : {', '.join(ins)});"
    )


@dataclass(frozen=True)
class _Matrix:
    """An operand in shared memory: at which of the instruction's axes its own begin, whether
    neighbours along these, not k, lie side by side, by how many bytes it is swizzled, and how many
    elements 16 bytes are."""

    first: int
    turned: bool
    swizzle: int
    chunk: int

    def descriptor(self, pointer: str, places: Sequence[str]) -> str:
        """Where it begins, and two distances, in 16 bytes: without swizzle those of blocks along k
        and along its own axis; of rows along k that of eight rows; of other rows those of tiles
        along its own axis and of eight rows (PTX ISA, "Matrix-descriptor")."""
        across, along_k = places[self.first], places[-2]
        one = str(self.chunk)
        step = self.chunk
        if self.swizzle:
            step *= self.swizzle // CHUNK
        leading, stride = along_k, across
        if self.swizzle:
            leading, stride = (across, along_k) if self.turned else (one, across)
        low = _units(leading, self.chunk if leading == one else step, self.chunk)
        text = (
            f"((unsigned long long)((__cvta_generic_to_shared({pointer}) & 0x3ffff) >> 4) | "
            f"{low}ull << 16 | {_units(stride, step, self.chunk)}ull << 32"
        )
        return f"{text} | {_MODES[self.swizzle]}ull << 62)" if self.swizzle else f"{text})"


#: What a descriptor says of a swizzle.
_MODES = {128: 1, 64: 2, 32: 3}


def _units(stride: str, step: int, chunk: int) -> int:
    """A distance of ``stride`` elements, a multiple of ``step``, in units of 16 bytes, which are
    ``chunk`` elements."""
    try:
        elements = int(stride)
    except ValueError:
        elements = 0 if stride == "" else -1
    if elements % step or not 0 <= elements // chunk < 1 << 14:
        raise TargetError(
            f"wgmma: the blocks of an operand are {stride} elements apart, which has to be a "
            f"constant multiple of {step}, and less than {chunk << 14}"
        )
    return elements // chunk
