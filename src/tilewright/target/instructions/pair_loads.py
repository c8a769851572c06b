"""Pairs of neighbours from shared memory into fragments, several pairs of a thread at once.

The A of a product (:mod:`~tilewright.target.instructions.mma`) of 16 rows by 16, or by 8, may have
as its columns places with a pair of neighbours each, such as pixels with two channels: a register
of it is one word of memory. So may the B of a product that skips half of A
(:mod:`~tilewright.target.instructions.mma_pairs`), of 8 columns with 16 places each. The words that
follow are those of the next products, so that a thread that reads 8 or 16 bytes has what several
products want.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from math import prod
from typing import Any

from tilewright.ir.errors import LanguageError
from tilewright.ir.swizzle import WIDTHS
from tilewright.target.instruction import Argument, Axis, Instruction, decl_instruction
from tilewright.target.instructions._shared import EXCHANGE, OWN, shared_address

#: By places, how many rows fragments have. Where the bits of a row's number go, and those of a
#: place's, by how many places there are.
_ROWS = {4: 16, 8: 16, 16: 8}
_ROW_BITS = ("lane 2", "lane 3", "lane 4", "slot 1")
_PLACE_BITS = {
    4: ("lane 0", "lane 1"),
    8: ("lane 0", "lane 1", "slot 2"),
    16: ("lane 0", "lane 1", "slot 1", "slot 2"),
}
_PAIRS, _LANES = (1, 2, 4), 32
#: With this many places, threads of odd rows read the second four of eight places before the first:
#: rows that lie eight places apart would meet the same banks.
_TURNED = 16


def load_pairs(rows: Sequence[int], places: int, pairs: int, element: str) -> Instruction:
    """The load of ``pairs`` fragments of rows by ``places`` by two elements of 16 bits.

    Parameters
    ----------
    rows : three extents whose product is 16, or 8 where there are 16 places: rows may be counted
        along that number of axes, each with its own stride.
    places : 4, 8 or 16.
    pairs : of elements next to one another that a thread reads at once: 1, 2 or 4.

    Raises :class:`LanguageError` where there is no such load.
    """
    extents = tuple(rows)
    powers = len(extents) == 3 and all(n in (1, 2, 4, 8, 16) for n in extents)
    if not powers or prod(extents) != _ROWS.get(places) or pairs not in _PAIRS:
        raise LanguageError(
            "load_pairs: rows are 3 powers of two that make 16, with 4 or 8 places, or 8, with 16, "
            f"and threads read 1, 2 or 4 pairs, not {extents}, {places} and {pairs}"
        )
    if not element.endswith("float16"):
        raise LanguageError(f"load_pairs: elements are of float16 or bfloat16, not {element}")
    return _declared(extents, places, pairs, element)


@cache
def _declared(rows: tuple[int, ...], places: int, pairs: int, element: str) -> Instruction:
    names = ("i0", "i1", "i2")
    axes = (*names, "q", "e", "c")
    extents = (*rows, places, pairs, 2)
    own, registers = _divided(rows), prod(rows) * places // _LANES
    slots_of_thread = 2 * registers  # elements that a thread has of one fragment

    def cuda(pointers: Sequence[str], where: Sequence[Sequence[str]]) -> str:
        slots, strides = where
        lanes = [
            f"(threadIdx.x >> {first + 2} & {(1 << count) - 1}) * {strides[d]}"
            for d, (first, count) in enumerate(_of_lanes(own))
            if count
        ]
        lanes.append(f"(threadIdx.x & 3) * {strides[3]}")
        taken = [
            [slots[slots_of_thread * e + 2 * n] for e in range(pairs)] for n in range(registers)
        ]
        if places == _TURNED:
            return "\n".join(_turned(pointers, taken, lanes, strides[3]))
        far = _far(rows, own, strides, registers)
        return "\n".join(
            _read(pointers, first, " + ".join(lanes), behind)
            for first, behind in zip(taken, far, strict=True)
        )

    bits = [tuple(_ROW_BITS[b] for b in mine) for mine in own]
    behind = slots_of_thread.bit_length() - 1
    words = tuple(f"slot {behind + b}" for b in range(pairs.bit_length() - 1))
    return decl_instruction(
        f"load_pairs_{element}_{'x'.join(map(str, rows))}_{places}_{pairs}",
        axes=tuple(Axis(a, n) for a, n in zip(axes, extents, strict=True)),
        operands=(
            Argument(
                "D", axes, element, align=4, scopes=("fragment",),
                fragment=(*bits, _PLACE_BITS[places], words, ("slot 0",)),
            ),
            Argument(
                "S", axes, element, align=4 * pairs, scopes=("shared",),
                strides=(None, None, None, None, 2, 1), swizzles=(0, *WIDTHS),
            ),
        ),
        body=lambda d, s: s,
        emissions={"cuda": cuda},
        cuda_arch=80,
        simulate=_copy,
    )  # fmt: skip


def _far(
    rows: Sequence[int], own: Sequence[Sequence[int]], strides: Sequence[str], registers: int
) -> list[str]:
    """How far behind a thread's first word those of its registers lie, of one fragment."""
    low = next(d for d, bits in enumerate(own) if len(_ROW_BITS) - 1 in bits)
    below, behind = f"{rows[low] // 2} * {strides[low]}", f"4 * {strides[3]}"
    return ["", below, behind, f"{below} + {behind}"][:registers]


def _turned(
    pointers: Sequence[str], taken: Sequence[Sequence[str]], lanes: Sequence[str], step: str
) -> list[str]:
    """Loads of two registers of a product each, which change places in threads of odd rows."""
    lines = []
    for first in range(0, len(taken), 2):
        pair = [[_register(pointers[0], slot) for slot in slots] for slots in taken[first:][:2]]
        behind = f"{4 * first} * {step}" if first else ""
        for words, turn in zip(pair, ("threadIdx.x & 4", "4 - (threadIdx.x & 4)"), strict=True):
            at = " + ".join([*lanes, f"({turn}) * {step}"])
            lines.append(_load(pointers[1], words, at, behind))
        lines += [f"{EXCHANGE}({even}, {odd});" for even, odd in zip(*pair, strict=True)]
    return lines


def _divided(rows: Sequence[int]) -> list[list[int]]:
    """The bits of a row's number that each of its axes has, the last axis the lowest.

    >>> _divided((1, 2, 8))
    [[], [3], [0, 1, 2]]
    """
    found: list[list[int]] = []
    first = 0
    for extent in reversed(rows):
        count = extent.bit_length() - 1
        found.insert(0, list(range(first, first + count)))
        first += count
    return found


def _of_lanes(own: Sequence[Sequence[int]]) -> list[tuple[int, int]]:
    """Of each axis, its first bit and how many of its bits are of a thread's number."""
    last = len(_ROW_BITS) - 1
    return [(min(bits, default=0), len([b for b in bits if b < last])) for bits in own]


def _read(pointers: Sequence[str], slots: Sequence[str], offset: str, far: str) -> str:
    """One load of a thread into the registers that begin at ``slots``."""
    registers = [_register(pointers[0], slot) for slot in slots]
    apart = "".join(f"\n{x} = {OWN}({x});" for x in registers) if len(slots) > 1 else ""
    return _load(pointers[1], registers, offset, far) + apart


def _register(pointer: str, slot: str) -> str:
    return f"*reinterpret_cast<unsigned *>({pointer} + {slot})"


def _load(pointer: str, targets: Sequence[str], offset: str, far: str) -> str:
    """One load of a thread of a word for each of ``targets``."""
    count = len(targets)
    names = ", ".join(f"%{k}" for k in range(count))
    vector, into = (f".v{count}", f"{{{names}}}") if count > 1 else ("", names)
    outs = ", ".join(f'"=r"({x})' for x in targets)
    return (
        f'asm volatile("ld.shared{vector}.b32 {into}, [%{count}];"\n'
        f"    : {outs}\n"
        f'    : "r"({shared_address(pointer, offset, far)})\n'
        f'    : "memory");'
    )


def _copy(view: Any) -> None:
    view.write_block(0, view.read_block(1))
