"""A convolution, its batch normalisation and its activation in training, past their modules.

A call of a module asks for hooks of eight kinds, its ``forward`` for attributes one by one, and the
function behind that again for what was certain. A GPU that waits for the host waits for this too:
where nobody looks between the three, what is left is what they compute.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.modules import module as _every

from tilewright.torch.dispatcher_checks import functions, profiled
from tilewright.torch.eager_fast_path import fast_call
from tilewright.torch.fusible import NOTHING, hooks, pre_hooks
from tilewright.torch.modules import DepthwiseConv2d

#: Hooks of every module on the way back.
_backward_hooks, _backward_pre_hooks = (
    _every._global_backward_hooks,
    _every._global_backward_pre_hooks,
)
_is_traced = torch._C._get_tracing_state
#: What is done past these is what they do; where somebody has put others there, they are called.
_call, _forward = nn.Module._call_impl, nn.BatchNorm2d.forward


def one_by_one(x: Any, convolution: Any, norm: Any, activation: Any) -> Any:
    """What the modules make of an image."""
    x = norm(convolution(x))
    return x if activation is NOTHING else activation(x)


def one_after_the_other(x: Any, convolution: Any, norm: Any, activation: Any) -> Any:
    """What the three compute of an image, as their modules would."""
    if (
        type(x) is not torch.Tensor
        or nn.Module.__call__ is not nn.Module._wrapped_call_impl
        or nn.Module._call_impl is not _call
        or hooks
        or pre_hooks
        or _backward_hooks
        or _backward_pre_hooks
        or functions()
        or profiled()
        or _is_traced() is not None
        or _is_more(convolution)
        or _is_more(norm)
        or _is_more(activation)
    ):
        return one_by_one(x, convolution, norm, activation)
    x = _normalized(_convolved(x, convolution), norm)
    return x if activation is NOTHING else activation.forward(x)


def _is_more(module: Any) -> bool:
    """Whether a call of a module is more than its forward pass."""
    own = module.__dict__
    return bool(
        own["_forward_hooks"]
        or own["_forward_pre_hooks"]
        or own["_backward_hooks"]
        or own["_backward_pre_hooks"]
        or "forward" in own
        or module._compiled_call_impl is not None
        or type(module).__call__ is not nn.Module.__call__
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
        made = fast_call(x, own["weight"], own["bias"], given)
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
        or nn.BatchNorm2d.forward is not _forward
        or norm.momentum is None
        or not norm.track_running_stats
        or count is None
        or x.dim() != 4
    ):
        return norm(x)
    count.add_(1)
    return F.batch_norm(x, mean, variance, scale, shift, True, norm.momentum, norm.eps)
