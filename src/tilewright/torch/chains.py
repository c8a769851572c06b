"""A convolution, its batch normalisation, what is added to it and its activation, as one kernel.

A block's own forward pass calls them, or what stands in their place: that of the convolution
computes what it can of the others, which let it pass.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import nn

from tilewright.torch.autocast import autocast
from tilewright.torch.calls import lies_as
from tilewright.torch.eager_fast_path import (
    alive,
    is_overridden,
    is_watched,
    named,
    needs_no_dispatch_but_watched,
)
from tilewright.torch.fusible import NOTHING, acts, geometry_of, inner, is_fusible
from tilewright.torch.grouped import GroupedConv2d
from tilewright.torch.normalized import conv_norm, run_for
from tilewright.torch.norms import activation_step


class Pending:
    """What modules of a chain hand to one another: the result, or, where a sum follows them,
    the image that it is still to be computed from."""

    __slots__ = ("chain", "image", "value")

    def __init__(self, chain: Chain, image: Any, value: Any) -> None:
        self.chain, self.image, self.value = chain, image, value

    def __add__(self, other: Any) -> Any:
        return self._sum(other, operator.add)

    def __iadd__(self, other: Any) -> Any:
        return self._sum(other, operator.iadd)

    def _sum(self, other: Any, add: Callable[[Any, Any], Any]) -> Any:
        """The sum, with what follows it where one kernel computes all of that."""
        if self.value is None:
            made = self.chain.fused(self.image, other)
            if made is not None:
                return made
        return add(self.chain.normalized(self.image) if self.value is None else self.value, other)


class Chain:
    """Modules that may be one kernel, in the order in which a block calls them.

    ``passing`` are identities between them; with ``adds`` a tensor is added before the activation.
    """

    def __init__(
        self, modules: tuple[Any, ...], passing: tuple[Any, ...] = (), adds: bool = False
    ) -> None:
        self.convolution, self.norm, *others = modules
        self.activation = others[0] if others else NOTHING
        self.passing, self.adds = passing, adds

    def stand_ins(self) -> tuple[Callable[[Any], Any], ...]:
        """What a block calls in the place of the modules."""
        if self.activation is not NOTHING:
            return self._begin, partial(_through, self.norm), partial(_end, self.activation)
        return self._begin, partial(_through if self.adds else _end, self.norm)

    def _begin(self, x: Any) -> Any:
        if type(x) in (torch.Tensor, nn.Parameter):
            x = alive(x)
            if self._may_fuse(x):
                if self.adds and (x.is_cpu or type(self.convolution) is GroupedConv2d):
                    return Pending(self, x, None)
                made = _fused(
                    x, self.convolution, self.norm, NOTHING if self.adds else self.activation
                )
                if made is not None:
                    return Pending(self, x, made)
        return self.convolution(x)

    def _may_fuse(self, x: Any) -> bool:
        if any(m._forward_hooks or m._forward_pre_hooks for m in self.passing):
            return False
        return is_fusible(x, self.convolution, self.norm, self.activation)

    def fused(self, x: Any, residual: Any) -> Any:
        """All of it by one kernel, as what the activation lets pass; None where there is none."""
        if type(residual) not in (torch.Tensor, nn.Parameter):
            return None
        if torch.is_grad_enabled() and residual.requires_grad:
            return None
        made = _fused(x, self.convolution, self.norm, self.activation, alive(residual))
        return made if made is None or self.activation is NOTHING else Pending(self, x, made)

    def normalized(self, x: Any) -> Any:
        """What is added to."""
        made = _fused(x, self.convolution, self.norm, NOTHING)
        return self.norm(self.convolution(x)) if made is None else made


def _through(module: Any, x: Any) -> Any:
    return x if type(x) is Pending else module(x)


def _end(module: Any, x: Any) -> Any:
    return x.value if type(x) is Pending else module(x)


def _fused(x: Any, convolution: Any, norm: Any, activation: Any, residual: Any = None) -> Any:
    """The result of the kernel for modules that are fusible; None where there is none, or where the
    dispatcher would do more than call it."""
    filters, scales, statistics = convolution._parameters, norm._parameters, norm._buffers
    try:
        own = (
            filters["weight"], filters["bias"], statistics["running_mean"],
            statistics["running_var"], scales["weight"], scales["bias"],
        )  # fmt: skip
    except KeyError:  # of one that is none of its module's own, as in a replica for another device
        return None
    if not needs_no_dispatch_but_watched(x, residual, *own):
        return None
    is_operator = residual is None and type(convolution) is not GroupedConv2d
    if not is_operator and is_overridden():
        return None
    if any(t is not None and t.device != x.device for t in own):
        return None
    if not lies_as(own[0], x) or not all(t is None or t.is_contiguous() for t in own[1:]):
        return None
    try:
        geometry = geometry_of(convolution, x)
    except Exception:  # the convolution itself says what is wrong
        return None
    for hook in convolution._forward_pre_hooks.values():
        hook(convolution, (x,))
    weight, bias, *others = own
    step = activation_step(inner(norm) if acts(norm) else activation)
    operands = autocast(x, weight, bias)
    precision = getattr(convolution, "precision", "exact")
    run = run_for(*operands, others, norm.eps, step, geometry, residual, precision)
    if run is None:
        return None
    if is_operator and is_watched():  # with the operands as they are cast already
        return conv_norm(*operands, *others, norm.eps, step, *geometry)
    return named("tilewright::conv2d_norm", run)
