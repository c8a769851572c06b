"""How far tensors are from what is wanted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def error(found: Any, wanted: Any) -> float:
    """The norm of the difference over that of what is wanted."""
    found, wanted = found.detach().double(), wanted.detach().double()
    return float((found - wanted).norm() / wanted.norm().clamp(min=1e-30))


def close(found: Any, wanted: Any, bound: float = 1e-5) -> bool:
    """Whether the error is within ``bound``."""
    return error(found, wanted) <= bound


def gradient_errors(found: Any, wanted: Any, operands: Sequence[Any]) -> list[float]:
    """The errors of the gradients of ``found`` by ``operands`` (None left out), for a random
    gradient of it; those of ``wanted``, which may have a wider type, are right."""
    import torch

    operands = [t for t in operands if t is not None]
    g = torch.randn_like(found)
    ours = torch.autograd.grad(found, operands, g)
    exact = torch.autograd.grad(wanted, operands, g.to(wanted.dtype))
    return [error(a, b) for a, b in zip(ours, exact, strict=True)]
