"""A problem in PyTorch's words: what its users would write, in either memory format."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tilewright.topi.declare import input_dtypes
from tilewright.topi.problem import Problem


def operands(problem: Problem, arrays: Mapping[str, Any], device: str, last: bool) -> list[Any]:
    """Tensors of the problem's types from float32 arrays in the order (N, C, H, W).

    Images are ``channels_last`` where ``last``; filters are (C * multiplier, 1, KH, KW).
    """
    import torch

    dtypes = input_dtypes(problem)
    found = []
    for name, values in arrays.items():
        if name == "filter":
            values = values.reshape(problem.out_channels, 1, *values.shape[2:])
        tensor = torch.from_numpy(values).to(device, getattr(torch, dtypes[name]))
        if last and tensor.dim() == 4 and name != "filter":
            tensor = tensor.contiguous(memory_format=torch.channels_last)
        found.append(tensor)
    return found


def function(problem: Problem) -> Callable[..., Any]:
    """The problem as a function of its tensors, in the order of :func:`operands`.

    Gradients are by ``aten.convolution_backward``, which is what autograd calls.
    """
    import torch
    import torch.nn.functional as F

    p, first = problem, 2 - problem.rank
    convolve: Any = F.conv2d if p.rank == 2 else F.conv1d
    stride, dilation = list(p.stride[first:]), list(p.dilation[first:])
    before, after = p.padding[first:2], p.padding[2 + first :]
    even = before == after
    around = [side for pair in zip(before[::-1], after[::-1], strict=True) for side in pair]
    padding = list(before) if even else [0] * p.rank
    image = p.image[first:]
    kernel = (p.out_channels, 1, *p.kernel[first:])
    backward = torch.ops.aten.convolution_backward

    def padded(x: Any) -> Any:
        return x if even else F.pad(x, around)

    def steps(y: Any, tensors: tuple[Any, ...], done: int = 0) -> Any:
        rest = list(tensors)
        for step in p.epilogue[done:]:
            y = apply(step.name, y, step.values, [rest.pop(0) for _ in step.tensors])
        return y

    def forward(x: Any, weight: Any, *more: Any) -> Any:
        done = 1 if p.epilogue and p.epilogue[0].name == "bias" else 0
        bias = more[0] if done else None
        y = convolve(padded(x), weight, bias, stride, padding, dilation, p.channels)
        return steps(y, more[done:], done)

    def dgrad(grad: Any, weight: Any, *more: Any) -> Any:
        whole = [n + (0 if even else a + b) for n, a, b in zip(image, before, after, strict=True)]
        like = grad.new_empty(1).expand(p.batch, p.channels, *whole)
        found = backward(
            grad, like, weight, None, stride, padding, dilation, False, [0] * p.rank,
            p.channels, [True, False, False],
        )[0]  # fmt: skip
        for dim, (low, n) in enumerate(zip(before, image, strict=True), 2):
            found = found if even else found.narrow(dim, low, n)
        return steps(found, more)

    def wgrad(x: Any, grad: Any) -> Any:
        like = grad.new_empty(1).expand(kernel)
        return backward(
            grad, padded(x), like, None, stride, padding, dilation, False, [0] * p.rank,
            p.channels, [False, True, False],
        )[1]  # fmt: skip

    passes: dict[str, Any] = {"forward": forward, "dgrad": dgrad, "wgrad": wgrad}
    found: Callable[..., Any] = passes[p.pass_]
    return found


def apply(name: str, y: Any, values: tuple[float, ...], tensors: list[Any]) -> Any:
    """One step of an epilogue in PyTorch's operators."""
    import torch
    import torch.nn.functional as F

    if name == "residual":
        return y + tensors[0]
    if "batch_norm" in name:
        mean, variance, gamma, beta = tensors
        return F.batch_norm(y, mean, variance, gamma, beta, False, 0.0, values[0])
    if name in ("bias", "scale_shift"):
        wide = [t.reshape(-1, *[1] * (y.dim() - 2)) for t in tensors]
        return y + wide[0] if name == "bias" else y * wide[0] + wide[1]
    if name == "clamp":
        return torch.clamp(y, *values)
    if name == "leaky_relu":
        return F.leaky_relu(y, values[0])
    plain: dict[str, Any] = {
        "relu": F.relu, "relu6": F.relu6, "hswish": F.hardswish, "hsigmoid": F.hardsigmoid,
        "silu": F.silu, "gelu": F.gelu,
    }  # fmt: skip
    found: Callable[[Any], Any] = plain[name]
    return found(y)
