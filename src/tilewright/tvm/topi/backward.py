"""topi's gradients of pools and depthwise convolutions with respect to what they read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tilewright import te
from tilewright.ir import ops
from tilewright.ir.errors import LanguageError
from tilewright.te import Tensor
from tilewright.topi.reduction import above
from tilewright.tvm.topi.elements import nearest
from tilewright.tvm.topi.windows import SPATIAL, check_layout, numbers, padding_of


def pool_grad(
    grads: Tensor, data: Tensor, kernel: Any, stride: Any, padding: Any, pool_type: str,
    ceil_mode: bool = False, count_include_pad: bool = True, layout: str = "NCHW",
) -> Any:  # fmt: skip
    """The gradient of ``pool2d`` with respect to ``data``: of "max", that of each window goes to
    the first of its largest elements."""
    check_layout(layout, data, "HW", free=True)
    spatial = [d for d, c in enumerate(layout) if c in SPATIAL]
    size, steps = numbers(kernel, 2, "kernel"), numbers(stride, 2, "stride")
    before, behind = padding_of(padding, size)
    # the windows over an element are `spread` along each axis, from the last that starts there
    spread = [-(-k // s) for k, s in zip(size, steps, strict=True)]
    windows = [te.reduce_axis((0, n), f"w{k}") for k, n in enumerate(spread)]

    def own(i: Any) -> tuple[list[Any], Any, list[Any]]:
        """A window, whether it is one that holds element ``i``, and the element's place in it."""
        at, holds, place = list(i), [], []
        for k, d in enumerate(spatial):
            from_start = i[d] + before[k]
            window = te.floordiv(from_start, steps[k]) - windows[k].var
            place.append(from_start - window * steps[k])
            holds += [window >= 0, window < grads.shape[d], place[k] < size[k]]
            at[d] = nearest(window, grads.shape[d])
        return at, te.all(*holds), place

    if pool_type == "avg":

        def share(*i: Any) -> Any:
            at, holds, _ = own(i)
            count: Any = te.const(1, "int32")
            for k, d in enumerate(spatial):
                start = at[d] * steps[k] - before[k]
                low = 0 if not count_include_pad else -before[k]
                high = data.shape[d] + (behind[k] if count_include_pad else 0)
                count = count * (te.min(start + size[k], high) - te.max(start, low))
            value = grads(*at) / te.max(count, 1).astype(grads.dtype)
            return te.sum(te.if_then_else(holds, value, te.const(0, value.dtype)), axis=windows)

        return te.compute(data.shape, share, "pool_grad_avg", tag="pool_grad_nchw")
    if pool_type != "max":
        raise LanguageError(f"pool_grad: pool_type {pool_type!r} is neither 'max' nor 'avg'")
    taps = [te.reduce_axis((0, k), f"t{n}") for n, k in enumerate(size)]

    def better(a: Any, b: Any) -> Any:
        first = above(a[1], b[1], a[0] < b[0])
        return te.Select(first, a[0], b[0]), te.Select(first, a[1], b[1])

    pick = te.comm_reducer(
        better, lambda p, v: (te.const(2**31 - 1, p), te.min_value(v)), name="first_max"
    )

    def largest(*i: Any) -> Any:
        at, inside = list(i), []
        for k, d in enumerate(spatial):
            at[d] = i[d] * steps[k] + taps[k].var - before[k]
            inside += [at[d] >= 0, at[d] < data.shape[d]]
        value = te.if_then_else(te.all(*inside), data(*at), te.min_value(data.dtype))
        return pick(((taps[0].var * size[1] + taps[1].var).astype("int32"), value), axis=taps)

    chosen, _ = te.compute(grads.shape, largest, "pool_grad_place", tag="comm_reduce_idx")

    def gradient(*i: Any) -> Any:
        at, holds, place = own(i)
        mine = chosen(*at).equal(ops.cast("int32", place[0] * size[1] + place[1]))
        value = grads(*at)
        return te.sum(
            te.if_then_else(te.all(holds, mine), value, te.const(0, value.dtype)), axis=windows
        )

    return te.compute(data.shape, gradient, "pool_grad_max", tag="pool_grad_nchw")


def depthwise_conv2d_backward_input_nhwc(
    Filter: Tensor, Out_grad: Tensor, oshape: Any, ishape: Any, stride: Any, padding: Any
) -> Any:
    """The gradient of ``depthwise_conv2d_nhwc`` with respect to its input."""
    kh, kw, _, times = Filter.shape
    steps, (before, _) = numbers(stride, 2, "stride"), padding_of(padding, [kh, kw])
    rh, rw, rm = (te.reduce_axis((0, e), f"d{k}") for k, e in enumerate((kh, kw, times)))

    def element(b: Any, y: Any, x: Any, c: Any) -> Any:
        at, holds = [], []
        for k, (v, tap) in enumerate(((y, rh), (x, rw))):
            from_start = v + before[k] - tap.var
            window = te.floordiv(from_start, steps[k])
            extent = Out_grad.shape[1 + k]
            holds += [window >= 0, window < extent, te.floormod(from_start, steps[k]).equal(0)]
            at.append(nearest(window, extent))
        value = Out_grad(b, *at, c * times + rm) * Filter(rh, rw, c, rm)
        value = te.if_then_else(te.all(*holds), value, te.const(0, value.dtype))
        return te.sum(value, axis=[rh, rw, rm])

    name = "depthwise_conv2d_backward_input_nhwc"
    return te.compute(tuple(ishape), element, name, tag=name)


def depthwise_conv2d_backward_weight_nhwc(
    Input: Tensor, Out_grad: Tensor, oshape: Any, fshape: Any, stride: Any, padding: Any
) -> Any:
    """The gradient of ``depthwise_conv2d_nhwc`` with respect to its filter."""
    kh, kw, _, times = fshape
    steps, (before, _) = numbers(stride, 2, "stride"), padding_of(padding, [kh, kw])
    batch, out_h, out_w, _ = Out_grad.shape
    rb, rh, rw = (te.reduce_axis((0, e), f"d{k}") for k, e in enumerate((batch, out_h, out_w)))

    def element(y: Any, x: Any, c: Any, m: Any) -> Any:
        at, inside = [], []
        for k, (out, tap) in enumerate(((rh, y), (rw, x))):
            place = out.var * steps[k] + tap - before[k]
            inside += [place >= 0, place < Input.shape[1 + k]]
            at.append(nearest(place, Input.shape[1 + k]))
        value = Out_grad(rb, rh, rw, c * times + m) * Input(rb, *at, c)
        value = te.if_then_else(te.all(*inside), value, te.const(0, value.dtype))
        return te.sum(value, axis=[rb, rh, rw])

    name = "depthwise_conv2d_backward_weight_nhwc"
    return te.compute(tuple(fshape), element, name, tag=name)


NAMES: dict[str, Callable[..., Any]] = {
    f.__name__: f
    for f in (
        depthwise_conv2d_backward_input_nhwc,
        depthwise_conv2d_backward_weight_nhwc,
        pool_grad,
    )
}
