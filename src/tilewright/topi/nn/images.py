"""Images in a layout: indices by meaning, whatever their order in memory; padded images."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from tilewright import te
from tilewright.te import Tensor


class Images:
    """How batches of images of a layout such as "NHWC" are indexed.

    >>> Images("NHWC").order("n", "c", ["h", "w"])
    ('n', 'h', 'w', 'c')
    >>> Images("NCW").meaning((0, 1, 2))
    (0, 1, [2])

    In layouts such as "NCHW4" channels lie in blocks of that size, each innermost.

    >>> Images("NCHW4").order("n", 6, ["h", "w"]), Images("NCHW4").shape("n", 8, ["h", "w"])
    (('n', 1, 'h', 'w', 2), ('n', 2, 'h', 'w', 4))
    """

    def __init__(self, layout: str) -> None:
        self.layout = layout
        self.last = layout.endswith("C")  # whether channels lie next to one another
        letters = layout.rstrip("0123456789")
        self.block = int(layout[len(letters) :] or 0)
        self.rank = len(letters) - 2
        self.names = "dhw"[3 - self.rank :]

    def order(self, n: Any, c: Any, space: Sequence[Any]) -> tuple[Any, ...]:
        """An index in the order of memory."""
        if self.block:
            return (n, c // self.block, *space, c % self.block)
        return (n, *space, c) if self.last else (n, c, *space)

    def shape(self, n: Any, c: Any, space: Sequence[Any]) -> tuple[Any, ...]:
        """A shape in the order of memory."""
        return (n, c // self.block, *space, self.block) if self.block else self.order(n, c, space)

    def meaning(self, index: Sequence[Any]) -> tuple[Any, Any, list[Any]]:
        """(n, c, space) of an index in the order of memory."""
        if self.block:
            return index[0], index[1] * self.block + index[-1], list(index[2:-1])
        if self.last:
            return index[0], index[-1], list(index[1:-1])
        return index[0], index[1], list(index[2:])

    def extents(self, shape: Sequence[Any]) -> tuple[Any, Any, list[Any]]:
        """(n, c, space) of a shape in the order of memory."""
        if self.block:
            return shape[0], shape[1] * self.block, list(shape[2:-1])
        return self.meaning(shape)

    def compute(
        self,
        n: Any,
        c: Any,
        space: Sequence[Any],
        element: Callable[[Any, Any, list[Any]], Any],
        name: str,
        tag: str = "",
    ) -> Tensor:
        """Images of ``channels`` channels and that size; ``element`` is given ``(n, c, space)``."""
        names = (
            list(self.names) if len(space) == self.rank else [f"i{k}" for k in range(len(space))]
        )
        made: Tensor = te.compute(
            self.shape(n, c, space),
            lambda *index: element(*self.meaning(index)),
            name=name,
            tag=tag,
            varargs_names=("n", "c", *names, "k") if self.block else self.order("n", "c", names),
        )
        return made


def within(at: Iterable[Any], extents: Iterable[Any]) -> list[Any]:
    """That each index is one of as many elements."""
    return [c for i, e in zip(at, extents, strict=True) for c in (i >= 0, i < e)]


def or_zero(where: Sequence[Any], read: Any) -> Any:
    """What is read where all of some conditions hold, elsewhere zero; itself without any."""
    return te.if_then_else(te.all(*where), read, te.const(0, read.dtype)) if where else read


def padded(
    images: Images, x: Tensor, before: Sequence[int], extents: Sequence[int], name: str
) -> Tensor:
    """``x`` from ``-before`` on, ``extents`` large, with zeros where it is not.

    A negative ``before`` cuts. Where nothing changes, or only the end is cut, it is ``x`` itself.
    """
    n, c, space = images.extents(x.shape)
    own = [int(e) for e in space]
    if all(b == 0 and extent <= e for b, extent, e in zip(before, extents, own, strict=True)):
        return x

    def element(image: Any, channel: Any, at: list[Any]) -> Any:
        inside = []
        for i, b, extent, e in zip(at, before, extents, own, strict=True):
            inside += [i >= b] if b > 0 else []
            inside += [i < e + b] if extent > e + b else []
        read = x[images.order(image, channel, [i - b for i, b in zip(at, before, strict=True)])]
        return or_zero(inside, read)

    return images.compute(n, c, extents, element, name, tag="pad")
