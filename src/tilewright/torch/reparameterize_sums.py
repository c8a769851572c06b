"""Modules that are a sum of depthwise convolutions of their input, and what they sum to.

A convolution and an evaluated batch normalisation after it are one convolution, and so are parallel
ones whose results are added (Ding et al., RepVGG, arXiv 2101.03697, section 3.3): a smaller or a
dilated filter is a larger one with zeros in it.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import fx, nn

from tilewright.torch.modules import DepthwiseConv2d

CONVOLUTIONS = (nn.Conv2d, DepthwiseConv2d)
NORMALISATIONS = (nn.BatchNorm2d, nn.SyncBatchNorm)
#: Modules that a sum of branches is made of.
LEAVES: tuple[type, ...] = (*CONVOLUTIONS, *NORMALISATIONS, nn.Identity)
_ADDITIONS = (operator.add, operator.iadd, torch.add)


class NotBranches(Exception):
    """A module is no sum of depthwise convolutions; the message says what it does instead."""


@dataclass(frozen=True)
class Branch:
    """A depthwise convolution.

    Attributes
    ----------
    weight, bias : (C * multiplier, 1, KH, KW) and (C * multiplier,), of float64.
    low : by axis, where the first tap lies beside the place of the result; padding, negated.
    dilation, stride : by axis.
    """

    weight: torch.Tensor
    bias: torch.Tensor
    low: tuple[int, int]
    dilation: tuple[int, int]
    stride: tuple[int, int]

    @property
    def size(self) -> tuple[int, int]:
        """Rows and columns of the filter."""
        return int(self.weight.shape[2]), int(self.weight.shape[3])

    @property
    def high(self) -> tuple[int, int]:
        """By axis, where the last tap lies."""
        (a, b), (k, m), (d, e) = self.low, self.size, self.dilation
        return a + (k - 1) * d, b + (m - 1) * e

    def scaled(self, factor: torch.Tensor, shift: torch.Tensor) -> Branch:
        """With what a normalisation does to its result."""
        weight = self.weight * factor[:, None, None, None]
        return replace(self, weight=weight, bias=self.bias * factor + shift)


class _Input:
    """The input of the module, as it came."""


class _Tracer(fx.Tracer):
    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        return type(m) in LEAVES


def branches_of(module: nn.Module) -> list[Branch]:
    """The convolutions whose sum ``module`` is; raises :class:`NotBranches`."""
    try:
        graph = _Tracer().trace(module)
    except Exception as error:  # whatever a forward pass does to what is no tensor
        text = str(error).strip().splitlines()[0] if str(error) else type(error).__name__
        raise NotBranches(f"torch.fx cannot trace it: {text}") from error
    values: dict[fx.Node, Any] = {}
    for node in graph.nodes:
        if node.op == "output":
            found = values.get(node.args[0]) if isinstance(node.args[0], fx.Node) else None
            if not isinstance(found, list):
                raise NotBranches("it returns something else than a sum of convolutions")
            _check_together(found)
            return found
        values[node] = _value(node, values, module)
    raise NotBranches("it returns nothing")


def _value(node: fx.Node, values: dict[fx.Node, Any], module: nn.Module) -> Any:
    """What a node computes: the input or a list of branches."""
    if node.op == "placeholder":
        if values:
            raise NotBranches("it takes several arguments")
        return _Input()
    given = [values.get(a) if isinstance(a, fx.Node) else a for a in node.args]
    if node.op == "call_module" and len(given) == 1 and not node.kwargs:
        return _applied(module.get_submodule(str(node.target)), given[0])
    adds = node.op == "call_function" and node.target in _ADDITIONS
    adds = adds or (node.op == "call_method" and node.target in ("add", "add_"))
    if adds and len(given) == 2 and not node.kwargs:
        if given[0] == 0:  # sum() begins with it
            return given[1]
        if isinstance(given[0], (list, _Input)) and isinstance(given[1], (list, _Input)):
            return _sum(*given)
    raise NotBranches(f"it does more than adding convolutions: {node.format_node()}")


def _applied(leaf: nn.Module, value: Any) -> Any:
    """A leaf's result."""
    if isinstance(leaf, nn.Identity):
        return value
    if isinstance(leaf, CONVOLUTIONS):
        if not isinstance(value, _Input):
            raise NotBranches("it convolves something else than its input")
        return [_convolution(leaf)]
    factor, shift = _normalisation(leaf)
    if isinstance(value, _Input):
        return [_scaling(factor, shift)]
    first, *others = [b.scaled(factor, shift) for b in value]
    return [first, *(replace(b, bias=b.bias - shift) for b in others)]


def _sum(left: Any, right: Any) -> list[Branch]:
    """The branches of both; where one is the input itself, a filter of one tap."""
    if isinstance(left, _Input) and isinstance(right, _Input):
        raise NotBranches("it adds its input to itself")
    some = right if isinstance(left, _Input) else left
    ones = torch.ones_like(some[0].bias)
    same = [_scaling(ones, torch.zeros_like(ones))]
    return [b for v in (left, right) for b in (same if isinstance(v, _Input) else v)]


def _scaling(factor: torch.Tensor, shift: torch.Tensor) -> Branch:
    """Every channel by a factor, as a convolution."""
    return Branch(factor[:, None, None, None], shift, (0, 0), (1, 1), (1, 1))


def _convolution(module: Any) -> Branch:
    if module.groups != module.in_channels or module.groups == 1:
        raise NotBranches("a convolution in it is not depthwise")
    if module.padding_mode != "zeros":
        raise NotBranches(f"a convolution in it pads by {module.padding_mode!r}")
    weight = module.weight.detach().double()
    padding = module.padding
    if isinstance(padding, str):
        reach = [(k - 1) * d for k, d in zip(module.kernel_size, module.dilation, strict=True)]
        padding = (0, 0) if padding == "valid" else tuple(r // 2 for r in reach)
        if module.padding == "same" and any(r % 2 for r in reach):
            raise NotBranches("a convolution in it pads one side more than the other")
    bias = weight.new_zeros(len(weight)) if module.bias is None else module.bias.detach().double()
    low = (-padding[0], -padding[1])
    return Branch(weight, bias, low, tuple(module.dilation), tuple(module.stride))


def _normalisation(module: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """The factor and the shift of each channel."""
    if module.running_mean is None or module.running_var is None:
        raise NotBranches("a normalisation in it takes the statistics of each batch")
    factor = (module.running_var.double() + module.eps).rsqrt()
    if module.weight is not None:
        factor = factor * module.weight.detach().double()
    shift = -module.running_mean.double() * factor
    if module.bias is not None:
        shift = shift + module.bias.detach().double()
    return factor, shift


def _check_together(branches: Sequence[Branch]) -> None:
    """Raise :class:`NotBranches` unless all make images of the same size of the same channels."""

    def kind(b: Branch) -> Any:
        middle = tuple(low + high for low, high in zip(b.low, b.high, strict=True))
        return b.weight.shape[0], b.stride, middle

    if len({kind(b) for b in branches}) > 1:
        raise NotBranches("its convolutions differ in stride, channels or how far they pad")


def merged(branches: Sequence[Branch]) -> list[Branch]:
    """The same sum in fewer branches: two become one where that has no more taps than both.

    >>> def filter_of(rows, columns):
    ...     weight, low = torch.ones(4, 1, rows, columns), (-(rows // 2), -(columns // 2))
    ...     return Branch(weight.double(), torch.zeros(4).double(), low, (1, 1), (1, 1))
    >>> [b.size for b in merged([filter_of(31, 31), filter_of(5, 5)])]
    [(31, 31)]
    >>> [b.size for b in merged([filter_of(51, 5), filter_of(5, 51), filter_of(5, 5)])]
    [(51, 5), (5, 51)]
    """
    done: list[Branch] = []
    for branch in sorted(branches, key=_taps, reverse=True):
        for k, other in enumerate(done):
            both = _box(other, branch)
            if _taps(both) <= _taps(other) + _taps(branch):
                done[k] = both
                break
        else:
            done.append(branch)
    if len(done) < len(branches):
        return merged(done)
    # One bias is enough.
    total = sum((b.bias for b in done[1:]), done[0].bias)
    return [replace(b, bias=torch.zeros_like(total) if k else total) for k, b in enumerate(done)]


def _taps(branch: Branch) -> int:
    return math.prod(branch.size)


def _box(a: Branch, b: Branch) -> Branch:
    """The sum of two in one filter, no less dilated than it has to be."""
    low = tuple(map(min, a.low, b.low))
    high = tuple(map(max, a.high, b.high))
    steps = []
    for axis in (0, 1):
        apart = [p.dilation[axis] for p in (a, b) if p.size[axis] > 1]
        steps.append(math.gcd(*apart, a.low[axis] - b.low[axis]) or 1)
    size = [(h - at) // step + 1 for at, h, step in zip(low, high, steps, strict=True)]
    weight = a.weight.new_zeros(a.weight.shape[0], 1, *size)
    for part in (a, b):
        rows, columns = (
            slice(
                (part.low[i] - low[i]) // steps[i],
                (part.high[i] - low[i]) // steps[i] + 1,
                max(part.dilation[i] // steps[i], 1),
            )
            for i in (0, 1)
        )
        weight[:, :, rows, columns] += part.weight
    return Branch(weight, a.bias + b.bias, (low[0], low[1]), (steps[0], steps[1]), a.stride)
