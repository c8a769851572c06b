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

#: How far apart results may be, and images of how many dimensions there are maps of.
_MOST_STEP, _RANKS = 8, (1, 2, 3)


def most_offset(rank: int) -> int:
    """How far a tap may be from the corner of its window, in images of ``rank`` dimensions: an
    instruction has 16 bits for all of them.

    >>> [most_offset(rank) for rank in (1, 2, 3)]
    [65535, 255, 31]
    """
    return (1 << 16 // rank) - 1


@dataclass(frozen=True)
class Window:
    """Results of ``grid`` extents an image, outermost first, whose windows are ``steps`` pixels
    apart, the first at ``first``."""

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
        corner = (most_offset(len(self.grid)) + 1) // 2
        if not all(-corner <= x < corner for x in (*self.first, *self.last(image))):
            return (
                f"windows begin at {self.first}, {self.last(image)} from the end: within {corner}"
            )
        return ""


def window_of(
    access: Access, axes: Sequence[Var], extents: Sequence[int], analyzer: Analyzer
) -> tuple[Expr, ...] | str:
    """Where windows are that ``access`` is of, by ``axes`` of ``extents``, the number of a result
    and a channel: the number of the first result, the place of the tap along each dimension of an
    image, then :class:`Window` by its fields; or why it is of none. Indices have to be as they were
    declared, not simplified: ``n // (h * w)``, ``n // w % h * step + tap - before``, and so on."""
    if len(access.indices) - 2 not in _RANKS or len(axes) != 2:
        return (
            "a tensor of images of 1 to 3 dimensions and channels, and boxes of results by channels"
        )
    image, *space, channel = access.indices
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
    grid, steps, first, taps = list[int](), list[int](), list[int](), list[Expr]()
    inner = 1
    for index in reversed(space):
        one = _over(number, inner)
        count = _modulus(index, one)
        if not count:
            return f"index {index} is not that of a result, of which {number} is the number"
        form, atom = as_affine(index), floormod(one, const(count, number.dtype))
        tap = form.without(atom)
        offset, most = (tap - tap.const).to_expr(index.dtype), most_offset(len(space))
        with analyzer.scope():
            if uses(offset, {pixel, axes[1]}) or not (
                analyzer.prove(offset >= 0) and analyzer.prove(offset <= most)
            ):
                return f"{offset} is not known to be the place of a tap, of 0 to {most}"
        inner *= count
        grid.insert(0, count)
        steps.insert(0, form.coefficient(atom))
        first.insert(0, tap.const)
        taps.insert(0, offset)
    if inner != size:
        return f"index {image} is not that of an image, of {inner} results each"
    window = Window(tuple(grid), tuple(steps), tuple(first))
    full = [int(x.value) for x in access.buffer.shape[1:-1] if isinstance(x, IntImm)]
    if len(full) != len(space):
        return f"images of {access.buffer.shape[1:-1]} are not all of one size"
    problem = window.limits(full)
    if problem:
        return problem
    start = substitute(number, {pixel: const(0, pixel.dtype)})
    fixed = (*window.grid, *window.steps, *window.first)
    return (start, *taps, *(const(x, number.dtype) for x in fixed))


def _over(number: Expr, count: int) -> Expr:
    return number if count == 1 else floordiv(number, const(count, number.dtype))


def _modulus(index: Expr, number: Expr) -> int:
    """What a number is divided by in an index that has its remainder; 0 where it has none."""
    for atom in as_affine(index).terms:
        match atom:
            case FloorMod(a, IntImm(_, count)) if a is number:
                return int(count)
    return 0


def opened(access: Access, axes: Sequence[Var]) -> tuple[Window, tuple[Expr, ...]]:
    """The window of an operand, and where a box of it by ``axes`` begins: image, the place along
    each of its dimensions, channel, and those of the tap."""
    rank = len(access.indices) - 2
    first, *taps = access.window[: 1 + rank]
    values = []
    for x in access.window[1 + rank :]:
        assert isinstance(x, IntImm)
        values.append(int(x.value))
    window = Window(*(tuple(values[k * rank : (k + 1) * rank]) for k in range(3)))
    t = first.dtype
    begins, inner = list[Expr](), 1
    for count, step, low in reversed(
        list(zip(window.grid, window.steps, window.first, strict=True))
    ):
        at = floormod(_over(first, inner), const(count, t))
        begins.insert(0, add(mul(at, const(step, t)), const(low, t)))
        inner *= count
    image = floordiv(first, const(inner, t))
    channel = substitute(access.indices[-1], {axis: const(0, axis.dtype) for axis in axes})
    return window, (image, *begins, channel, *taps)
