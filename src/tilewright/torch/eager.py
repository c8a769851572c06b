"""An eager call that was not made before: who does it is found out, and remembered."""

from __future__ import annotations

import contextlib
from typing import Any

import torch

from tilewright.torch import aten_fallback
from tilewright.torch.calls import (
    DTYPES,
    CallPlan,
    is_channels_last,
    observe,
    observers,
    seen,
    signature,
    why_not,
)
from tilewright.torch.dispatcher_checks import alive, is_traced, is_transformed, needs_no_dispatch
from tilewright.torch.eager_fast_path import asks_for_gradients, hashable
from tilewright.torch.geometry import Geometry
from tilewright.torch.gradients import recorded, recorded_transpose
from tilewright.torch.kernels import Selection
from tilewright.torch.operators import conv, conv_dgrad
from tilewright.torch.passes import dgrad, dgrad_run, forward_run

_grad = torch.is_grad_enabled


def _engine_of(input: Any, weight: Any, bias: Any) -> str:
    """Who does a call: "operator", "autograd", "kernel", or nobody here: "aten"."""
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
    if input.is_meta or not needs_no_dispatch(input, weight, bias):
        return "operator"
    return "autograd" if _grad() and asks_for_gradients(input, weight, bias) else "kernel"


def convolve(
    input: Any, weight: Any, bias: Any, geometry: Geometry, given: tuple[Any, ...]
) -> torch.Tensor:
    """The convolution, with its gradients.

    Operands may lack a height, which is 1 then. A call with the same ``given``, as for
    ``fast_call``, has the same ``geometry``.
    """
    made: torch.Tensor
    input, weight, bias = _alive(input, weight, bias)
    engine = _engine_of(input, weight, bias)
    if engine in ("kernel", "autograd"):
        run = forward_run(input, weight, bias, geometry)
        known = CallPlan(run, recorded, geometry, input, weight)
        made = _first(known, engine, input, weight, bias, given)
    else:
        is_flat = input.dim() == 3
        if is_flat:
            input, weight = input.unsqueeze(2), weight.unsqueeze(2)
        if engine == "operator" and _adds_by_itself(input, bias):
            made = conv(input, weight, None, *geometry) + bias[:, None, None]
        elif engine == "operator":
            made = conv(input, weight, bias, *geometry)
        else:
            made = aten_fallback.conv2d(input, weight, bias, geometry)
        made = made.squeeze(2) if is_flat else made
    return made


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

    ``given`` is that of ``fast_call``, or empty where the call is not to be remembered.
    """
    made: torch.Tensor | None = None
    input, weight, bias = _alive(input, weight, bias)
    engine = _engine_of(input, weight, bias)
    if is_traced():
        return None  # a size that follows from the input's cannot be given to an operator there
    last = bool(is_channels_last(input))
    if engine in ("kernel", "autograd"):

        def run(x: Any, w: Any, b: Any) -> Any:
            return dgrad(x, w, b, size, *geometry, last)

        dense = is_channels_last(input) is last and weight.is_contiguous()
        if dense and (bias is None or bias.is_contiguous()):
            run = dgrad_run(input, weight, bias, size, geometry, last)
        known = CallPlan(run, recorded_transpose, geometry, input, weight)
        made = _first(known, engine, input, weight, bias, given)
    elif engine == "operator":
        made = conv_dgrad(input, weight, bias, size, *geometry, last)
    return made


def _first(
    known: CallPlan, engine: str, input: Any, weight: Any, bias: Any, given: tuple[Any, ...]
) -> torch.Tensor:
    """A call, which is remembered."""
    if given and not observers:
        with contextlib.suppress(TypeError):
            seen[signature(input, weight, bias), hashable(given)] = known
    made: torch.Tensor
    if engine == "autograd":
        made = known.record(input, weight, bias, known)
    else:
        made = known.run(input, weight, bias)
    return made


def _alive(*operands: Any) -> tuple[Any, ...]:
    if torch.compiler.is_compiling():
        return operands
    return tuple(t if t is None else alive(t) for t in operands)
