"""The short way of an eager call: past the dispatcher, where nobody there wants to know of it.

A call like one before is looked up by all that its operands are but their values. Else the call is
found out about, and remembered.
"""

from __future__ import annotations

import contextlib
from typing import Any

import torch

from tilewright.torch import theirs
from tilewright.torch.calls import (
    DTYPES,
    Seen,
    is_last,
    observe,
    observers,
    seen,
    signature,
    why_not,
)
from tilewright.torch.casts import autocast, cast_once
from tilewright.torch.geometry import Geometry
from tilewright.torch.gradients import recorded, recorded_transpose
from tilewright.torch.kernels import Found
from tilewright.torch.operators import conv, conv_dgrad
from tilewright.torch.passes import dgrad, dgrad_run, forward_run
from tilewright.torch.plain import alive, is_plain, is_transformed

_grad = torch.is_grad_enabled
_autocast_is_on = torch._C._is_any_autocast_enabled


def again(input: Any, weight: Any, bias: Any, given: tuple[Any, ...]) -> torch.Tensor | None:
    """What :func:`convolve` or :func:`transpose` made of the same arguments before; else None.

    ``given`` is the caller's name, and what it was told beside the operands.
    """
    # Each look-up counts: this is all that a call costs beside PyTorch's part of it.
    if observers or not is_plain(input, weight, bias):
        return None
    if _autocast_is_on():
        input, weight, bias = autocast(input, weight, bias, cast_once)
    try:
        known = seen.get((signature(input, weight, bias), given))
    except TypeError:
        known = _by_lists(signature(input, weight, bias), given)
    if known is None:
        return None
    made: torch.Tensor
    try:
        if _grad() and _asks_for_gradients(input, weight, bias):
            made = known.record(input, weight, bias, known)
        else:
            made = known.run(input, weight, bias)
    except RuntimeError:
        if all(alive(t) is t for t in (input, weight, bias) if t is not None):
            raise
        return None  # one of them has no memory, but wraps what has
    return made


def _by_lists(operands: Any, given: tuple[Any, ...]) -> Seen | None:
    """What is known of a call; of one that was told what is neither a tuple nor a list, nothing."""
    with contextlib.suppress(TypeError):
        return seen.get((operands, _hashable(given)))
    return None


def _hashable(given: tuple[Any, ...]) -> tuple[Any, ...]:
    """Lists as tuples."""
    return tuple(tuple(value) if isinstance(value, list) else value for value in given)


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
    elif is_transformed():
        # Rules for these are not to be had for an operator of a library.
        why = "torch.func's transformations and forward-mode gradients"
    if why:
        observe(None, Found(None, reason=why))
        return "theirs"
    if input.is_meta or not is_plain(input, weight, bias):
        return "operator"
    return "autograd" if _grad() and _asks_for_gradients(input, weight, bias) else "kernel"


def convolve(
    input: Any, weight: Any, bias: Any, geometry: Geometry, given: tuple[Any, ...]
) -> torch.Tensor:
    """The convolution, with its gradients.

    Operands may lack a height, which is 1 then. A call with the same ``given``, as for
    :func:`again`, has the same ``geometry``.
    """
    made: torch.Tensor
    input, weight, bias = _alive(input, weight, bias)
    way = _way(input, weight, bias)
    if way in ("kernel", "autograd"):
        run = forward_run(input, weight, bias, geometry)
        known = Seen(run, recorded, geometry, input, weight)
        made = _first(known, way, input, weight, bias, given)
    else:
        is_flat = input.dim() == 3
        if is_flat:
            input, weight = input.unsqueeze(2), weight.unsqueeze(2)
        if way == "operator":
            made = conv(input, weight, bias, *geometry)
        else:
            made = theirs.conv2d(input, weight, bias, geometry)
        made = made.squeeze(2) if is_flat else made
    return made


def transpose(
    input: Any, weight: Any, bias: Any, size: Any, geometry: Geometry, given: tuple[Any, ...] = ()
) -> torch.Tensor | None:
    """The transposed convolution to an image of ``size``, with its gradients; else None.

    ``given`` is that of :func:`again`, or empty where the call is not to be remembered.
    """
    made: torch.Tensor | None = None
    input, weight, bias = _alive(input, weight, bias)
    way = _way(input, weight, bias)
    last = bool(is_last(input))
    if way in ("kernel", "autograd"):

        def run(x: Any, w: Any, b: Any) -> Any:
            return dgrad(x, w, b, size, *geometry, last)

        dense = is_last(input) is last and weight.is_contiguous()
        if dense and (bias is None or bias.is_contiguous()):
            run = dgrad_run(input, weight, bias, size, geometry, last)
        known = Seen(run, recorded_transpose, geometry, input, weight)
        made = _first(known, way, input, weight, bias, given)
    elif way == "operator":
        made = conv_dgrad(input, weight, bias, size, *geometry, last)
    return made


def _first(
    known: Seen, way: str, input: Any, weight: Any, bias: Any, given: tuple[Any, ...]
) -> torch.Tensor:
    """A call, which is remembered."""
    if given and not observers:
        with contextlib.suppress(TypeError):
            seen[signature(input, weight, bias), _hashable(given)] = known
    made: torch.Tensor
    if way == "autograd":
        made = known.record(input, weight, bias, known)
    else:
        made = known.run(input, weight, bias)
    return made


def _alive(*operands: Any) -> tuple[Any, ...]:
    if torch.compiler.is_compiling():
        return operands
    return tuple(t if t is None else alive(t) for t in operands)
