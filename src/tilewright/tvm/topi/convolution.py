"""topi's convolutions: one, of all dimensions, groups and layouts, and those that go back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tilewright import te
from tilewright.ir import ops
from tilewright.ir.errors import LanguageError
from tilewright.te import Tensor
from tilewright.tvm.topi.elements import check_same
from tilewright.tvm.topi.windows import (
    SPATIAL,
    check_layout,
    dilate,
    numbers,
    pad,
    padded,
    padding_of,
)


def conv(
    inp: Tensor, filt: Tensor, stride: Any, padding: Any, dilation: Any, groups: int,
    data_layout: str, kernel_layout: str = "", out_dtype: Any = None,
    auto_scheduler_rewritten_layout: Any = None, meta_schedule_original_shape: Any = None,
    auto_scheduler_should_rewrite_layout: bool = False,
) -> Any:  # fmt: skip
    rank = inp.ndim - 2
    check_layout(data_layout, inp, SPATIAL[3 - rank :])
    spatial = [c for c in data_layout if c in SPATIAL]
    kernel_layout = kernel_layout or "OI" + "".join(spatial)
    check_layout(kernel_layout, filt, SPATIAL[3 - rank :], "OI")
    size = {c: filt.shape[kernel_layout.index(c)] for c in (*spatial, "O", "I")}
    channels = inp.shape[data_layout.index("C")]
    check_same("channels of data, and of a filter in all groups", channels, size["I"] * groups)
    if groups > 1:
        _check_groups(size["O"], groups)
    steps, holes = numbers(stride, rank, "stride"), numbers(dilation, rank, "dilation")
    window = [(size[c] - 1) * h + 1 for c, h in zip(spatial, holes, strict=True)]
    before, behind = padding_of(padding, window)
    data = padded(inp, data_layout, before, behind)
    extent = dict(zip(data_layout, data.shape, strict=True))
    shape = {
        c: te.floordiv(extent[c] - w, s) + 1 for c, w, s in zip(spatial, window, steps, strict=True)
    }
    shape |= {"N": extent["N"], "C": size["O"]}
    taps = {c: te.reduce_axis((0, size[c]), f"r{c.lower()}") for c in spatial}
    channel = te.reduce_axis((0, size["I"]), "rc")
    out = str(out_dtype or inp.dtype)

    def element(*i: Any) -> Any:
        at = dict(zip(data_layout, i, strict=True))
        group = te.floordiv(at["C"], te.floordiv(size["O"], groups)) if groups > 1 else 0
        place = {c: at[c] * s + taps[c] * h for c, s, h in zip(spatial, steps, holes, strict=True)}
        place |= {"N": at["N"], "C": group * size["I"] + channel}
        weight = {**taps, "O": at["C"], "I": channel}
        value = data(*(place[c] for c in data_layout)).astype(out)
        return te.sum(
            value * filt(*(weight[c] for c in kernel_layout)).astype(out),
            axis=[channel, *taps.values()],
        )

    name = f"{'group_' if groups > 1 else ''}conv{rank}d_{data_layout.lower()}"
    return te.compute(tuple(shape[c] for c in data_layout), element, name, tag=name)


def _check_groups(channels: Any, groups: int) -> None:
    """Raises :class:`LanguageError` for groups that do not divide known channels."""
    if groups < 1 or not ops.is_const(ops.floormod(channels, groups), 0):
        if groups < 1 or ops.is_const(channels):
            raise LanguageError(f"{groups} groups do not divide {channels} channels")


def depthwise(
    Input: Tensor, Filter: Tensor, stride: Any, padding: Any, dilation: Any, layout: str,
    kernel_layout: str, out_dtype: Any,
) -> Any:  # fmt: skip
    """Each channel with filters of its own: "C" of the kernel's layout are channels, "M" filters a
    channel."""
    spatial = [c for c in layout if c in SPATIAL]
    size = dict(zip(kernel_layout, Filter.shape, strict=True))
    steps, holes = (
        numbers(stride, len(spatial), "stride"),
        numbers(dilation, len(spatial), "dilation"),
    )
    window = [(size[c] - 1) * h + 1 for c, h in zip(spatial, holes, strict=True)]
    before, behind = padding_of(padding, window)
    data = padded(Input, layout, before, behind)
    extent = dict(zip(layout, data.shape, strict=True))
    taps = {c: te.reduce_axis((0, size[c]), f"d{c.lower()}") for c in spatial}
    shape = {
        c: te.floordiv(extent[c] - w, s) + 1 for c, w, s in zip(spatial, window, steps, strict=True)
    }
    shape |= {"N": extent["N"], "C": size["C"] * size["M"]}
    out = str(out_dtype or Input.dtype)

    def element(*i: Any) -> Any:
        at = dict(zip(layout, i, strict=True))
        place = {c: at[c] * s + taps[c] * h for c, s, h in zip(spatial, steps, holes, strict=True)}
        place |= {"N": at["N"], "C": te.floordiv(at["C"], size["M"])}
        weight = {**taps, "C": place["C"], "M": te.floormod(at["C"], size["M"])}
        value = data(*(place[c] for c in layout)).astype(out)
        return te.sum(value * filter_at(weight).astype(out), axis=list(taps.values()))

    def filter_at(weight: Any) -> Any:
        return Filter(*(weight[c] for c in kernel_layout))

    name = f"depthwise_conv2d_{layout.lower()}"
    return te.compute(tuple(shape[c] for c in layout), element, "DepthwiseConv2d", tag=name)


def transposed(
    data: Tensor, kernel: Tensor, strides: Any, padding: Any, out_dtype: Any, output_padding: Any,
    groups: int = 1,
) -> Any:  # fmt: skip
    """The convolution that goes back, of (N, C, ...); the kernel is (C, OC / groups, ...)."""
    rank = data.ndim - 2
    if kernel.ndim != data.ndim:
        raise LanguageError(f"a convolution of {data} with {kernel}, of other dimensions")
    check_same("channels of data, and of a filter", data.shape[1], kernel.shape[0])
    _check_groups(kernel.shape[0], groups)
    size, steps = kernel.shape[2:], numbers(strides, rank, "strides")
    before, behind = padding_of(padding, size)
    more = numbers(output_padding, rank, "output_padding")
    if min(more) < 0:
        raise LanguageError(f"output_padding is at least 0, got {output_padding}")
    wide = dilate(data, [1, 1, *steps], name="data_dilate") if set(steps) != {1} else data
    low = [0, 0, *(k - 1 - b for k, b in zip(size, before, strict=True))]
    high = [0, 0, *(k - 1 - a + m for k, a, m in zip(size, behind, more, strict=True))]
    padded = pad(wide, low, high, 0.0, "data_pad")
    each, inner = kernel.shape[1], te.floordiv(kernel.shape[0], groups)
    channel = te.reduce_axis((0, inner), "dc")
    taps = [te.reduce_axis((0, k), f"d{n}") for n, k in enumerate(size)]
    shape = [data.shape[0], each * groups]
    shape += [e - k + 1 for e, k in zip(padded.shape[2:], size, strict=True)]
    out = str(out_dtype or data.dtype)

    def element(n: Any, c: Any, *at: Any) -> Any:
        own = te.floordiv(c, each) * inner + channel if groups > 1 else channel
        place = [v + t for v, t in zip(at, taps, strict=True)]
        back = [k - 1 - t for k, t in zip(size, taps, strict=True)]
        weight = kernel(own, te.floormod(c, each) if groups > 1 else c, *back)
        return te.sum(
            padded(n, own, *place).astype(out) * weight.astype(out), axis=[channel, *taps]
        )

    return te.compute(tuple(shape), element, f"conv{rank}d_transpose", tag=f"conv{rank}d_transpose")


def _conv(layout: str, kernel_layout: str, names: str, groups: bool) -> Callable[..., Any]:
    """A convolution of one layout, with TVM's names of its parameters."""
    keys = names.split()

    def function(*given: Any, **more: Any) -> Any:
        values = {"strides": 1} | dict(zip(keys, given, strict=False)) | more
        first, second, step = (_given(values, k) for k in keys[:3])
        return conv(
            first, second, step, values.get("padding", "VALID"), values.get("dilation", 1),
            int(values.get("groups", 1)) if groups else 1, layout, kernel_layout,
            values.get("out_dtype"),
        )  # fmt: skip

    return function


def _given(values: dict[str, Any], name: str) -> Any:
    if name not in values:
        raise LanguageError(f"the convolution needs {name}: pass it")
    return values[name]


def _back(names: str) -> Callable[..., Any]:
    """:func:`transposed` with TVM's names of its parameters."""
    keys = names.split()

    def function(*given: Any, **more: Any) -> Any:
        values = dict(zip(keys, given, strict=False)) | more
        x, w, strides, padding, dtype = (_given(values, k) for k in keys[:5])
        more_padding = values.get("output_padding", 0)
        return transposed(x, w, strides, padding, dtype, more_padding, values.get("groups", 1))

    return function


_2D = "Input Filter stride padding dilation out_dtype"
_2G = "Input Filter stride padding dilation groups out_dtype"
_1D = "data kernel strides padding dilation out_dtype"
_1G = "data kernel strides padding dilation groups out_dtype"


def conv2d(
    input: Tensor, filter: Tensor, strides: Any, padding: Any, dilation: Any,
    data_layout: str = "NCHW", kernel_layout: str = "", out_dtype: Any = None, layout: str = "",
) -> Any:  # fmt: skip
    data_layout = layout or data_layout  # as it was called until 2021
    check_layout(data_layout, input, "HW")
    kernel_layout = kernel_layout or ("OIHW" if data_layout == "NCHW" else "HWIO")
    return conv(input, filter, strides, padding, dilation, 1, data_layout, kernel_layout, out_dtype)


def conv1d(
    data: Tensor, kernel: Tensor, strides: Any = 1, padding: Any = "VALID", dilation: Any = 1,
    groups: int = 1, data_layout: str = "NCW", kernel_layout: str = "", out_dtype: Any = None,
) -> Any:  # fmt: skip
    check_layout(data_layout, data, "W")
    kernel_layout = kernel_layout or ("OIW" if data_layout == "NCW" else "WIO")
    return conv(
        data, kernel, strides, padding, dilation, groups, data_layout, kernel_layout, out_dtype
    )


def conv2d_NCHWc(
    data: Tensor, kernel: Tensor, stride: Any, padding: Any, dilation: Any, layout: str,
    out_layout: str, out_dtype: str = "float32",
) -> Any:  # fmt: skip
    """Channels in parts: data (N, C/c, H, W, c), kernel (O/o, C/c, KH, KW, c, o); a kernel of
    fewer parts than the data has is one of that many groups."""
    (sh, sw), (dh, dw) = numbers(stride, 2, "stride"), numbers(dilation, 2, "dilation")
    outer, chunks, kh, kw, ic, oc = kernel.shape
    before, behind = padding_of(padding, [(kh - 1) * dh + 1, (kw - 1) * dw + 1])
    x = padded(data, "NCHWc", before, behind)
    n, whole, h, w, _ = x.shape
    groups = te.floordiv(whole, chunks)
    each = te.floordiv(outer, groups)
    shape = (
        n,
        outer,
        te.floordiv(h - (kh - 1) * dh - 1, sh) + 1,
        te.floordiv(w - (kw - 1) * dw - 1, sw) + 1,
        oc,
    )
    rc, rh, rw, ri = (te.reduce_axis((0, e), f"r{k}") for k, e in enumerate((chunks, kh, kw, ic)))
    out = str(out_dtype)

    def element(b: Any, o: Any, y: Any, z: Any, c: Any) -> Any:
        part = te.floordiv(o, each) * chunks + rc
        value = x(b, part, y * sh + rh * dh, z * sw + rw * dw, ri).astype(out)
        weight = kernel(o, rc, rh, rw, ri, c).astype(out)
        return te.sum(value * weight, axis=[rc, rh, rw, ri])

    return te.compute(shape, element, "conv2d_NCHWc", tag="conv2d_NCHWc")


def depthwise_conv2d_NCHWc(
    Input: Tensor, Filter: Tensor, stride: Any, padding: Any, dilation: Any, layout: str,
    out_layout: str, out_dtype: Any = None,
) -> Any:  # fmt: skip
    """Channels in parts, one filter each: kernel (C/c, 1, KH, KW, 1, c)."""
    (sh, sw), (dh, dw) = numbers(stride, 2, "stride"), numbers(dilation, 2, "dilation")
    _, _, kh, kw, _, _ = Filter.shape
    before, behind = padding_of(padding, [(kh - 1) * dh + 1, (kw - 1) * dw + 1])
    x = padded(Input, "NCHWc", before, behind)
    n, chunks, h, w, block = x.shape
    rh, rw = te.reduce_axis((0, kh), "rh"), te.reduce_axis((0, kw), "rw")
    out = str(out_dtype or Input.dtype)
    return te.compute(
        (
            n, chunks, te.floordiv(h - (kh - 1) * dh - 1, sh) + 1,
            te.floordiv(w - (kw - 1) * dw - 1, sw) + 1, block,
        ),
        lambda b, o, y, z, c: te.sum(
            x(b, o, y * sh + rh * dh, z * sw + rw * dw, c).astype(out)
            * Filter(o, 0, rh, rw, 0, c).astype(out),
            axis=[rh, rw],
        ),
        "depthwise_conv2d_NCHWc", tag="depthwise_conv2d_NCHWc",
    )  # fmt: skip


def depthwise_conv2d_nchw(
    Input: Tensor,
    Filter: Tensor,
    stride: Any,
    padding: Any,
    dilation: Any = 1,
    out_dtype: Any = None,
) -> Any:
    return depthwise(Input, Filter, stride, padding, dilation, "NCHW", "CMHW", out_dtype)


def depthwise_conv2d_nhwc(
    Input: Tensor, Filter: Tensor, stride: Any, padding: Any, dilation: Any = 1,
    kernel_layout: str = "HWOI", out_dtype: Any = None,
) -> Any:  # fmt: skip
    # as in TVM, what is no layout, such as a type, leaves the layout as it is without
    own = {"OHWI": "CHWM", "HWIO": "HWMC"}.get(kernel_layout, "HWCM")
    return depthwise(Input, Filter, stride, padding, dilation, "NHWC", own, out_dtype)


def _winograd(layout: str, kernel_layout: str) -> Callable[..., Any]:
    """The same sums; the schedule, not the declaration, says by which algorithm."""

    def function(
        data: Tensor, weight: Tensor, strides: Any, padding: Any, dilation: Any,
        out_dtype: Any = None, pre_computed: bool = False,
        auto_scheduler_rewritten_layout: str = "", meta_schedule_original_shape: Any = None,
    ) -> Any:  # fmt: skip
        if pre_computed:
            raise LanguageError("conv2d_winograd: give the filter itself, not a transformed one")
        return conv(data, weight, strides, padding, dilation, 1, layout, kernel_layout, out_dtype)

    return function


def dilation2d(
    input: Tensor,
    filter: Tensor,
    stride: Any,
    padding: Any,
    dilations: Any,
    layout: str,
    out_dtype: Any,
) -> Any:
    """The largest of an image's elements and a filter's in sum, of greyscale morphology."""
    (sh, sw), (dh, dw) = numbers(stride, 2, "stride"), numbers(dilations, 2, "dilations")
    channel = layout.index("C")
    fh, fw = (filter.shape[d] for d in range(3) if d != (0 if layout == "NCHW" else 2))
    before, behind = padding_of(padding, [(fh - 1) * dh + 1, (fw - 1) * dw + 1])
    low, high = [0] * 4, [0] * 4
    for d, b, a in zip((layout.index("H"), layout.index("W")), before, behind, strict=True):
        low[d], high[d] = b, a
    x = pad(input, low, high, te.min_value(input.dtype), "pad_temp")
    extent = dict(zip(layout, x.shape, strict=True))
    shape = {**extent, "H": te.floordiv(extent["H"] - (fh - 1) * dh - 1, sh) + 1,
             "W": te.floordiv(extent["W"] - (fw - 1) * dw - 1, sw) + 1}  # fmt: skip
    rh, rw = te.reduce_axis((0, fh), "rh"), te.reduce_axis((0, fw), "rw")

    def element(*i: Any) -> Any:
        at = dict(zip(layout, i, strict=True))
        c = at["C"]
        at |= {"H": at["H"] * sh + rh * dh, "W": at["W"] * sw + rw * dw}
        tap = filter(c, rh, rw) if channel == 1 else filter(rh, rw, c)
        return te.max(x(*(at[k] for k in layout)) + tap, axis=[rh, rw])

    return te.compute(tuple(shape[c] for c in layout), element, "dilation2d", tag="dilation2d")


_BACK = "data kernel strides padding out_dtype output_padding groups"

NAMES: dict[str, Callable[..., Any]] = {
    **{
        f.__name__: f
        for f in (
            conv, conv1d, conv2d, conv2d_NCHWc, depthwise_conv2d_NCHWc, depthwise_conv2d_nchw,
            depthwise_conv2d_nhwc,
        )
    },
    "conv1d_ncw": _conv("NCW", "OIW", _1D, False),
    "conv1d_nwc": _conv("NWC", "WIO", _1D, False),
    "group_conv1d_ncw": _conv("NCW", "OIW", _1G, True),
    "group_conv1d_nwc": _conv("NWC", "WIO", _1G, True),
    "conv2d_nchw": _conv("NCHW", "OIHW", _2D, False),
    "conv2d_nhwc": _conv("NHWC", "HWIO", _2D, False),
    "conv2d_hwcn": _conv("HWCN", "HWIO", _2D, False),
    "group_conv2d_nchw": _conv("NCHW", "OIHW", _2G, True),
    "group_conv2d_nhwc": _conv("NHWC", "HWIO", _2G, True),
    "conv3d_ncdhw": _conv("NCDHW", "OIDHW", _2G, True),
    "conv3d_ndhwc": _conv("NDHWC", "DHWIO", _2G, True),
    "conv2d_winograd_nchw": _winograd("NCHW", "OIHW"),
    "conv2d_winograd_nhwc": _winograd("NHWC", "HWIO"),
    "conv1d_transpose_ncw": _back(_BACK.replace("strides", "stride")),
    "conv2d_transpose_nchw": _back("Input Filter strides padding out_dtype output_padding"),
    "conv3d_transpose_ncdhw": _back("Input Filter strides padding out_dtype output_padding"),
    "group_conv1d_transpose_ncw": _back(_BACK.replace("strides", "stride")),
    "group_conv2d_transpose_nchw": _back(_BACK.replace("strides", "stride")),
    "group_conv3d_transpose_ncdhw": _back(_BACK),
    "declaration_conv2d_transpose_impl": _back(_BACK),
    "declaration_conv3d_transpose_impl": _back(_BACK),
}  # fmt: skip
