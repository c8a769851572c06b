"""The short way of an eager call like one before: past the dispatcher, if nobody asks for it there.

One guard recognises a call that is like the last one with the same weight. Otherwise it is looked
up by all that its operands are but their values.
"""

from __future__ import annotations

import contextlib
from typing import Any

import torch
from torch.autograd import forward_ad

from tilewright.torch.calls import MOST_SEEN, CallPlan, latest, observers, seen, signature
from tilewright.torch.cast_cache import autocast, cast_once, kind_of
from tilewright.torch.conversions import conversion
from tilewright.torch.dispatcher_checks import alive, functions, modes, needs_no_dispatch, profiled
from tilewright.torch.fused_backward import cast_and_run
from tilewright.torch.guards import Guard, guard

_grad, _dtype_of = torch.is_grad_enabled, torch.get_autocast_dtype
_autocast_is_on = torch._C._is_any_autocast_enabled
#: Kinds of operands of a call that is else the same: this many are kept in mind.
_MOST_KINDS = 16


class GuardedCall:
    """A call that was made before, with operands as its caller had them.

    Attributes
    ----------
    given : what the caller was given beside the operands.
    is_like : whether operands, but for a bias that is None, and the thread's state are as then.
    asks : whether an operand asks for gradients.
    known : what is known of the call.
    kind, dtype : of autocast, the type of the device and what it casts to; "" where it is off.
    casting : where one record does for the casts of parameters too, ``known`` with these.
    convert : how an input that asks for no gradients is cast; None where autocast's way will do.
    """

    __slots__ = ("asks", "casting", "convert", "dtype", "given", "is_like", "kind", "known")

    def __init__(
        self, known: CallPlan, is_like: Guard, operands: tuple[Any, ...], given: Any, kind: str
    ) -> None:
        self.known, self.is_like, self.given, self.kind = known, is_like, given, kind
        self.asks = any(t.requires_grad for t in operands)
        self.dtype = _dtype_of(kind) if kind else None
        # What is no parameter may be large, and the record would keep it.
        parameters = all(type(t) is torch.nn.Parameter for t in operands[1:])
        self.casting: CallPlan | None = None
        self.convert = None
        if kind and not operands[0].requires_grad:
            self.convert = conversion(operands[0], self.dtype)
        if kind and parameters:
            self.casting = known.casting(self.dtype, operands[1].dtype)
            convert = self.casting.convert_weight = conversion(operands[1], self.dtype)
            if len(operands) == 3:
                self.casting.convert_bias = conversion(operands[2], self.dtype)
            else:
                self.casting.cast_and_run = cast_and_run(convert, known.run)


def fast_call(input: Any, weight: Any, bias: Any, given: tuple[Any, ...]) -> torch.Tensor | None:
    """What ``eager.convolve`` or ``transpose`` made of arguments like these before, or None.

    ``given`` is the caller's name, and what it was given beside the operands.
    """
    # Each look-up counts: this is all that a call costs beside PyTorch's part of it.
    quick = latest.get(id(weight))
    if (
        quick is None
        or observers
        or modes()
        or functions()
        or profiled()
        or forward_ad._current_level >= 0
    ):
        return _looked_up(input, weight, bias, given)
    try:
        is_like = quick.given == given and (
            quick.is_like(input, weight) if bias is None else quick.is_like(input, weight, bias)
        )
    except Exception:  # another number of operands, or settings that cannot be compared
        is_like = False
    if not is_like:
        return _looked_up(input, weight, bias, given)
    known = quick.known
    made: torch.Tensor
    if quick.kind:
        dtype = quick.dtype
        if _dtype_of(quick.kind) is not dtype:
            return _looked_up(input, weight, bias, given)
        if input.dtype is not dtype:
            input = cast_once(input, dtype, quick.convert)
        casting = quick.casting
        if casting is None:
            weight = cast_once(weight, dtype)
            bias = None if bias is None else cast_once(bias, dtype)
        elif quick.asks and _grad():
            made = known.record(input, weight, bias, casting)
            return made
        else:
            weight = cast_once(weight, dtype, casting.convert_weight)
            bias = None if bias is None else cast_once(bias, dtype, casting.convert_bias)
    if quick.asks and _grad():
        made = known.record(input, weight, bias, known)
    else:
        made = known.run(input, weight, bias)
    return made


def _looked_up(input: Any, weight: Any, bias: Any, given: tuple[Any, ...]) -> torch.Tensor | None:
    """The same by the signature of the operands as autocast casts them."""
    if observers or not needs_no_dispatch(input, weight, bias):
        return None
    operands, kind = (input, weight, bias), ""
    if _autocast_is_on():
        kind = kind_of(input)
        if kind:
            input, weight, bias = autocast(input, weight, bias, cast_once)
    try:
        known, simple = seen.get((signature(input, weight, bias), given)), True
    except TypeError:
        known, simple = _by_lists(signature(input, weight, bias), given), False
    if known is None:
        return None
    made: torch.Tensor
    try:
        if _grad() and asks_for_gradients(input, weight, bias):
            made = known.record(input, weight, bias, known)
        else:
            made = known.run(input, weight, bias)
    except RuntimeError:
        if all(alive(t) is t for t in (input, weight, bias) if t is not None):
            raise
        return None  # one of them has no memory, but wraps what has
    if simple:
        _remember(known, operands, given, kind)
    return made


def _remember(
    known: CallPlan, operands: tuple[Any, ...], given: tuple[Any, ...], kind: str
) -> None:
    """Let one guard recognise the next call like this one."""
    weight, present = operands[1], tuple(t for t in operands if t is not None)
    dtype = _dtype_of(kind) if kind else None
    for quick in known.kinds:
        if quick.kind == kind and quick.dtype is dtype and quick.is_like(*present):
            break
    else:
        is_like = guard(*present)
        if is_like is None:
            return
        if len(known.kinds) >= _MOST_KINDS:
            known.kinds.clear()
        quick = GuardedCall(known, is_like, present, given, kind)
        known.kinds.append(quick)
    if len(latest) >= MOST_SEEN:
        latest.clear()
    latest[id(weight)] = quick


def _by_lists(operands: Any, given: tuple[Any, ...]) -> CallPlan | None:
    """What is known of a call; nothing of one with a stride or the like that is neither a tuple
    nor a list."""
    with contextlib.suppress(TypeError):
        return seen.get((operands, hashable(given)))
    return None


def hashable(given: tuple[Any, ...]) -> tuple[Any, ...]:
    """Lists as tuples."""
    return tuple(tuple(value) if isinstance(value, list) else value for value in given)


def asks_for_gradients(input: Any, weight: Any, bias: Any) -> bool:
    """Whether one of the operands does."""
    found: bool = input.requires_grad or weight.requires_grad
    return found or (bias is not None and bias.requires_grad)
