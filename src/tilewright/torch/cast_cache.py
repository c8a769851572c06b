"""Operands as autocast casts those of a convolution, and each parameter once.

Autocast keeps what it made of a parameter, until its outermost region is left or somebody clears
its cache. When that is it tells nobody; but it can be given an empty parameter to cast and to keep,
and what becomes of that one is seen by a weak reference. This costs more than a cast. Where a
region took nothing a second time, some parameters to come are not kept.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import torch

_is_enabled, _dtype_of = torch.is_autocast_enabled, torch.get_autocast_dtype
_infers = torch.is_inference_mode_enabled
_keeps, _grad = torch.is_autocast_cache_enabled, torch.is_grad_enabled
#: How many parameters at most are not kept after a region that took nothing a second time.
_MOST_PASSED = 127


class _CastCache(dict[int, tuple[Any, Any]]):
    """By the number of a parameter: it, and what it was cast to.

    Attributes
    ----------
    used : whether something was taken since the last time that all was dropped.
    pause : how many parameters are not kept after a region of no use; twice as many each time.
    passing : of how many that is still so.
    """

    def __init__(self) -> None:
        super().__init__()
        self.used, self.pause, self.passing = False, 0, 0
        self._empty: dict[str, Any] = {}  # by type of device, an empty parameter
        self._sign: weakref.ref[Any] | None = None  # what autocast keeps of one of them

    def keep(self, parameter: Any, made: Any) -> None:
        """Do so, where it is seen that autocast drops what it keeps."""
        if self._sign is None or self._sign() is None:
            if self.passing:
                self.passing -= 1
                return
            self._watch(parameter.device.type)
        if self._sign is not None and self._sign() is not None:
            self[id(parameter)] = parameter, made

    def _watch(self, kind: str) -> None:
        with torch.inference_mode(False):  # which records gradients
            if kind not in self._empty:
                self._empty[kind] = torch.empty(0, 0, device=kind, requires_grad=True)
            product: Any = torch.mm(self._empty[kind], self._empty[kind])
            sign = product.grad_fn._saved_self  # what the empty one was cast to
        self._sign = weakref.ref(sign, self._dropped)

    def _dropped(self, _: Any) -> None:
        self.clear()
        self.pause = 0 if self.used else min(2 * self.pause + 1, _MOST_PASSED)
        self.passing, self.used = self.pause, False


_cast_cache = _CastCache()


def cast(tensor: Any, dtype: Any) -> Any:
    """As autocast does it: float64 stays, and so do integers."""
    if tensor.dtype is dtype or tensor.dtype is torch.float64 or not tensor.is_floating_point():
        return tensor
    return tensor.to(dtype)


def cast_once(tensor: Any, dtype: Any, convert: Callable[[Any], Any] | None = None) -> Any:
    """The same of a plain tensor; for a parameter, as long as autocast would keep it.

    ``convert`` does it where given, which has no record of gradients.
    """
    if tensor.dtype is not torch.float32:
        return cast(tensor, dtype)
    keep = tensor.requires_grad and _keeps()
    if keep and (known := _cast_cache.get(id(tensor))) is not None:
        made = known[1]
        # One that was made without a record of gradients has none to give, and one of inference
        # mode is not to be recorded.
        fits = made.dtype is dtype and (made.requires_grad or not _grad())
        if fits and (not made.is_inference() or _infers()):
            _cast_cache.used = True
            return made
    if convert is not None:
        made = convert(tensor)
    else:
        made = tensor.type(dtype)  # as Tensor.to, whose arguments take longer to understand
    if keep and tensor.is_leaf and not tensor._is_view():
        _cast_cache.keep(tensor, made)
    return made


def autocast(
    input: Any, weight: Any, bias: Any, cast: Callable[[Any, Any], Any] = cast
) -> tuple[Any, Any, Any]:
    """The operands as autocast casts those of a convolution, where it is on."""
    kind = kind_of(input)
    if kind:
        dtype = _dtype_of(kind)
        input, weight = cast(input, dtype), cast(weight, dtype)
        if bias is not None:
            bias = cast(bias, dtype)
    return input, weight, bias


def kind_of(input: Any) -> str:
    """The type of its device where autocast is on for that, else ""."""
    kind = "cuda" if input.is_cuda else "cpu" if input.is_cpu else ""
    # Some types of devices know no autocast.
    return kind if kind and _is_enabled(kind) else ""
