"""Strides with gaps, so that neighbouring rows of a buffer fall into different memory banks.

A tile of 32 x 32 floats in shared memory has all of a column in one bank. With its row stride
made 1 modulo 32, that is 33, a column touches every bank once:

>>> from tilewright.ir.ops import const
>>> aligned_strides((const(32), const(32)), {0: (32, 1)})
(33, 1)

The same primitive aligns rows for vector loads: a row of 30 floats to a multiple of 4.

>>> aligned_strides((const(8), const(30)), {0: (4, 0)})
(32, 1)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tilewright.ir.expr import Expr
from tilewright.ir.ops import add, const, floormod, mul, sub


def aligned_strides(
    shape: Sequence[Expr], alignments: Mapping[int, tuple[int, int]]
) -> tuple[Expr, ...]:
    """Row-major strides, in elements, the smallest that satisfy ``alignments``.

    ``alignments`` maps a dimension to (factor, offset): its stride is ``offset`` modulo
    ``factor``, as ``storage_align`` of TVM has it.
    """
    strides: list[Expr] = []
    step: Expr = const(1)
    for dim in reversed(range(len(shape))):
        if dim in alignments:
            factor, offset = alignments[dim]
            gap = floormod(sub(const(factor + offset % factor), floormod(step, factor)), factor)
            step = add(step, gap)
        strides.append(step)
        step = mul(step, shape[dim])
    return tuple(reversed(strides))
