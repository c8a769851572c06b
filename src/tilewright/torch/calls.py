"""From tensors to a launch: a look-up in a dictionary where the shapes were seen before."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch

from tilewright.graph.by_nchw import is_faster_by_nchw
from tilewright.ir.errors import ProblemError
from tilewright.target import Target
from tilewright.topi.epilogue import Step
from tilewright.topi.operators.conv import Conv
from tilewright.torch import kernels
from tilewright.torch.geometry import Geometry
from tilewright.torch.kernels import Launch, Selection

#: Types of devices that there are kernels for.
DEVICES = ("cpu", "cuda")
DTYPES = {
    torch.float32: "float32",
    torch.float16: "float16",
    torch.bfloat16: "bfloat16",
    torch.float64: "float64",
}

Run = Callable[..., Any]
#: By everything that a launch depends on.
_runs: dict[Any, Run] = {}


class CallPlan(NamedTuple):
    """A convolution that was done before, or a transposed one.

    Attributes
    ----------
    run : of (input, weight, bias), without a record of gradients.
    record : with one, of (input, weight, bias) and this.
    last : whether channels of the input lie next to one another.
    """

    run: Run
    record: Run
    geometry: Geometry
    last: bool


#: By :func:`signature`, and who was called and told what beside the operands.
seen: dict[Any, CallPlan] = {}
#: How many are remembered: where shapes keep changing, they are looked up again now and then.
MOST_SEEN = 10_000
_warned: set[str] = set()
#: Told of every call of theirs: the problem, and what was found for it.
observers: list[Callable[[Conv | None, Selection], None]] = []


def forget() -> None:
    """Look everything up again; warnings are given again."""
    _runs.clear()
    seen.clear()
    _warned.clear()


kernels.on_change.append(forget)


def is_channels_last(x: torch.Tensor) -> bool | None:
    """Whether channels lie next to one another; None where ``x`` is dense in neither layout."""
    if x.is_contiguous():
        return False
    return True if x.is_contiguous(memory_format=torch.channels_last) else None


def lying(x: torch.Tensor) -> tuple[bool | None, tuple[int, ...] | None]:
    """:func:`is_channels_last`, also of slices of larger images; and the strides of such a slice.

    On a CPU a slice of channels, or of images, is read where it lies: its rows, or its pixels, are
    each contiguous, and those of a channel, or of a row, follow one another. The strides are in
    the order of the layout.
    """
    last = is_channels_last(x)
    if last is not None or x.dim() != 4 or not x.is_cpu:
        return last, None
    (n, c, h, w), (image, channel, row, pixel) = x.shape, x.stride()
    if pixel == 1 and row == w and channel >= h * w:
        whole = c * channel
        if n == 1 or image >= (c - 1) * channel + h * w:
            return False, (image if n > 1 else whole, channel, row, pixel)
    if channel == 1 and pixel >= c and row >= w * pixel:
        whole = h * row
        if n == 1 or image >= (h - 1) * row + w * pixel:
            return True, (image if n > 1 else whole, row, pixel, channel)
    return None, None


def lies_as(weight: torch.Tensor, x: torch.Tensor) -> bool:
    """Whether a filter lies as kernels for images like ``x`` read it: in their layout, which one of
    a depthwise convolution has in both."""
    found: bool = weight.is_contiguous(memory_format=memory_format_of(lying(x)[0]))
    return found


def memory_format_of(last: bool | None) -> Any:
    """PyTorch's name for a layout."""
    return torch.channels_last if last else torch.contiguous_format


def signature(input: Any, weight: Any, bias: Any) -> tuple[Any, ...]:
    """All that a launch depends on of its operands."""
    if bias is None:
        return (
            input.shape, input.stride(), input.dtype, input.device,
            weight.shape, weight.stride(), weight.dtype, weight.device,
        )  # fmt: skip
    return (
        input.shape, input.stride(), input.dtype, input.device,
        weight.shape, weight.stride(), weight.dtype, weight.device,
        bias.shape, bias.stride(), bias.dtype, bias.device,
    )  # fmt: skip


def target_of(device: torch.device) -> Target:
    """The target for tensors on a device."""
    if device.type == "cpu":
        return Target.parse("llvm")
    from tilewright.runtime.cuda_driver import device as cuda_device

    ordinal = torch.cuda.current_device() if device.index is None else device.index
    return Target.parse("cuda").with_arch(cuda_device(ordinal).arch)


def problem_of(
    pass_: str,
    input_size: Sequence[int],
    out_channels: int,
    kernel: Sequence[int],
    geometry: Geometry,
    dtype: torch.dtype,
    last: bool,
    bias: bool = False,
    groups: int = 0,
) -> Conv:
    """The problem of a call; without ``groups`` of a depthwise convolution."""
    n, c, h, w = map(int, input_size)
    stride, (top, left, bottom, right), dilation = geometry
    flat = h == 1 and kernel[0] == 1 and top == bottom == 0
    return Conv(
        operator="conv1d" if flat else "conv2d",
        pass_=pass_, batch=n, channels=c, height=h, width=w, groups=groups or c,
        multiplier=out_channels // (groups or c),
        kernel_h=kernel[0], kernel_w=kernel[1],
        stride=(1 if flat else stride[0], stride[1]), padding=(top, left, bottom, right),
        dilation=(1 if flat else dilation[0], dilation[1]),
        dtype=DTYPES[dtype], layout=("NWC" if last else "NCW") if flat else
        ("NHWC" if last else "NCHW"), epilogue=(Step("bias"),) if bias else (),
    )  # fmt: skip


def why_not(*tensors: torch.Tensor) -> str:
    """Why no kernel can take tensors, whatever the problem; empty where one may."""
    first = tensors[0]
    if first.device.type not in DEVICES:
        return f"tensors on {first.device.type!r}: there are kernels for 'cpu' and 'cuda'"
    if first.dtype not in DTYPES:
        return f"tensors of {first.dtype}"
    if any(t.dtype != first.dtype or t.device != first.device for t in tensors):
        return "tensors of several types or devices"
    return ""


def find(
    pass_: str,
    operands: tuple[torch.Tensor, ...],
    input_size: Sequence[int],
    out_channels: int,
    kernel: Sequence[int],
    geometry: Geometry,
    last: bool | None,
    strides: tuple[int, ...] | None = None,
) -> Launch | None:
    """A kernel for a call; None where it is left to PyTorch. Observers receive which, and why.

    A third operand is a bias; ``last`` is :func:`is_channels_last` of the first, or with
    ``strides`` what :func:`lying` says of it.
    """
    problem, found = None, Selection(None)
    first = operands[0]
    if all(t.numel() for t in operands):
        why = why_not(*operands)
        if last is None:
            why = "the input is dense in neither NCHW nor NHWC, nor a slice of channels on a CPU"
        found = Selection(None, reason=why)
        if last is not None and not why:
            sizes = (input_size, out_channels, kernel)
            try:
                problem = problem_of(pass_, *sizes, geometry, first.dtype, last, len(operands) == 3)
                found = _kernel(problem, first.device, strides)
            except ProblemError:  # PyTorch says what is wrong
                found = Selection(None)
    observe(problem, found)
    return found.launch


def is_by_nchw(
    pass_: str,
    first: torch.Tensor,
    input_size: Sequence[int],
    out_channels: int,
    kernel: Sequence[int],
    geometry: Geometry,
    last: bool | None,
) -> bool:
    """Whether a call on channels-last tensors like ``first`` is better done in NCHW."""
    if not last or first.device.type != "cuda" or why_not(first) or not first.numel():
        return False
    sizes = (input_size, out_channels, kernel)
    try:
        problem = problem_of(pass_, *sizes, geometry, first.dtype, last)
        target = target_of(first.device)
        return is_faster_by_nchw(problem, target, kernels.policy(target))
    except Exception:  # what is wrong is found out, and said, where a kernel is looked for
        return False


def _kernel(
    problem: Conv, device: torch.device, strides: tuple[int, ...] | None = None
) -> Selection:
    """The kernel for a problem on a device, or the reason why there is none."""
    try:
        target = target_of(device)
    except Exception as error:
        return Selection(None, reason=f"{device.type}: {error}")
    return kernels.find(problem, target, device.index, strides)


def observe(problem: Conv | None, found: Selection) -> None:
    """Tell who wants to know; warn, once for each reason, of what is left to PyTorch."""
    for observer in observers:
        observer(problem, found)
    regretted = found.launch is None and found.choice is None and not observers
    if regretted and found.reason and found.reason not in _warned:
        _warned.add(found.reason)
        kind = "a" if problem is not None and not problem.is_depthwise else "a depthwise"
        warnings.warn(
            f"tilewright leaves {kind} convolution to PyTorch: {found.reason}",
            UserWarning,
            stacklevel=4,
        )


def cached(key: Any, make: Callable[[], Run]) -> Run:
    """The run for ``key``; made where it is not known, and again while somebody observes."""
    run = None if observers else _runs.get(key)
    if run is None:
        if len(_runs) >= MOST_SEEN:
            _runs.clear()
            seen.clear()
        run = _runs[key] = make()
    return run
