"""Programs of a convolution's results as schedules take them."""

from __future__ import annotations

import functools
from dataclasses import replace
from typing import Any

from tilewright.topi.nn.box_sums import BoxDeclaration
from tilewright.topi.operators.conv_program import ConvProgram, pooled_window


def declare_pooled(p: ConvProgram, given: Any = None, form: str = "") -> BoxDeclaration:
    """The program of a problem whose results are pooled, behind a ``form`` of its convolution."""
    d = p.behind(p.inner.declare_as(form, given), given)
    assert isinstance(d, BoxDeclaration)
    (before,) = d.output.op.inputs
    return replace(d, before=before, pooled=pooled_window(p))


#: The declarations of this module, by name.
FORMS: dict[str, Any] = {
    f"pooled {name}": functools.partial(declare_pooled, form=name)
    for name in ("boxes", "whole boxes", "pixels")
}
