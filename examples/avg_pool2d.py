"""An operator that the library does not have, in one file: average pooling and its gradient.

tilewright --load examples/avg_pool2d.py bench avg_pool2d --shape 8x64x56x56 --size 2
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

from tilewright import te
from tilewright.topi import Declared, Problem, ProblemError, TensorType


@dataclass(frozen=True, kw_only=True)
class AvgPool2d(Problem):
    """The means of windows of ``size`` x ``size`` of (N, C, H, W), ``stride`` apart."""

    NAMES = ("avg_pool2d",)
    PASSES: ClassVar = {"forward": "", "dgrad": "data"}
    shape: tuple[int, ...]
    size: int = 2
    stride: int = 0  # as the size

    def check(self) -> None:
        self.put("stride", self.stride or self.size)
        self.sizes("size", "stride")
        self.put("shape", tuple(self.shape))
        if len(self.shape) != 4 or min(self.shape[2:]) < self.size:
            raise ProblemError(f"windows of {self.size} x {self.size} of an image of {self.shape}")

    @classmethod
    def of_shapes(cls, data: tuple[int, ...], **more: Any) -> AvgPool2d:
        return cls(shape=data, **more)

    def _tensor(self, outside: bool) -> TensorType:
        *outer, high, wide = self.shape
        image = [(n - self.size) // self.stride + 1 for n in (high, wide)]
        return TensorType((*outer, *image) if outside else self.shape, self.dtype)

    def inputs(self) -> dict[str, TensorType]:
        back = self.pass_ == "dgrad"
        return {"grad" if back else "data": self._tensor(outside=back)}

    @property
    def result(self) -> TensorType:
        return self._tensor(outside=self.pass_ == "forward")

    @property
    def flops(self) -> int:
        return math.prod(self._tensor(outside=True).shape) * self.size**2

    def declare(self, given: Any = None) -> Declared:
        (name, (shape, dtype)), k, s = *self.inputs().items(), self.size, self.stride
        x = te.placeholder(shape, dtype, name=name)
        taps = te.reduce_axis((0, k), "i"), te.reduce_axis((0, k), "j")

        def tap(n: Any, c: Any, *at: Any) -> Any:
            if self.pass_ == "forward":
                places = [o * s + t for o, t in zip(at, taps, strict=True)]
                return te.sum(x[(n, c, *places)].astype(self.accumulate), axis=taps)
            shifted = [y - t for y, t in zip(at, taps, strict=True)]
            inside = [y >= 0 for y in shifted] + [y % s == 0 for y in shifted]
            inside += [y // s < n for y, n in zip(shifted, shape[2:], strict=True)]
            value = x[(n, c, *(y // s for y in shifted))].astype(self.accumulate)
            return te.sum(te.if_then_else(te.all(*inside), value, te.const(0, value.dtype)), taps)

        total = te.compute(self.result.shape, tap, name="total")
        scale = te.const(1 / k**2, self.accumulate)
        mean = te.compute(total.shape, lambda *i: (total[i] * scale).astype(dtype), name="mean")
        return Declared(self, {name: x}, mean)

    def torch_function(self, torch: Any) -> Callable[..., Any]:
        if self.pass_ == "forward":
            return lambda x: torch.nn.functional.avg_pool2d(x, self.size, self.stride)
        sizes = [self.size] * 2, [self.stride] * 2, [0, 0], False, True, None
        back = torch.ops.aten.avg_pool2d_backward
        return lambda grad: back(grad, grad.new_empty(self.shape), *sizes)
