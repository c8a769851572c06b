"""Swapping the convolutions of a model in place, and back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from torch import nn

from tilewright import select
from tilewright.graph.passes.allow_precision import ALLOWED
from tilewright.ir.errors import ArgumentError
from tilewright.torch import ahead, grouped
from tilewright.torch.blocks import can_fuse, followers, unfuse
from tilewright.torch.blocks import fuse as fuse_
from tilewright.torch.calls import DTYPES, problem_of, target_of
from tilewright.torch.geometry import Geometry
from tilewright.torch.grouped import GroupedConv2d
from tilewright.torch.modules import REPLACEMENTS, replacement
from tilewright.torch.table import text_table

#: The image that a kernel is looked for, to tell whether a layer can have one.
_IMAGE = 56


@dataclass(frozen=True)
class Row:
    """One convolution of a model: ``reason`` says why it was not replaced, or is empty; ``fused``
    are the names and classes of the modules that it takes along in inference, and without a name a
    sum."""

    name: str
    layer: str
    reason: str
    fused: tuple[tuple[str, str], ...] = ()

    @property
    def replaced(self) -> bool:
        return not self.reason


@dataclass
class Report:
    """What :func:`optimize_` did; printed, a table.

    Attributes
    ----------
    rows : every convolution of the model, in its order.
    """

    rows: list[Row]
    _before: list[tuple[nn.Module, type]] = field(default_factory=list, repr=False)

    @property
    def replaced(self) -> list[str]:
        """The names of the modules that were replaced."""
        return [row.name for row in self.rows if row.replaced]

    @property
    def skipped(self) -> dict[str, str]:
        """By the names of the others, the reasons."""
        return {row.name: row.reason for row in self.rows if not row.replaced}

    @property
    def fused(self) -> dict[str, tuple[str, ...]]:
        """By the names of convolutions, the names of the modules that they take along."""
        return {row.name: tuple(n for n, _ in row.fused if n) for row in self.rows if row.fused}

    def undo(self) -> None:
        """Make the modules what they were; their parameters stay as they are now."""
        for module, kind in self._before:
            unfuse(module)
            module.__class__ = kind
            module.__dict__.pop("precision", None)
        self._before.clear()

    def __str__(self) -> str:
        cells = [(r.name or "(model)", r.layer, _result(r)) for r in self.rows]
        total = f"{len(self.replaced)} of {len(self.rows)} convolutions replaced"
        if self.fused:
            total += f", {len(self.fused)} take along what follows them in inference"
        return f"{text_table(('module', 'layer', 'result'), cells)}\n{total}"

    __repr__ = __str__


def _result(row: Row) -> str:
    if not row.fused:
        return row.reason or "replaced"
    *kinds, last = (kind for _, kind in row.fused)
    text = f"{', '.join(kinds)} and {last}" if kinds else last
    return f"{row.reason or 'replaced'}, with {text}"


def optimize_(
    model: nn.Module,
    filter_fn: Callable[[nn.Module, str], bool] | None = None,
    fuse: bool = True,
    example: Any = None,
    dense: bool = False,
    precision: str | None = None,
) -> Report:
    """Let the convolutions of ``model`` run on Tilewright's kernels, in place.

    These are depthwise ones, and in inference on a CPU in float32 those in groups of several
    channels in NCHW; with ``dense`` also those in one group, on Hopper GPUs in 16 bits and channels
    last, too, and on a CPU those in groups in channels last. Alone our kernels for these are about
    as fast as PyTorch's; what they gain is that they take along what follows. After
    ``set_policy("profile")`` they are taken, too, and the faster is measured for each shape.

    Modules keep their identity, parameters, hooks and ``state_dict``; only their class changes, to
    :class:`~tilewright.torch.DepthwiseConv2d`, ``DepthwiseConv1d``,
    ``DepthwiseConvTranspose2d`` or ``GroupedConv2d``. Optimizers that were made before stay valid.

    In inference a two-dimensional convolution in an ``nn.Sequential``, or a class that has its
    ``forward`` from it, takes along the ``BatchNorm2d`` behind it, and the ``ReLU``, ``ReLU6``,
    ``Hardtanh``, ``SiLU``, ``GELU`` (not its approximation), ``Hardswish``, ``Hardsigmoid`` or
    ``LeakyReLU`` behind that: one kernel computes all of them, and rounds once. So it does in
    other modules whose forward pass ``torch.fx`` can trace; on a CPU, and behind dense
    convolutions, with what is added before the activation, as in residual blocks. It reads the
    statistics where the modules have them, so that they may change. The modules are called one by
    one where the normalisation is in training mode or has no running statistics, where
    gradients are recorded, where one of them has forward hooks, or where there is no such kernel.

    Parameters
    ----------
    filter_fn : told a module and its name, whether to replace it; by default all are.
    fuse : whether convolutions take along what follows them.
    example : inputs (a tensor, a tuple of arguments, or a dictionary of them by name) like which
        kernels are compiled now and not at the first call, side by side on all cores: for inference
        where the model is in evaluation mode, with gradients in training mode. The model's state
        stays as it is.
    dense : whether dense convolutions are replaced, on a CPU and on Hopper GPUs, and on a CPU those
        in groups that are channels last.
    precision : "winograd" lets dense 3x3 convolutions of stride 1 in float32 be computed in fewer
        products, on a CPU in inference, at some two times the error (docs/operators.md); for
        ``dense`` ones.

    Raises :class:`ArgumentError` for a filter that is no function, for a precision that there is
    not, or without ``dense``, and where the model cannot be called with ``example``; it stays as it
    was then.

    Returns a :class:`Report` of what was replaced and what not, and why, and what is taken along;
    ``report.undo()`` or :func:`undo_` take it back.
    """
    if not isinstance(model, nn.Module):
        raise ArgumentError(f"optimize_ takes a torch.nn.Module, got a {type(model).__name__}")
    if filter_fn is not None and not callable(filter_fn):
        raise ArgumentError(
            f"filter_fn, which says of a module and its name whether to replace it, is a "
            f"{type(filter_fn).__name__}: inputs like those of later calls are given as example="
        )
    if precision is not None and precision not in ALLOWED:
        raise ArgumentError(f"precision {precision!r}: there is {', '.join(ALLOWED)}")
    if precision is not None and not dense:
        raise ArgumentError(f"precision {precision!r} is for dense convolutions: say dense=True")
    if example is not None:
        ahead.check(example)
    rows, before, taken = [], [], {}
    for name, module in model.named_modules():
        if not isinstance(module, nn.modules.conv._ConvNd):
            continue
        why = _why_not(module, dense)
        if not why and filter_fn is not None and not filter_fn(module, name):
            why = "left out by filter_fn"
        rows.append(Row(name, _describe(module), why))
        if not why:
            before.append((module, type(module)))
            ours = REPLACEMENTS[type(module)] if _is_depthwise(module) else GroupedConv2d
            module.__class__ = ours
            if precision is not None and ours is GroupedConv2d:
                module.precision = precision
    if fuse:
        names = {module: name for name, module in model.named_modules()}
        for module, name in names.items():
            if can_fuse(module):
                before.append((module, type(module)))
                fuse_(module)
            inside = f"{name}." if name else ""
            for convolution, others in followers(module).items():
                taken[names[convolution]] = tuple((n and inside + n, kind) for n, kind in others)
    report = Report([replace(row, fused=taken.get(row.name, ())) for row in rows], before)
    if example is not None:
        try:
            ahead.compile_for(model, example)
        except BaseException:
            report.undo()
            raise
    return report


def undo_(model: nn.Module) -> list[str]:
    """Make all modules that :func:`optimize_` replaced PyTorch's again; their names.

    Those that were written as Tilewright's become PyTorch's too. Modules that held what was called
    as one kernel are what they were, and not among the names. Raises :class:`ArgumentError` for
    what is no module.
    """
    if not isinstance(model, nn.Module):
        raise ArgumentError(f"undo_ takes a torch.nn.Module, got a {type(model).__name__}")
    back = {ours: theirs for theirs, ours in REPLACEMENTS.items()} | {GroupedConv2d: nn.Conv2d}
    names = []
    for name, module in model.named_modules():
        unfuse(module)
        if type(module) in back:
            module.__class__ = back[type(module)]
            module.__dict__.pop("precision", None)
            names.append(name)
    return names


def _why_not(module: Any, dense: bool) -> str:
    """Why a convolution stays as it is; empty where it need not."""
    kind = type(module)
    if kind in REPLACEMENTS.values() or kind is GroupedConv2d:
        return "is Tilewright's already"
    if replacement(kind) is None:
        if isinstance(module, tuple(REPLACEMENTS)):
            return f"is a {kind.__name__}, which may have a forward pass of its own"
        known = ", ".join(theirs.__name__ for theirs in REPLACEMENTS)
        return f"{kind.__name__}: there are kernels for {known}"
    if "forward" in vars(module) or "_conv_forward" in vars(module):
        return "has a forward pass of its own"
    if not _is_depthwise(module):
        return grouped.why_not(module, dense)
    return _no_kernel(module)


def _is_depthwise(module: Any) -> bool:
    return bool(module.groups == module.in_channels > 1)


def _no_kernel(module: Any) -> str:
    weight = module.weight
    if weight.device.type not in ("cpu", "cuda", "meta"):
        return f"lies on {weight.device.type!r}: there are kernels for 'cpu' and 'cuda'"
    if weight.dtype not in DTYPES:
        return f"has parameters of {weight.dtype}"
    if weight.device.type == "meta":
        return ""
    flat = len(module.kernel_size) == 1
    transposed = isinstance(module, nn.ConvTranspose2d)
    channels = module.out_channels if transposed else module.in_channels
    kernel, stride, dilation = (
        (1, *value) if flat else value
        for value in (module.kernel_size, module.stride, module.dilation)
    )
    image = [max(_IMAGE, (k - 1) * d + 1) for k, d in zip(kernel, dilation, strict=True)]
    shape = (1, channels, 1 if flat else image[0], image[1])
    try:
        problem = problem_of(
            "dgrad" if transposed else "forward", shape, module.out_channels, kernel,
            Geometry(stride, (0, 0, 0, 0), dilation), weight.dtype, False, module.bias is not None,
        )  # fmt: skip
        return select.reason(problem, target_of(weight.device))
    except Exception as error:  # a driver that is missing, above all
        return str(error)


def _describe(module: Any) -> str:
    kernel = "x".join(map(str, module.kernel_size))
    text = f"{type(module).__name__} {module.in_channels} -> {module.out_channels}, {kernel}"
    if set(module.stride) != {1}:
        text += f", stride {'x'.join(map(str, module.stride))}"
    if set(module.dilation) != {1}:
        text += f", dilation {'x'.join(map(str, module.dilation))}"
    return text
