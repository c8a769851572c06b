"""What records of earlier versions call the library's schedules and their parameters."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from tilewright.ir.errors import ScheduleError
from tilewright.topi.templates import TEMPLATES

#: Templates of another name now, with the same parameters.
RENAMED = {
    "cpu.im2col": "cpu.products",
    "gpu.im2col": "gpu.products",
    "gpu.im2col_mma": "gpu.products_mma",
}
#: Those that are gone, and what is faster wherever they were.
GONE = {
    "gpu.diagonal": "gpu.channel_pairs",
    "gpu.diagonal_wgrad": "gpu.reduction_pixel_tiles",
    "gpu.direct": "gpu.strips",
    "gpu.fourier": "gpu.toeplitz",
    "gpu.reduction_plane_tiles": "gpu.reduction_planes",
    "gpu.sparse_diagonal": "gpu.sparse_pairs",
    "gpu.staged_band_gradient": "gpu.band_gradient",
}
#: Parameters that a template has no more, and what it does now always.
FIXED = {
    "gpu.channel_pairs": {"boxed": 1},
    "gpu.sparse_pairs": {"boxed": 1},
}


def resolve(name: str, values: Mapping[str, int]) -> tuple[str, dict[str, int]]:
    """The template of a record, and its parameters, under the names of this version.

    Raises :class:`ScheduleError` that says what to do for a template or a parameter that there is
    no more, or that there never was.
    """
    mend = "Tune the problem again"
    name = RENAMED.get(name, name)
    if name in GONE:
        raise ScheduleError(
            f"the library has no schedule {name!r} any more: {GONE[name]} is faster", mend=mend
        )
    if name not in TEMPLATES:
        raise ScheduleError(f"the library has no schedule {name!r}", mend=mend)
    known, fixed = {f.name for f in dataclasses.fields(TEMPLATES[name].config)}, FIXED.get(name, {})
    for parameter in sorted(set(values) - known):
        if parameter not in fixed or fixed[parameter] != values[parameter]:
            raise ScheduleError(
                f"template {name} has no parameter {parameter} that is {values[parameter]}",
                mend=mend,
            )
    return name, {k: v for k, v in values.items() if k in known}
