"""What schedules of results ask of a tile whose groups of threads share a box."""

from __future__ import annotations

from typing import Protocol


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
