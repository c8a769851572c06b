"""A depthwise convolution, its batch normalisation and its activation, called as one kernel."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.autograd import forward_ad

from tilewright.torch import kernels
from tilewright.torch.calls import observers
from tilewright.torch.cast_cache import cast, kind_of
from tilewright.torch.constants import captures, constant
from tilewright.torch.dispatcher_checks import (
    alive,
    functions,
    modes,
    needs_no_dispatch_but_watched,
    profiled,
)
from tilewright.torch.fusible import (
    CONVOLUTIONS,
    NOTHING,
    acts,
    asks,
    by_operator,
    geometry_of,
    hooks,
    inner,
    is_fusible,
    pre_hooks,
)
from tilewright.torch.guards import guard
from tilewright.torch.module_bypass import one_after_the_other, one_by_one
from tilewright.torch.normalized import Launched, addresses, launched
from tilewright.torch.norms import SETTINGS, activation_step

_grad, _dtype_of = torch.is_grad_enabled, torch.get_autocast_dtype
#: How many kinds of calls are kept in mind.
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
    casts : whether ``run`` takes weight and bias as they are and casts them in its launch.
    """

    __slots__ = ("asks", "beta", "casts", "device", "dtype", "gamma", "is_like", "run", "settings")

    def __init__(self, run: Launched | None, x: Any, own: tuple[Any, ...], settings: Any) -> None:
        weight, mean, variance, gamma, beta, bias = own
        self.settings = settings
        self.gamma = constant(1, mean) if gamma is None else None
        self.beta = constant(0, mean) if beta is None else None
        filled = (self.gamma if gamma is None else gamma, self.beta if beta is None else beta)
        operands = (x, weight, mean, variance, *filled)
        self.is_like: Any = guard(*operands) if bias is None else guard(*operands, bias)
        self.asks = asks(x, *own)
        self.device = kind_of(x)
        self.dtype = _dtype_of(self.device) if self.device else None
        casting = None
        if run is not None and self.device:
            parameters = (weight,) if bias is None else (weight, bias)
            casting = run.casting(parameters, self.dtype)
        self.casts = casting is not None
        self.run = casting or run


class Chain:
    """Modules that follow one another, the first of them a convolution: one kernel where it may be.

    It is called with an image, and does what they would, one after the other.
    """

    __slots__ = (
        "__weakref__", "_acts", "_after", "_kind", "_kinds", "_latest", "_norm_kind", "_settings",
        "activation", "convolution", "norm",
    )  # fmt: skip

    def __init__(self, convolution: Any, norm: Any, activation: Any = NOTHING) -> None:
        # What is called behind the normalisation, and what is computed behind it.
        self._after = activation
        self._acts = acts(norm)
        activation = inner(norm) if self._acts else activation
        self.convolution, self.norm, self.activation = convolution, norm, activation
        self._kind, self._norm_kind = type(activation), type(norm)
        self._settings: Callable[[Any], Any] = SETTINGS.get(type(activation), _no_settings)
        self.forget()
        _chains.add(self)

    def forget(self) -> None:
        """Look everything up again."""
        self._kinds: tuple[_Kind, ...] = ()
        self._latest: _Kind | None = None

    def __call__(self, x: Any) -> Any:
        # Each look-up counts: this is all that a call costs the host beside the launch.
        known = self._latest
        convolution, norm, activation = self.convolution, self.norm, self.activation
        if norm.training:  # by what the batch has, which no kernel knows before
            return one_after_the_other(x, convolution, norm, self._after)
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
            or type(convolution) not in CONVOLUTIONS
            or type(norm) is not self._norm_kind
            or (self._acts and inner(norm) is not activation)
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
        run = known.run
        if run is None:
            return self._one_by_one(x)
        if known.device:
            dtype = known.dtype
            if _dtype_of(known.device) is not dtype:
                return self._carefully(x)
            x = x if x.dtype is dtype else cast(x, dtype)
            if not known.casts:
                # In each call: no version counts what is written through `.data`, from NumPy or by
                # a CUDA graph, and to compare the values would cost as much as a cast.
                weight = weight.type(dtype)
                bias = None if bias is None else bias.type(dtype)
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
        if self._acts and inner(self.norm) is not self.activation:
            return self._one_by_one(x)
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
        return one_by_one(x, self.convolution, self.norm, self._after)

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
        return needs_no_dispatch_but_watched(*operands)

    def _direct(self, x: Any) -> Any:
        """The result of the kernel; None where there is none."""
        weight, mean, variance, gamma, beta, bias = self._own()
        image, device = x, kind_of(x)
        if device:
            dtype = _dtype_of(device)
            image, weight = cast(x, dtype), cast(weight, dtype)
            bias = None if bias is None else cast(bias, dtype)
        gamma = constant(1, mean) if gamma is None else gamma
        beta = constant(0, mean) if beta is None else beta
        statistics = (mean, variance, gamma, beta)
        others = (weight, *statistics) if bias is None else (weight, bias, *statistics)
        if not all(t.is_contiguous() and t.device == x.device for t in others):
            return None
        try:
            geometry = geometry_of(self.convolution, x)
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
        """Let one guard recognise the next call like this one."""
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
