"""topi's products of binary and of few-bit numbers, by counting the bits of packed words."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tilewright import te
from tilewright.ir import ops
from tilewright.ir.errors import LanguageError
from tilewright.te import Tensor
from tilewright.topi.reduction import dimension
from tilewright.tvm.topi.transform import integers
from tilewright.tvm.topi.windows import numbers, pad, padding_of


def _word(bit: Callable[[int], Any], width: int, type: str) -> Any:
    """A word of bits, the first the most significant."""
    word: Any = te.const(0, type)
    for k in range(width):
        word = (word << te.const(1, type)) | bit(k).astype(type)
    return word


def bitpack(
    data: Tensor, bits: int, pack_axis: int, bit_axis: int, pack_type: str,
    name: str = "QuantizeInput",
) -> Any:  # fmt: skip
    """The bits of the integers along ``pack_axis`` in words of ``pack_type``, the least significant
    ones first along the new dimension ``bit_axis``."""
    width = int(pack_type.removeprefix("uint"))
    d = dimension(pack_axis, data.ndim)
    if integers(data.shape[d])[0] % width:
        raise LanguageError(f"bitpack: {data.shape[d]} elements do not fill words of {width} bits")
    shape = [*data.shape[:d], te.floordiv(data.shape[d], width), *data.shape[d + 1 :]]
    shape.insert(bit_axis, ops.const(bits))

    def element(*i: Any) -> Any:
        rest, b = [v for n, v in enumerate(i) if n != bit_axis], i[bit_axis]

        def bit(k: int) -> Any:
            value = data(*rest[:d], rest[d] * width + k, *rest[d + 1 :])
            return (value >> ops.cast(value.dtype, b)) & te.const(1, value.dtype)

        return _word(bit, width, pack_type)

    return te.compute(tuple(shape), element, name, tag="bitpack")


def binarize_pack(data: Tensor, axis: int | None = None, name: str = "PackedInput") -> Any:
    """Whether elements are not negative, 32 in a word along ``axis``, by default the last."""
    d = dimension(-1 if axis is None else axis, data.ndim)
    if integers(data.shape[d])[0] % 32:
        raise LanguageError(f"binarize_pack: {data.shape[d]} elements do not fill words of 32 bits")
    shape = [*data.shape[:d], te.floordiv(data.shape[d], 32), *data.shape[d + 1 :]]

    def element(*i: Any) -> Any:
        def bit(k: int) -> Any:
            return data(*i[:d], i[d] * 32 + k, *i[d + 1 :]) >= te.const(0, data.dtype)

        return _word(bit, 32, "uint32")

    return te.compute(tuple(shape), element, name, tag="binarize_pack")


def binary_dense(data: Tensor, weight: Tensor) -> Any:
    """A product with the transpose of a matrix, of packed rows of -1 and 1, in float32."""
    k = te.reduce_axis((0, data.shape[1]), "k")
    off = te.compute(
        (data.shape[0], weight.shape[0]),
        lambda i, j: te.sum(te.popcount(data(i, k) ^ weight(j, k)).astype("int32"), axis=k),
        "binary_dense_off", tag="binary_dense",
    )  # fmt: skip
    length = data.shape[1] * 32
    return te.compute(
        off.shape, lambda i, j: (length - 2 * off(i, j)).astype("float32"), "binary_dense",
        tag="elemwise",
    )  # fmt: skip


def _products(x: Any, w: Any, x_bit: Any, w_bit: Any, out: str, unipolar: bool) -> Any:
    """What two words of bits add to a sum: weights are -1 and 1 where ``unipolar``."""
    count = te.popcount(w & x).astype(out)
    if unipolar:
        count = count - te.popcount(~w & x).astype(out)
    return count << (x_bit + w_bit).astype(out)


def bitserial_dense(
    data: Tensor, weight: Tensor, data_bits: int, weight_bits: int, pack_dtype: str = "uint32",
    out_dtype: str = "int16", unipolar: bool = True,
) -> Any:  # fmt: skip
    x = bitpack(data, data_bits, 1, 1, pack_dtype)
    w = bitpack(weight, weight_bits, 1, 1, pack_dtype) if weight.ndim == 2 else weight
    k, db, wb = (
        te.reduce_axis((0, e), n)
        for e, n in ((x.shape[2], "k"), (x.shape[1], "db"), (w.shape[1], "wb"))
    )
    return te.compute(
        (x.shape[0], w.shape[0]),
        lambda i, j: te.sum(
            _products(x(i, db, k), w(j, wb, k), db.var, wb.var, out_dtype, unipolar),
            axis=[wb, db, k],
        ),
        "bitserial_dense", tag="bitserial_dense",
    )  # fmt: skip


def _bitserial_conv2d(layout: str, kernel_layout: str) -> Callable[..., Any]:
    """A convolution of small integers; the channels of kernels may be packed already, with bits
    along the last dimension but one of "HWIO" and the third of "OIHW"."""
    channel, kernel_channel = layout.index("C"), kernel_layout.index("I")
    spatial = [layout.index(c) for c in "HW"]

    def function(
        data: Tensor, kernel: Tensor, stride: Any, padding: Any, activation_bits: int,
        weight_bits: int, pack_dtype: str = "uint32", out_dtype: str = "int16",
        unipolar: bool = True,
    ) -> Any:  # fmt: skip
        if kernel.ndim != 4:
            raise LanguageError("bitserial_conv2d: give the kernel itself, not packed words")
        x = bitpack(data, activation_bits, channel, 4, pack_dtype)
        w = bitpack(kernel, weight_bits, kernel_channel, 4, pack_dtype)
        size = dict(zip(kernel_layout, w.shape, strict=False))
        steps = numbers(stride, 2, "stride")
        low, high = [0] * 5, [0] * 5
        for d, b, a in zip(spatial, *padding_of(padding, [size["H"], size["W"]]), strict=True):
            low[d], high[d] = b, a
        x = pad(x, low, high, 0, "pad_temp")
        extent = dict(zip(layout, x.shape, strict=False))
        shape = {"N": extent["N"], "C": size["O"]} | {
            c: te.floordiv(extent[c] - size[c], s) + 1 for c, s in zip("HW", steps, strict=True)
        }
        taps = {c: te.reduce_axis((0, size[c]), f"r{c.lower()}") for c in "IHW"}
        ab, wb = te.reduce_axis((0, activation_bits), "ab"), te.reduce_axis((0, weight_bits), "wb")

        def element(*i: Any) -> Any:
            at = dict(zip(layout, i, strict=True))
            place = {c: at[c] * s + taps[c] for c, s in zip("HW", steps, strict=True)}
            place |= {"N": at["N"], "C": taps["I"]}
            tap = {**taps, "O": at["C"]}
            left = x(*(place[c] for c in layout), ab)
            right = w(*(tap[c] for c in kernel_layout), wb)
            value = _products(left, right, ab.var, wb.var, out_dtype, unipolar)
            return te.sum(value, axis=[*taps.values(), ab, wb])

        name = f"bitserial_conv2d_{layout.lower()}"
        return te.compute(tuple(shape[c] for c in layout), element, name, tag=name)

    return function


NAMES: dict[str, Callable[..., Any]] = {
    **{f.__name__: f for f in (binarize_pack, binary_dense, bitpack, bitserial_dense)},
    "bitserial_conv2d_nchw": _bitserial_conv2d("NCHW", "OIHW"),
    "bitserial_conv2d_nhwc": _bitserial_conv2d("NHWC", "HWIO"),
}
