"""Copies from global to shared memory that go on while their thread does: cp.async (PTX ISA).

A thread asks for 4, 8 or 16 bytes, which do not pass through its registers, and waits on the queue
"cp.async" before it, or behind a barrier another thread, may read them. Where a stage has zeros
instead, as in a padding, ``if_then_else`` with a condition that is one for all of the elements
stays around the copy, and the zeros are stored.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

from tilewright.ir.dtype import dtype
from tilewright.ir.errors import LanguageError
from tilewright.ir.swizzle import WIDTHS
from tilewright.target.instruction import Argument, Axis, Instruction, decl_instruction
from tilewright.target.instructions._shared import shared_address

#: Bytes that a thread may ask for.
SIZES = (4, 8, 16)


def copy_async(count: int, element: str = "float32") -> Instruction:
    """The copy of ``count`` neighbours of type ``element``, of 4, 8 or 16 bytes in all.

    Raises :class:`LanguageError` where they are of another size.
    """
    size = count * dtype(element).bytes
    if size not in SIZES:
        raise LanguageError(
            f"there is no asynchronous copy of {count} {element}, which are {size} bytes: it is of "
            f"{', '.join(map(str, SIZES))} bytes"
        )
    return _declared(count, element, size)


@cache
def _declared(count: int, element: str, size: int) -> Instruction:
    def cuda(pointers: Sequence[str], places: Sequence[Sequence[str]]) -> str:
        # Past the L1 cache where it may be: what is in shared memory is not read again.
        cached = "cg" if size == 16 else "ca"
        return (
            f'asm volatile("cp.async.{cached}.shared.global [%0], [%1], {size};"\n'
            f'    :: "r"({shared_address(pointers[0])}), "l"({pointers[1]})\n'
            '    : "memory");'
        )

    return decl_instruction(
        f"copy_async_{element}_{count}",
        axes=(Axis("i", count),),
        operands=(
            Argument(
                "D", ("i",), element, align=size, scopes=("shared",), strides=(1,),
                swizzles=(0, *WIDTHS),
            ),
            Argument("S", ("i",), element, align=size, scopes=("global",), strides=(1,)),
        ),
        body=lambda d, s: s,
        emissions={"cuda": cuda},
        cuda_arch=80,
        simulate=_copy,
        queue="cp.async",
    )  # fmt: skip


def _copy(view: Any) -> None:
    view.write_block(0, view.read_block(1))
