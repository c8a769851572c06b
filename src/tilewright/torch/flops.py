"""What PyTorch's ``FlopCounterMode`` counts for the operators, of the shapes of their operands: two
for each product, as for its own convolutions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

Sizes = Sequence[int]


def by_output(x: Any, weight: Sizes, *_: Any, out_shape: Sizes, **__: Any) -> int:
    """Of a convolution, by the pixels of its output."""
    return 2 * math.prod(out_shape) * math.prod(weight[1:])


def by_gradient(grad: Sizes, weight: Sizes, *_: Any, **__: Any) -> int:
    """Of the gradient by the input, and of a transposed convolution."""
    return 2 * math.prod(grad) * math.prod(weight[1:])


def by_kernel(x: Any, grad: Sizes, kernel: Sizes, *_: Any, **__: Any) -> int:
    """Of the gradient by the weight.

    It counts what is computed; PyTorch's formula for this gradient takes no groups into account.
    """
    return 2 * math.prod(grad) * math.prod(kernel)
