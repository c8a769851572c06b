"""What sums take over of the steps behind them: their filter is scaled, and they begin with a bias.

A product with a number a channel is one with each tap of a filter, of which there are fewer than
results where a thread has many of one channel. An addition is what sums begin with, for nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

from tilewright import te
from tilewright.ir.dtype import dtype
from tilewright.te import Tensor
from tilewright.topi.nn.steps import scale_and_shift
from tilewright.topi.operators.convolution import Convolution

#: What SiLU multiplies its argument with: exponentials are powers of two.
_EXPONENT = -1 / math.log(2)


#: A number of each channel of the result.
ByChannel: TypeAlias = Callable[[Any], Any]


@dataclass(frozen=True)
class Taken:
    """The first ``steps`` of an epilogue, as ``scale`` of the filter and as what sums ``begin``
    with. ``unit`` times the sums is what the other steps are given."""

    steps: int = 0
    scale: ByChannel | None = None
    begin: ByChannel | None = None
    unit: float = 1.0


NOTHING = Taken()


def bias_alone(p: Convolution, inputs: dict[str, Tensor]) -> Taken:
    """What sums take over by themselves, with a filter as it is: a bias in a forward pass."""
    if p.pass_ != "forward" or p.is_quantized or not p.epilogue or p.epilogue[0].name != "bias":
        return NOTHING
    bias = inputs["bias"]
    return Taken(1, None, lambda c: bias[c].astype(p.accumulate))


def all_products(p: Convolution, inputs: dict[str, Tensor]) -> Taken:
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
