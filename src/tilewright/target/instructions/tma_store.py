"""Boxes of a tensor, stored from shared memory by TMA: cp.async.bulk.tensor to global memory.

One thread asks for a box; what of it lies outside of the tensor is left out. It reads shared memory
in the background, as the tensor's map says, and that is waited for on the queue "tma_store", before
it is written again and before the kernel ends: what was stored another kernel may read (PTX ISA,
"cp.async.bulk.tensor", "cp.async.bulk.wait_group"). The box lies there as one that
:mod:`.tma_load` has copied.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from math import prod
from typing import Any

from tilewright.target.instruction import Argument, Axis, Instruction, decl_instruction
from tilewright.target.instructions.tma_load import ALIGN, checked


def tma_store(box: Sequence[int], element: str = "float16", swizzle: int = 0) -> Instruction:
    """The store of a box of ``element``, with its extents from the outermost dimension in.

    Parameters
    ----------
    box, swizzle : as of :func:`~tilewright.target.instructions.tma_load.tma_load`.

    Raises :class:`LanguageError` where there is no such store.
    """
    extents = tuple(box)
    checked("tma_store", extents, element, swizzle, "Store rows with vectorized loops instead")
    return _declared(extents, element, swizzle)


@cache
def _declared(box: tuple[int, ...], element: str, swizzle: int) -> Instruction:
    axes = tuple(f"d{k}" for k in range(len(box)))
    dense = [prod(box[k + 1 :]) for k in range(len(box))]

    def cuda(pointers: Sequence[str], places: Sequence[Sequence[str]]) -> str:
        begins = list(reversed(places[1]))
        named = ", ".join(f"%{2 + k}" for k in range(len(begins)))
        values = ", ".join(f'"r"({place})' for place in begins)
        return (
            f'asm volatile("cp.async.bulk.tensor.{len(begins)}d.global.shared::cta.bulk_group'
            f' [%0, {{{named}}}], [%1];"\n    :: "l"({pointers[1]}), '
            f'"r"((unsigned)__cvta_generic_to_shared({pointers[0]})), {values} : "memory");'
        )

    extents = "x".join(map(str, box))
    return decl_instruction(
        f"tma_store_{element}_{extents}" + (f"_s{swizzle}" if swizzle else ""),
        axes=[Axis(a, n) for a, n in zip(axes, box, strict=True)],
        operands=(
            Argument("D", axes, element, scopes=("global",)),
            Argument(
                "S", axes, element, strides=tuple(dense), align=ALIGN, scopes=("shared",),
                swizzles=(swizzle,),
            ),
        ),
        body=lambda d, s: s,
        emissions={"cuda": cuda},
        cuda_arch=90,
        simulate=_copy,
        queue="tma_store",
        tensor_map=True,
    )  # fmt: skip


def named(element: str, box: str, swizzle: str) -> Instruction:
    """The instruction by the parts of its name.

    >>> named("float16", "64x64", "_s128").name
    'tma_store_float16_64x64_s128'
    """
    return tma_store(tuple(map(int, box.split("x"))), element, int(swizzle[2:] or 0))


def _copy(view: Any) -> None:
    view.write_block(0, view.read_block(1, inside=0), none_outside=True)
