"""A problem in PyTorch's words: what its users would write, in either memory format."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tilewright.ir.errors import ProblemError
from tilewright.topi.problem import Problem


def operands(problem: Problem, arrays: Mapping[str, Any], device: str, last: bool) -> list[Any]:
    """Tensors of the problem's types from float32 arrays, in the shapes of its ``plain``.

    What has four or five dimensions, but for filters, is ``channels_last`` where ``last``.
    """
    import torch

    dtypes = problem.dtypes()
    found = []
    for name, values in arrays.items():
        tensor = torch.from_numpy(values).to(device, getattr(torch, dtypes[name]))
        if last and tensor.dim() in (4, 5) and name != "filter":
            formats = {4: torch.channels_last, 5: torch.channels_last_3d}
            tensor = tensor.contiguous(memory_format=formats[tensor.dim()])
        found.append(tensor)
    return found


def function(problem: Problem) -> Callable[..., Any]:
    """The problem as a function of its tensors, in the order of :func:`operands`.

    Raises :class:`ProblemError` where PyTorch has no such operator.
    """
    import torch

    found = problem.torch_integers(torch) if problem.is_8bit else problem.torch_function(torch)
    if found is None:
        raise ProblemError(f"PyTorch has no operator {problem.operator} in {problem.dtype}")
    return found


def has_integers(problem: Problem) -> bool:
    """Whether PyTorch has an operator for a problem of integers."""
    import torch

    return problem.is_quantized and problem.torch_integers(torch) is not None
