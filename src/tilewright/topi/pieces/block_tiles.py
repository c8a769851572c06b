"""What schedules of results ask of a tile whose groups of threads share a box, and what tiles of
warps answer."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import ClassVar, Protocol

from tilewright.target.devices import WARP


class ThreadTile(Protocol):
    """The threads of a block: those of a group, and how many groups there are."""

    @property
    def lanes(self) -> int: ...

    @property
    def groups(self) -> int: ...


class BlockTile(ThreadTile, Protocol):
    """What a block computes, by groups of threads: a box of images, rows and columns of results,
    by channels."""

    @property
    def images(self) -> int: ...

    @property
    def columns(self) -> int: ...

    @property
    def channels(self) -> int: ...

    @property
    def boxes(self) -> int: ...

    @property
    def turned(self) -> int: ...

    @property
    def box(self) -> tuple[int, ...]: ...

    @property
    def of_groups(self) -> tuple[int, ...]: ...

    @property
    def own_channels(self) -> int: ...

    @property
    def boxes_to(self) -> int: ...

    @property
    def filters_to(self) -> int: ...

    @property
    def staged(self) -> int: ...

    @property
    def stores(self) -> int: ...


class OwnWarps:
    """A tile whose groups are warps: each has ``own`` of the ``channels`` of one of ``parts`` of a
    box. None shares what it reads with another block, and channels are never rows of instructions,
    nor does TMA store results."""

    channels: int
    own: int
    parts: int

    lanes: ClassVar[int] = WARP
    turned: ClassVar[int] = 0
    boxes_to: ClassVar[int] = 1
    filters_to: ClassVar[int] = 1
    stores: ClassVar[int] = 0

    @property
    @abstractmethod
    def box(self) -> tuple[int, ...]:
        """Images, rows and columns of results of a block."""

    @property
    def groups(self) -> int:
        """Warps."""
        return self.channels // self.own * self.parts

    @property
    def of_groups(self) -> tuple[int, ...]:
        """The part of a box that is a warp's."""
        return shared_out(self.box, self.parts)

    @property
    def own_channels(self) -> int:
        return self.own


def shared_out(box: Sequence[int], parts: int) -> tuple[int, ...]:
    """One of ``parts`` of a box, of which the outermost dimensions are shared out.

    >>> shared_out((2, 8, 8), 4)
    (1, 4, 8)
    """
    found = list[int]()
    for extent in box:
        own = min(parts, extent)
        parts //= own
        found.append(extent // own)
    return tuple(found)
