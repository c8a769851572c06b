"""ONNX's convolutions and pooling: windows that move over images."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tilewright.graph.builder import cast, constant, reshape, widened
from tilewright.graph.onnx.operation import Operation
from tilewright.graph.onnx.reduction import mean
from tilewright.graph.onnx.shapes import part
from tilewright.graph.operation import Making
from tilewright.graph.passes.integer_products import (
    integer_product,
    integer_weights,
    sums_of_weights,
)
from tilewright.graph.value import Constant, Node, Operand, Value


@dataclass(frozen=True)
class Window:
    """How a window moves; a number for each dimension of an image, ``after`` behind it."""

    size: tuple[int, ...]
    strides: tuple[int, ...]
    dilation: tuple[int, ...]
    before: tuple[int, ...]
    after: tuple[int, ...]
    out: tuple[int, ...]

    def values(self) -> dict[str, Any]:
        """The attributes of a function of pooling."""
        return {
            "size": self.size, "strides": self.strides, "padding": self.before,
            "dilation": self.dilation, "out": self.out,
        }  # fmt: skip


def window(n: Operation, image: Sequence[int], size: Sequence[int]) -> Window:
    """The window that a node's attributes describe, over an image of this size."""
    rank = len(image)

    def each(name: str, default: int) -> tuple[int, ...]:
        found = tuple(int(v) for v in n.attribute(name, (default,) * rank))
        if len(found) != rank or min(found) < 1:
            raise n.error(f"{name} {found} over images of {rank} dimensions")
        return found

    if len(size) != rank or min(size) < 1:
        raise n.error(f"a window of {tuple(size)} over images of {rank} dimensions")
    strides, dilation = each("strides", 1), each("dilations", 1)
    reach = [(k - 1) * d + 1 for k, d in zip(size, dilation, strict=True)]
    auto = n.attribute("auto_pad", b"NOTSET").decode()
    if auto in ("SAME_UPPER", "SAME_LOWER"):
        out = [-(-e // s) for e, s in zip(image, strides, strict=True)]
        each_dim = zip(out, strides, reach, image, strict=True)
        total = [max(0, (o - 1) * s + r - e) for o, s, r, e in each_dim]
        less = [t // 2 for t in total]
        more = [t - x for t, x in zip(total, less, strict=True)]
        before, after = (less, more) if auto == "SAME_UPPER" else (more, less)
    else:
        pads = [0] * 2 * rank if auto == "VALID" else n.attribute("pads", [0] * 2 * rank)
        if len(pads) != 2 * rank:
            raise n.error(f"{len(pads)} pads for images of {rank} dimensions")
        before, after = list(pads[:rank]), list(pads[rank:])
        out = []
        for e, s, r, b, a in zip(image, strides, reach, before, after, strict=True):
            rest = e + b + a - r
            count = (-(-rest // s) if n.attribute("ceil_mode", 0) else rest // s) + 1
            # With ceil_mode no window begins in the padding behind.
            out.append(count - 1 if (count - 1) * s >= e + b else count)
    if min(out) < 1:
        raise n.error(f"a window of {tuple(reach)} does not fit into {tuple(image)}")
    return Window(tuple(size), strides, dilation, tuple(before), tuple(after), tuple(out))


def _named(kind: str, rank: int, n: Making) -> str:
    if rank not in (1, 2, 3):
        raise n.error(f"images of {rank} dimensions are not supported")
    return f"{kind}{rank}d"


def convolution(n: Operation, x: Value, w: Value) -> Value:
    """The convolution that a node's attributes describe, of these operands."""
    rank, groups = x.rank - 2, n.attribute("group", 1)
    if w.rank != x.rank or w.shape[1] * groups != x.shape[1] or w.shape[0] % groups:
        raise n.error(f"a filter of {w.shape} in {groups} groups for images of {x.shape}")
    name = _named("conv", rank, n)
    found = window(n, x.shape[2:], w.shape[2:])
    before, after = found.before, found.after
    if min(*before, *after) < 0:
        raise n.error("padding is not negative")
    return n(
        name, x, w, groups=groups, stride=found.strides, dilation=found.dilation,
        padding=_sides(rank, before, after),
    )  # fmt: skip


def _sides(rank: int, before: Sequence[int], after: Sequence[int]) -> tuple[int, ...]:
    return (*before, *after)


def biased(n: Making, x: Value, bias: Value | None) -> Value:
    """With a number a channel added."""
    if bias is None:
        return x
    return n("add", x, reshape(bias, (*bias.shape, *(1,) * (x.rank - 2))))


def _conv(n: Operation) -> Value:
    return biased(n, convolution(n, n[0], n[1]), n[2] if n.has(2) else None)


def _conv_transpose(n: Operation) -> Value:
    x, w, groups = n[0], n[1], n.attribute("group", 1)
    rank = x.rank - 2
    if w.rank != x.rank or w.shape[0] != x.shape[1] or w.shape[0] % groups:
        raise n.error(f"a filter of {w.shape} in {groups} groups for images of {x.shape}")
    strides = tuple(n.attribute("strides", (1,) * rank))
    dilation = tuple(n.attribute("dilations", (1,) * rank))
    more = tuple(n.attribute("output_padding", (0,) * rank))
    reach = [(k - 1) * d + 1 for k, d in zip(w.shape[2:], dilation, strict=True)]
    whole = [
        (e - 1) * s + r + o for e, s, r, o in zip(x.shape[2:], strides, reach, more, strict=True)
    ]
    auto = n.attribute("auto_pad", b"NOTSET").decode()
    shape = n.attribute("output_shape")
    if shape is not None or auto.startswith("SAME"):
        if shape is None:
            shape = [e * s for e, s in zip(x.shape[2:], strides, strict=True)]
        total = [w_ - s for w_, s in zip(whole, shape[-rank:], strict=True)]
        less = [int(t / 2) for t in total]
        rest = [t - x_ for t, x_ in zip(total, less, strict=True)]
        before, after = (rest, less) if auto == "SAME_LOWER" else (less, rest)
    else:
        pads = [0] * 2 * rank if auto == "VALID" else n.attribute("pads", [0] * 2 * rank)
        before, after = list(pads[:rank]), list(pads[rank:])
    # All that windows reach, of which padding is then cut off, or to which zeros are added.
    found = n(
        _named("conv", rank, n), x, w, pass_="dgrad", groups=groups, stride=strides,
        dilation=dilation, padding=(0,) * 2 * rank,
    )  # fmt: skip
    zeros = (0, 0)
    low = [max(0, -b) for b in before]
    sizes = [e - o for e, o in zip(whole, more, strict=True)]
    high = [max(0, o - a) for a, o in zip(after, more, strict=True)]
    if any((*low, *high)):
        pads = {"before": (*zeros, *low), "after": (*zeros, *high)}
        found = n("constant_pad", found, **pads, value=0.0)
    begin = [max(0, b) for b in before]
    end = [
        size + lo + hi - max(0, a - o) - b
        for size, lo, hi, a, o, b in zip(sizes, low, high, after, more, begin, strict=True)
    ]
    shape = (*found.shape[:2], *end)
    if min(end) < 1:
        raise n.error(f"images of {tuple(end)}")
    if shape != found.shape:
        found = n(
            "strided_slice", found, begin=(*zeros, *begin), strides=(1,) * x.rank, shape=shape
        )
    return biased(n, found, n[2] if n.has(2) else None)


def _col2im(n: Operation) -> Value:
    """Images of the sums of what blocks have for each of their elements: a transposed convolution
    whose filters have a single 1 each."""
    x, image, size = n[0], n.integers(1, "image_shape"), n.integers(2, "block_shape")
    rank, count = len(image), math.prod(size)
    found = window(n, image, size)
    columns = math.prod(found.out)
    if x.rank != 3 or not count or x.shape[1] % count or x.shape[2] != columns:
        raise n.error(f"{x.shape} is not of blocks of {size}, {columns} of them")
    channels = x.shape[1] // count
    blocks = reshape(x, (x.shape[0] * channels, count, *found.out))
    filters = constant(np.eye(count).reshape(count, 1, *size), x.dtype)
    made = n(
        _named("conv", rank, n), blocks, filters, pass_="dgrad", stride=found.strides,
        dilation=found.dilation, padding=(0,) * 2 * rank,
    )  # fmt: skip
    # Blocks may end before the image does, with its padding.
    each = zip(image, found.before, made.shape[2:], strict=True)
    behind = [max(0, e + b - m) for e, b, m in each]
    if any(behind):
        none = (0,) * made.rank
        made = n("constant_pad", made, before=none, after=(0, 0, *behind), value=0.0)
    begin = [0, 0, *found.before]
    made = part(n, made, begin, [1] * made.rank, [*made.shape[:2], *image])
    return reshape(made, (x.shape[0], channels, *image))


def _max_pool(n: Operation) -> Any:
    x = n[0]
    values = window(n, x.shape[2:], n.attribute("kernel_shape")).values()
    found = n("max_pool", x, **values)
    if n.outputs == 1:
        return found
    order = bool(n.attribute("storage_order", 0))
    return found, n("max_pool_places", x, found, **values, column_major=order)


def _average_pool(n: Operation) -> Value:
    found = window(n, n[0].shape[2:], n.attribute("kernel_shape"))
    padded = {"behind": found.after} if n.attribute("count_include_pad", 0) else {}
    return n("avg_pool", n[0], **found.values(), **padded)


def _norm(n: Operation, x: Value, p: int, total: Callable[[Value], Value]) -> Value:
    wide = widened(x)
    size = n("abs", wide)
    if p == 1:
        found = total(size)
    elif p == 2:
        found = n("sqrt", total(n("multiply", wide, wide)))
    else:
        found = n("power", total(n("power", size, float(p))), 1 / p)
    return cast(found, x.dtype)


def _lp_pool(n: Operation) -> Value:
    values = window(n, n[0].shape[2:], n.attribute("kernel_shape")).values()
    return _norm(n, n[0], n.attribute("p", 2), lambda x: n("sum_pool", x, **values))


def _over_images(n: Operation) -> tuple[int, ...]:
    return tuple(range(2, n[0].rank))


def _global_average(n: Operation) -> Value:
    return mean(n, n[0], _over_images(n))


def _global_max(n: Operation) -> Value:
    return n("max", n[0], axis=_over_images(n), keepdims=True)


def _global_lp(n: Operation) -> Value:
    axes = _over_images(n)
    return _norm(n, n[0], n.attribute("p", 2), lambda x: n("sum", x, axis=axes, keepdims=True))


def _lrn(n: Operation) -> Value:
    x, size = n[0], n.attribute("size")
    batch, channels, *image = x.shape
    alpha, beta, bias = (n.attribute(k, d) for k, d in (("alpha", 1e-4), ("beta", 0.75),
                                                        ("bias", 1.0)))  # fmt: skip
    wide = widened(x)
    lines = reshape(n("multiply", wide, wide), (batch, 1, channels, math.prod(image)))
    total = n(
        "sum_pool", lines, size=(size, 1), strides=(1, 1), padding=((size - 1) // 2, 0),
        dilation=(1, 1), out=(channels, math.prod(image)),
    )  # fmt: skip
    scale = n("add", n("multiply", reshape(total, x.shape), alpha / size), bias)
    return cast(n("divide", wide, n("power", scale, beta)), x.dtype)


def _conv_integer(n: Operation) -> Value:
    found = _integer_product(n)
    if found is not None:
        return found
    # Sums of products of 8 bits are exact in doubles.
    x, w = (cast(n[k], "float64") for k in (0, 1))
    x = n("subtract", x, cast(n[2], "float64")) if n.has(2) else x
    if n.has(3):
        zero = n[3]
        zero = reshape(zero, (*zero.shape, *(1,) * (w.rank - 1))) if zero.rank else zero
        w = n("subtract", w, cast(zero, "float64"))
    return cast(convolution(n, x, w), "int32")


def _integer_product(n: Operation) -> Value | None:
    """The product of integers of 8 bits where the weights and zero points are known."""
    zero = n[2] if n.has(2) else constant(np.array(0, n[0].dtype))
    other: Operand = n[3] if n.has(3) else 0
    if isinstance(other, Value) and other.rank:
        other = reshape(other, (*other.shape, *(1,) * (n[1].rank - 1)))
    weights = integer_weights(n[1], other)
    if weights is None or not isinstance(zero, Constant) or zero.array.size != 1:
        return None
    plain, z = convolution(n, n[0], weights), int(zero.array.reshape(-1)[0])
    if not z:
        return plain
    assert isinstance(plain, Node)
    bias = constant(-z * sums_of_weights(plain, weights), "int32")
    return integer_product(plain, n[0], weights, z, bias, epilogue=("bias",))


CONVERTERS: dict[str, Callable[[Operation], Any]] = {
    "AveragePool": _average_pool, "Col2Im": _col2im, "Conv": _conv, "ConvInteger": _conv_integer,
    "ConvTranspose": _conv_transpose, "GlobalAveragePool": _global_average,
    "GlobalLpPool": _global_lp, "GlobalMaxPool": _global_max, "LRN": _lrn, "LpPool": _lp_pool,
    "MaxPool": _max_pool,
}  # fmt: skip
