"""What a problem's parameters may be written as: numbers, pairs, names of paddings, shapes."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

from tilewright.ir.errors import ProblemError

#: Names of paddings, in capitals.
PADDINGS = ("VALID", "SAME", "SAME_UPPER", "SAME_LOWER", "CAUSAL")


def one_of(what: str, given: Any, known: tuple[str, ...]) -> None:
    """Raises :class:`ProblemError` where ``given`` is not among ``known``."""
    if given not in known:
        raise ProblemError(f"unknown {what} {given!r}: use {', '.join(known)}")


def whole(name: str, given: Any, least: int = 1) -> int:
    """An integer; raises :class:`ProblemError` for anything else, and for a smaller one."""
    try:
        found = operator.index(given)
    except TypeError:
        raise ProblemError(f"{name} is an integer, got {given!r}") from None
    if found < least:
        raise ProblemError(f"{name} is at least {least}, got {found}")
    return found


def sequence(given: Any) -> tuple[Any, ...]:
    """A tuple or a list as it is, anything else as the only element."""
    return tuple(given) if isinstance(given, (tuple, list)) else (given,)


def each(name: str, given: Any, rank: int, least: int = 1) -> tuple[int, ...]:
    """A number for each dimension of an image, of an integer or as many: (vertical, horizontal) in
    two. With ``rank`` 1 the vertical one may be left out, and is ``least``."""
    found, count = sequence(given), max(rank, 2)
    if len(found) == 1:
        found = (least, *found) if rank == 1 else found * count
    if len(found) != count:
        many = "a pair" if count == 2 else str(count)
        raise ProblemError(f"{name} is an integer or {many} of them, got {given!r}")
    return tuple(whole(name, x, least) for x in found)


def padding(given: Any, rank: int) -> tuple[int, ...]:
    """(top, left, bottom, right) of an integer, (vertical, horizontal) or all four; with ``rank``
    1 of an integer or (left, right); with 3 (front, top, left, back, bottom, right) of an integer,
    three or six."""
    found, count = sequence(given), max(rank, 2)
    if len(found) == 1:
        found = (0, found[0], 0, found[0]) if rank == 1 else found * (2 * count)
    elif len(found) == count:
        found = (0, found[0], 0, found[1]) if rank == 1 else found * 2
    if len(found) != 2 * count:
        sides = (
            "a pair, (top, left, bottom, right)"
            if count == 2
            else "three, (front, top, left, back, bottom, right)"
        )
        raise ProblemError(
            f"padding is an integer, {sides} or SAME, VALID or CAUSAL, got {given!r}"
        )
    return tuple(whole("padding", p, 0) for p in found)


def named_padding(
    name: str,
    image: Sequence[int],
    kernel: Sequence[int],
    stride: Sequence[int],
    dilation: Sequence[int],
) -> tuple[int, ...]:
    """(top, left, bottom, right) for a name, of as many dimensions as there are.

    "VALID": none. "SAME": so much that the output has ``ceil(image / stride)`` rows, the larger
    half behind, as in TensorFlow, PyTorch and ONNX's SAME_UPPER; "SAME_LOWER": the larger half
    before. "CAUSAL": all of it before, so that no output sees what comes after it.
    """
    kind = name.upper()
    one_of("padding", kind, PADDINGS)
    before, after = [], []
    for extent, taps, s, d in zip(image, kernel, stride, dilation, strict=True):
        window = (taps - 1) * d + 1
        total = {"VALID": 0, "CAUSAL": window - 1}.get(
            kind, max((-(-extent // s) - 1) * s + window - extent, 0)
        )
        first = {"CAUSAL": total, "SAME_LOWER": (total + 1) // 2}.get(kind, total // 2)
        before.append(first)
        after.append(total - first)
    return (*before, *after)


def shape(what: str, given: str | Sequence[int]) -> list[int]:
    """The extents of "64x384x32x32", or of a sequence."""
    parts = given.replace("×", "x").split("x") if isinstance(given, str) else list(given)
    try:
        return [int(p) for p in parts]
    except ValueError:
        raise ProblemError(
            f"the shape of the {what} is written like 64x384x32x32, got {given!r}"
        ) from None
