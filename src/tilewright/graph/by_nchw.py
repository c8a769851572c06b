"""Convolutions with channels last that are faster by way of NCHW.

Tensor cores take large filters in NCHW alone, where a row of an image is contiguous. Copies
into that layout and back cost as much as a filter of some ten by ten does on the other cores.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from tilewright.ir.errors import TilewrightError
from tilewright.target import Target
from tilewright.topi.operators.conv import Conv

if TYPE_CHECKING:
    from tilewright.select.choice import Choice

#: Of an H200, others have less of both: bytes a second, read and written, of a copy that changes
#: the layout (assumed), and additions and multiplications a second of channels-last kernels without
#: tensor cores (docs/benchmarks.md).
_COPIED, _COMPUTED = 1e12, 20e12


def is_faster_by_nchw(problem: Conv, target: Target, policy: str = "heuristic") -> bool:
    """Whether a channels-last problem is better done in NCHW, copies included.

    By what both were measured to take, where the policy "profile" has done so; else where there are
    kernels for tensor cores in NCHW alone, by an estimate.

    >>> large = Conv(batch=64, channels=128, height=56, width=56, kernel_h=31, kernel_w=31,
    ...                 padding=15, dtype="float16", layout="NHWC")
    >>> is_faster_by_nchw(large, Target.parse("cuda -arch=sm_90a"))
    True
    >>> small = large.replace(kernel_h=5, kernel_w=5, padding=(2, 2, 2, 2))
    >>> is_faster_by_nchw(small, Target.parse("cuda -arch=sm_90a"))
    False
    """
    if problem.layout != "NHWC" or target.kind != "cuda":
        return False
    pixels, results = math.prod(problem.image), math.prod(problem.out_image)
    numbers = problem.batch * (problem.channels * pixels + problem.out_channels * results)
    bytes_ = {"float64": 8, "float32": 4}.get(problem.dtype, 2)
    copies = 2.0 * numbers * bytes_ / _COPIED  # read and written
    direct = problem.nominal_flops / _COMPUTED  # they do not skip the padding
    if direct < copies:
        return False  # most layers: nothing has to be looked up, nor loaded
    from tilewright.select.choice import options

    try:
        here = next(options(problem, target, policy))
        there = next(options(problem.replace(layout="NCHW"), target, policy))
    except (TilewrightError, StopIteration):
        return False
    if here.seconds is not None and there.seconds is not None:
        return there.seconds + copies < here.seconds
    alone = _takes_tensor_cores(there) and not _takes_tensor_cores(here)
    return alone and direct > 2 * copies


def _takes_tensor_cores(choice: Choice) -> bool:
    from tilewright.select.algorithm import Scheduled

    algorithm = choice.algorithm
    return isinstance(algorithm, Scheduled) and algorithm.template.matrices
