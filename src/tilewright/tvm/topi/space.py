"""topi's functions that move space into channels and batches, and what else networks need."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tilewright import te
from tilewright.ir import ops
from tilewright.ir.dtype import dtype, int_range
from tilewright.ir.errors import LanguageError
from tilewright.te import Tensor
from tilewright.te.arithmetic import elementwise
from tilewright.topi.reduction import dimension
from tilewright.tvm.topi.elements import reduced
from tilewright.tvm.topi.transform import flatten, integers, layout_transform, moved, product
from tilewright.tvm.topi.windows import check_layout, pad


def depth_to_space(data: Tensor, block_size: int, layout: str = "NCHW", mode: str = "DCR") -> Any:
    check_layout(layout, data, "HW")
    extent = dict(zip(layout, data.shape, strict=True))
    channels = te.floordiv(extent["C"], block_size * block_size)
    shape = {**extent, "C": channels, "H": extent["H"] * block_size, "W": extent["W"] * block_size}

    def element(*i: Any) -> Any:
        at = dict(zip(layout, i, strict=True))
        part = te.floormod(at["H"], block_size) * block_size + te.floormod(at["W"], block_size)
        at["C"] = part * channels + at["C"] if mode == "DCR" else at["C"] * (block_size**2) + part
        at |= {c: te.floordiv(at[c], block_size) for c in "HW"}
        return data(*(at[c] for c in layout))

    return moved([shape[c] for c in layout], element, "depth_to_space")


def space_to_depth(data: Tensor, block_size: int, layout: str = "NCHW") -> Any:
    check_layout(layout, data, "HW")
    extent = dict(zip(layout, data.shape, strict=True))
    shape = {**extent, "C": extent["C"] * block_size * block_size,
             **{c: te.floordiv(extent[c], block_size) for c in "HW"}}  # fmt: skip

    def element(*i: Any) -> Any:
        at = dict(zip(layout, i, strict=True))
        part = te.floordiv(at["C"], extent["C"])
        at["C"] = te.floormod(at["C"], extent["C"])
        at["H"] = at["H"] * block_size + te.floordiv(part, block_size)
        at["W"] = at["W"] * block_size + te.floormod(part, block_size)
        return data(*(at[c] for c in layout))

    return moved([shape[c] for c in layout], element, "space_to_depth")


def space_to_batch_nd(
    data: Tensor, block_shape: Any, pad_before: Any, pad_after: Any, pad_value: float = 0.0
) -> Any:
    blocks = integers(block_shape)
    rest = [0] * (data.ndim - 1 - len(blocks))
    x = pad(data, [0, *integers(pad_before), *rest], [0, *integers(pad_after), *rest], pad_value)
    batch, rank = data.shape[0], len(blocks)
    shape = [batch * product([ops.const(b) for b in blocks])]
    shape += [te.floordiv(e, b) for e, b in zip(x.shape[1:], blocks, strict=False)]

    def element(n: Any, *i: Any) -> Any:
        part, at = te.floordiv(n, batch), list(i)
        for k in reversed(range(rank)):
            at[k] = i[k] * blocks[k] + te.floormod(part, blocks[k])
            part = te.floordiv(part, blocks[k])
        return x(te.floormod(n, batch), *at)

    return moved([*shape, *x.shape[1 + rank :]], element, "space_to_batch_nd")


def batch_to_space_nd(
    data: Tensor, block_shape: Any, crop_begin_list: Any, crop_end_list: Any
) -> Any:
    blocks, low, high = integers(block_shape), integers(crop_begin_list), integers(crop_end_list)
    count = product([ops.const(b) for b in blocks])
    batch, rank = te.floordiv(data.shape[0], count), len(blocks)
    shape = [batch, *(data.shape[1 + k] * blocks[k] - low[k] - high[k] for k in range(rank))]

    def element(n: Any, *i: Any) -> Any:
        part: Any = ops.const(0)
        at = list(i)
        for k in range(rank):
            place = i[k] + low[k]
            part = part * blocks[k] + te.floormod(place, blocks[k])
            at[k] = te.floordiv(place, blocks[k])
        return data(part * batch + n, *at)

    return moved([*shape, *data.shape[1 + rank :]], element, "batch_to_space_nd")


def fifo_buffer(data: Tensor, buffer: Tensor, axis: int) -> Any:
    d = dimension(axis, data.ndim)
    kept = buffer.shape[d] - data.shape[d]

    def element(*i: Any) -> Any:
        new = data(*i[:d], i[d] - kept, *i[d + 1 :])
        return te.if_then_else(i[d] < kept, buffer(*i[:d], i[d] + data.shape[d], *i[d + 1 :]), new)

    return moved(buffer.shape, element, "new_buffer")


def nll_loss(
    predictions: Tensor, targets: Tensor, weights: Tensor, reduction: str, ignore_index: int
) -> Any:
    batched = predictions.ndim > 1
    classes = predictions.shape[1 if batched else 0]

    def counted(i: Any) -> tuple[Any, Any, Any]:
        """Whether a target counts, its class, and the weight of that."""
        target = targets(*i)
        safe = te.max(te.min(target, ops.cast(target.dtype, classes - 1)), 0)
        return target != ignore_index, safe, weights(safe)

    def part(*i: Any) -> Any:
        counts, own, weight = counted(i)
        at = (i[0], own, *i[1:]) if batched else (own,)
        return te.Select(counts, -predictions(*at) * weight, te.const(0, predictions.dtype))

    def share(*i: Any) -> Any:
        counts, _, weight = counted(i)
        return te.Select(counts, weight, te.const(0, predictions.dtype))

    loss = te.compute(targets.shape, part, "nll_loss", tag="injective")
    if reduction == "none":
        return loss
    total = reduced(loss, None, False, lambda v, _, k: te.sum(v, axis=k), "nll_loss_sum")
    if reduction == "sum":
        return total
    shares = te.compute(targets.shape, share, "nll_loss_weights", tag="injective")
    whole = reduced(shares, None, False, lambda v, _, k: te.sum(v, axis=k), "nll_loss_total")
    return elementwise("div", total, whole, name="nll_loss_mean")


def simulated_quantize(
    data: Tensor, out_dtype: str, output_scale: Tensor, output_zero_point: Tensor, axis: int = -1
) -> Any:
    """To the integers of a type that :func:`simulated_dequantize` reads, kept in floats."""
    if str(out_dtype) not in ("int8", "uint8", "int32"):
        raise LanguageError(f"simulated_quantize: to int8, uint8 or int32, not {out_dtype!r}")
    low, high = int_range(dtype(str(out_dtype)))
    d = dimension(axis, data.ndim)

    def element(*i: Any) -> Any:
        scale, zero = (
            t(i[d]) if t.ndim else t.as_scalar() for t in (output_scale, output_zero_point)
        )
        value = te.round(data(*i) / scale) + zero.astype(data.dtype)
        return te.max(te.min(value, te.const(high, data.dtype)), te.const(low, data.dtype))

    return te.compute(data.shape, element, "simulated_quantize", tag="elemwise")


def simulated_dequantize(
    data: Tensor, in_dtype: str, input_scale: Tensor, input_zero_point: Tensor, axis: int = -1
) -> Any:
    d = dimension(axis, data.ndim)

    def element(*i: Any) -> Any:
        scale, zero = (
            t(i[d]) if t.ndim else t.as_scalar() for t in (input_scale, input_zero_point)
        )
        return (data(*i) - zero.astype(data.dtype)) * scale

    return te.compute(data.shape, element, "simulated_dequantize", tag="elemwise")


def unpack_NCHWc_to_nchw(packed_out: Tensor, out_dtype: str) -> Any:
    block = packed_out.shape[-1]
    n, chunks, h, w = packed_out.shape[:4]
    return moved(
        (n, chunks * block, h, w),
        lambda b, c, y, x: packed_out(b, te.floordiv(c, block), y, x, te.floormod(c, block)).astype(
            out_dtype
        ),
        "output_unpack",
    )


NAMES: dict[str, Callable[..., Any]] = {
    **{
        f.__name__: f
        for f in (
            batch_to_space_nd, depth_to_space, fifo_buffer, flatten,
            layout_transform, nll_loss, simulated_dequantize, simulated_quantize,
            space_to_batch_nd, space_to_depth, unpack_NCHWc_to_nchw,
        )
    },
}  # fmt: skip
