"""A depthwise convolution, its batch normalisation and its activation, called as one kernel."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.autograd import forward_ad

from tilewright.torch import kernels
from tilewright.torch.alike import alike
from tilewright.torch.calls import observers
from tilewright.torch.casts import cast, kind_of
from tilewright.torch.fusible import (
    NOTHING,
    asks,
    by_operator,
    geometry_of,
    hooks,
    is_fusible,
    pre_hooks,
)
from tilewright.torch.kept import KeptCast, captures, constant
from tilewright.torch.modules import DepthwiseConv2d
from tilewright.torch.normalized import Launched, addresses, launched
from tilewright.torch.norms import SETTINGS, activation_step
from tilewright.torch.plain import alive, functions, is_plain_but_watched, modes, profiled
from tilewright.torch.trained import one_after_the_other, one_by_one

_grad, _dtype_of = torch.is_grad_enabled, torch.get_autocast_dtype
#: So many kinds of calls are kept in mind.
_MOST_KINDS = 16


class _Kind:
    """What is known of calls that are alike.

    Attributes
    ----------
    is_like : whether operands, but for a bias that is None, and the thread are as then.
    settings : of the modules, besides.
    gamma, beta : ones and zeros where the normalisation has none of its own.
    asks : whether an operand asks for gradients.
    run : the kernel, or None where there is none.
    device, dtype : of autocast, the type of the device and what it casts to; "" where it is off.
    """

    __slots__ = ("asks", "beta", "device", "dtype", "gamma", "is_like", "run", "settings")

    def __init__(self, run: Launched | None, x: Any, own: tuple[Any, ...], settings: Any) -> None:
        weight, mean, variance, gamma, beta, bias = own
        self.run, self.settings = run, settings
        self.gamma = constant(1, mean) if gamma is None else None
        self.beta = constant(0, mean) if beta is None else None
        filled = (self.gamma if gamma is None else gamma, self.beta if beta is None else beta)
        operands = (x, weight, mean, variance, *filled)
        self.is_like: Any = alike(*operands) if bias is None else alike(*operands, bias)
        self.asks = asks(x, *own)
        self.device = kind_of(x)
        self.dtype = _dtype_of(self.device) if self.device else None


class Chain:
    """Modules that follow one another, the first of them a convolution: one kernel where it may be.

    It is called with an image, and does what they would, one after the other.
    """

    __slots__ = (
        "__weakref__", "_bias", "_kind", "_kinds", "_latest", "_settings", "_weight", "activation",
        "convolution", "norm",
    )  # fmt: skip

    def __init__(self, convolution: Any, norm: Any, activation: Any = NOTHING) -> None:
        self.convolution, self.norm, self.activation = convolution, norm, activation
        self._kind = type(activation)
        self._settings: Callable[[Any], Any] = SETTINGS.get(type(activation), _no_settings)
        self._weight, self._bias = KeptCast(), KeptCast()
        self.forget()
        _chains.add(self)

    def forget(self) -> None:
        """Look everything up anew."""
        self._kinds: tuple[_Kind, ...] = ()
        self._latest: _Kind | None = None

    def __call__(self, x: Any) -> Any:
        # Each look-up counts: this is all that a call costs the host beside the launch.
        known = self._latest
        convolution, norm, activation = self.convolution, self.norm, self.activation
        if norm.training:  # by what the batch has, which no kernel knows before
            return one_after_the_other(x, convolution, norm, activation)
        if (
            known is None
            or observers
            or modes()
            or functions()
            or profiled()
            or forward_ad._current_level >= 0
            or convolution._forward_hooks
            or convolution._forward_pre_hooks
            or norm._forward_hooks
            or norm._forward_pre_hooks
            or activation._forward_hooks
            or activation._forward_pre_hooks
            or hooks
            or pre_hooks
            or type(convolution) is not DepthwiseConv2d
            or type(norm) is not nn.BatchNorm2d
            or type(activation) is not self._kind
            or "forward" in convolution.__dict__
            or "_conv_forward" in convolution.__dict__
            or "forward" in norm.__dict__
            or "forward" in activation.__dict__
        ):
            return self._carefully(x)
        try:
            filters, scales, statistics = convolution._parameters, norm._parameters, norm._buffers
            weight, bias = filters["weight"], filters["bias"]
            mean, variance = statistics["running_mean"], statistics["running_var"]
            gamma, beta = scales["weight"], scales["bias"]
            gamma = known.gamma if gamma is None else gamma
            beta = known.beta if beta is None else beta
            settings = (
                convolution.stride, convolution.padding, convolution.dilation,
                convolution.padding_mode, norm.eps, self._settings(activation),
            )  # fmt: skip
            operands: tuple[Any, ...] = (x, weight, mean, variance, gamma, beta)
            operands = operands if bias is None else (*operands, bias)
            if not (known.settings == settings and known.is_like(*operands)):
                known = self._another(settings, operands)
        except Exception:  # something else is there, or nothing
            known = None
        if known is None or (known.asks and _grad()):
            return self._carefully(x)
        if known.device:
            dtype = known.dtype
            if _dtype_of(known.device) is not dtype:
                return self._carefully(x)
            x = x if x.dtype is dtype else cast(x, dtype)
            weight = self._weight(weight, dtype)
            bias = None if bias is None else self._bias(bias, dtype)
        run = known.run
        if run is None:
            return self._one_by_one(x)
        if run.by_nchw is not None:
            return run(x, addresses(weight, bias, (mean, variance, gamma, beta)))
        made = run.empty()
        if bias is None:
            run.launch((
                x.data_ptr(), weight.data_ptr(), mean.data_ptr(), variance.data_ptr(),
                gamma.data_ptr(), beta.data_ptr(), made.data_ptr(),
            ))  # fmt: skip
        else:
            run.launch((
                x.data_ptr(), weight.data_ptr(), bias.data_ptr(), mean.data_ptr(),
                variance.data_ptr(), gamma.data_ptr(), beta.data_ptr(), made.data_ptr(),
            ))  # fmt: skip
        return made

    def _another(self, settings: Any, operands: Any) -> _Kind | None:
        """What is known of calls like this one, though not of the last."""
        for known in self._kinds:
            if known.settings == settings and known.is_like(*operands):
                self._latest = known
                return known
        return None

    def _carefully(self, x: Any) -> Any:
        """Whatever may be asked for."""
        three = (self.convolution, self.norm, self.activation)
        if type(x) in (torch.Tensor, nn.Parameter):
            x = alive(x)
        if self._is_direct(x) and is_fusible(x, *three):
            for hook in self.convolution._forward_pre_hooks.values():
                hook(self.convolution, (x,))
            made = self._direct(x)
            if made is not None:
                return made
        return self._one_by_one(x)

    def _one_by_one(self, x: Any) -> Any:
        return one_by_one(x, self.convolution, self.norm, self.activation)

    def _own(self) -> tuple[Any, ...]:
        """Weight, mean, variance, gamma, beta, bias; raises :class:`KeyError` for one that is none
        of its module's own, as in a replica for another device."""
        filters, scales = self.convolution._parameters, self.norm._parameters
        statistics = self.norm._buffers
        return (
            filters["weight"], statistics["running_mean"], statistics["running_var"],
            scales["weight"], scales["bias"], filters["bias"],
        )  # fmt: skip

    def _is_direct(self, x: Any) -> bool:
        """Whether the dispatcher would do no more than call kernels, and tell who watches."""
        try:
            operands = [t for t in (x, *self._own()) if t is not None]
        except KeyError:
            return False
        return is_plain_but_watched(*operands)

    def _direct(self, x: Any) -> Any:
        """The result of the kernel; None where there is none."""
        weight, mean, variance, gamma, beta, bias = self._own()
        image, device = x, kind_of(x)
        if device:
            dtype = _dtype_of(device)
            image, weight = cast(x, dtype), self._weight(weight, dtype)
            bias = None if bias is None else self._bias(bias, dtype)
        gamma = constant(1, mean) if gamma is None else gamma
        beta = constant(0, mean) if beta is None else beta
        statistics = (mean, variance, gamma, beta)
        others = (weight, *statistics) if bias is None else (weight, bias, *statistics)
        if not all(t.is_contiguous() and t.device == x.device for t in others):
            return None
        try:
            geometry = geometry_of(self.convolution)
        except Exception:  # the convolution itself says what is wrong
            return None
        step = activation_step(self.activation)
        run = launched(image, weight, bias, statistics, self.norm.eps, step, geometry)
        is_watched = profiled() or functions()
        if not (observers or is_watched or captures(x)):
            self._remember(x, run)
        if run is None:
            return None
        if is_watched:
            return by_operator(x, self.convolution, self.norm, self.activation)
        return run(image, addresses(weight, bias, statistics))

    def _remember(self, x: Any, run: Launched | None) -> None:
        """Let the next call like this one be told at once."""
        convolution, norm = self.convolution, self.norm
        settings = (
            convolution.stride, convolution.padding, convolution.dilation,
            convolution.padding_mode, norm.eps, self._settings(self.activation),
        )  # fmt: skip
        known = _Kind(run, x, self._own(), settings)
        if known.is_like is not None:
            self._kinds = (known, *self._kinds[: _MOST_KINDS - 1])
            self._latest = known


_chains: weakref.WeakSet[Chain] = weakref.WeakSet()


def _no_settings(_: Any) -> None:
    """Those of an activation that has none."""


def _forget() -> None:
    for chain in list(_chains):
        chain.forget()


kernels.on_change.append(_forget)
