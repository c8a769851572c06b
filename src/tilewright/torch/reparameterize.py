"""Merging parallel depthwise convolutions and their normalisation into one, for inference."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from torch import nn

from tilewright.ir.errors import ArgumentError
from tilewright.torch.reparameterize_sums import (
    CONVOLUTIONS,
    LEAVES,
    NORMALISATIONS,
    Branch,
    NotBranches,
    branches_of,
    merged,
)
from tilewright.torch.table import text_table

_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")


@dataclass(frozen=True)
class MergedRow:
    """A module of parallel convolutions: what it is now, or, in ``reason``, why it is as it was."""

    name: str
    before: str
    after: str
    reason: str


@dataclass
class MergeReport:
    """What :func:`merge_branches_` did; printed, a table.

    Attributes
    ----------
    rows : every module that was merged, and every one of several depthwise convolutions that was
        not, in their order.
    """

    rows: list[MergedRow]
    _before: list[tuple[nn.Module, str, nn.Module]] = field(default_factory=list, repr=False)

    @property
    def merged(self) -> list[str]:
        """The names of the modules that were merged."""
        return [row.name for row in self.rows if not row.reason]

    @property
    def skipped(self) -> dict[str, str]:
        """By the names of the others, the reasons."""
        return {row.name: row.reason for row in self.rows if row.reason}

    def undo(self) -> None:
        """Put the modules back, with the parameters that they had."""
        for parent, name, module in self._before:
            parent._modules[name] = module
        self._before.clear()

    def __str__(self) -> str:
        cells = [
            (r.name or "(model)", r.before, r.after or f"as it was: {r.reason}") for r in self.rows
        ]
        return text_table(("module", "before", "after"), cells)

    __repr__ = __str__


class SummedConvolutions(nn.ModuleList):
    """The sum of several convolutions of one input, of the same shape."""

    def forward(self, x: Any) -> Any:
        first, *others = self
        made = first(x)
        for convolution in others:
            made = made + convolution(x)
        return made


def merge_branches_(model: nn.Module) -> MergeReport:
    """Merge parallel depthwise convolutions and their batch normalisation, in place, for inference.

    A module whose whole forward pass adds up depthwise convolutions of its input, each followed by
    a ``BatchNorm2d`` or not, maybe with the input itself, is replaced by one ``nn.Conv2d``, or by
    the sum of a few where one filter would have more taps than they have together (51 x 5 beside
    5 x 51). Its result is the same but for rounding. Parameters are computed in float64 from those
    that the module has now; its ``state_dict`` is another one afterwards.

    Call it on a model in evaluation mode (``model.eval()``), after loading its parameters and
    before :func:`optimize_` or after it. ``model`` itself is never replaced, what it is made of is.
    Modules in training mode, with hooks, or that do anything else stay as they are; the
    :class:`MergeReport` says why, and its ``undo()`` puts all back.
    """
    if not isinstance(model, nn.Module):
        raise ArgumentError(
            f"merge_branches_ takes a torch.nn.Module, got a {type(model).__name__}"
        )
    rows: list[MergedRow] = []
    before: list[tuple[nn.Module, str, nn.Module]] = []
    places: dict[nn.Module, list[tuple[nn.Module, str]]] = {}
    for parent in model.modules():
        for name, child in parent._modules.items():
            if child is not None:
                places.setdefault(child, []).append((parent, name))
    inside: set[nn.Module] = set()  # of what is merged
    for name, module in model.named_modules():
        leaves = _leaves(module)
        if module in inside or module not in places or module in leaves:
            continue
        if isinstance(module, (nn.ModuleList, nn.ModuleDict)) or not _is_candidate(leaves):
            continue
        try:
            new, after = _merge(module, leaves)
        except NotBranches as error:
            if sum(type(leaf) in CONVOLUTIONS for leaf in leaves) > 1:
                rows.append(MergedRow(name, _sizes(leaves), "", str(error)))
            continue
        for parent, key in places[module]:
            before.append((parent, key, module))
            parent._modules[key] = new
        inside.update(module.modules())
        rows.append(MergedRow(name, _sizes(leaves), after, ""))
    return MergeReport([row for row in rows if not row.reason or _is_innermost(row, rows)], before)


def _is_innermost(row: MergedRow, rows: list[MergedRow]) -> bool:
    """Whether no other row is about a module inside: that one says more."""
    start = f"{row.name}." if row.name else ""
    return not any(r is not row and r.name.startswith(start) for r in rows)


def _leaves(module: nn.Module) -> list[Any]:
    """The modules in it that have none inside."""
    return [m for m in module.modules() if not any(True for _ in m.children())]


def _is_candidate(leaves: list[Any]) -> bool:
    """Whether a module may be a sum of depthwise convolutions, by what it is made of."""
    kinds = [type(leaf) for leaf in leaves]
    return all(k in LEAVES for k in kinds) and any(
        type(m) in CONVOLUTIONS and m.groups == m.in_channels > 1 for m in leaves
    )


def _merge(module: nn.Module, leaves: list[Any]) -> tuple[nn.Module, str]:
    """What takes a module's place, and its text; raises :class:`NotBranches`."""
    if any(m.training for m in module.modules()):
        raise NotBranches("it is in training mode: call eval() first")
    if any(getattr(m, hooks, None) for m in module.modules() for hooks in _HOOKS):
        raise NotBranches("it has hooks")
    if any("forward" in vars(m) for m in module.modules()):
        raise NotBranches("it has a forward pass of its own")
    found = branches_of(module)
    convolutions = [m for m in leaves if type(m) in CONVOLUTIONS]
    like = convolutions[0]
    if len({(m.weight.dtype, m.weight.device) for m in convolutions}) > 1:
        raise NotBranches("its convolutions differ in type or device")
    new = [_module(b, like) for b in merged(found)]
    if len(new) == len(convolutions) and not any(type(m) in NORMALISATIONS for m in leaves):
        raise NotBranches("one filter would have more taps than the several have together")
    made = new[0] if len(new) == 1 else SummedConvolutions(new).eval()
    return made, _sizes(new)


def _module(branch: Branch, like: Any) -> Any:
    """A convolution module of the class and type of ``like``."""
    wide = branch.bias.is_meta or bool(branch.bias.any())
    made = type(like)(
        like.in_channels, branch.weight.shape[0], branch.size, branch.stride,
        (-branch.low[0], -branch.low[1]), branch.dilation, like.in_channels, wide,
        device="meta", dtype=like.weight.dtype,
    )  # fmt: skip
    asks = like.weight.requires_grad
    made.weight = nn.Parameter(branch.weight.to(like.weight.dtype), asks)
    if wide:
        made.bias = nn.Parameter(branch.bias.to(like.weight.dtype), asks)
    return made.eval()


def _sizes(leaves: list[Any]) -> str:
    """Filters as they are written: 13x13 + 3x3 dilation 2."""
    texts = []
    for m in leaves:
        if type(m) in CONVOLUTIONS:
            text = "x".join(map(str, m.kernel_size))
            if set(m.dilation) != {1}:
                rows, columns = m.dilation
                text += f" dilation {rows}" + (f"x{columns}" if columns != rows else "")
            texts.append(text)
    return " + ".join(texts)
