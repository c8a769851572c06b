"""The short way of an eager call: past the dispatcher, where nobody there wants to know of it.

The dispatcher costs a call some ten microseconds when the operator is Python's. What it is for
(tracing, modes, subclasses, transformations, profiles) is looked for here, and leaves the call to
it.
"""

from __future__ import annotations

import contextlib
from typing import Any

import torch
from torch._C import _functorch
from torch.autograd import forward_ad

from tilewright.torch import theirs
from tilewright.torch.calls import (
    DTYPES,
    Run,
    Seen,
    is_last,
    memory_format,
    observe,
    observers,
    seen,
    signature,
    why_not,
)
from tilewright.torch.casts import autocast, cast_once
from tilewright.torch.geometry import Geometry
from tilewright.torch.kernels import Found
from tilewright.torch.layouts import both
from tilewright.torch.operators import conv, conv_dgrad, conv_wgrad
from tilewright.torch.passes import (
    dgrad,
    dgrad_run,
    forward,
    forward_run,
    wgrad,
    wgrad_run,
)

_PLAIN = (torch.Tensor, torch.nn.Parameter)
_modes = torch._C._len_torch_dispatch_stack
_functions = torch._C._len_torch_function_stack
_tracing = torch._C._get_tracing_state
_transforms = _functorch.peek_interpreter_stack
_unwrap = _functorch.unwrap_if_dead
_profiled = torch.autograd._profiler_enabled
_grad = torch.is_grad_enabled
_autocast_is_on = torch._C._is_any_autocast_enabled


def _is_plain(input: Any, weight: Any, bias: Any) -> bool:
    """Whether the dispatcher would do no more than call the kernel."""
    return (
        type(input) in _PLAIN
        and type(weight) in _PLAIN
        and (bias is None or type(bias) in _PLAIN)
        and not (_modes() or _functions() or _profiled() or input.is_neg() or weight.is_neg())
        and _tracing() is None
    )


def _is_transformed() -> bool:
    """Whether torch.func or forward-mode derivatives are at work."""
    return _transforms() is not None or forward_ad._current_level >= 0


def again(
    input: Any, weight: Any, bias: Any, stride: Any, padding: Any, dilation: Any
) -> torch.Tensor | None:
    """The convolution, where :func:`convolve` did one of the same arguments before; else None."""
    # Each look-up counts: this is all that a call costs beside PyTorch's part of it.
    if observers or _transforms() is not None or forward_ad._current_level >= 0:
        return None
    if not _is_plain(input, weight, bias):
        return None
    if _autocast_is_on():
        input, weight, bias = autocast(input, weight, bias, cast_once)
    if bias is None:
        key: Any = (
            input.shape, input.stride(), input.dtype, input.device,
            weight.shape, weight.stride(), weight.dtype, weight.device, stride, padding, dilation,
        )  # fmt: skip
    else:
        key = (*signature(input, weight, bias), stride, padding, dilation)
    try:
        known = seen.get(key)
    except TypeError:  # a list
        return None
    if known is None:
        return None
    made: torch.Tensor
    try:
        if _grad() and _asks_for_gradients(input, weight, bias):
            made = _recorded(input, weight, bias, known)
        else:
            made = known.run(input, weight, bias)
    except RuntimeError:
        # A tensor that a transformation of torch.func left behind wraps one that has memory.
        if all(_unwrap(t) is t for t in (input, weight, bias) if t is not None):
            raise
        return None
    return made


def _asks_for_gradients(input: Any, weight: Any, bias: Any) -> bool:
    found: bool = input.requires_grad or weight.requires_grad
    return found or (bias is not None and bias.requires_grad)


def _way(input: Any, weight: Any, bias: Any) -> str:
    """Who does a call: "operator", "autograd", "kernel", or nobody here: "theirs"."""
    ours = input.dtype in DTYPES and (input.is_cpu or input.is_cuda or input.is_meta)
    if torch.compiler.is_compiling():
        return "operator" if ours else "theirs"
    why = ""
    if not ours:
        why = why_not(input)
    elif _is_transformed():
        # Rules for these are not to be had for an operator of a library.
        why = "torch.func's transformations and forward-mode gradients"
    if why:
        observe(None, Found(None, reason=why))
        return "theirs"
    if input.is_meta or not _is_plain(input, weight, bias):
        return "operator"
    return "autograd" if _grad() and _asks_for_gradients(input, weight, bias) else "kernel"


def convolve(
    input: Any, weight: Any, bias: Any, geometry: Geometry, given: Any = None
) -> torch.Tensor:
    """The convolution, with its gradients.

    ``given``, where a call may come again, is what its caller said for the ``geometry``.
    """
    made: torch.Tensor
    if not torch.compiler.is_compiling():
        input, weight = _unwrap(input), _unwrap(weight)
        bias = None if bias is None else _unwrap(bias)
    way = _way(input, weight, bias)
    if way in ("kernel", "autograd"):
        run = forward_run(input, weight, bias, geometry)
        known = Seen(run, geometry, input, weight)
        if given is not None and not observers:
            with contextlib.suppress(TypeError):  # a list
                seen[*signature(input, weight, bias), *given] = known
        if way == "kernel":
            made = run(input, weight, bias)
        else:
            made = _recorded(input, weight, bias, known)
    elif way == "operator":
        made = conv(input, weight, bias, *geometry)
    else:
        made = theirs.conv2d(input, weight, bias, geometry)
    return made


def transpose(
    input: Any, weight: Any, bias: Any, size: Any, geometry: Geometry
) -> torch.Tensor | None:
    """The transposed convolution to an image of ``size``, with its gradients; else None."""
    made: torch.Tensor | None
    match _way(input, weight, bias):
        case "kernel":
            last = bool(is_last(input))
            made = dgrad(input, weight, bias, size, *geometry, last)
        case "autograd":
            made = _Transposed.apply(input, weight, bias, size, geometry)
        case "operator":
            last = bool(is_last(input))
            made = conv_dgrad(input, weight, bias, size, *geometry, last)
        case _:
            made = None
    return made


class _Convolution(torch.autograd.Function):
    """What autograd knows of the operator, said in less time."""

    @staticmethod
    def forward(ctx: Any, input: Any, weight: Any, bias: Any, known: Seen) -> Any:
        needs = ctx.needs_input_grad
        ctx.save_for_backward(input if needs[1] else None, weight if needs[0] else None)
        ctx.known = known
        return known.run(input, weight, bias)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        known: Seen = ctx.known
        dy = grads[0].contiguous(memory_format=known.form)  # once for both
        input, weight = ctx.saved_tensors
        needs = ctx.needs_input_grad
        dx = dw = None
        short = not _grad() and _is_plain(dy, dy, None)
        if short and needs[0] and needs[1] and not observers:
            # What was saved may be another's, of another layout (saved_tensors_hooks).
            key = signature(input, weight, dy)
            run = known.backward.get(key)
            if run is None:
                run = known.backward[key] = _backward_run(known, dy, input, weight)
            dx, dw = run(dy, weight, input)
        else:
            by_input: Any = dgrad if short else conv_dgrad
            by_weight: Any = wgrad if short else conv_wgrad
            if needs[0]:
                dx = by_input(dy, weight, None, known.size, *known.geometry, bool(known.last))
            if needs[1]:
                dw = by_weight(input, dy, known.kernel, *known.geometry)
        db = dy.sum((0, 2, 3)) if needs[2] else None
        return dx, dw, db, None


#: With autograd's record: ``_Convolution.apply``, without looking once more for transformations
#: that are not there.
_recorded: Any = super(torch.autograd.Function, _Convolution).apply


def _backward_run(known: Seen, dy: Any, input: Any, weight: Any) -> Run:
    """Makes both gradients of (dy, weight, input); ``dy`` is in the layout of ``input``."""
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


class _Transposed(torch.autograd.Function):
    """The same of the transposed convolution."""

    @staticmethod
    def forward(ctx: Any, input: Any, weight: Any, bias: Any, size: Any, geometry: Geometry) -> Any:
        needs = ctx.needs_input_grad
        ctx.save_for_backward(input if needs[1] else None, weight if needs[0] else None)
        ctx.kernel, ctx.last = weight.shape[2:], bool(is_last(input))
        ctx.geometry = geometry
        return dgrad(input, weight, bias, size, *geometry, ctx.last)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        dy = grads[0].contiguous(memory_format=memory_format(ctx.last))
        input, weight = ctx.saved_tensors
        needs = ctx.needs_input_grad
        short = not _grad() and _is_plain(dy, dy, None)
        by_input: Any = forward if short else conv
        by_weight: Any = wgrad if short else conv_wgrad
        dx = by_input(dy, weight, None, *ctx.geometry) if needs[0] else None
        dw = by_weight(dy, input, ctx.kernel, *ctx.geometry) if needs[1] else None
        db = dy.sum((0, 2, 3)) if needs[2] else None
        return dx, dw, db, None, None
