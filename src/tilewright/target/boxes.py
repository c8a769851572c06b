"""Boxes of tensors in global memory, as tensor maps describe them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tilewright.arith import Analyzer
from tilewright.arith.affine import as_affine
from tilewright.ir.buffer import Buffer
from tilewright.ir.dtype import FLOAT8
from tilewright.ir.expr import Expr, IntImm, Var
from tilewright.ir.ops import const
from tilewright.ir.stmt import Access
from tilewright.ir.visit import substitute, uses
from tilewright.target.instruction import through_widening

#: Dimensions that a map may have.
MOST_DIMENSIONS = 5
#: What strides, but that of the last dimension, are multiples of, in bytes, and where along that a
#: box begins. Where along other dimensions is free, and may be before the first element.
STRIDE = 16
#: How many elements apart those of a box may be, and how far it may reach in all.
MOST_STEP, REACH = 8, 256
#: Types of elements that maps are of.
TYPES = ("float16", "bfloat16", "float32", "float64", *FLOAT8, "int8", "uint8", "int16", "uint16",
         "int32", "uint32", "int64", "uint64")  # fmt: skip
_MEND = "copy rows of it with copy_async"


@dataclass(frozen=True)
class Box:
    """Of which dimensions of a tensor a box has how many elements, the outermost of the box first.

    A box may go through the dimensions of its tensor in another order, but for the last one.
    ``steps`` is how far its elements are apart along each, empty where that is 1.
    """

    dimensions: tuple[int, ...]
    extents: tuple[int, ...]
    steps: tuple[int, ...] = ()


@dataclass(frozen=True)
class TensorMap:
    """What the host describes to TMA: boxes of one parameter of a kernel.

    ``param`` is its position among the kernel's; ``swizzle`` is in bytes.
    """

    param: int
    box: Box
    swizzle: int = 0

    @property
    def row(self) -> list[Any]:
        """The map as JSON has it."""
        box = self.box
        steps = [[*box.steps]] if box.steps else []
        return [self.param, [*box.dimensions], [*box.extents], self.swizzle, *steps]

    @staticmethod
    def of(row: Sequence[Any]) -> TensorMap:
        """The map that :attr:`row` is of."""
        param, dimensions, extents, swizzle, *steps = row
        return TensorMap(param, Box(*map(tuple, (dimensions, extents, *steps))), swizzle)


def box_of(access: Access, axes: Sequence[Var], extents: Sequence[int]) -> Box | str:
    """The box of which ``access``, by ``axes`` of ``extents``, is an element; or why it is none."""
    own = {v: n for v, n in zip(axes, extents, strict=True) if n > 1}
    found: dict[Var, int] = {}
    steps: dict[Var, int] = {}
    rest: list[int] = []
    for d, index in enumerate(access.indices):
        form = as_affine(index, through_widening)
        here = [v for v in own if uses(index, {v})]
        if len(here) > 1 or any(
            uses(atom, set(own)) for atom in form.terms if not isinstance(atom, Var)
        ):
            return f"index {index} is not one axis of the box and where it begins"
        if not here:
            rest.append(d)
        elif here[0] in found:
            return f"{here[0].name} is along two of its dimensions"
        else:
            step = form.coefficient(here[0])
            if not 1 <= step <= MOST_STEP or step * own[here[0]] > REACH:
                return (
                    f"index {index} takes {own[here[0]]} elements, {step} apart: at most "
                    f"{MOST_STEP} apart, over {REACH} elements"
                )
            found[here[0]], steps[here[0]] = d, step
    for v in own:
        if v not in found:
            return f"{v.name} is along none of its dimensions"
    if found.get(axes[-1]) != len(access.indices) - 1:
        return "the rows of the box are not along its last dimension"
    if steps[axes[-1]] != 1:
        return f"index {access.indices[-1]} skips elements"
    single, along = [1] * len(rest), [found[v] for v in own]
    apart = (*single, *(steps[v] for v in own)) if set(steps.values()) != {1} else ()
    return Box((*rest, *along), (*single, *own.values()), apart)


def limits(buffer: Buffer) -> str:
    """Why there is no map of a tensor, with what to do instead; empty where there is one.

    Strides that only a call fixes are left to the launch.
    """
    if len(buffer.shape) > MOST_DIMENSIONS:
        return (
            f"{buffer.name} has {len(buffer.shape)} dimensions, a tensor map {MOST_DIMENSIONS} at "
            f"most: declare it with some of them joined, or {_MEND}"
        )
    *outer, last = _strides(buffer)
    if last != 1:
        return f"neighbours along the last dimension of {buffer.name} do not lie side by side"
    for d, stride in enumerate(outer):
        problem = "" if stride is None else stride_problem(buffer, d, stride)
        if problem:
            return problem
    return ""


def _strides(buffer: Buffer) -> list[int | None]:
    """Those of a buffer that are constants, which may be more than the type of its indices holds;
    None of the others."""
    shape = buffer.constant_shape
    if buffer.layout is None and shape is not None:
        return [math.prod(shape[d + 1 :]) for d in range(len(shape))]
    return [s.value if isinstance(s, IntImm) else None for s in buffer.strides]


def stride_problem(buffer: Buffer, dimension: int, stride: int) -> str:
    """Why a map cannot have a dimension whose elements are ``stride`` apart."""
    size = stride * buffer.dtype.bytes
    if size % STRIDE == 0 and 0 < size < 1 << 40:
        return ""
    return (
        f"along dimension {dimension} of {buffer.name} elements are {size} bytes apart, in a "
        f"tensor map they are a multiple of {STRIDE}, less than 2**40: pad its rows, or {_MEND}"
    )


def start_problem(access: Access, axis: Var, analyzer: Analyzer) -> str:
    """Why the box of which ``access`` is an element, by ``axis`` along the last dimension of the
    tensor, cannot begin where it does; empty where that is known to be a multiple of 16 bytes.

    TMA stops with "illegal instruction" anywhere else.
    """
    kind = access.buffer.dtype
    whole = max(1, STRIDE // kind.bytes)
    start = analyzer.simplify(substitute(access.indices[-1], {axis: const(0, axis.dtype)}))
    if analyzer.prove(start % whole == 0):
        return ""
    return (
        f"along {axis.name} it begins at element {start} of the last dimension of "
        f"{access.buffer.name}, and it is not known that this is a multiple of {whole} {kind}, "
        f"which are {STRIDE} bytes: begin the stage at the multiple before, that many elements "
        f"wider, or {_MEND}"
    )


def inside(access: Access, extents: Sequence[Expr]) -> list[Expr]:
    """What holds of an element that lies in the tensor, one condition a bound."""
    found: list[Expr] = []
    for index, extent in zip(access.indices, extents, strict=True):
        found += [index >= 0, index < extent]
    return found
