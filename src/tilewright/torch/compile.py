"""A model compiled in place, where that is faster."""

from __future__ import annotations

import contextlib
import functools
import math
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from tilewright.ir.errors import ArgumentError
from tilewright.torch import ahead
from tilewright.torch.backend import checked, tilewright

if TYPE_CHECKING:
    from tilewright.torch.partition import Taken

#: What results may differ by, relative to their norm, by the bits of their elements.
_TOLERANCE = {64: 1e-9, 32: 1e-4, 16: 3e-2, 8: 0.25}
#: What part of integers and conditions may differ.
_FLIPPED = 0.02
#: Tensors by their names.
_Tensors = dict[str, torch.Tensor]
#: Turns in which times are taken at least, and at most.
_FEW, _MANY = 5, 200


@dataclass
class CompileReport:
    """What :func:`compile_` found.

    Attributes
    ----------
    graphs : of each graph that the model was split into, what was taken and what was left.
    before, after : seconds of a call, in the median, before and after.
    kept : whether the model runs compiled.
    reason : why it does not.
    """

    model: nn.Module
    graphs: list[Taken] = field(default_factory=list)
    before: float = 0.0
    after: float = 0.0
    kept: bool = False
    reason: str = ""

    def undo(self) -> None:
        """Let the model run as it did before."""
        self.model._compiled_call_impl = None
        self.kept, self.reason = False, "it was undone"

    def __str__(self) -> str:
        tables = "\n".join(map(str, self.graphs))
        what = "compiled" if self.kept else f"left as it was, {self.reason}"
        times = f"{self.before * 1e3:.3g} ms before, {self.after * 1e3:.3g} ms after: "
        return f"{tables}\n{times * (self.after > 0)}{what}"

    __repr__ = __str__


def compile_(
    model: nn.Module,
    example: Any,
    *,
    options: Mapping[str, Any] | None = None,
    seconds: float = 1.0,
) -> CompileReport:
    """Compile ``model`` in place by the backend "tilewright" where that makes it faster.

    Parameters
    ----------
    example : inputs (a tensor, a tuple of arguments, or a dictionary of them by name) like which
        the model is called, in evaluation mode without gradients, in training mode with them. Both
        are measured, the model as it is and compiled, in turns; the faster one stays.
    options : of the backend.
    seconds : of measuring, for each.

    Where results differ, or the model cannot be compiled, it stays as it is and the report says
    why. Its parameters, statistics and modes and PyTorch's random numbers are afterwards what they
    were. Raises :class:`ArgumentError` for what is no module, for options that there are not, and
    where the model cannot be called with the example.
    """
    if not isinstance(model, nn.Module):
        raise ArgumentError(f"compile_ takes a torch.nn.Module, got a {type(model).__name__}")
    ahead.check(example)
    checked(options)
    report = CompileReport(model)
    before = model._compiled_call_impl
    backend = functools.partial(tilewright, options=options, report=report.graphs.append)
    step = functools.partial(ahead.call, model, example)
    try:
        wanted = _results(model, step)
    except Exception as error:
        raise ArgumentError(
            f"{type(model).__name__} cannot be called with the example "
            f"({type(error).__name__}: {error}). Give what its forward takes: a tensor, a tuple of "
            "arguments, or a dictionary of them by name"
        ) from error
    compiled = model._compiled_call_impl = _compiled(model, backend)
    try:
        found = _results(model, step)
        report.reason = _difference(wanted, found)
        if not report.reason:
            sides = {"before": before, "after": compiled}
            times = _medians(model, step, sides, seconds)
            report.before, report.after = times["before"], times["after"]
            report.kept = report.after < report.before
            own = "which is faster" if before is None else "compiled before, which is as fast"
            report.reason = "" if report.kept else own
    except Exception as error:  # whatever a compiler may raise
        report.reason = f"it is not compiled: {type(error).__name__}: {error}"
    finally:
        model._compiled_call_impl = compiled if report.kept else before
    return report


def _compiled(model: nn.Module, backend: Callable[..., Any]) -> Callable[..., Any]:
    """What a compiled model is called by. ``nn.Module.compile`` leaves models whose own ``forward``
    is PyTorch's, as that of ``nn.Sequential``, as they are."""

    def whole(*args: Any, **kwargs: Any) -> Any:
        return model._call_impl(*args, **kwargs)

    return torch.compile(whole, backend=backend)  # type: ignore[no-any-return]


def _results(model: nn.Module, step: Callable[[], _Tensors]) -> _Tensors:
    if not model.training:  # nothing changes
        return step()
    with ahead.unchanged(model):
        return {name: t.detach().clone() for name, t in step().items()}


def _difference(wanted: _Tensors, found: _Tensors) -> str:
    """Where results differ; nothing where they do not.

    Gradients by the parameters of one module are compared together: that by a bias in front of a
    batch normalisation is zero but for rounding, by which it is as large as its errors. NaN and
    infinities are to be where they were. Of integers and conditions few may differ, as where two
    numbers are nearly as large.
    """
    together: dict[str, list[str]] = {}
    wanted, found = _dense(wanted), _dense(found)
    for name, a in wanted.items():
        b = found[name]
        if (a.shape, a.dtype) != (b.shape, b.dtype):
            return f"its {name} is {b.dtype} of {tuple(b.shape)}, not {a.dtype} of {tuple(a.shape)}"
        if a.is_floating_point() or a.is_complex():
            module = name.startswith(ahead.GRADIENT) and name.rpartition(".")[0]
            together.setdefault(module or name, []).append(name)
        elif (other := int((a != b).sum())) > _FLIPPED * a.numel():
            return f"its {name} differs in {other} of {a.numel()} elements"
    for names in together.values():
        sizes = {n: _size(wanted[n]) for n in names}
        errors = {n: _error(wanted[n], found[n]) for n in names}
        size, error = math.hypot(*sizes.values()), math.hypot(*errors.values())
        tolerance = max(_TOLERANCE[torch.finfo(wanted[n].dtype).bits] for n in names)
        if not error <= tolerance * (size or 1.0):
            worst = max(names, key=lambda n: math.inf if math.isnan(errors[n]) else errors[n])
            if not math.isfinite(errors[worst]):
                return f"its {worst} has NaN or infinities in other places"
            return f"its {worst} differs by {errors[worst] / (sizes[worst] or 1):.2g}"
    return ""


def _dense(tensors: _Tensors) -> _Tensors:
    """As they would be without a layout of their own, as gradients of tables of vectors have."""
    return {n: a if a.layout is torch.strided else a.to_dense() for n, a in tensors.items()}


def _wide(a: torch.Tensor) -> torch.Tensor:
    return (torch.view_as_real(a.resolve_conj()) if a.is_complex() else a).double()


def _size(a: torch.Tensor) -> float:
    """The norm of what is finite."""
    return float(_wide(a).nan_to_num(0.0, 0.0, 0.0).norm())


def _error(a: torch.Tensor, b: torch.Tensor) -> float:
    """The norm of the difference, which is not finite where NaN or an infinity is in one alone."""
    a, b = _wide(a), _wide(b)
    same = (a == b) | (a.isnan() & b.isnan())
    return float((a - b).masked_fill(same, 0.0).norm())


def _medians(
    model: nn.Module, step: Callable[[], Any], sides: Mapping[str, Any], seconds: float
) -> dict[str, float]:
    """Seconds of a step of each side, which take turns."""
    times: dict[str, list[float]] = {name: [] for name in sides}
    cuda = any(p.is_cuda for p in model.parameters())
    # What is restored counts as changed, which compiles again: in evaluation nothing changes.
    with ahead.unchanged(model) if model.training else contextlib.nullcontext():
        end = time.perf_counter() + seconds * len(sides)
        for turn in range(_MANY):
            for name, side in sides.items():
                model._compiled_call_impl = side
                begin = time.perf_counter()
                step()
                if cuda:
                    torch.cuda.synchronize()
                times[name].append(time.perf_counter() - begin)
            if turn + 1 >= _FEW and time.perf_counter() > end:
                break
    return {name: statistics.median(found[1:]) for name, found in times.items()}
