"""Functions of tensors by name: what a program is composed of, and a node of a graph may be.

A function takes tensors, in their place numbers where it is of elements, and attributes by name:
integers, numbers, booleans, texts and tuples of them. It declares stages and returns the last.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tilewright.te import Tensor
from tilewright.topi import broadcast, elementwise, quantization, reduction, selection, transform
from tilewright.topi.nn import padding, pooling, softmax


@dataclass(frozen=True)
class Function:
    """A function of tensors.

    Attributes
    ----------
    kind : "broadcast" of elements, "injective" of one element each that is moved, "reduce" for
        those with a reduction in them, as TVM calls patterns of operators.
    """

    name: str
    compute: Callable[..., Tensor]
    kind: str

    @property
    def inlines(self) -> bool:
        """Whether its consumers may compute it where they read it."""
        return self.kind != "reduce"


def _of(kind: str, **functions: Callable[..., Tensor]) -> dict[str, Function]:
    return {name: Function(name, compute, kind) for name, compute in functions.items()}


#: Every function, by name.
FUNCTIONS: dict[str, Function] = {
    **_of("broadcast", **{n: elementwise.function(n) for n in elementwise.ELEMENTS}),
    **_of("broadcast", **{n: broadcast.function(n) for n in broadcast.ELEMENTS}),
    **_of("broadcast", dequantize=quantization.dequantize, quantize=quantization.quantize),
    **_of(
        "injective",
        broadcast_to=broadcast.broadcast_to,
        concatenate=transform.concatenate,
        concatenate_view=transform.concatenate,
        constant_pad=padding.pad,
        frames=transform.frames,
        gather=transform.gather,
        gather_nd=transform.gather_nd,
        one_hot=transform.one_hot,
        pad=transform.pad,
        reshape=transform.reshape,
        slice_view=transform.strided_slice,
        strided_slice=transform.strided_slice,
        take=transform.take,
        tile=transform.tile,
        transpose=transform.transpose,
        transpose_view=transform.transpose,
        trilu=transform.trilu,
    ),
    **_of(
        "reduce",
        argmax=reduction.argmax,
        argmin=reduction.argmin,
        avg_pool=pooling.avg_pool,
        cumprod=selection.cumprod,
        cumsum=selection.cumsum,
        log_softmax=softmax.log_softmax,
        max=reduction.max,
        max_pool=pooling.max_pool,
        max_pool_places=pooling.max_pool_places,
        min=reduction.min,
        prod=reduction.prod,
        resample=transform.resample,
        softmax=softmax.softmax,
        sum=reduction.sum,
        sum_pool=pooling.sum_pool,
        sums=reduction.sums,
        topk_places=selection.topk_places,
    ),
}
