"""Boxes of a tensor, copied to shared memory by a unit of their own: cp.async.bulk.tensor, "TMA".

One thread asks for a box of up to five dimensions of a tensor in global memory; what of it lies
outside of the tensor is zero. The elements do not pass through registers, and no thread computes
their addresses: the tensor, its strides and the box are in a map that the host makes at the launch
(PTX ISA, "cp.async.bulk.tensor"; CUDA driver API, "Tensor Map Object Management"). The copy is
waited for on the queue "tma", or "tma_late".

A box lies in shared memory row by row, without gaps, or its rows are swizzled as those of a stage
under ``swizzle(bytes)``.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from math import prod
from typing import Any

from tilewright.ir.dtype import dtype
from tilewright.ir.errors import LanguageError
from tilewright.ir.swizzle import CHUNK, WIDTHS
from tilewright.target.boxes import MOST_DIMENSIONS, TYPES
from tilewright.target.instruction import Argument, Axis, Instruction, decl_instruction
from tilewright.target.queues import LATE_TILES, TILES

#: The largest extent of a box.
LARGEST = 256
#: Blocks of a cluster, on all machines that have some.
MOST_BLOCKS = 8
#: What a box in shared memory begins at a multiple of, in bytes.
ALIGN = 128
_MEND = "Copy rows of 4, 8 or 16 bytes with copy_async instead"


def tma_load(
    box: Sequence[int],
    element: str = "float16",
    swizzle: int = 0,
    windows: bool = False,
    cluster: int = 1,
    late: bool = False,
) -> Instruction:
    """The copy of a box of ``element``, with its extents from the outermost dimension in.

    Parameters
    ----------
    box : 1 to 5 extents of at most 256; the last is a multiple of 16 bytes long. Dimensions of the
        tensor in which the box is one element wide may be left out.
    swizzle : by how many bytes the rows in shared memory are swizzled, which is their length: 32,
        64 or 128, or 0 where they are not.
    windows : whether the box has results of a convolution that follow one another, by channels, of
        what they see through a tap of images with channels last (:mod:`tilewright.target.windows`).
    cluster : how many neighbouring blocks along ``blockIdx.x`` have the same box, 1 to 8: one of
        them asks for it, and it is copied to the shared memory of all ("multicast"). They run side
        by side, and a copy of a pipeline is filled again when all of them have done with theirs.
        The proof asks that these blocks copy the same boxes in the same order.
    late : whether it is waited for later than boxes that are asked for after it. Loads end in
        their order, so that others would be waited for with it; it has a queue of its own.

    Raises :class:`LanguageError` where there is no such copy.
    """
    extents = tuple(box)
    name = checked("tma_load", extents, element, swizzle, _MEND)
    if windows and len(extents) != 2:
        raise LanguageError(
            f"tma_load: {name}: one of windows has results by channels. Give it these two extents"
        )
    if not 1 <= cluster <= MOST_BLOCKS:
        raise LanguageError(
            f"tma_load: {name}: a cluster of {cluster} blocks: there are clusters of 1 to "
            f"{MOST_BLOCKS}"
        )
    return _declared(extents, element, swizzle, windows, cluster, late)


def checked(what: str, extents: tuple[int, ...], element: str, swizzle: int, otherwise: str) -> str:
    """The name of a box that TMA copies; raises :class:`LanguageError`, with what to do
    ``otherwise``, where there is none."""
    name = f"a box of {' x '.join(map(str, extents))} {element}"
    if element not in TYPES:
        raise LanguageError(f"{what}: there are no tensor maps of {element}. {otherwise}")
    if not 1 <= len(extents) <= MOST_DIMENSIONS or not all(
        isinstance(n, int) and 1 <= n <= LARGEST for n in extents
    ):
        raise LanguageError(
            f"{what}: {name}: there are 1 to {MOST_DIMENSIONS} extents of 1 to {LARGEST}. Split "
            f"the axes of the tile, and load a box in each iteration"
        )
    row = extents[-1] * dtype(element).bytes
    if row % CHUNK:
        raise LanguageError(
            f"{what}: {name}: its rows are {row} bytes long, no multiple of {CHUNK}. {otherwise}"
        )
    if swizzle not in (0, *WIDTHS):
        raise LanguageError(f"{what}: there is no swizzle of {swizzle!r} bytes: {WIDTHS}, or 0")
    if swizzle and row != swizzle:
        fitting = swizzle // dtype(element).bytes
        raise LanguageError(
            f"{what}: {name}: its rows are {row} bytes long, and swizzled by {swizzle} bytes "
            f"they are that long. Make the box {fitting} elements wide, or swizzle by "
            f"{row if row in WIDTHS else 0} bytes"
        )
    return name


@cache
def _declared(
    box: tuple[int, ...], element: str, swizzle: int, windows: bool, cluster: int, late: bool
) -> Instruction:
    queue = LATE_TILES if late else TILES
    axes = tuple(f"d{k}" for k in range(len(box)))
    size = prod(box) * dtype(element).bytes
    dense = [prod(box[k + 1 :]) for k in range(len(box))]

    def cuda(pointers: Sequence[str], places: Sequence[Sequence[str]]) -> str:
        load = ("load_windows" if windows else "load") + ("_to_all" if cluster > 1 else "")
        return f"{queue}.{load}({pointers[0]}, {pointers[1]}, {size}, {', '.join(places[1])});"

    extents = "x".join(map(str, box))
    return decl_instruction(
        f"tma_load_{element}_{extents}" + (f"_s{swizzle}" if swizzle else "") + "_w" * windows
        + (f"_c{cluster}" if cluster > 1 else "") + "_late" * late,
        axes=[Axis(a, n) for a, n in zip(axes, box, strict=True)],
        operands=(
            Argument(
                "D", axes, element, strides=tuple(dense), align=ALIGN, scopes=("shared",),
                swizzles=(swizzle,),
            ),
            Argument("S", axes, element, scopes=("global",)),
        ),
        body=lambda d, s: s,
        emissions={"cuda": cuda},
        cuda_arch=90,
        simulate=_copy,
        queue=queue,
        tensor_map=True,
        windows=windows,
        cluster=cluster,
    )  # fmt: skip


def named(
    element: str, box: str, swizzle: str, windows: str, cluster: str, late: str
) -> Instruction:
    """The instruction by the parts of its name.

    >>> named("float16", "64x32", "_s64", "_w", "_c2", "").name
    'tma_load_float16_64x32_s64_w_c2'
    """
    extents = tuple(map(int, box.split("x")))
    swizzled, blocks = int(swizzle[2:] or 0), int(cluster[2:] or 1)
    return tma_load(extents, element, swizzled, bool(windows), blocks, bool(late))


def _copy(view: Any) -> None:
    view.meet()
    view.write_block(0, view.read_block(1, zeros_outside=True))
