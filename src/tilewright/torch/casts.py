"""Operands as autocast casts those of a convolution, and each parameter once.

Autocast keeps what it made of a parameter, until its outermost region is left or somebody clears
its cache. When that is it tells nobody; but it can be given an empty parameter to cast and to keep,
and what becomes of that one is seen by a weak reference.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import torch

_is_enabled, _dtype_of = torch.is_autocast_enabled, torch.get_autocast_dtype
_keeps, _grad = torch.is_autocast_cache_enabled, torch.is_grad_enabled

#: By the number of a parameter: it, and what it was cast to.
_kept: dict[int, tuple[Any, Any]] = {}
#: By type of device, an empty parameter; and what autocast keeps of one of them.
_empty: dict[str, Any] = {}
_sign: list[weakref.ref[Any]] = []


def cast(tensor: Any, dtype: Any) -> Any:
    """As autocast does it: float64 stays, and so do integers."""
    if tensor.dtype is dtype or tensor.dtype is torch.float64 or not tensor.is_floating_point():
        return tensor
    return tensor.to(dtype)


def cast_once(tensor: Any, dtype: Any) -> Any:
    """The same of a plain tensor; for a parameter, as long as autocast would keep it."""
    if tensor.dtype is not torch.float32:
        return cast(tensor, dtype)
    keep = tensor.requires_grad and _keeps()
    if keep and (known := _kept.get(id(tensor))) is not None:
        made = known[1]
        # One that was made without a record of gradients has none to give.
        if made.dtype is dtype and (made.requires_grad or not _grad()):
            return made
    made = tensor.type(dtype)  # as Tensor.to, whose arguments take longer to understand
    if keep and tensor.is_leaf and not tensor._is_view() and _is_watched(tensor.device.type):
        _kept[id(tensor)] = tensor, made
    return made


def autocast(
    input: Any, weight: Any, bias: Any, cast: Callable[[Any, Any], Any] = cast
) -> tuple[Any, Any, Any]:
    """The operands as autocast casts those of a convolution, where it is on."""
    kind = "cuda" if input.is_cuda else "cpu" if input.is_cpu else ""
    # Some types of devices know no autocast.
    if kind and _is_enabled(kind):
        dtype = _dtype_of(kind)
        input, weight = cast(input, dtype), cast(weight, dtype)
        if bias is not None:
            bias = cast(bias, dtype)
    return input, weight, bias


def _is_watched(kind: str) -> bool:
    """Whether autocast keeps something now, of which we shall see that it is dropped."""
    if not _sign or _sign[0]() is None:
        with torch.inference_mode(False):  # gradients are recorded
            if kind not in _empty:
                _empty[kind] = torch.empty(0, 0, device=kind, requires_grad=True)
            product = torch.mm(_empty[kind], _empty[kind])
            sign = product.grad_fn._saved_self  # what it was cast to
        _sign[:] = [weakref.ref(sign, lambda _: _kept.clear())]
        del product, sign
    return _sign[0]() is not None
