"""Products of matrices, and convolutions dense or in groups, in float64; and problems to try."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from hypothesis import strategies as st
from tests.support.depthwise import STEPS, apply, decode

from tilewright.topi import Conv, Conv3d, Gemm
from tilewright.topi.operators.convolution import Convolution


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


def convolution(p: Convolution, arrays: Mapping[str, np.ndarray]) -> np.ndarray:
    """The result of a convolution of any number of dimensions, tap by tap."""
    g, own, m, last = p.groups, p.channels // p.groups, p.multiplier, p.layout.endswith("C")
    turned = last and not p.operator.startswith("depthwise")  # the filter, too
    pads = [(d.before, d.after) for d in p.dims]

    def images(name: str) -> np.ndarray:
        found = decode(arrays[name])
        return np.moveaxis(found, -1, 1) if last else found

    def grouped(name: str, size: int) -> np.ndarray:
        whole = images(name)
        return whole.reshape(p.batch, g, size, *whole.shape[2:])

    def seen(tap: tuple[int, ...]) -> Any:
        """What a tap reads of the padded image."""
        first = [t * d.dilation for t, d in zip(tap, p.dims, strict=True)]
        ends = [a + (d.results - 1) * d.stride + 1 for a, d in zip(first, p.dims, strict=True)]
        steps = [d.stride for d in p.dims]
        return (..., *(slice(*one) for one in zip(first, ends, steps, strict=True)))

    taps = list(np.ndindex(*(d.taps for d in p.dims)))
    if "data" in arrays:
        x = np.pad(grouped("data", own), [(0, 0)] * 3 + pads)
    if "filter" in arrays:
        f = decode(arrays["filter"])
        f = (np.moveaxis(f, -1, 1) if turned else f).reshape(g, m, own, *(d.taps for d in p.dims))
    if p.pass_ == "wgrad":
        dy, dw = grouped("grad", m), np.zeros((g, m, own, *(d.taps for d in p.dims)))
        dy = dy.reshape(p.batch, g, m, -1)
        for tap in taps:
            read = x[seen(tap)].reshape(p.batch, g, own, -1)
            dw[(..., *tap)] = np.einsum("ngcs,ngms->gmc", read, dy)
        dw = dw.reshape(g * m, own, *dw.shape[3:])
        return np.moveaxis(dw, 1, -1) if turned else dw.reshape(p.filter_shape)
    if p.pass_ == "dgrad":
        dy, dx = grouped("grad", m), np.zeros((p.batch, g, own, *(d.padded for d in p.dims)))
        for tap in taps:
            dx[seen(tap)] += np.einsum("ngm...,gmc->ngc...", dy, f[(..., *tap)])
        dx = dx[(..., *(slice(d.before, d.before + d.extent) for d in p.dims))]
        found = dx.reshape(p.batch, p.channels, *dx.shape[3:])
    else:
        y = np.zeros((p.batch, g, m, *(d.results for d in p.dims)))
        for tap in taps:
            y += np.einsum("ngc...,gmc->ngm...", x[seen(tap)], f[(..., *tap)])
        found = y.reshape(p.batch, p.out_channels, *y.shape[3:])
    alike = (-1, *[1] * p.rank)
    for step in p.epilogue:
        found = apply(step, found, lambda name: decode(arrays[name]).reshape(alike), images)
    return np.moveaxis(found, 1, -1) if last else found


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


@st.composite
def volumes(draw: st.DrawFn, **fixed: Any) -> Conv3d:
    """Small convolutions in three dimensions, of any groups."""

    def three(values: st.SearchStrategy[int]) -> tuple[int, ...]:
        return tuple(draw(values) for _ in range(3))

    kernel, dilation = three(st.integers(1, 3)), three(st.sampled_from([1, 1, 2]))
    before, after = three(st.integers(0, 2)), three(st.integers(0, 2))
    image = []
    for k, d, b, a in zip(kernel, dilation, before, after, strict=True):
        least = max((k - 1) * d + 1 - b - a, 1)
        image.append(draw(st.integers(least, least + 4)))
    pass_ = fixed.get("pass_") or draw(st.sampled_from(["forward", "dgrad", "wgrad"]))
    steps = [] if pass_ == "wgrad" else draw(st.lists(STEPS, max_size=2, unique=True))
    groups, own = draw(st.sampled_from([(1, 1), (1, 3), (1, 20), (2, 4), (3, 1)]))
    chosen: dict[str, Any] = dict(
        pass_=pass_, batch=draw(st.integers(1, 2)), channels=groups * own, groups=groups,
        multiplier=draw(st.sampled_from([1, 2, 8, 20])), image=image, kernel=kernel,
        stride=three(st.sampled_from([1, 1, 2, 3])), padding=(*before, *after), dilation=dilation,
        dtype=draw(st.sampled_from(["float32", "float16", "bfloat16", "float64"])),
        layout=draw(st.sampled_from(["NCDHW", "NDHWC"])), epilogue=steps,
    )  # fmt: skip
    return Conv3d(**(chosen | fixed))
