"""Convolutions in PyTorch's words: what its users would write.

PyTorch is an argument here: only who compares with it imports it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tilewright.topi.epilogue import Step

if TYPE_CHECKING:
    from tilewright.topi.operators.conv import Conv


def torch_convolution(p: Conv, torch: Any) -> Callable[..., Any]:
    """A convolution as a function of its tensors, in calling order, images in (N, C, H, W), and
    filters that are not depthwise as PyTorch's shape has them, whatever the layout.

    Gradients are by ``aten.convolution_backward``, which is what autograd calls.
    """
    F, first = torch.nn.functional, 2 - p.rank
    convolve: Any = F.conv2d if p.rank == 2 else F.conv1d
    stride, dilation = list(p.stride[first:]), list(p.dilation[first:])
    before, after = p.padding[first:2], p.padding[2 + first :]
    even = before == after
    around = [side for pair in zip(before[::-1], after[::-1], strict=True) for side in pair]
    padding = list(before) if even else [0] * p.rank
    image = p.image[first:]
    kernel = (p.out_channels, p.channels // p.groups, *p.kernel[first:])
    backward = torch.ops.aten.convolution_backward

    def padded(x: Any) -> Any:
        return x if even else F.pad(x, around)

    def shaped(weight: Any) -> Any:
        return weight if weight.shape == kernel else weight.reshape(kernel)

    def steps(y: Any, tensors: tuple[Any, ...], done: int = 0) -> Any:
        rest = list(tensors)
        for step in p.epilogue[done:]:
            y = apply(torch, step, y, [rest.pop(0) for _ in step.tensors])
        return y

    def forward(x: Any, weight: Any, *more: Any) -> Any:
        done = 1 if p.epilogue and p.epilogue[0].name == "bias" else 0
        bias = more[0] if done else None
        y = convolve(padded(x), shaped(weight), bias, stride, padding, dilation, p.groups)
        return steps(y, more[done:], done)

    def dgrad(grad: Any, weight: Any, *more: Any) -> Any:
        whole = [n + (0 if even else a + b) for n, a, b in zip(image, before, after, strict=True)]
        like = grad.new_empty(1).expand(p.batch, p.channels, *whole)
        found = backward(
            grad, like, shaped(weight), None, stride, padding, dilation, False, [0] * p.rank,
            p.groups, [True, False, False],
        )[0]  # fmt: skip
        for dim, (low, n) in enumerate(zip(before, image, strict=True), 2):
            found = found if even else found.narrow(dim, low, n)
        return steps(found, more)

    def wgrad(x: Any, grad: Any) -> Any:
        like = grad.new_empty(1).expand(kernel)
        found = backward(
            grad, padded(x), like, None, stride, padding, dilation, False, [0] * p.rank,
            p.groups, [False, True, False],
        )[1]  # fmt: skip
        return found.reshape(p.filter_shape) if p.is_depthwise else found

    passes: dict[str, Any] = {"forward": forward, "dgrad": dgrad, "wgrad": wgrad}
    found: Callable[..., Any] = passes[p.pass_]
    return found


def apply(torch: Any, step: Step, y: Any, tensors: list[Any], last: bool = False) -> Any:
    """One step of an epilogue in PyTorch's operators; channels are the last dimension where
    ``last``, else the second."""
    F, name, values = torch.nn.functional, step.name, step.values
    if name == "residual":
        return y + tensors[0]
    if "batch_norm" in name:
        mean, variance, gamma, beta = tensors
        if last:
            y = y.movedim(-1, 1)
        y = F.batch_norm(y, mean, variance, gamma, beta, False, 0.0, values[0])
        return y.movedim(1, -1) if last else y
    if name in ("bias", "scale_shift"):
        wide = [t if last else t.reshape(-1, *[1] * (y.dim() - 2)) for t in tensors]
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
