"""A convolution, its batch normalisation and its activation in training, past their modules.

A call of a module asks for hooks of eight kinds, its ``forward`` for attributes one by one, and the
function behind that again for what was certain. A GPU that waits for the host waits for this too:
where nobody looks between the three, what is left is what they compute.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn.modules import module as _every

from tilewright.torch.again import again
from tilewright.torch.fusible import NOTHING, hooks, pre_hooks
from tilewright.torch.modules import DepthwiseConv2d
from tilewright.torch.plain import functions

#: Hooks of every module on the way back.
_backward_hooks, _backward_pre_hooks = (
    _every._global_backward_hooks,
    _every._global_backward_pre_hooks,
)
_is_traced, _has_cudnn = torch._C._get_tracing_state, torch._C._get_cudnn_enabled
_call: Any = nn.Module.__call__


def one_after_the_other(x: Any, convolution: Any, norm: Any, activation: Any) -> Any:
    """What the three compute of an image, as their modules would."""
    if (
        type(x) is not torch.Tensor
        or nn.Module.__call__ is not _call  # somebody watches them all
        or hooks
        or pre_hooks
        or _backward_hooks
        or _backward_pre_hooks
        or functions()
        or _is_traced() is not None
        or _is_more(convolution)
        or _is_more(norm)
        or _is_more(activation)
    ):
        x = norm(convolution(x))
        return x if activation is NOTHING else activation(x)
    x = _normalized(_convolved(x, convolution), norm)
    return x if activation is NOTHING else activation.forward(x)


def _is_more(module: Any) -> bool:
    """Whether a call of a module is more than the forward pass of its class."""
    own = module.__dict__
    return bool(
        own["_forward_hooks"]
        or own["_forward_pre_hooks"]
        or own["_backward_hooks"]
        or own["_backward_pre_hooks"]
        or "forward" in own
        or module._compiled_call_impl is not None
    )


def _convolved(x: Any, convolution: Any) -> Any:
    own = convolution._parameters
    if (
        type(convolution) is DepthwiseConv2d
        and convolution.padding_mode == "zeros"
        and "_conv_forward" not in convolution.__dict__
        and "weight" in own
        and "bias" in own
    ):
        given = ("conv2d", convolution.stride, convolution.padding, convolution.dilation)
        made = again(x, own["weight"], own["bias"], given)
        if made is not None:
            return made
    return convolution(x)


def _normalized(x: Any, norm: Any) -> Any:
    """As ``nn.BatchNorm2d.forward`` does it, of which this is the part for most."""
    scales, statistics = norm._parameters, norm._buffers
    try:
        scale, shift = scales["weight"], scales["bias"]
        mean, variance = statistics["running_mean"], statistics["running_var"]
        count = statistics["num_batches_tracked"]
    except KeyError:  # somebody computes one of them
        return norm(x)
    if (
        type(norm) is not nn.BatchNorm2d
        or norm.momentum is None
        or not norm.track_running_stats
        or count is None
        or norm.eps <= 0
        or x.dim() != 4
        or x.numel() <= x.shape[1]  # which have no variance: the module says so
    ):
        return norm(x)
    count.add_(1)
    return torch.batch_norm(
        x, scale, shift, mean, variance, True, norm.momentum, norm.eps, _has_cudnn()
    )
