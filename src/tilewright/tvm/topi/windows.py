"""What the windows of convolutions and pools have in common: padding, and dilation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tilewright import te
from tilewright.ir import ops
from tilewright.ir.errors import LanguageError
from tilewright.te import Tensor
from tilewright.tvm.topi.transform import integers

SPATIAL = "DHW"


def check_layout(
    layout: Any, data: Tensor, image: str, rest: str = "NC", free: bool = False
) -> None:
    """Raises :class:`LanguageError` where a layout has other dimensions than ``data``, or than an
    ``image``, "HW", and the ``rest``, of which with ``free`` some may be missing, and others in
    parts, "NCHW4c"."""
    letters = [c for c in layout if not c.isdigit()] if isinstance(layout, str) else []
    others = {c for c in letters if not (free and c.islower())}
    found = {*image} <= others <= {*image, *rest} if free else others == {*image, *rest}
    if found and len(letters) != data.ndim:
        what = "a filter" if rest == "OI" else "data"
        raise LanguageError(
            f"{what} in the layout {layout} has as many dimensions as letters, "
            f"{data} has {data.ndim}"
        )
    if not found:
        raise LanguageError(
            f"no layout {layout!r} of {data}: name its dimensions in order by the letters "
            f"{rest + image}, as {rest + image!r}"
        )


def numbers(value: Any, rank: int, what: str) -> list[int]:
    found = integers(value)
    found = found * rank if len(found) == 1 else found
    if len(found) != rank:
        raise LanguageError(f"{what} is of {len(found)} numbers, of {rank} dimensions")
    return found


def padding_of(
    padding: Any, window: Sequence[Any], strides: Any = None
) -> tuple[list[Any], list[Any]]:
    """What is added before and behind each dimension: of "SAME" and "VALID", one number, one a
    dimension, or all before and then all behind."""
    rank = len(window)
    if padding == "VALID":
        return [0] * rank, [0] * rank
    if padding == "SAME":
        whole = [w - 1 for w in window]
        return [w // 2 if isinstance(w, int) else te.floordiv(w, 2) for w in whole], [
            w - w // 2 if isinstance(w, int) else w - te.floordiv(w, 2) for w in whole
        ]
    found = integers(padding)
    if len(found) in (1, rank):
        found = numbers(found, rank, "padding")
        return found, found
    if len(found) != 2 * rank:
        raise LanguageError(f"padding is 1, {rank} or {2 * rank} numbers, got {padding!r}")
    return found[:rank], found[rank:]


def get_pad_tuple_generic(padding: Any, kernel: Any) -> Any:
    """Before each dimension and behind it, of a window of ``kernel``."""
    before, behind = padding_of(padding, integers(kernel))
    return (*before, *behind)


def pad(
    data: Tensor, pad_before: Any, pad_after: Any = None, pad_value: Any = 0.0,
    name: str = "PadInput", attrs: Any = None,
) -> Any:  # fmt: skip
    before, after = list(pad_before), list(pad_after or pad_before)
    shape = [ops.add(ops.add(e, b), a) for e, b, a in zip(data.shape, before, after, strict=True)]
    value = ops.cast(data.dtype, ops.as_expr(pad_value))

    def element(*i: Any) -> Any:
        inside, at = [], []
        for v, e, b, a in zip(i, data.shape, before, after, strict=True):
            start = not (isinstance(b, int) and b == 0)
            inside += [v >= b] if start else []
            inside += [v < e + b] if start or not (isinstance(a, int) and a == 0) else []
            at.append(v - b if start else v)
        return te.if_then_else(te.all(*inside), data(*at), value) if inside else data(*at)

    return te.compute(tuple(shape), element, name, tag="injective,pad", attrs=attrs)


def mirror_pad(
    data: Tensor, pad_before: Any, pad_after: Any = None, mode: str = "SYMMETRIC",
    name: str = "MirrorPadInput",
) -> Any:  # fmt: skip
    before, after = list(pad_before), list(pad_after or pad_before)
    edge = 1 if mode == "SYMMETRIC" else 0
    shape = [e + b + a for e, b, a in zip(data.shape, before, after, strict=True)]

    def element(*i: Any) -> Any:
        at = []
        for v, e, b in zip(i, data.shape, before, strict=True):
            place = v - b
            front = te.Select(place < 0, -place - edge, place)
            at.append(te.Select(place >= e, 2 * e - 2 + edge - place, front))
        return data(*at)

    return te.compute(tuple(shape), element, name, tag="injective,pad")


def dilate(
    data: Tensor, strides: Any, dilation_value: Any = 0.0, name: str = "DilatedInput"
) -> Any:
    steps = integers(strides)
    shape = [ops.add(ops.mul(ops.sub(e, 1), s), 1) for e, s in zip(data.shape, steps, strict=True)]

    def element(*i: Any) -> Any:
        there = [te.floormod(v, s).equal(0) for v, s in zip(i, steps, strict=True) if s != 1]
        at = [te.floordiv(v, s) for v, s in zip(i, steps, strict=True)]
        value = ops.cast(data.dtype, ops.as_expr(dilation_value))
        return te.if_then_else(te.all(*there), data(*at), value) if there else data(*at)

    return te.compute(tuple(shape), element, name, tag="injective,dilate")


def padded(data: Tensor, layout: str, before: Sequence[Any], behind: Sequence[Any]) -> Any:
    spatial = [d for d, c in enumerate(layout) if c in SPATIAL]
    if not any(not (isinstance(p, int) and p == 0) for p in (*before, *behind)):
        return data
    low, high = [0] * len(layout), [0] * len(layout)
    for d, b, a in zip(spatial, before, behind, strict=True):
        low[d], high[d] = b, a
    return pad(data, low, high, 0.0, "pad_temp")


NAMES: dict[str, Callable[..., Any]] = {
    **{f.__name__: f for f in (dilate, get_pad_tuple_generic, mirror_pad, pad)},
    "get_pad_tuple": get_pad_tuple_generic,
    "get_pad_tuple1d": get_pad_tuple_generic,
    "get_pad_tuple3d": get_pad_tuple_generic,
}
