"""Eager calls: one like another before is looked up; who does a new one is found out."""

from __future__ import annotations

import contextlib
from typing import Any

import torch

from tilewright.torch import aten_fallback
from tilewright.torch.autocast import autocast
from tilewright.torch.calls import (
    DTYPES,
    CallPlan,
    is_channels_last,
    lying,
    observe,
    observers,
    seen,
    signature,
    why_not,
)
from tilewright.torch.eager_fast_path import alive, is_traced, is_transformed, needs_no_dispatch
from tilewright.torch.geometry import Geometry
from tilewright.torch.gradients import recorded, recorded_transpose
from tilewright.torch.kernels import Selection
from tilewright.torch.operators import conv, conv_dgrad
from tilewright.torch.passes import dgrad, dgrad_run, forward_run


def fast_call(input: Any, weight: Any, bias: Any, given: tuple[Any, ...]) -> torch.Tensor | None:
    """What :func:`convolve` or :func:`transpose` made of arguments like these before, or None.

    ``given`` is the caller's name, and what it was given beside the operands.
    """
    if observers or not needs_no_dispatch(input, weight, bias):
        return None
    try:
        operands = autocast(input, weight, bias)
        what = signature(*operands)
    except AttributeError:  # of no tensor
        return None
    try:
        plan = seen.get((what, given))
    except TypeError:  # there are lists
        plan = None
        with contextlib.suppress(TypeError):  # or what is neither a number, a tuple nor a list
            plan = seen.get((what, _hashable(given)))
    if plan is None:
        return None
    return _done(plan, operands, bias)


def _done(plan: CallPlan, operands: tuple[Any, ...], own: Any) -> torch.Tensor:
    """A call; ``own`` is the bias as it was before autocast, in whose type its gradient is."""
    made: torch.Tensor
    input, weight, bias = operands
    asks = input.requires_grad or weight.requires_grad or (own is not None and own.requires_grad)
    if asks and torch.is_grad_enabled():
        made = plan.record(input, weight, own, plan)
    else:
        made = plan.run(input, weight, bias)
    return made


def _hashable(given: tuple[Any, ...]) -> tuple[Any, ...]:
    """Lists as tuples."""
    return tuple(tuple(value) if isinstance(value, list) else value for value in given)


def _engine_of(input: Any, weight: Any, bias: Any) -> str:
    """Who does a call: "operator", "kernel", or nobody here: "aten"."""
    ours = input.dtype in DTYPES and (input.is_cpu or input.is_cuda or input.is_meta)
    if torch.compiler.is_compiling():
        return "operator" if ours and not is_transformed() else "aten"
    why = ""
    if not ours:
        why = why_not(input)
    elif is_transformed():
        # Rules for these are not to be had for an operator of a library.
        why = "torch.func's transformations and forward-mode gradients"
    if why:
        observe(None, Selection(None, reason=why))
        return "aten"
    is_short = not input.is_meta and needs_no_dispatch(input, weight, bias)
    return "kernel" if is_short else "operator"


def convolve(
    input: Any, weight: Any, bias: Any, geometry: Geometry, given: tuple[Any, ...]
) -> torch.Tensor:
    """The convolution, with its gradients.

    Operands may lack a height, which is 1 then. A call with the same ``given``, as for
    :func:`fast_call`, has the same ``geometry``.
    """
    made: torch.Tensor
    *_, own = _alive(input, weight, bias)
    input, weight, bias = _alive(*autocast(input, weight, bias))
    engine = _engine_of(input, weight, bias)
    if engine == "kernel":
        run = forward_run(input, weight, bias, geometry)
        image = input.unsqueeze(2) if input.dim() == 3 else input
        plan = CallPlan(run, recorded, geometry, bool(lying(image)[0]))
        return _first(plan, (input, weight, bias), own, given)
    is_flat = input.dim() == 3
    if is_flat:
        input, weight = input.unsqueeze(2), weight.unsqueeze(2)
    if engine == "operator" and _adds_by_itself(input, bias):
        made = conv(input, weight, None, *geometry) + bias[:, None, None]
    elif engine == "operator":
        made = conv(input, weight, bias, *geometry)
    else:
        made = aten_fallback.conv2d(input, weight, bias, geometry)
    return made.squeeze(2) if is_flat else made


def _adds_by_itself(input: Any, bias: Any) -> bool:
    """Whether a bias is better added in what a compiler makes of the layers behind.

    There it costs nothing on a GPU, as long as not a matrix product is next, nor does its cast
    under autocast, which is a launch else. Inductor has it so for convolutions of its own.
    """
    return (
        bias is not None
        and input.is_cuda
        and bias.dtype == input.dtype
        and torch.compiler.is_compiling()
    )


def transpose(
    input: Any, weight: Any, bias: Any, size: Any, geometry: Geometry, given: tuple[Any, ...] = ()
) -> torch.Tensor | None:
    """The transposed convolution to an image of ``size``, with its gradients, or None.

    ``given`` is that of :func:`fast_call`, or empty where the call is not to be remembered.
    """
    *_, own = _alive(input, weight, bias)
    input, weight, bias = _alive(*autocast(input, weight, bias))
    engine = _engine_of(input, weight, bias)
    if engine == "aten" or is_traced():
        return None  # a size that follows from the input's cannot be given to an operator there
    last = bool(is_channels_last(input))
    if engine == "operator":
        made: torch.Tensor = conv_dgrad(input, weight, bias, size, *geometry, last)
        return made

    def run(x: Any, w: Any, b: Any) -> Any:
        return dgrad(x, w, b, size, *geometry, last)

    dense = is_channels_last(input) is last and weight.is_contiguous()
    if dense and (bias is None or bias.is_contiguous()):
        run = dgrad_run(input, weight, bias, size, geometry, last)
    plan = CallPlan(run, recorded_transpose, geometry, last)
    return _first(plan, (input, weight, bias), own, given)


def _first(
    plan: CallPlan, operands: tuple[Any, ...], own: Any, given: tuple[Any, ...]
) -> torch.Tensor:
    """A call, which is remembered."""
    if given and not observers:
        with contextlib.suppress(TypeError):
            seen[signature(*operands), _hashable(given)] = plan
    return _done(plan, operands, own)


def _alive(*operands: Any) -> tuple[Any, ...]:
    if torch.compiler.is_compiling():
        return operands
    return tuple(t if t is None else alive(t) for t in operands)
