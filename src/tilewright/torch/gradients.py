"""What autograd knows of the operators, said in less time.

One guard recognises a gradient like one before, as in :mod:`tilewright.torch.eager_fast_path`.
Where derivatives of it are wanted too, or a mode watches, the operators make it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch.autograd import forward_ad

from tilewright.torch.calls import CallPlan, Run, is_channels_last, observers
from tilewright.torch.cast_cache import cast_once
from tilewright.torch.conversions import conversion
from tilewright.torch.dispatcher_checks import functions, modes, needs_no_dispatch, profiled
from tilewright.torch.fused_backward import fused_backward, summed
from tilewright.torch.guards import guard
from tilewright.torch.operators import conv, conv_dgrad, conv_wgrad
from tilewright.torch.passes import dgrad, dgrad_run, forward, wgrad, wgrad_run

_grad = torch.is_grad_enabled
#: How many kinds of operands of a gradient that is else the same are kept in mind.
_MOST_KINDS = 16


class _Recorded(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, input: Any, weight: Any, bias: Any, known: CallPlan) -> Any:
        needs, made = ctx.needs_input_grad, list[Any]()
        ctx.known = known
        if known.dtype is not None:
            ctx.weight, convert = weight, known.convert_weight
            if known.cast_and_run is not None:
                convert = partial(known.cast_and_run, made, input)
            elif bias is not None:
                bias = cast_once(bias, known.dtype, known.convert_bias)
            weight = cast_once(weight, known.dtype, convert)
        ctx.save_for_backward(input if needs[1] else None, weight if needs[0] else None)
        return made[0] if made else known.run(input, weight, bias)

    @staticmethod
    def of(ctx: Any, dy: Any, input: Any, weight: Any) -> Any:
        """The gradients of what was recorded by that of the output, ``dy``, and what was saved."""
        raise NotImplementedError


class _Linked(torch.autograd.Function):
    """What was cast before of a tensor, which gets its gradients."""

    @staticmethod
    def forward(ctx: Any, tensor: Any, made: Any) -> Any:
        ctx.dtype = tensor.dtype
        return made.detach()

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        return grads[0].to(ctx.dtype), None


class _Convolution(_Recorded):
    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        return _Convolution.of(ctx, grads[0], *ctx.saved_tensors)

    @staticmethod
    def of(ctx: Any, dy: Any, input: Any, weight: Any) -> Any:
        known, needs = ctx.known, ctx.needs_input_grad
        weight, is_short = _linked(ctx, dy, input, weight)
        if is_short and not observers and (needs[0] or needs[1]):
            return _first(_convolution_run, known, needs, dy, input, weight)
        by_input: Any = dgrad if is_short else conv_dgrad
        by_weight: Any = wgrad if is_short else conv_wgrad
        dy, input, weight = _with_height(known, dy, input, weight)
        dy = dy.contiguous(memory_format=known.memory_format)  # once for both
        dx = dw = None
        if needs[0]:
            dx = by_input(dy, weight, None, known.size, *known.geometry, bool(known.last))
        if needs[1]:
            dw = by_weight(input, dy, known.kernel, *known.geometry)
        return *_without_height(known, dx, dw), _by_bias(known, needs, dy), None


class _Transposed(_Recorded):
    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        return _Transposed.of(ctx, grads[0], *ctx.saved_tensors)

    @staticmethod
    def of(ctx: Any, dy: Any, input: Any, weight: Any) -> Any:
        known, needs = ctx.known, ctx.needs_input_grad
        weight, is_short = _linked(ctx, dy, input, weight)
        if is_short and not observers and (needs[0] or needs[1]):
            return _first(_transposed_run, known, needs, dy, input, weight)
        by_input: Any = forward if is_short else conv
        by_weight: Any = wgrad if is_short else conv_wgrad
        dy = dy.contiguous(memory_format=known.memory_format)
        dx = by_input(dy, weight, None, *known.geometry) if needs[0] else None
        dw = by_weight(dy, input, known.kernel, *known.geometry) if needs[1] else None
        return dx, dw, _by_bias(known, needs, dy), None


def _linked(ctx: Any, dy: Any, input: Any, weight: Any) -> tuple[Any, bool]:
    """The weight as derivatives of a gradient need it, and whether there are none, and kernels may
    be called past the dispatcher."""
    if not _grad():
        others = [dy if t is None else t for t in (weight, input)]
        return weight, needs_no_dispatch(dy, *others)
    if ctx.known.dtype is not None and weight is not None:
        weight = _Linked.apply(ctx.weight, weight)
    return weight, False


def _by_bias(known: CallPlan, needs: tuple[bool, ...], dy: Any) -> Any:
    """The gradient by the bias, where it is needed, in the type of parameters."""
    return summed(dy, known.weight_dtype) if needs[2] else None


def _first(
    make: Callable[..., Run],
    known: CallPlan,
    needs: tuple[bool, ...],
    dy: Any,
    input: Any,
    weight: Any,
) -> Any:
    """The gradients, which are remembered."""
    run = make(known, needs, dy, input, weight)
    made = run(dy, weight, input)
    is_like = guard(*(t for t in (dy, weight, input) if t is not None))
    if is_like is not None:
        kinds = known.backward.setdefault(needs, [])
        if len(kinds) >= _MOST_KINDS:
            kinds.clear()
        kinds.append((is_like, run))
    return made


def _convolution_run(
    known: CallPlan, needs: tuple[bool, ...], dy: Any, input: Any, weight: Any
) -> Run:
    """Makes the gradients that are needed of (dy, weight, input)."""
    size, kernel, geometry, memory_format = (
        known.size,
        known.kernel,
        known.geometry,
        known.memory_format,
    )
    last = bool(known.last)
    _, x, w = _with_height(known, dy, input, weight)
    plain = known.last is not None and (x is None or is_channels_last(x) is known.last)
    plain = plain and (w is None or w.is_contiguous()) and not known.is_flat
    if plain:
        dense = dy.contiguous(memory_format=memory_format)
        by_input = dgrad_run(dense, w, None, size, geometry, last) if needs[0] else None
        by_weight = wgrad_run(x, dense, kernel, geometry) if needs[1] else None
        back = None
        if by_weight is not None and known.dtype is not None:
            dw = dy.new_empty((dy.shape[1], 1, *kernel), dtype=known.dtype)
            convert = conversion(dw, known.weight_dtype)
            back = None if convert is None else (convert, dw.numel() * dw.element_size())
        run = fused_backward(by_input, by_weight, needs[2], back, known.weight_dtype)
        is_dense = dy.is_contiguous(memory_format=memory_format)
        return (
            run
            if is_dense
            else lambda dy, w, x: run(dy.contiguous(memory_format=memory_format), w, x)
        )

    def any_layout(dy: Any, weight: Any, input: Any) -> Any:
        dy, x, w = _with_height(known, dy, input, weight)
        dy = dy.contiguous(memory_format=memory_format)
        dx = dgrad(dy, w, None, size, *geometry, last) if needs[0] else None
        dw = wgrad(x, dy, kernel, *geometry) if needs[1] else None
        return *_without_height(known, dx, dw), _by_bias(known, needs, dy), None

    return any_layout


def _transposed_run(
    known: CallPlan, needs: tuple[bool, ...], dy: Any, input: Any, weight: Any
) -> Run:
    """The same of a transposed convolution."""
    kernel, geometry, memory_format = known.kernel, known.geometry, known.memory_format

    def any_layout(dy: Any, weight: Any, input: Any) -> Any:
        dy = dy.contiguous(memory_format=memory_format)
        dx = forward(dy, weight, None, *geometry) if needs[0] else None
        dw = wgrad(dy, input, kernel, *geometry) if needs[1] else None
        return dx, dw, _by_bias(known, needs, dy), None

    return any_layout


def _with_height(known: CallPlan, *tensors: Any) -> tuple[Any, ...]:
    if not known.is_flat:
        return tensors
    return tuple(None if t is None else t.unsqueeze(2) for t in tensors)


def _without_height(known: CallPlan, *tensors: Any) -> tuple[Any, ...]:
    if not known.is_flat:
        return tensors
    return tuple(None if t is None else t.squeeze(2) for t in tensors)


#: A run of (input, weight, bias) with autograd's record of it, by what is known of the call.
Recorded = Callable[[Any, Any, Any, CallPlan], torch.Tensor]


def _apply(function: type[_Recorded]) -> Recorded:
    """Its ``apply``, without looking for transformations once more.

    Its nodes call what makes gradients like those before, not PyTorch's code for any function.
    """
    of: Callable[..., Any] = function.of

    def again(ctx: Any, dy: Any) -> Any:
        input, weight = ctx.saved_tensors  # once: each time may compute them (checkpoints)
        if (
            not (_grad() or observers or modes() or functions() or profiled())
            and forward_ad._current_level < 0
        ):
            for is_like, run in ctx.known.backward.get(ctx.needs_input_grad, ()):
                # What was saved may be another's, in another layout (saved_tensors_hooks).
                if weight is None:
                    found = is_like(dy, input)
                elif input is None:
                    found = is_like(dy, weight)
                else:
                    found = is_like(dy, weight, input)
                if found:
                    return run(dy, weight, input)
        return of(ctx, dy, input, weight)

    function._backward_cls.apply = again
    made: Recorded = super(torch.autograd.Function, function).apply
    return made


recorded, recorded_transpose = _apply(_Convolution), _apply(_Transposed)
