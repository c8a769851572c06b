"""Boxes of tensors in global memory, as tensor maps describe them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tilewright.arith.affine import as_affine
from tilewright.ir.buffer import Buffer
from tilewright.ir.expr import Expr, IntImm, Var
from tilewright.ir.stmt import Access
from tilewright.ir.visit import uses
from tilewright.target.instruction import through_widening

#: Dimensions that a map may have.
MOST_DIMENSIONS = 5
#: What strides, but that of the last dimension, are multiples of, in bytes.
STRIDE = 16
#: Types of elements that maps are of.
TYPES = ("float16", "bfloat16", "float32", "float64", "int8", "uint8", "int16", "uint16", "int32",
         "uint32", "int64", "uint64")  # fmt: skip
_MEND = "copy rows of it with copy_async"


@dataclass(frozen=True)
class TensorMap:
    """What the host describes to the copying unit: boxes of one parameter of a kernel.

    ``param`` is its position among the kernel's; ``box`` holds an extent a dimension, the outermost
    first; ``swizzle`` is in bytes.
    """

    param: int
    box: tuple[int, ...]
    swizzle: int = 0


def box_of(access: Access, axes: Sequence[Var], extents: Sequence[int]) -> tuple[int, ...] | str:
    """The extents of a box by dimension of its buffer, or why no map has it.

    ``access`` is an element of it by ``axes``.
    """
    found: list[int] = []
    left = list(zip(axes, extents, strict=True))
    own = {v for v, n in left if n > 1}
    for index in access.indices:
        form = as_affine(index, through_widening)
        here = [v for v in own if uses(index, {v})]
        if len(here) > 1 or any(
            uses(atom, own) for atom in form.terms if not isinstance(atom, Var)
        ):
            return f"index {index} is not one axis of the box and where it begins"
        if not here:
            found.append(1)
            continue
        while left and left[0][0] is not here[0]:
            if left.pop(0)[1] > 1:
                return "its dimensions are not those of the box in their order"
        if not left:
            return "its dimensions are not those of the box in their order"
        if form.coefficient(here[0]) != 1:
            return f"index {index} skips elements"
        found.append(left.pop(0)[1])
    if any(extent > 1 for _, extent in left):
        return "an axis of the box is along none of its dimensions"
    return tuple(found)


def limits(buffer: Buffer) -> str:
    """Why there is no map of a tensor, with what to do instead; empty where there is one.

    Strides that only a call fixes are left to the launch.
    """
    if len(buffer.shape) > MOST_DIMENSIONS:
        return (
            f"{buffer.name} has {len(buffer.shape)} dimensions, a tensor map {MOST_DIMENSIONS} at "
            f"most: declare it with some of them joined, or {_MEND}"
        )
    *outer, last = buffer.strides
    if not isinstance(last, IntImm) or last.value != 1:
        return f"neighbours along the last dimension of {buffer.name} do not lie side by side"
    for d, stride in enumerate(outer):
        problem = stride_problem(buffer, d, stride.value) if isinstance(stride, IntImm) else ""
        if problem:
            return problem
    return ""


def stride_problem(buffer: Buffer, dimension: int, stride: int) -> str:
    """Why a map cannot have a dimension whose elements are ``stride`` apart."""
    size = stride * buffer.dtype.bytes
    if size % STRIDE == 0 and 0 < size < 1 << 40:
        return ""
    return (
        f"along dimension {dimension} of {buffer.name} elements are {size} bytes apart, in a "
        f"tensor map they are a multiple of {STRIDE}: pad its rows, or {_MEND}"
    )


def inside(access: Access, extents: Sequence[Expr]) -> list[Expr]:
    """What holds of an element that lies in the tensor, one condition a bound."""
    found: list[Expr] = []
    for index, extent in zip(access.indices, extents, strict=True):
        found += [index >= 0, index < extent]
    return found
