"""Gradients by the filter in TF32 as products of boxes, one operand of which is turned.

Tensor cores read TF32 from shared memory only where it lies along the sum, which of a gradient by
the filter is over images and pixels, and from registers as any thread has it. So one operand is
copied with images last, that of fewer elements; of the other, which lies with channels last,
threads load what they multiply. A step is a pixel of some images: what a tap sees of them is
another box of the same copy.

Threads that load four rows at once would meet half the banks of swizzled rows: those of eight
images that they load are two apart, and the copy has images in that order.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from tilewright import te
from tilewright.ir.errors import ScheduleError
from tilewright.ir.expr import IntImm
from tilewright.topi.declare import placeholders
from tilewright.topi.nn.box_factors import EIGHT, WHOLE, up
from tilewright.topi.nn.box_image_sums import spatial_axes
from tilewright.topi.nn.box_problems import widths
from tilewright.topi.nn.box_sums import BoxDeclaration, BoxSums
from tilewright.topi.nn.images import Images, or_zero, within
from tilewright.topi.operators.convolution import Convolution


def turns_grad(p: Convolution) -> bool:
    """Whether dy is turned: where TMA can bring x as it lies, and not dy; or both, and dy has fewer
    elements than what taps see of x."""
    x, dy = (n % widths(p.dtype).chunk == 0 for n in (p.channels, p.out_channels))
    if x != dy:
        return x
    return p.out_channels * math.prod(p.out_image) < p.channels * math.prod(seen(p))


def seen(p: Convolution) -> tuple[int, ...]:
    """The extents of images of a copy of x: of a single tap, those of dy; else up to the last
    pixel that any sees."""
    if _sees_a_tap(p):
        return p.out_image
    return tuple(
        min(d.extent, (k - 1) * d.dilation + (o - 1) * d.stride + 1 - d.before)
        for d, k, o in zip(p.dims, p.kernel, p.out_image, strict=True)
    )


def copied(p: Convolution) -> int:
    """Elements of the operand that is turned."""
    number = widths(p.dtype).filled(p.batch)
    if turns_grad(p):
        return number * p.out_channels * math.prod(p.out_image)
    return number * p.channels * math.prod(seen(p))


def declare_turned_gradient(p: Convolution, given: Any = None) -> BoxDeclaration:
    """The program of a gradient by the filter in TF32, of images of two dimensions with channels
    last, in one group. Rows of the product are filters, or channels where dy is turned."""
    inputs, by_grad = placeholders(p, given), turns_grad(p)
    image, grad = inputs["data"], inputs["grad"]
    if not isinstance(image.shape[0], IntImm):
        raise ScheduleError(
            "a gradient by the filter of which an operand is turned is one of a batch that is "
            "known",
            mend="Build it for each batch",
        )
    w, images, number = widths(p.dtype), Images(p.layout), widths(p.dtype).filled(p.batch)
    steps = [d.stride for d in p.dims]
    thinned = not by_grad and _sees_a_tap(p)  # a copy of x has what is seen alone
    read, extents, wide = (grad, p.out_image, p.out_channels)
    if not by_grad:
        read, extents, wide = image, seen(p), p.channels

    def turned(c: Any, n: Any, at: list[Any]) -> Any:
        n = n // EIGHT * EIGHT + n % 4 * 2 + n % EIGHT // 4
        place = [i * step for i, step in zip(at, steps, strict=True)] if thinned else at
        found = read[images.order(n, c, place)]
        return or_zero([n < p.batch] if number > p.batch else [], found)

    copy = images.compute(wide, number, extents, turned, "Turned")

    def through(at: Sequence[Any], tap: Sequence[Any]) -> list[Any]:
        """Where a pixel of dy sees x through a tap; without one, or of what is thinned, itself."""
        if thinned or not tap:
            return list(at)
        each = zip(at, tap, p.dims, strict=True)
        return [o * d.stride + t * d.dilation - d.before for o, t, d in each]

    other, own, high = (
        (image, p.image, p.channels) if by_grad else (grad, p.out_image, p.out_channels)
    )
    taps = p.kernel if by_grad else ()

    def row(*at: Any) -> Any:
        *tap, part, n, y, x, c = at
        c, place = part * w.row + c, through((y, x), tap)
        inside = [n < p.batch, c < high, *within(place, own)]
        return or_zero(inside, other[images.order(n, c, place)])

    def column(*at: Any) -> Any:
        *tap, c, y, x, n = at
        place = through((y, x), tap)
        # Steps of a part may lie behind the last.
        inside = [c < wide, n < number, *within(place, extents)]
        return or_zero(inside, copy[(c, *place, n)])

    rows = (*taps, up(high, WHOLE) // w.row, number, *p.out_image, w.row)
    left = te.compute(rows, row, name="Rows")
    columns = (*(() if by_grad else p.kernel), up(wide, WHOLE), *p.out_image, number)
    right = te.compute(columns, column, name="Columns")
    eight, half, pair = (
        te.reduce_axis((0, e), name)
        for e, name in ((number // EIGHT, "rn"), (2, "half"), (EIGHT // 2, "pair"))
    )
    y, x = spatial_axes(p.out_image)

    def element(m: Any, r: Any, s: Any, c: Any) -> Any:
        one, two = ([r, s], []) if by_grad else ([], [r, s])
        value = left[(*one, m // w.row, eight * EIGHT + pair * 2 + half, y, x, m % w.row)]
        found = right[(*two, c, y, x, eight * EIGHT + half * 4 + pair)]
        return te.sum(value * found, axis=[eight, y, x, half, pair])

    total = result = te.compute((high, *p.kernel, wide), element, name="Sums")
    if by_grad:
        result = te.compute(p.filter_shape, lambda m, r, s, c: total[c, r, s, m], name="ConvWgrad")
    sums = BoxSums(total, left, right, pixels=(w.step(p.batch), 1, 1))
    return BoxDeclaration(
        p, inputs, result, total, None, None, sums, copies=(copy,), placed=by_grad
    )


def _sees_a_tap(p: Convolution) -> bool:
    """Whether results see one pixel each, of those that are a stride apart."""
    return max(p.kernel) == 1 and not any(p.padding)


#: The declaration of this module, by name.
FORMS = {"turned": declare_turned_gradient}
