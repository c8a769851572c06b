"""Batches of images, channels last, cut into tiles that are numbered in one row."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tilewright import te
from tilewright.te import Tensor


@dataclass(frozen=True)
class ImageTiles:
    """How batches are cut.

    Parameters
    ----------
    count : tiles; those behind the last image are zero.
    grid : tiles down and across an image.
    images : images of a tile, one behind the other.
    channels : of tiles; those that an image does not have are zero.
    """

    count: Any
    grid: tuple[int, int]
    images: int
    channels: int

    def of(
        self,
        image: Tensor,
        size: tuple[int, int],
        apart: tuple[int, int],
        before: tuple[int, int],
        name: str,
    ) -> Tensor:
        """(tile, image, row, column, channel) of ``image``, in NHWC: ``size`` rows and columns a
        tile, the first of which is ``before`` the image's, ``apart`` from one to the next, with
        zeros where there is no image."""
        (down, across), (batch, height, width, own) = self.grid, image.shape
        zero = te.const(0, image.dtype)

        def element(tile: Any, i: Any, row: Any, column: Any, c: Any) -> Any:
            n = tile // (down * across) * self.images + i
            h = tile // across % down * apart[0] + row - before[0]
            w = tile % across * apart[1] + column - before[1]
            inside = te.all(n < batch, h >= 0, h < height, w >= 0, w < width, c < own)
            return te.if_then_else(inside, image[n, h, w, c], zero)

        made: Tensor = te.compute(
            (self.count, self.images, *size, self.channels), element, name=name,
            varargs_names=["tile", "i", "row", "column", "c"],
        )  # fmt: skip
        return made
