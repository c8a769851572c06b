"""Gradients by the input with strides of few channels, whose phases are channels of one result.

Results that are a stride apart see dy through the same taps, and those of all phases the same
pixels of it. So the gradient is a forward pass of dy without strides, whose result has the
channels of every phase, by a copy of the filter that has zeros where a phase lacks a tap; another
kernel puts the phases between one another. An instruction then reads a pixel of dy once for all of
them, where each phase by itself leaves most of its columns empty.
"""

from __future__ import annotations

import math
from typing import Any

from tilewright import te
from tilewright.topi.declare import placeholders
from tilewright.topi.nn.box_image_sums import image_sums
from tilewright.topi.nn.box_phases import all_phases, is_phased, tap_of_phase
from tilewright.topi.nn.box_sums import BoxDeclaration
from tilewright.topi.nn.images import Images, or_zero
from tilewright.topi.operators.convolution import Convolution


def as_merged(p: Convolution) -> Convolution | None:
    """The forward pass; None where there is none."""
    if not is_phased(p) or p.groups > 1 or p.is_depthwise or p.rank != 2:
        return None
    if p.epilogue or set(p.dilation) != {1}:
        return None
    cut = all_phases(p)
    if any(len(c.phases) != s for c, s in zip(cut, p.stride, strict=True)):
        return None
    rows = [-(-e // s) for e, s in zip(p.image, p.stride, strict=True)]
    before = [-c.first for c in cut]
    each = zip(rows, cut, p.out_image, before, strict=True)
    after = [n + c.taps - 1 - e - b for n, c, e, b in each]
    if min(*before, *after) < 0:
        return None
    return p.resized(
        p.out_image, [c.taps for c in cut], pass_="forward", channels=p.out_channels,
        multiplier=math.prod(p.stride) * p.channels, stride=(1, 1), padding=(*before, *after),
    )  # fmt: skip


def declare_merged_phases(p: Convolution, given: Any = None) -> BoxDeclaration:
    """The program of a problem that :func:`as_merged` takes, of whole boxes; the results of the
    forward pass are ``by_pixels``."""
    inputs, made = placeholders(p, given), as_merged(p)
    assert made is not None
    grad, filter = inputs["grad"], inputs["filter"]

    def tap(f: Any, *at: Any) -> Any:
        *taps, m = at
        place, inside = tap_of_phase(p, f // p.channels, taps)
        return or_zero(inside, filter[p.filter_place(m, f % p.channels, place)])

    taps = te.compute(made.filter_shape, tap, name="Merged")
    sums, images = image_sums(made, grad, taps, grad.shape[0], whole=True), Images(p.layout)
    phases = images.compute(
        grad.shape[0], made.out_channels, made.out_image,
        lambda n, c, at: sums.total[(n, *at, c)], "Phases",
    )  # fmt: skip

    def element(n: Any, c: Any, at: list[Any]) -> Any:
        phase = 0
        for i, step in zip(at, p.stride, strict=True):
            phase = phase * step + i % step
        place = [i // step for i, step in zip(at, p.stride, strict=True)]
        return phases[images.order(n, phase * p.channels + c, place)]

    result = images.compute(grad.shape[0], p.channels, p.image, element, "ConvDgrad")
    return BoxDeclaration(
        made, inputs, result, sums.total, None, None, sums, copies=(taps,), by_pixels=phases
    )


#: The declaration of this module, by name.
FORMS = {"merged phases": declare_merged_phases}
