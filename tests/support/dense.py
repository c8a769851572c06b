"""Products of matrices, and convolutions dense or in groups, in float64; and problems to try."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from hypothesis import strategies as st
from tests.support.depthwise import STEPS, apply, decode, lay, planes, slices

from tilewright.topi import Conv, Gemm


def product(p: Gemm, arrays: Mapping[str, np.ndarray]) -> np.ndarray:
    """The result of a product of matrices."""
    given = {name: decode(a) for name, a in arrays.items()}
    if "a" in given and p.transpose_a:
        given["a"] = given["a"].swapaxes(-1, -2)
    if "b" in given and p.transpose_b:
        given["b"] = given["b"].swapaxes(-1, -2)
    if p.pass_ == "dgrad":
        found = given["grad"] @ given["b"].swapaxes(-1, -2)
        return found.swapaxes(-1, -2) if p.transpose_a else found
    if p.pass_ == "wgrad":
        found = given["a"].swapaxes(-1, -2) @ given["grad"]
        return found.swapaxes(-1, -2) if p.transpose_b else found
    found = given["a"] @ given["b"]
    for step in p.epilogue:
        found = apply(step, found, lambda name: given[name], given.__getitem__)
    return found


def convolution(p: Conv, arrays: Mapping[str, np.ndarray]) -> np.ndarray:
    """The result of a convolution, tap by tap."""
    top, left, bottom, right = p.padding
    g, own, m = p.groups, p.channels // p.groups, p.multiplier
    last = p.channels_last and not p.is_depthwise  # those of a depthwise one lie otherwise
    by_group = {}
    for name, size in (("data", own), ("grad", m)):
        if name in arrays:
            whole = planes(p, arrays[name])
            by_group[name] = whole.reshape(len(whole), g, size, *whole.shape[2:])
    if "data" in by_group:
        by_group["data"] = np.pad(by_group["data"], (*[(0, 0)] * 3, (top, bottom), (left, right)))
    if "filter" in arrays:
        f = decode(arrays["filter"])
        f = np.moveaxis(f, -1, 1) if last else f
        f = f.reshape(g, m, own, *p.kernel)
    if p.pass_ == "wgrad":
        dw = np.zeros((g, m, own, *p.kernel))
        for i, j, at in slices(p):
            seen = by_group["data"][..., at[0], at[1]]
            dw[..., i, j] = np.einsum("ngcyx,ngmyx->gmc", seen, by_group["grad"])
        dw = dw.reshape(g * m, own, *p.kernel[2 - p.rank :])
        return np.moveaxis(dw, 1, -1) if last else dw.reshape(p.filter_shape)
    if p.pass_ == "dgrad":
        dx = np.zeros((p.batch, g, own, p.height + top + bottom, p.width + left + right))
        for i, j, at in slices(p):
            part = np.einsum("ngmyx,gmc->ngcyx", by_group["grad"], f[..., i, j])
            dx[..., at[0], at[1]] += part
        dx = dx.reshape(p.batch, p.channels, *dx.shape[3:])
        found = dx[:, :, top : top + p.height, left : left + p.width]
    else:
        y = np.zeros((p.batch, g, m, *p.out_image))
        for i, j, at in slices(p):
            seen = by_group["data"][..., at[0], at[1]]
            y += np.einsum("ngcyx,gmc->ngmyx", seen, f[..., i, j])
        found = y.reshape(p.batch, p.out_channels, *p.out_image)
    for step in p.epilogue:
        found = apply(
            step, found, lambda name: decode(arrays[name])[:, None, None],
            lambda name: planes(p, arrays[name]),
        )  # fmt: skip
    return lay(p, found)


@st.composite
def products(draw: st.DrawFn, **fixed: Any) -> Gemm:
    """Small products of matrices."""
    size = st.sampled_from([1, 2, 3, 7, 16, 17, 40, 70])
    pass_ = fixed.get("pass_") or draw(st.sampled_from(["forward", "dgrad", "wgrad"]))
    steps = draw(st.lists(STEPS, max_size=2, unique=True)) if pass_ == "forward" else []
    chosen: dict[str, Any] = dict(
        m=draw(size), n=draw(size), k=draw(size), batch=draw(st.sampled_from([1, 1, 3])),
        transpose_a=draw(st.booleans()), transpose_b=draw(st.booleans()), pass_=pass_,
        dtype=draw(st.sampled_from(["float32", "float16", "bfloat16"])), epilogue=steps,
    )  # fmt: skip
    return Gemm(**(chosen | fixed))


@st.composite
def convolutions(draw: st.DrawFn, **fixed: Any) -> Conv:
    """Small convolutions that are not depthwise."""
    flat = draw(st.sampled_from([False, False, True]))

    def pair(values: st.SearchStrategy[int]) -> tuple[int, int]:
        return (1 if flat else draw(values)), draw(values)

    kernel, dilation = pair(st.integers(1, 4)), pair(st.sampled_from([1, 1, 2]))
    pads = st.integers(0, 2)
    top, bottom = (0, 0) if flat else (draw(pads), draw(pads))
    left, right = draw(pads), draw(pads)
    image = []
    for k, padded in enumerate((top + bottom, left + right)):
        least = max((kernel[k] - 1) * dilation[k] + 1 - padded, 1)
        image.append(1 if flat and k == 0 else draw(st.integers(least, least + 9)))
    pass_ = fixed.get("pass_") or draw(st.sampled_from(["forward", "dgrad", "wgrad"]))
    steps = [] if pass_ == "wgrad" else draw(st.lists(STEPS, max_size=2, unique=True))
    groups, own = draw(st.sampled_from([(1, 1), (1, 3), (1, 20), (2, 4), (3, 2)]))
    each = draw(st.sampled_from([2, 3, 8, 20]))
    chosen: dict[str, Any] = dict(
        operator="conv1d" if flat else "conv2d", pass_=pass_, batch=draw(st.integers(1, 3)),
        channels=groups * own, groups=groups, multiplier=each,
        height=image[0], width=image[1], kernel_h=kernel[0], kernel_w=kernel[1],
        stride=pair(st.sampled_from([1, 1, 2, 3])), padding=(top, left, bottom, right),
        dilation=dilation, dtype=draw(st.sampled_from(["float32", "float16", "bfloat16"])),
        layout=draw(st.sampled_from(["NCW", "NWC"] if flat else ["NCHW", "NHWC"])),
        epilogue=steps,
    )  # fmt: skip
    return Conv(**(chosen | fixed))
