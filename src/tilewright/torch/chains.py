"""A depthwise convolution, its batch normalisation and its activation, called as one kernel."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from tilewright.torch.autocast import autocast
from tilewright.torch.eager_fast_path import alive, is_watched, needs_no_dispatch_but_watched
from tilewright.torch.fusible import NOTHING, acts, geometry_of, inner, is_fusible
from tilewright.torch.normalized import conv_norm, run_for
from tilewright.torch.norms import activation_step


def chain(x: Any, convolution: Any, norm: Any, activation: Any = NOTHING) -> Any:
    """What three modules make of an image: by one kernel where it may be, else one by one."""
    made = None
    if type(x) in (torch.Tensor, nn.Parameter):
        x = alive(x)
        if is_fusible(x, convolution, norm, activation):
            for hook in convolution._forward_pre_hooks.values():
                hook(convolution, (x,))
            made = _fused(x, convolution, norm, activation)
    if made is not None:
        return made
    x = norm(convolution(x))
    return x if activation is NOTHING else activation(x)


def _fused(x: Any, convolution: Any, norm: Any, activation: Any) -> Any:
    """The result of the kernel; None where there is none, or where the dispatcher would do more
    than call it."""
    filters, scales, statistics = convolution._parameters, norm._parameters, norm._buffers
    try:
        own = (
            filters["weight"], filters["bias"], statistics["running_mean"],
            statistics["running_var"], scales["weight"], scales["bias"],
        )  # fmt: skip
    except KeyError:  # of one that is none of its module's own, as in a replica for another device
        return None
    if not needs_no_dispatch_but_watched(x, *own):
        return None
    if any(t is not None and (not t.is_contiguous() or t.device != x.device) for t in own):
        return None
    try:
        geometry = geometry_of(convolution, x)
    except Exception:  # the convolution itself says what is wrong
        return None
    weight, bias, *others = own
    step = activation_step(inner(norm) if acts(norm) else activation)
    operands = autocast(x, weight, bias)
    run = run_for(*operands, others, norm.eps, step, geometry)
    if run is None:
        return None
    if is_watched():  # with the operands as they are cast already
        return conv_norm(*operands, *others, norm.eps, step, *geometry)
    return run()
