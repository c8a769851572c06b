"""Sequences of modules in which convolutions take along what follows them."""

from __future__ import annotations

import copyreg
from collections.abc import Iterator
from functools import cache
from typing import Any

import torch
from torch import nn
from torch.fx import Proxy
from torch.jit import is_scripting

from tilewright.torch.chains import Chain
from tilewright.torch.dispatcher_checks import exports_onnx, is_transformed
from tilewright.torch.fusible import by_operator, is_fusible, length


class _Plan:
    """The modules of a sequence, and what is called one after the other in their place."""

    __slots__ = ("calls", "modules")

    def __init__(self, modules: tuple[Any, ...]) -> None:
        self.modules = modules
        self.calls = [m[0] if len(m) == 1 else Chain(*m) for m in _chains(modules)]


def _chains(modules: tuple[Any, ...]) -> Iterator[tuple[Any, ...]]:
    """The modules, those that may be one kernel together."""
    k = 0
    while k < len(modules):
        more = length(modules, k)
        yield modules[k : k + more]
        k += more


class FusedSequential(nn.Sequential):
    """An ``nn.Sequential`` whose depthwise convolutions take along the ``BatchNorm2d`` and the
    activation behind them in one kernel, wherever the result is the same but for rounding.

    The modules are what they were; where they must be called one by one, they are. Classes for
    those of ``nn.Sequential``'s that inherit from it come from :func:`fused`.
    """

    #: The class of a module before.
    unfused: type = nn.Sequential
    _plan: _Plan | None = None
    __jit_ignored_attributes__ = ("_plan",)

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        if is_scripting():  # what stands behind is not compiled by torch.jit.script then
            for module in self:
                input = module(input)
            return input
        elif torch.compiler.is_compiling():
            return _traced(input, (*self._modules.values(),))
        elif isinstance(input, Proxy):
            return super().forward(input)
        else:
            modules = (*self._modules.values(),)
            plan = self._plan
            if plan is None or plan.modules != modules:
                plan = self._plan = _Plan(modules)
            for call in plan.calls:
                input = call(input)
            return input

    def __reduce_ex__(self, protocol: Any) -> Any:
        made = super().__reduce_ex__(max(2, protocol))
        if not isinstance(made, tuple) or made[0] is not copyreg.__newobj__:  # type: ignore[attr-defined]
            return made
        state = {name: value for name, value in made[2].items() if name != "_plan"}
        return (_empty, (self.unfused,), state, *made[3:])


def _traced(input: Any, modules: tuple[Any, ...]) -> Any:
    """The forward pass, for a compiler."""
    for chain in _chains(modules):
        alone = len(chain) == 1 or is_transformed() or exports_onnx()
        if not alone and is_fusible(input, *chain):
            input = by_operator(input, *chain)
        else:
            for module in chain:
                input = module(input)
    return input


@cache
def fused(kind: Any) -> type:
    """The class of which a module of ``kind`` becomes."""
    if kind is nn.Sequential:
        return FusedSequential
    names = {"unfused": kind, "__module__": __name__, "__doc__": FusedSequential.__doc__}
    return type(f"Fused{kind.__name__}", (FusedSequential, kind), names)


def _empty(kind: type) -> Any:
    """A module of the class for ``kind``, which its state is still to be put into."""
    made: Any = fused(kind)
    return made.__new__(made)


def can_fuse(module: nn.Module) -> bool:
    """Whether a module calls its own one after the other, as ``nn.Sequential`` does, and a
    convolution of ours has its normalisation behind it."""
    kind: Any = type(module)
    return (
        isinstance(module, nn.Sequential)
        and not isinstance(module, FusedSequential)
        and kind.forward is nn.Sequential.forward
        and kind.__iter__ is nn.Sequential.__iter__
        and kind.__call__ is nn.Sequential.__call__
        and "forward" not in vars(module)
        and any(len(chain) > 1 for chain in _chains((*module._modules.values(),)))
    )


def fuse(module: nn.Module) -> None:
    """Let a module that :func:`can_fuse` do so."""
    kind: Any = type(module)
    module.__class__ = fused(kind)


def unfuse(module: nn.Module) -> None:
    """Make it what it was."""
    if isinstance(module, FusedSequential):
        module.__dict__.pop("_plan", None)
        module.__class__ = module.unfused


def followers(module: nn.Module) -> dict[nn.Module, tuple[nn.Module, ...]]:
    """By convolution, the modules that it takes along."""
    if not isinstance(module, FusedSequential):
        return {}
    chains = _chains((*module._modules.values(),))
    return {chain[0]: chain[1:] for chain in chains if len(chain) > 1}
