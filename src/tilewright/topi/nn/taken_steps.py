"""What sums take over of the steps behind them: their filter is scaled, and they begin with a bias.

A product with a number a channel is one with each tap of a filter, of which there are fewer than
results where a thread has many of one channel. An addition is what sums begin with, for nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tilewright import te
from tilewright.ir.dtype import dtype
from tilewright.te import Tensor
from tilewright.topi.nn.steps import scale_and_shift
from tilewright.topi.problem import Problem

#: What SiLU multiplies its argument with: exponentials are powers of two.
_EXPONENT = -1 / math.log(2)


@dataclass(frozen=True)
class Taken:
    """The first ``steps`` of an epilogue, as ``scale`` of the filter and what sums ``begin`` with,
    functions of the channel of a result, or None. ``unit`` times the sums is what the other steps
    are given."""

    steps: int = 0
    scale: Callable[[Any], Any] | None = None
    begin: Callable[[Any], Any] | None = None
    unit: float = 1.0

    def scaled(self, p: Problem, filter: Tensor) -> Tensor:
        """The filter, in the type of sums where it is scaled."""
        if self.scale is None:
            return filter
        scale = self.scale
        made: Tensor = te.compute(
            filter.shape,
            lambda c, m, *at: (
                filter[(c, m, *at)].astype(p.accumulate) * scale(c * p.multiplier + m)
            ),
            name="ScaledFilter",
        )
        return made


def bias_alone(p: Problem, inputs: dict[str, Tensor]) -> Taken:
    """What sums take over by themselves, with a filter as it is: a bias in a forward pass."""
    if p.pass_ != "forward" or not p.epilogue or p.epilogue[0].name != "bias":
        return Taken()
    bias = inputs["bias"]
    return Taken(1, None, lambda c: bias[c].astype(p.accumulate))


def all_products(p: Problem, inputs: dict[str, Tensor]) -> Taken:
    """What they and a scaled filter take over in a forward pass, where sums have more than 16 bits:
    a bias, or a product and a sum; then the product in the exponent of a SiLU that is rounded to
    float16, whose sums are far from the largest of float32."""
    plain = bias_alone(p, inputs)
    if p.pass_ != "forward" or not p.epilogue or dtype(p.accumulate).bytes <= 2:
        return plain
    scale, begin, steps = None, plain.begin, plain.steps
    factors = scale_and_shift(p.epilogue[0], p.accumulate, inputs)
    if factors is not None:
        steps = 1
        scale, begin = (lambda c: factors(c)[0]), (lambda c: factors(c)[1])
    if p.dtype != "float16" or [step.name for step in p.epilogue[steps : steps + 1]] != ["silu"]:
        return Taken(steps, scale, begin)
    factor = te.const(_EXPONENT, p.accumulate)
    # A plain product would be fused with each sum that begins with it, whose own first product then
    # is an instruction more.
    begun = begin and (lambda c: te.fma(begin(c), factor, te.const(0.0, p.accumulate)))
    scaled = (lambda c: factor) if scale is None else (lambda c: scale(c) * factor)
    return Taken(steps, scaled, begun, 1 / _EXPONENT)
