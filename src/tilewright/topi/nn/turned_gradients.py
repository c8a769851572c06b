"""Gradients by the filter as forward passes whose channels are images: both operands are turned.

Tensor cores read TF32 only where it lies along the sum, which of a gradient by the filter is over
images and pixels. With images last, an element of the gradient is a result of a convolution: that
of x, each channel an image and each image a channel, by dy as a filter that is as large as its
images, with stride and dilation exchanged. Both operands are copied so; no tap is repeated in a
copy, and no pixel of an image is padded.
"""

from __future__ import annotations

from typing import Any

from tilewright import te
from tilewright.ir.errors import ScheduleError
from tilewright.ir.expr import IntImm
from tilewright.te import Tensor
from tilewright.topi.declare import placeholders
from tilewright.topi.nn.box_copies import widths
from tilewright.topi.nn.box_image_sums import image_sums
from tilewright.topi.nn.box_sums import BoxDeclaration
from tilewright.topi.nn.images import Images, or_zero
from tilewright.topi.operators.convolution import Convolution


def as_forward(p: Convolution) -> Convolution:
    """The forward pass that computes a gradient by the filter of one group: a channel of ``p`` is
    an image of it, and an image of ``p``, filled up to what an instruction sums, a channel."""
    before = [d.before for d in p.dims]
    after = [
        (k - 1) * d.dilation + (o - 1) * d.stride + 1 - d.extent - d.before
        for d, k, o in zip(p.dims, p.kernel, p.out_image, strict=True)
    ]
    # Pixels behind the last that a window sees are left out.
    image = [d.extent + min(0, n) for d, n in zip(p.dims, after, strict=True)]
    deep = widths(p.dtype).deep
    return p.resized(
        image, p.out_image, pass_="forward", batch=p.channels, channels=-(-p.batch // deep) * deep,
        stride=p.dilation, dilation=p.stride, padding=(*before, *(max(0, n) for n in after)),
    )  # fmt: skip


def declare_turned_gradient(p: Convolution, given: Any = None) -> BoxDeclaration:
    """The program of a gradient by the filter in TF32, of images with channels last, in one group;
    a tile has any channels and taps that follow one another."""
    inputs, made = placeholders(p, given), as_forward(p)
    image, grad = inputs["data"], inputs["grad"]
    if not isinstance(image.shape[0], IntImm):
        raise ScheduleError(
            "a gradient by the filter whose operands are turned is one of a batch that is known",
            mend="Build it for each batch",
        )
    images = Images(p.layout)

    def turned(x: Tensor, channels: int, extents: Any, name: str) -> Tensor:
        def element(c: Any, n: Any, at: list[Any]) -> Any:
            inside = [n < p.batch] if made.channels > p.batch else []
            return or_zero(inside, x[images.order(n, c, at)])

        return images.compute(channels, made.channels, extents, element, name)

    data = turned(image, p.channels, made.image, "ImagesLast")
    filter = turned(grad, p.out_channels, p.out_image, "GradLast")
    sums = image_sums(made, data, filter, p.channels, whole=False, pixels=True)

    def element(m: Any, *at: Any) -> Any:
        *taps, c = at
        for t, k in zip(taps, p.kernel, strict=True):
            c = c * k + t
        return sums.total[(c, *(0 for _ in taps), m)]

    result = te.compute(p.filter_shape, element, name="ConvWgrad")
    return BoxDeclaration(
        p, inputs, result, sums.total, None, None, sums, copies=(data, filter), placed=True
    )


#: The declaration of this module, by name.
FORMS = {"turned": declare_turned_gradient}
