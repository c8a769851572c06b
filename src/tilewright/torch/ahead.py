"""Kernels for a model's calls, compiled before the first of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import nn

from tilewright.ir.errors import ArgumentError
from tilewright.runtime.progress import shown
from tilewright.torch import kernels
from tilewright.torch.kernels import Asked


def compile_for(model: nn.Module, example: Any) -> int:
    """Compile the kernels that ``model`` takes for inputs like ``example``; how many it takes.

    The model is called once, by PyTorch's kernels: in training mode with gradients, whose kernels
    are wanted too, else without. Its buffers, gradients and modes, and PyTorch's random numbers,
    are afterwards what they were.

    Raises :class:`ArgumentError` where the model cannot be called with it.
    """
    with kernels.noting() as noted, unchanged(model):
        try:
            call(model, example)
        except Exception as error:
            raise ArgumentError(
                f"optimize_: {_class_name(model)} cannot be called with the example, "
                f"{_said(example)} ({type(error).__name__}: {error}). Give what its forward takes: "
                "a tensor, a tuple of arguments, or a dictionary of them by name"
            ) from error
    return _compile(noted)


def check(example: Any) -> None:
    """Raises :class:`ArgumentError` for what is no example."""
    if not isinstance(example, (torch.Tensor, tuple, Mapping)):
        raise ArgumentError(
            f"example is a {type(example).__name__}. Give a tensor, a tuple of "
            "arguments, or a dictionary of them by name"
        )
    if isinstance(example, Mapping) and not all(isinstance(name, str) for name in example):
        raise ArgumentError("the names of the example's arguments are to be texts")


def _compile(noted: list[Asked]) -> int:
    fused: list[Asked] = []
    others: list[Asked] = []
    for k, asked in enumerate(noted):
        # Where a fused kernel is wanted, PyTorch has called its convolution alone after it.
        before = noted[k - 1] if k else None
        (others if before is not None and _is_part(asked, before) else fused).append(asked)
    with shown() as progress:
        found = kernels.build_ahead(fused, progress)
        refused = {x for x, kernel in found.items() if kernel.launch is None}
        again = [
            x for x in others if any(_is_part(x, y) for y in refused) and x not in found
        ]  # those that have no fused kernel
        if again:
            found |= kernels.build_ahead(again, progress)
    return sum(x.launch is not None for x in found.values())


def _is_part(asked: Asked, fused: Asked) -> bool:
    """Whether a convolution is what a fused one begins with."""
    if not any(step.name.endswith("batch_norm") for step in fused.problem.epilogue):
        return False
    return asked.target == fused.target and asked.problem == fused.problem.replace(
        epilogue=asked.problem.epilogue
    )


#: What the names of gradients begin with.
GRADIENT = "gradient by "


def call(model: nn.Module, example: Any) -> dict[str, torch.Tensor]:
    """The tensors that a call gives, by their names in reports; in training mode with those of its
    gradients that parameters have."""
    # In inference mode no tensor may be saved for gradients.
    training = model.training and not torch.is_inference_mode_enabled()
    with torch.enable_grad() if training else torch.no_grad():
        if isinstance(example, Mapping):
            out = model(**example)
        elif isinstance(example, tuple):
            out = model(*example)
        else:
            out = model(example)
        found = {f"result {k}": t for k, t in enumerate(tensors_of(out))}
        total = [t.sum() for t in found.values() if t.requires_grad]
        parameters = {n: p for n, p in model.named_parameters() if p.requires_grad}
        if not (training and total and parameters):
            return found
        grads = torch.autograd.grad(total, list(parameters.values()), allow_unused=True)
        named = zip(parameters, grads, strict=True)
        return found | {GRADIENT + n: g for n, g in named if g is not None}


def tensors_of(out: Any) -> Iterator[torch.Tensor]:
    if isinstance(out, torch.Tensor):
        yield out
    elif isinstance(out, Mapping):
        for x in out.values():
            yield from tensors_of(x)
    elif isinstance(out, (tuple, list)):
        for x in out:
            yield from tensors_of(x)


@contextmanager
def unchanged(model: nn.Module) -> Iterator[None]:
    """Leave the model's state, and the random numbers, as they are now."""
    modules = list(model.modules())
    kept = [
        (m, name, t, None if t is None else t.clone())
        for m in modules
        for name, t in m._buffers.items()
    ]
    names = [(m, list(m._buffers)) for m in modules]
    modes = [(m, m.training) for m in modules]
    devices = sorted({p.get_device() for p in model.parameters() if p.is_cuda})
    with ExitStack() as stack:
        stack.enter_context(torch.random.fork_rng(devices))
        try:
            yield
        finally:
            for m, before in names:
                for name in set(m._buffers) - set(before):
                    del m._buffers[name]
            with torch.no_grad():
                for m, name, t, copy in kept:
                    m._buffers[name] = t
                    if t is not None and copy is not None:
                        t.copy_(copy)
            for m, training in modes:
                m.training = training


def _said(example: Any) -> str:
    """An example in few words."""
    if isinstance(example, torch.Tensor):
        return f"a tensor of {tuple(example.shape)}"
    if isinstance(example, Mapping):
        return "{" + ", ".join(f"{k}: {_said(v)}" for k, v in example.items()) + "}"
    if isinstance(example, tuple):
        return "(" + ", ".join(map(_said, example)) + ")"
    return type(example).__name__


def _class_name(model: nn.Module) -> str:
    """That of the class which a model had before its blocks were fused."""
    return type(model).__name__.removeprefix("Fused")
