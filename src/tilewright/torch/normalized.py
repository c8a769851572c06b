"""A convolution with the normalisation, the sum and the activation after it, for inference.

The kernel reads the statistics where the module has them and computes scale and shift itself, so
that there is nothing to keep: new parameters count from the next call on, also in a CUDA graph.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch.utils.flop_counter import register_flop_formula

from tilewright.ir.errors import ProblemError
from tilewright.runtime.torch_memory import allocator
from tilewright.topi.epilogue import Step
from tilewright.topi.gpu.box_sizes import suited
from tilewright.topi.operators.conv import Conv
from tilewright.torch import aten_fallback, calls, flops, kernels
from tilewright.torch.autocast import register_autocast
from tilewright.torch.calls import cached, memory_format_of, signature
from tilewright.torch.geometry import Geometry, fits
from tilewright.torch.kernels import Launch
from tilewright.torch.lowerings import register_fake
from tilewright.torch.norms import activate, norm_step

_library = torch.library.Library("tilewright", "FRAGMENT")


@dataclass(frozen=True)
class Launched:
    """A kernel, and the memory of its result.

    Attributes
    ----------
    empty : makes the result.
    launch : takes the addresses of all operands, the result's last.
    by_nchw : the memory format of images where the kernel computes in NCHW on copies, or None.
    """

    empty: Callable[[], Any]
    launch: Launch
    by_nchw: Any

    def __call__(self, x: Any, *others: Any) -> Any:
        """The result for an image and the other operands, in the order of the declaration."""
        if self.by_nchw is not None:
            x = x.contiguous()
        made = self.empty()
        self.launch(tuple(t.data_ptr() for t in (x, *others, made)))
        return made if self.by_nchw is None else made.contiguous(memory_format=self.by_nchw)


def launched(
    x: Any, weight: Any, bias: Any, statistics: Sequence[Any], eps: float, activation: str,
    geometry: Geometry, adds: bool = False, precision: str = "exact",
) -> Launched | None:  # fmt: skip
    """The kernel for operands like these; None where there is none.

    ``statistics`` are mean, variance, gamma and beta, dense as ``weight`` and ``bias`` are, or
    nothing. With ``adds`` the kernel adds a tensor before the activation.
    """
    of_statistics = statistics[0].dtype if statistics else None

    def make() -> Any:
        steps: list[Step] = []
        try:
            if of_statistics is not None:
                step = norm_step(eps, x.dtype, of_statistics)
                if step is None:
                    return None
                steps.append(step)
            steps += [Step("residual")] * adds
            steps += [Step.parse(activation)] if activation else []
            return _found(x, weight, bias, tuple(steps), geometry, precision)
        except ProblemError:  # PyTorch says what is wrong
            return None

    key = (
        "norm", *signature(x, weight, bias), of_statistics, eps, activation, adds,
        precision, *geometry.numbers,
    )  # fmt: skip
    found: Any = cached(key, make)
    return found if isinstance(found, Launched) else None


def _found(
    x: Any, weight: Any, bias: Any, steps: tuple[Step, ...], geometry: Geometry, precision: str
) -> Launched | None:
    operands = (x, weight) if bias is None else (x, weight, bias)
    last, strides_ = calls.lying(x)
    if last is None or calls.why_not(*operands) or not all(t.numel() for t in operands):
        return None
    channels, own, *kernel = weight.shape
    depthwise = own == 1
    turned = depthwise and calls.is_by_nchw("forward", x, x.shape, channels, kernel, geometry, last)
    plain = calls.problem_of(
        "forward", x.shape, channels, kernel, geometry, x.dtype, last and not turned,
        bias is not None, x.shape[1] // own,
    )  # fmt: skip
    allowed = plain.replace(precision=precision)
    plain = allowed if allowed.is_winograd else plain
    problem = plain.replace(epilogue=(*plain.epilogue, *steps))
    if x.is_cuda and not depthwise and (strides_ is not None or suited(problem) is None):
        return None  # PyTorch is faster
    launch = _launch(problem, x.device, strides_)
    if launch is None:
        return None
    shape, memory_format = geometry.out_shape(x, weight), memory_format_of(last)
    made_as = torch.contiguous_format if turned else memory_format
    strides = torch.empty(shape, device="meta", memory_format=made_as).stride()
    empty = allocator(torch, shape, strides, x.dtype, x.device)
    return Launched(empty, launch, memory_format if turned else None)


def _launch(problem: Conv, device: torch.device, strides: tuple[int, ...] | None) -> Launch | None:
    try:
        target = calls.target_of(device)
    except Exception:  # of a driver: what is said of it is said where the convolution is alone
        return None
    found = kernels.find(problem, target, device.index, strides)
    if found.launch is not None or all(step.name == "bias" for step in problem.epilogue):
        calls.observe(problem, found)  # else the convolution alone is reported
    return found.launch


def normalized(
    input: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, mean: torch.Tensor,
    variance: torch.Tensor, gamma: torch.Tensor | None, beta: torch.Tensor | None, eps: float,
    activation: str, stride: Sequence[int], padding: Sequence[int], dilation: Sequence[int],
) -> torch.Tensor:  # fmt: skip
    """``activation((conv(input) - mean) / sqrt(variance + eps) * gamma + beta)``.

    Operands of the convolution as for :func:`~tilewright.torch.passes.forward`; the others are (C,)
    with the output's channels, gamma and beta None where there is none. ``activation`` is a step of
    an epilogue or empty.
    """
    geometry = Geometry(stride, padding, dilation)
    weight, bias = weight.contiguous(), None if bias is None else bias.contiguous()
    statistics = [None if t is None else t.contiguous() for t in (mean, variance, gamma, beta)]
    run = None
    if fits(input, weight, bias):
        run = run_for(input, weight, bias, statistics, eps, activation, geometry)
    made: torch.Tensor
    if run is not None:
        made = run()
    else:
        lies = memory_format_of(calls.lying(input)[0])
        made = aten_fallback.conv2d(input, weight, bias, geometry, lies)
        made = F.batch_norm(made, mean, variance, gamma, beta, False, 0.0, eps)
        made = activate(made, Step.parse(activation)) if activation else made
        made = aten_fallback.laid(made, lies)
    return made


def run_for(
    input: Any, weight: Any, bias: Any, statistics: Sequence[Any], eps: float, activation: str,
    geometry: Geometry, residual: Any = None, precision: str = "exact",
) -> Callable[[], Any] | None:  # fmt: skip
    """What computes the result of operands that fit one another; None where there is no kernel.

    ``statistics`` are mean, variance, gamma and beta, the last two None where there is none, or
    nothing of a convolution alone. ``residual`` is added before the activation. ``precision`` is
    what may be done to products, where there is a way for these.
    """
    filled: list[Any] = []
    if statistics:
        mean, variance, gamma, beta = statistics
        filled = [
            mean, variance,
            torch.ones_like(mean) if gamma is None else gamma,
            torch.zeros_like(mean) if beta is None else beta,
        ]  # fmt: skip
        kind = mean.dtype, input.device, weight.shape[:1]
        if [(t.dtype, t.device, t.shape) for t in filled] != [kind] * 4:
            return None
    if residual is not None and not _is_as_result(residual, input, weight, geometry):
        return None
    adds = residual is not None
    run = launched(input, weight, bias, filled, eps, activation, geometry, adds, precision)
    if run is None:
        return None
    others = (weight, bias, *filled, residual)
    return partial(run, input, *(t for t in others if t is not None))


def _is_as_result(residual: Any, input: Any, weight: Any, geometry: Geometry) -> bool:
    """Whether a tensor lies as the result does, so that a kernel can add it."""
    return (
        residual.device == input.device
        and residual.dtype is input.dtype
        and residual.shape == geometry.out_shape(input, weight)
        and residual.is_contiguous(memory_format=memory_format_of(calls.lying(input)[0]))
    )


# As the convolution alone, it takes images in the layout that a compiler computes in.
_library.define(
    "depthwise_conv2d_norm(Tensor input, Tensor weight, Tensor? bias, Tensor mean, "
    "Tensor variance, Tensor? gamma, Tensor? beta, float eps, str activation, "
    "SymInt[2] stride, SymInt[4] padding, SymInt[2] dilation) -> Tensor",
    tags=(torch.Tag.flexible_layout,),
)
for _device in ("CPU", "CUDA"):
    _library.impl("depthwise_conv2d_norm", normalized, _device)

conv_norm = torch.ops.tilewright.depthwise_conv2d_norm.default


def _fake(input: Any, weight: Any, *more: Any) -> Any:
    shape = Geometry(*more[-3:]).out_shape(input, weight)
    memory_format = memory_format_of(calls.lying(input)[0])
    return torch.empty(shape, dtype=input.dtype, device=input.device, memory_format=memory_format)


def _backward(ctx: Any, dy: Any) -> Any:
    raise RuntimeError(
        "tilewright::depthwise_conv2d_norm is for inference and has no gradient: call the "
        "convolution and what follows it one by one"
    )


register_fake(_library, "depthwise_conv2d_norm", _fake)
torch.library.register_autograd("tilewright::depthwise_conv2d_norm", _backward, lib=_library)
register_autocast(_library, "depthwise_conv2d_norm")
register_flop_formula(torch.ops.tilewright.depthwise_conv2d_norm)(flops.by_output)
