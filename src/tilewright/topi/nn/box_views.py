"""Operands and results of boxes in other layouts: with channels last, as pixels, or as rows."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from tilewright.te import Tensor
from tilewright.topi.declare import relaid
from tilewright.topi.nn.box_copies import laid
from tilewright.topi.nn.box_problems import in_boxes
from tilewright.topi.nn.box_sums import BoxDeclaration
from tilewright.topi.nn.images import Images
from tilewright.topi.operators.convolution import Convolution


def with_copies(
    p: Convolution, brought: Convolution, inputs: dict[str, Tensor], laid: dict[str, Tensor],
    d: BoxDeclaration,
) -> BoxDeclaration:  # fmt: skip
    """A declaration whose operands are copied where they lie otherwise, but those that are copied
    again, as a filter is of groups that are joined."""
    made = in_boxes(p)
    if made is None or made.channels != brought.channels:
        return d
    names = [] if p.layout == brought.layout else ["data"]
    if not d.copies and laid.get("filter") is not inputs.get("filter"):
        names.append("filter")
    return replace(d, copies=(*(laid[name] for name in names), *d.copies))


def views_of(p: Convolution, brought: Convolution, inputs: dict[str, Tensor]) -> dict[str, Tensor]:
    """The inputs of a problem as they lie in that which is brought."""
    views, last = dict(inputs), Images(brought.result_layout)
    if "residual" in inputs and p.result_layout != brought.result_layout:
        views["residual"] = relaid(
            inputs["residual"], Images(p.result_layout), last, "residual.last"
        )
    if p.layout != brought.layout:
        image, filter = inputs["data"], inputs["filter"]
        views["data"], views["filter"] = laid(p, brought, image, filter, image.shape[0])
    return views


def gathered(p: Convolution, inputs: dict[str, Tensor], d: BoxDeclaration) -> BoxDeclaration:
    """The declaration of a problem from that of its results with channels last: as they are, or in
    images of a row or of a pixel each."""
    images, batch = Images(p.result_layout), next(iter(inputs.values())).shape[0]
    space = [int(e) for e in images.extents(p.result.shape)[2]]
    made = [int(e) for e in d.output.shape[1:-1]]

    def element(n: Any, c: Any, at: list[Any]) -> Any:
        if made == space:
            return d.output[(n, *at, c)]
        pixel = 0 if made[-1] > 1 else n
        for i, extent in zip(at, space, strict=True):
            pixel = pixel * extent + i
        if made[-1] > 1:
            return d.output[(n, *([0] * (len(made) - 1)), pixel, c)]
        return d.output[(pixel, *([0] * len(made)), c)]

    output = images.compute(batch, p.result_channels, space, element, "ByPixels")
    return replace(d, problem=p, inputs=inputs, output=output, by_pixels=d.output)


def as_pixels(x: Tensor, layout: str, rows: bool = False) -> Tensor:
    """Images as ones of a pixel each, or of a row."""
    images = Images(layout)
    batch, channels, space = images.extents(x.shape)
    count = math.prod(space)

    def pixel(n: Any, c: Any, at: list[Any]) -> Any:
        found, i = list[Any](), at[-1] if rows else n
        for extent in reversed(space[1:] if rows else space):
            found.append(i % extent)
            i = i // extent
        if rows:
            return x[images.order(n, c, [i, *reversed(found)])]
        return x[images.order(i, c, found[::-1])]

    one = [1] * (len(space) - 1)
    if rows:
        return images.compute(batch, channels, [*one, count], pixel, f"{x.name}.pixels")
    return images.compute(batch * count, channels, [*one, 1], pixel, f"{x.name}.pixels")
