"""What autograd knows of the operators, said in less time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from tilewright.torch.calls import Run, Seen, is_last, observers, signature
from tilewright.torch.layouts import both
from tilewright.torch.operators import conv, conv_dgrad, conv_wgrad
from tilewright.torch.passes import dgrad, dgrad_run, forward, wgrad, wgrad_run
from tilewright.torch.plain import is_plain

_grad = torch.is_grad_enabled


class _Recorded(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, input: Any, weight: Any, bias: Any, known: Seen) -> Any:
        needs = ctx.needs_input_grad
        ctx.save_for_backward(input if needs[1] else None, weight if needs[0] else None)
        ctx.known = known
        return known.run(input, weight, bias)


class _Convolution(_Recorded):
    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        known: Seen = ctx.known
        (dy,), (input, weight), needs = grads, ctx.saved_tensors, ctx.needs_input_grad
        if known.is_flat:
            dy, input, weight = (None if t is None else t.unsqueeze(2) for t in (dy, input, weight))
        dy = dy.contiguous(memory_format=known.form)  # once for both
        dx = dw = None
        short = not _grad() and is_plain(dy, dy, None)
        if short and needs[0] and needs[1] and not observers:
            # What was saved may be another's, in another layout (saved_tensors_hooks).
            key = signature(input, weight, dy)
            run = known.backward.get(key)
            if run is None:
                run = known.backward[key] = _both_run(known, dy, input, weight)
            dx, dw = run(dy, weight, input)
        else:
            by_input: Any = dgrad if short else conv_dgrad
            by_weight: Any = wgrad if short else conv_wgrad
            if needs[0]:
                dx = by_input(dy, weight, None, known.size, *known.geometry, bool(known.last))
            if needs[1]:
                dw = by_weight(input, dy, known.kernel, *known.geometry)
        db = dy.sum((0, 2, 3)) if needs[2] else None
        if known.is_flat:
            dx, dw = (None if t is None else t.squeeze(2) for t in (dx, dw))
        return dx, dw, db, None


class _Transposed(_Recorded):
    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        known: Seen = ctx.known
        dy = grads[0].contiguous(memory_format=known.form)
        input, weight = ctx.saved_tensors
        needs = ctx.needs_input_grad
        short = not _grad() and is_plain(dy, dy, None)
        by_input: Any = forward if short else conv
        by_weight: Any = wgrad if short else conv_wgrad
        dx = by_input(dy, weight, None, *known.geometry) if needs[0] else None
        dw = by_weight(dy, input, known.kernel, *known.geometry) if needs[1] else None
        db = dy.sum((0, 2, 3)) if needs[2] else None
        return dx, dw, db, None


#: A run of (input, weight, bias) with autograd's record of it, by what is known of the call.
Recorded = Callable[[Any, Any, Any, Seen], torch.Tensor]


def _apply(function: type[_Recorded]) -> Recorded:
    """Its ``apply``, without looking for transformations once more."""
    made: Recorded = super(torch.autograd.Function, function).apply
    return made


recorded, recorded_transpose = _apply(_Convolution), _apply(_Transposed)


def _both_run(known: Seen, dy: Any, input: Any, weight: Any) -> Run:
    """Makes both gradients of (dy, weight, input), where dy has the layout of the input then."""
    size, kernel, geometry, last = known.size, known.kernel, known.geometry, known.last
    if last is None or is_last(input) is not last or not weight.is_contiguous():
        return lambda dy, weight, input: (
            dgrad(dy, weight, None, size, *geometry, bool(last)),
            wgrad(input, dy, kernel, *geometry),
        )
    return both(
        dgrad_run(dy, weight, None, size, geometry, last),
        wgrad_run(input, dy, kernel, geometry),
    )
