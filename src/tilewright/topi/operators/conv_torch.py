"""Convolutions in PyTorch's words: what its users would write.

PyTorch is an argument here: only who compares with it imports it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tilewright.topi.epilogue import Step

if TYPE_CHECKING:
    from tilewright.topi.operators.convolution import Convolution


def torch_convolution(p: Convolution, torch: Any) -> Callable[..., Any]:
    """A convolution as a function of its tensors, in calling order, images channels first, and
    filters that are not depthwise as PyTorch's shape has them, whatever the layout.

    Gradients are by ``aten.convolution_backward``, which is what autograd calls.
    """
    F = torch.nn.functional
    convolve: Any = (F.conv1d, F.conv2d, F.conv3d)[p.rank - 1]
    stride, dilation = [d.stride for d in p.dims], [d.dilation for d in p.dims]
    even = all(d.before == d.after for d in p.dims)
    around = [side for d in reversed(p.dims) for side in (d.before, d.after)]
    padding = [d.before if even else 0 for d in p.dims]
    kernel = (p.out_channels, p.channels // p.groups, *(d.taps for d in p.dims))
    backward = torch.ops.aten.convolution_backward
    result = p.result_dtype  # found here, since `torch.compile` traces what the functions call

    def padded(x: Any) -> Any:
        return x if even else F.pad(x, around)

    def shaped(weight: Any) -> Any:
        return weight if weight.shape == kernel else weight.reshape(kernel)

    def steps(y: Any, tensors: tuple[Any, ...], done: int = 0) -> Any:
        rest = list(tensors)
        for step in p.epilogue[done:]:
            y = apply(torch, step, y, [rest.pop(0) for _ in step.tensors], dtype=result)
        return y

    def forward(x: Any, weight: Any, *more: Any) -> Any:
        done = 1 if p.epilogue and p.epilogue[0].name == "bias" else 0
        read = [x, weight, more[0] if done else None]
        if p.is_8bit:  # which PyTorch has no sums of but these, which are exact
            read = [t if t is None else t.double() for t in read]
        x, weight, bias = read
        y = convolve(padded(x), shaped(weight), bias, stride, padding, dilation, p.groups)
        y = y.to(torch.int32) if p.is_quantized else y
        y = steps(y, more[done:], done)
        return y.to(getattr(torch, p.out_dtype)) if p.out_dtype else y

    def dgrad(grad: Any, weight: Any, *more: Any) -> Any:
        whole = [d.extent if even else d.padded for d in p.dims]
        like = grad.new_empty(1).expand(p.batch, p.channels, *whole)
        found = backward(
            grad, like, shaped(weight), None, stride, padding, dilation, False, [0] * p.rank,
            p.groups, [True, False, False],
        )[0]  # fmt: skip
        for k, d in enumerate(p.dims, 2):
            found = found if even else found.narrow(k, d.before, d.extent)
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


def apply(
    torch: Any, step: Step, y: Any, tensors: list[Any], last: bool = False, dtype: str = ""
) -> Any:
    """One step of an epilogue in PyTorch's operators; channels are the last dimension where
    ``last``, else the second. ``dtype`` is the type of the result, which a step may round to."""
    F, name, values = torch.nn.functional, step.name, step.values
    if name == "residual":
        return y + tensors[0]
    if name == "quantized_residual":
        return y + (tensors[0].float() - values[1]) * values[0]
    if name == "quantize":
        kind = getattr(torch, dtype)
        limits = torch.iinfo(kind)
        rounded = torch.round(y * (1 / values[0])).double() + values[1]
        return torch.clamp(rounded, limits.min, limits.max).to(kind)
    if "batch_norm" in name:
        mean, variance, gamma, beta = tensors
        if last:
            y = y.movedim(-1, 1)
        y = F.batch_norm(y, mean, variance, gamma, beta, False, 0.0, values[0])
        return y.movedim(1, -1) if last else y
    if name in ("bias", "scale_shift", "dequantize"):
        wide = [t if last else t.reshape(-1, *[1] * (y.dim() - 2)) for t in tensors]
        if name == "dequantize":
            return y.float() * wide[0]
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
