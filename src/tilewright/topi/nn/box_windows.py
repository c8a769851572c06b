"""Convolution as products of boxes: what a tap sees of a tile of results is a box of the image.

Of images with channels last, tap (r, s) of a tile of results reads one box: as many images, rows
and columns, as far apart as the stride, shifted by the tap. So a convolution is a sum over taps and
channels of products of matrices that TMA brings as they are, without im2col: rows are pixels,
channels lie side by side. A gradient by the input is the same of dy and the filter turned, with
strides for each phase of the results by itself; one by the filter multiplies boxes of dy with boxes
of x, summed over pixels.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

from tilewright import te
from tilewright.te import Tensor
from tilewright.topi.declare import finished, finished_by_channel, placeholders
from tilewright.topi.nn.box_copies import Boxed, boxed, filter_last
from tilewright.topi.nn.box_factors import BESIDE, PAIR, Added, in_eights
from tilewright.topi.nn.box_filter_sums import filter_sums
from tilewright.topi.nn.box_image_sums import image_sums
from tilewright.topi.nn.box_phase_sums import declare_phases
from tilewright.topi.nn.box_phases import is_phased
from tilewright.topi.nn.box_problems import as_brought, by_pixels, copies_filter
from tilewright.topi.nn.box_sums import BoxDeclaration, BoxSums
from tilewright.topi.nn.box_views import as_pixels, gathered, views_of, with_copies
from tilewright.topi.nn.convolved import Convolved
from tilewright.topi.nn.images import Images
from tilewright.topi.operators.convolution import IMAGES, OPERANDS, Convolution


def declare_boxes(
    p: Convolution, given: Any = None, whole: bool = False, staged: bool = False, beside: int = 1,
    held: bool = False,
) -> BoxDeclaration:  # fmt: skip
    """The program of a problem; ``given`` as in :func:`~tilewright.topi.declare.declare`. Images
    are read ``whole``, or by taps; what results see of whole ones is a stage where it is
    ``staged``. Of blocks, ``beside`` pixels of a row are read side by side. Of a gradient by the
    input whose filter threads have ``held``, that is read as it lies."""
    inputs, brought = placeholders(p, given), as_brought(p)
    pixels = by_pixels(brought)
    if pixels == p:
        return _declare(p, inputs, whole, staged, beside=beside, held=held)
    views = laid = views_of(p, brought, inputs)
    if pixels != brought:
        views = views | {
            name: as_pixels(
                x, brought.result_layout if name == "residual" else brought.layout,
                bool(brought.block),
            )
            for name, x in views.items() if name in IMAGES
        }  # fmt: skip
    layout = p.result_layout
    if p.is_relaid and pixels != brought and not brought.block:
        layout = "NCHW"  # pixels of several images are no box of what is added, either
    if p.layout == brought.layout and copies_filter(p, whole):
        views = views | {"filter": filter_last(p, inputs["filter"])}
        laid = views
    d = with_copies(
        p, brought, inputs, laid, _declare(pixels, views, whole, staged, layout, beside, held)
    )
    as_it_lies = p.pass_ == "wgrad" or _turned_alone(p, pixels)
    return replace(d, problem=p, inputs=inputs) if as_it_lies else gathered(p, inputs, d)


def _turned_alone(p: Convolution, pixels: Convolution) -> bool:
    """Whether only the image lies otherwise than in the problem that is computed."""
    return not p.is_quantized and p.is_relaid and p.result.shape == pixels.result.shape


def declare_pixels(p: Convolution, given: Any = None, held: bool = False) -> BoxDeclaration:
    """The same where a tile has any results that follow one another, also from one row or image to
    the next; of a phase if there are some. Of a gradient by the filter, a step has such pixels."""
    inputs, brought = placeholders(p, given), as_brought(p)
    if by_pixels(brought) != brought and not brought.block:
        return declare_boxes(p, given, held=held)  # whose images have a pixel each
    views = laid = views_of(p, brought, inputs)
    first, second = (views[name] for name in OPERANDS[p.pass_])
    batch = first.shape[0]
    if "residual" in inputs:
        residual = as_pixels(views["residual"], brought.result_layout)
        views = views | {"residual": residual}
    if p.pass_ == "wgrad":
        b = boxed(brought, first, as_pixels(second, brought.layout), batch)
        sums = filter_sums(b.problem, b.first, b.second, batch, whole=False, windows=True)
        d = with_copies(p, brought, inputs, laid, _gradient(brought, views, sums, b))
        return replace(d, problem=p, inputs=inputs)
    b = boxed(brought, first, second, batch, held)
    if is_phased(p):
        return declare_phases(p, inputs, b, whole=False, pixels=True)
    sums = image_sums(b.problem, b.first, b.second, batch, whole=False, pixels=True)
    total, gone = sums.total, [0] * (len(p.image) - p.rank)
    result = Images(brought.result_layout).compute(
        total.shape[0], p.result_channels, [1] * p.rank,
        lambda n, c, at: total[(n, *gone, *at, c)], "Conv",
    )  # fmt: skip
    d = declared_with_epilogue(brought, views, result, sums, b, p.result_layout)
    return gathered(p, inputs, with_copies(p, brought, inputs, laid, d))


def _declare(
    p: Convolution, inputs: dict[str, Tensor], whole: bool, staged: bool, layout: str = "",
    beside: int = 1, held: bool = False,
) -> BoxDeclaration:  # fmt: skip
    first, second = (inputs[name] for name in OPERANDS[p.pass_])
    b = boxed(p, first, second, first.shape[0], held)
    if is_phased(p):
        return declare_phases(p, inputs, b, whole, staged=staged)
    eights = staged and in_eights(p)
    sums = sums_of(
        b.problem, b.first, b.second, first.shape[0], whole, staged, beside=beside, eights=eights
    )
    total, gone = sums.total, [0] * (len(p.image) - p.rank)
    if p.pass_ == "wgrad":
        return _gradient(p, inputs, sums, b)

    def element(n: Any, c: Any, at: list[Any]) -> Any:
        if beside > 1:
            at = [*at[:-1], at[-1] // beside, at[-1] % beside]
        return total[(n, *gone, *at, c)]

    extents = Convolved(p).result[len(gone) :]
    result = Images(p.result_layout).compute(
        first.shape[0], p.result_channels, extents, element, "Conv"
    )
    return declared_with_epilogue(p, inputs, result, sums, b, layout)


def _gradient(p: Convolution, inputs: dict[str, Tensor], sums: BoxSums, b: Boxed) -> BoxDeclaration:
    """The declaration of a gradient by the filter with these sums."""
    result, gone = sums.total, [0] * (len(p.image) - p.rank)
    if b.place is not None or gone:
        place = b.place or (lambda *at: at)
        result = te.compute(
            p.filter_shape, lambda m, *at: sums.total[place(m, *gone, *at)], name="ConvWgrad"
        )
    return declared(p, inputs, finished(p, result, inputs), sums, (), b)


def declare_whole_boxes(p: Convolution, given: Any = None) -> BoxDeclaration:
    """The same, where taps read parts of one box."""
    return declare_boxes(p, given, whole=True)


def declare_rows(p: Convolution, given: Any = None) -> BoxDeclaration:
    """The same of images in blocks, of which a row of shared memory has several pixels."""
    return declare_boxes(p, given, beside=BESIDE)


def declare_pairs(p: Convolution, given: Any = None) -> BoxDeclaration:
    """The same of pairs of pixels."""
    return declare_boxes(p, given, beside=PAIR)


def declare_seen_boxes(p: Convolution, given: Any = None) -> BoxDeclaration:
    """The same, where what results see through each tap is a stage."""
    return declare_boxes(p, given, whole=True, staged=True)


def declared(
    p: Any, inputs: dict[str, Tensor], output: Tensor, sums: BoxSums,
    numbers: tuple[Tensor, ...], b: Boxed,
) -> BoxDeclaration:  # fmt: skip
    """The declaration of a problem with these sums."""
    return BoxDeclaration(
        p, inputs, output, sums.total, None, None, sums, numbers, b.copies,
        placed=b.place is not None,
    )  # fmt: skip


def declared_with_epilogue(
    p: Any, inputs: dict[str, Tensor], result: Tensor, sums: BoxSums, b: Boxed, layout: str = ""
) -> BoxDeclaration:
    """The same, of results with channels last, whose epilogue is not computed yet; what is added to
    them lies in that ``layout``, if not so."""
    added = Added.of(p, inputs, layout)
    output, numbers = finished_by_channel(p, result, {**inputs, **added})
    found = declared(p, inputs, output, sums, numbers, b)
    return replace(found, added=tuple(x.tensor for x in added.values()))


def sums_of(
    p: Convolution, first: Any, second: Any, batch: Any, whole: bool = False, staged: bool = False,
    each: bool = False, beside: int = 1, eights: bool = False,
) -> BoxSums:  # fmt: skip
    """The sums of a problem of ``batch`` images; operands are anything that is read by the indices
    of the problem's, behind that of the image where there is a filter for ``each``."""
    if p.pass_ == "wgrad":
        return filter_sums(p, first, second, batch, whole)
    return image_sums(p, first, second, batch, whole, False, staged, each, beside, eights)


def declare_undivided(p: Convolution, given: Any = None) -> BoxDeclaration:
    """The same of 3xTF32 whose factors are copied to shared memory whole, not in halves."""
    return replace(declare_boxes(p.replace(precision="exact"), given), problem=p)


#: The declaration of this module, by name.
FORMS = {
    "boxes": declare_boxes, "whole boxes": declare_whole_boxes, "seen boxes": declare_seen_boxes,
    "pixels": declare_pixels, "block rows": declare_rows, "block pairs": declare_pairs,
    "undivided": declare_undivided, "held boxes": partial(declare_boxes, held=True),
    "held pixels": partial(declare_pixels, held=True),
}  # fmt: skip
