"""Convolutions and programs of their results, their inputs, and what they are in float64."""

from __future__ import annotations

import numpy as np
from tests.support.depthwise import array_type, decode, encode, relative_error

from tilewright.topi import Conv, ConvProgram
from tilewright.topi.operators.conv_program import max_pool
from tilewright.topi.operators.program import parse
from tilewright.topi.problem import TensorType

#: The normalisation of a pixel's channels, as importers write it.
NORM = (
    "cast(a0, dtype='float32')", "cast(a0, dtype='float32')",
    "sum(t1, axis=(3,), keepdims=True)", "divide(t2, {c})", "subtract(t0, t3)",
    "multiply(t4, t4)", "sum(t5, axis=(3,), keepdims=True)", "divide(t6, {c})",
    "add(t7, 1e-06)", "rsqrt(t8)", "multiply(t4, t9)", "cast(t10, dtype={kind!r})",
    "multiply(t11, a1)", "add(t12, a2)",
)  # fmt: skip


def pooled(image, filter, window=2, **values) -> ConvProgram:
    """A dense convolution whose results are pooled."""
    values = {"padding": 1, "dtype": "float16", "epilogue": "bias+relu", **values}
    conv = Conv.parse(image, filter, groups=1, layout="NHWC", **values)
    return ConvProgram.of(conv, [max_pool(window, tuple(n // window for n in conv.out_image))])


def normalised(image, kernel, **values) -> ConvProgram:
    """A depthwise convolution whose pixels are normalised."""
    values = {"padding": kernel // 2, "dtype": "float16", "epilogue": "bias", **values}
    c = int(image.split("x")[1])
    conv = Conv.parse(image, f"{c}x1x{kernel}x{kernel}", layout="NHWC", **values)
    kind = TensorType((c,), conv.dtype)
    body = [parse(text.format(c=c, kind=conv.dtype)) for text in NORM]
    return ConvProgram.of(conv, body, (kind, kind))


def inputs(p: ConvProgram, seed: int = 0, whole: bool = False) -> dict[str, np.ndarray]:
    """Arrays of a problem, of small ``whole`` numbers, whose sums are exact, or of any."""
    rng = np.random.default_rng(seed)

    def drawn(shape):
        return rng.integers(-3, 4, shape) if whole else rng.standard_normal(shape) / 3

    return {name: encode(drawn(t.shape), t.dtype) for name, t in p.inputs().items()}


def exact(p: ConvProgram, arrays: dict[str, np.ndarray]) -> np.ndarray:
    """The result in float64, from inputs as they are rounded, and from results of the convolution
    that are rounded, too."""
    import torch
    from torch.nn import functional

    conv = p.inner
    given = {n: torch.from_numpy(decode(a)) for n, a in arrays.items()}
    filter = given["filter"] if conv.is_depthwise else given["filter"].permute(0, 3, 1, 2)
    top, left, bottom, right = conv.padding
    x = functional.pad(given["data"].permute(0, 3, 1, 2), (left, right, top, bottom))
    y = functional.conv2d(
        x, filter, given.get("bias"), conv.stride, 0, conv.dilation, conv.groups
    )  # fmt: skip
    y = y.relu() if "relu" in map(str, conv.epilogue) else y
    y = torch.from_numpy(decode(encode(y.numpy(), conv.dtype)))
    if "max_pool" in p.body[0]:
        window = p.calls[0].attributes["size"][0]
        return functional.max_pool2d(y, window).permute(0, 2, 3, 1).numpy()
    y = y.permute(0, 2, 3, 1)
    return functional.layer_norm(y, y.shape[-1:], given["a1"], given["a2"], 1e-6).numpy()


def result(p: ConvProgram, kernel, arrays) -> np.ndarray:
    """What a kernel computes; what it leaves out is not a number."""
    y = encode(np.full(p.result.shape, np.nan), p.result.dtype)
    assert y.dtype == array_type(p.result.dtype)
    kernel(*arrays.values(), y)
    return y


def error(p: ConvProgram, kernel, seed: int = 0) -> float:
    """The relative error of a kernel."""
    arrays = inputs(p, seed)
    return relative_error(result(p, kernel, arrays), exact(p, arrays))
