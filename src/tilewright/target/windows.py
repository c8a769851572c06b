"""Boxes of pixels of windows, as TMA copies them in its im2col mode.

Results of a convolution lie one after the other, row by row and image by image. What some that
follow one another see through a tap are pixels as far apart as the stride, from one row or image to
the next; those outside of an image are zeros (CUDA driver API, cuTensorMapEncodeIm2col; PTX ISA,
"im2col mode").
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tilewright.arith import Analyzer
from tilewright.arith.affine import as_affine
from tilewright.ir.expr import Expr, FloorDiv, FloorMod, IntImm, Var
from tilewright.ir.ops import add, const, floordiv, floormod, mul
from tilewright.ir.stmt import Access
from tilewright.ir.visit import substitute, uses

#: Dimensions of a tensor that windows slide over: image, row, column, channel.
DIMENSIONS = 4
#: What corners may lie within, and offsets of taps may be at most.
_CORNERS, OFFSET = range(-128, 128), 255
#: How far apart results may be.
_MOST_STEP = 8


@dataclass(frozen=True)
class Window:
    """Results of ``grid`` rows and columns an image, whose windows are ``steps`` pixels apart, the
    first at ``first``."""

    grid: tuple[int, ...]
    steps: tuple[int, ...]
    first: tuple[int, ...]

    def last(self, image: Sequence[int]) -> tuple[int, ...]:
        """Where the last window begins, from the last pixel of an image on."""
        each = zip(self.grid, self.steps, self.first, image, strict=True)
        return tuple(low + (count - 1) * step - (extent - 1) for count, step, low, extent in each)

    def limits(self, image: Sequence[int]) -> str:
        """Why there is no map of it; empty where there is one."""
        if not all(1 <= step <= _MOST_STEP for step in self.steps):
            return f"windows are {self.steps} pixels apart: at most {_MOST_STEP}"
        if not all(x in _CORNERS for x in (*self.first, *self.last(image))):
            return f"windows begin at {self.first}, {self.last(image)} from the end: within 128"
        return ""


def window_of(
    access: Access, axes: Sequence[Var], extents: Sequence[int], analyzer: Analyzer
) -> tuple[Expr, ...] | str:
    """Where windows are that ``access`` is of, by ``axes`` of ``extents``, the number of a result
    and a channel: the number of the first result, the row and the column of the tap, then
    :class:`Window` by its fields; or why it is of none. Indices have to be as they were declared,
    not simplified: ``n // (h * w)``, ``n // w % h * step + tap - before``, and columns alike."""
    if len(access.indices) != DIMENSIONS or len(axes) != 2:
        return "a tensor of images, rows, columns and channels, and boxes of results by channels"
    image, row, column, channel = access.indices
    pixel = axes[0]
    match image:
        case FloorDiv(number, IntImm(_, size)):
            pass
        case _:
            return f"index {image} is not the number of a result over those of an image"
    if as_affine(number).coefficient(pixel) != 1 or uses(number, {axes[1]}):
        return f"{number} does not count results along {pixel.name}"
    if uses(channel, {pixel}) or as_affine(channel).coefficient(axes[1]) != 1:
        return f"index {channel} is not that of a channel"
    wide = _modulus(column, number)
    if not wide or size % wide:
        return f"index {column} is not that of a column of {number}"
    grid = size // wide, wide
    found, taps = [], []
    numbers = floordiv(number, const(wide, number.dtype)), number
    for index, one, count, full in zip(
        (row, column), numbers, grid, access.buffer.shape[1:3], strict=True
    ):
        form, atom = as_affine(index), floormod(one, const(count, number.dtype))
        step = form.coefficient(atom)
        tap = form.without(atom)
        if not step or not isinstance(full, IntImm):
            return f"index {index} is not that of a result of {grid} an image"
        offset = (tap - tap.const).to_expr(index.dtype)
        with analyzer.scope():
            if uses(offset, {pixel, axes[1]}) or not (
                analyzer.prove(offset >= 0) and analyzer.prove(offset <= OFFSET)
            ):
                return f"{offset} is not known to be the place of a tap, of 0 to {OFFSET}"
        found.append((step, tap.const))
        taps.append(offset)
    (high_step, top), (wide_step, left) = found
    window = Window(grid, (high_step, wide_step), (top, left))
    rows, columns = (int(x.value) for x in access.buffer.shape[1:3] if isinstance(x, IntImm))
    problem = window.limits((rows, columns))
    if problem:
        return problem
    start = substitute(number, {pixel: const(0, pixel.dtype)})
    fixed = (*window.grid, *window.steps, *window.first)
    return (start, *taps, *(const(x, number.dtype) for x in fixed))


def _modulus(index: Expr, number: Expr) -> int:
    """What a number is divided by in an index that has its remainder; 0 where it has none."""
    for atom in as_affine(index).terms:
        match atom:
            case FloorMod(a, IntImm(_, count)) if a is number:
                return int(count)
    return 0


def opened(access: Access, axes: Sequence[Var]) -> tuple[Window, tuple[Expr, ...]]:
    """The window of an operand, and where a box of it by ``axes`` begins: image, row, column,
    channel, the row and the column of the tap."""
    first, *taps = access.window[:3]
    values = []
    for x in access.window[3:]:
        assert isinstance(x, IntImm)
        values.append(x.value)
    high, wide, *others = values
    window = Window((high, wide), (others[0], others[1]), (others[2], others[3]))
    t = first.dtype
    rows = floormod(floordiv(first, const(wide, t)), const(high, t))
    columns = floormod(first, const(wide, t))
    begins = [
        add(mul(x, const(step, t)), const(low, t))
        for x, step, low in zip((rows, columns), window.steps, window.first, strict=True)
    ]
    image = floordiv(first, const(high * wide, t))
    channel = substitute(access.indices[-1], {axis: const(0, axis.dtype) for axis in axes})
    return window, (image, *begins, channel, *taps)
