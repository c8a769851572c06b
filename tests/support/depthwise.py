"""Depthwise convolutions and their gradients in float64, tap by tap, and problems to try."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from hypothesis import strategies as st

from tilewright.runtime import ndarray
from tilewright.runtime.array import view
from tilewright.runtime.array_view import dense_strides
from tilewright.topi.epilogue import Step
from tilewright.topi.operators.conv import Conv
from tilewright.topi.problem import Problem

#: The error norms that results of each type may have.
TOLERANCE = {"float64": 1e-12, "float32": 1e-5, "float16": 2e-3, "bfloat16": 1.5e-2}


def array_type(dtype: str) -> Any:
    """NumPy's type; bfloat16 is kept as its bits."""
    return np.dtype("uint16" if dtype == "bfloat16" else dtype)


def encode(values: np.ndarray, dtype: str) -> np.ndarray:
    """Numbers as an array of a type, rounded to nearest, to even where between two."""
    if dtype != "bfloat16":
        return values.astype(dtype)
    bits = np.ascontiguousarray(values, dtype="float32").view("uint32")
    return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype("uint16")


def decode(array: np.ndarray) -> np.ndarray:
    """In float64 what :func:`encode` made."""
    if array.dtype != np.uint16:
        return array.astype("float64")
    return (array.astype("uint32") << 16).view("float32").astype("float64")


def poison(p: Conv) -> np.ndarray:
    """A result of which no element is written; all are NaN."""
    return encode(np.full(p.result_shape, np.nan), p.dtype)


def planes(p: Conv, array: np.ndarray) -> np.ndarray:
    """Images as (N, C, H, W) in float64."""
    found = decode(array)
    if p.rank == 1:
        found = np.expand_dims(found, p.layout.index("W"))
    return np.moveaxis(found, -1, 1) if p.layout.endswith("C") else found


def lay(p: Conv, array: np.ndarray) -> np.ndarray:
    """(N, C, H, W) as the problem's layout has it."""
    found = array if p.rank == 2 else array[:, :, 0]
    return np.moveaxis(found, 1, -1) if p.layout.endswith("C") else found


def slices(p: Conv) -> list[tuple[int, int, tuple[slice, slice]]]:
    """Every tap, with the part of a padded image that it reads."""
    (oh, ow), (sh, sw), (dh, dw) = p.out_image, p.stride, p.dilation
    return [
        (
            i,
            j,
            (
                slice(i * dh, i * dh + (oh - 1) * sh + 1, sh),
                slice(j * dw, j * dw + (ow - 1) * sw + 1, sw),
            ),
        )
        for i in range(p.kernel_h)
        for j in range(p.kernel_w)
    ]


def _pads(p: Conv) -> tuple[tuple[int, int], ...]:
    top, left, bottom, right = p.padding
    return (0, 0), (0, 0), (top, bottom), (left, right)


def reference(p: Conv, arrays: Mapping[str, np.ndarray]) -> np.ndarray:
    """The result of a problem in float64; ``arrays`` by the names of the declaration."""
    f = arrays.get("filter")
    m = p.multiplier
    if f is not None:
        f = decode(f).reshape(p.out_channels, *p.kernel)
    if p.pass_ == "dgrad":
        dy = planes(p, arrays["grad"])
        (top, bottom), (left, right) = _pads(p)[2:]
        dx = np.zeros((p.batch, p.channels, p.height + top + bottom, p.width + left + right))
        assert f is not None
        for i, j, (rows, columns) in slices(p):
            part = dy * f[:, i, j, None, None]
            dx[:, :, rows, columns] += part.reshape(p.batch, p.channels, m, *p.out_image).sum(2)
        found = dx[:, :, top : top + p.height, left : left + p.width]
    else:
        x = np.repeat(np.pad(planes(p, arrays["data"]), _pads(p)), m, axis=1)
        if p.pass_ == "wgrad":
            dy = planes(p, arrays["grad"])
            dw = np.zeros((p.out_channels, *p.kernel))
            for i, j, (rows, columns) in slices(p):
                dw[:, i, j] = (x[:, :, rows, columns] * dy).sum((0, 2, 3))
            return dw.reshape(p.filter_shape)
        found = np.zeros((p.batch, p.out_channels, *p.out_image))
        assert f is not None
        for i, j, (rows, columns) in slices(p):
            found += x[:, :, rows, columns] * f[:, i, j, None, None]
    for step in p.epilogue:
        found = apply(
            step, found, lambda name: decode(arrays[name])[:, None, None],
            lambda name: planes(p, arrays[name]),
        )  # fmt: skip
    return lay(p, found)


def apply(
    step: Step,
    y: np.ndarray,
    channel: Callable[[str], np.ndarray],
    whole: Callable[[str], np.ndarray],
) -> np.ndarray:
    """One step of an epilogue; tensors of it by name, those a channel as they broadcast."""
    match step.name:
        case "bias":
            return y + channel("bias")
        case "scale_shift":
            return y * channel("scale") + channel("shift")
        case "batch_norm" | "wide_batch_norm":
            scale = channel("gamma") / np.sqrt(channel("variance") + step.values[0])
            return (y - channel("mean")) * scale + channel("beta")
        case "dequantize":
            return y * channel("sum_scale")
        case "residual":
            return y + whole("residual")
        case "relu":
            return np.maximum(y, 0)
        case "relu6":
            return np.clip(y, 0, 6)
        case "leaky_relu":
            return np.where(y > 0, y, y * step.values[0])
        case "hswish":
            return y * np.clip(y + 3, 0, 6) / 6
        case "hsigmoid":
            return np.clip(y + 3, 0, 6) / 6
        case "silu":
            return y / (1 + np.exp(-y))
        case "gelu":
            return y * 0.5 * np.vectorize(math.erfc)(-y / math.sqrt(2))
        case "clamp":
            return np.clip(y, *step.values)
        case "quantize":  # of floats of 8 bits
            return y / step.values[0]
    raise AssertionError(step)


def relative_error(found: np.ndarray, wanted: np.ndarray) -> float:
    """The norm of the difference by the norm of ``wanted``; infinite for what was not written."""
    difference = np.linalg.norm((decode(found) - wanted).reshape(-1))
    if not np.isfinite(difference):
        return math.inf
    return float(difference / max(np.linalg.norm(wanted.reshape(-1)), 1e-30))


def random_inputs(
    p: Problem, shapes: Mapping[str, tuple[int, ...]], seed: int = 0
) -> dict[str, Any]:
    """Normal numbers for tensors by name; variances are at least a half."""
    rng = np.random.default_rng(seed)
    dtypes = p.dtypes()
    made = {n: encode(rng.standard_normal(s), dtypes[n]) for n, s in shapes.items()}
    if "variance" in made:
        made["variance"] = encode(abs(decode(made["variance"])) + 0.5, dtypes["variance"])
    return made


def run(
    p: Problem,
    kernel: Any,
    seed: int = 0,
    device: str = "cpu",
    exact: Callable[[Any, Mapping[str, np.ndarray]], np.ndarray] = reference,
) -> float:
    """The error of a kernel on random inputs; nothing beside its output may change. ``exact``
    computes the result in float64.

    On a ``device`` of its own all arrays are there; else they are NumPy's, as all kernels take.
    """
    shape = p.result.shape
    size, margin = math.prod(shape), 64
    arrays = random_inputs(p, p.shapes(), seed)
    whole = encode(np.full(size + 2 * margin, np.nan), p.result.dtype)
    before = whole.tobytes()
    if device == "cpu":
        kernel(*arrays.values(), whole[margin : margin + size].reshape(shape))
    else:
        there = ndarray.array(whole, device, p.result.dtype)
        memory = view(there)
        out = replace(
            memory,
            pointer=memory.pointer + margin * whole.itemsize,
            shape=shape,
            strides=dense_strides(shape),
        )
        dtypes = p.dtypes()
        kernel(*(ndarray.array(a, device, dtypes[n]) for n, a in arrays.items()), out)
        whole = there.numpy().view(whole.dtype)
    edge = margin * whole.itemsize
    assert whole.tobytes()[:edge] == before[:edge], "it wrote before its output"
    assert whole.tobytes()[-edge:] == before[-edge:], "it wrote behind its output"
    found = whole[margin : margin + size].reshape(shape)
    return relative_error(found, exact(p, arrays))


STEPS = st.sampled_from(
    ["bias", "scale_shift", "wide_batch_norm", "residual", "relu", "relu6", "leaky_relu(0.2)",
     "hswish", "hsigmoid", "silu", "gelu", "clamp(-0.5, 1)"]
)  # fmt: skip


@st.composite
def problems(draw: st.DrawFn, **fixed: Any) -> Conv:
    """Small problems over all parameters."""
    name = fixed.get("operator") or draw(
        st.sampled_from(["depthwise_conv2d", "depthwise_conv2d", "depthwise_conv1d"])
    )
    flat = name == "depthwise_conv1d"

    def pair(values: st.SearchStrategy[int]) -> tuple[int, int]:
        return (1 if flat else draw(values)), draw(values)

    kernel, dilation = pair(st.integers(1, 6)), pair(st.sampled_from([1, 1, 1, 2, 3]))
    pads = st.integers(0, 4)
    top, bottom = (0, 0) if flat else (draw(pads), draw(pads))
    left, right = draw(pads), draw(pads)
    image = []
    for k, padded in enumerate((top + bottom, left + right)):
        least = max((kernel[k] - 1) * dilation[k] + 1 - padded, 1)
        image.append(1 if flat and k == 0 else draw(st.integers(least, least + 20)))
    pass_ = fixed.get("pass_") or draw(st.sampled_from(["forward", "forward", "dgrad", "wgrad"]))
    steps = [] if pass_ == "wgrad" else draw(st.lists(STEPS, max_size=3, unique=True))
    chosen: dict[str, Any] = dict(
        operator=name,
        pass_=pass_,
        batch=draw(st.integers(1, 3)),
        channels=draw(st.sampled_from([1, 2, 3, 5, 16, 20])),
        height=image[0],
        width=image[1],
        multiplier=draw(st.sampled_from([1, 1, 1, 2, 3])),
        kernel_h=kernel[0],
        kernel_w=kernel[1],
        stride=pair(st.sampled_from([1, 1, 1, 2, 2, 3, 4])),
        padding=(top, left, bottom, right),
        dilation=dilation,
        dtype=draw(st.sampled_from(["float32", "float32", "float16", "bfloat16"])),
        layout=draw(st.sampled_from(["NCW", "NWC"] if flat else ["NCHW", "NHWC"])),
        epilogue=steps,
    )
    return Conv(**(chosen | fixed))
