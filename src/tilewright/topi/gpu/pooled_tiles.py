"""The tiles worth trying for convolutions whose results are pooled, on Hopper, best guess first: of
those of the convolution the ones that have whole windows."""

from __future__ import annotations

from tilewright.ir.dtype import dtype
from tilewright.target.target import Target
from tilewright.topi.gpu.box_products import best_of, product_times
from tilewright.topi.gpu.box_sizes import suited
from tilewright.topi.gpu.whole_boxes import whole_times
from tilewright.topi.nn.box_copies import as_brought, by_pixels
from tilewright.topi.operators.conv_program import ConvProgram, pooled_window
from tilewright.topi.pieces.box_stores import windows_each
from tilewright.topi.pieces.box_tiles import WARP_ROWS, BoxProductTile
from tilewright.topi.problem import Problem

#: What it is for.
OPERATORS = ConvProgram.NAMES
#: Results that a thread stores at once, at least.
_LEAST = 2


class Pooled:
    """Tiles of one of the schedules of products of boxes, whose results are pooled: of ``whole``
    boxes, or of taps one by one, or of parts of the sums, which of ``windows`` have results that
    follow one another."""

    def __init__(self, whole: bool = False, split: bool = False, windows: bool = False) -> None:
        self.whole, self.split, self.windows = whole, split, windows

    def suits(self, p: Problem) -> bool:
        """Whether there is some tile of a problem."""
        if not isinstance(p, ConvProgram) or dtype(p.result_dtype).bits != 16:
            return False
        plain = not p.inner.is_depthwise and "output" not in p.epilogue_shapes
        return plain and pooled_window(p) > 1 and bool(self._of(p))

    def tiles(self, p: ConvProgram, target: Target) -> list[BoxProductTile]:
        """The tiles worth trying."""
        return best_of(self._of(p))

    def price(self, p: ConvProgram, tile: BoxProductTile, target: Target) -> float:
        """What a tile is predicted to take, in microseconds: as where results are stored."""
        return self._of(p)[tile]

    def _of(self, p: ConvProgram) -> dict[BoxProductTile, float]:
        conv = p.inner
        if suited(conv) is None or as_brought(conv) != conv:
            return {}
        if self.split:
            every = product_times(conv, split=True, windows=self.windows)
            return every if self.windows or by_pixels(conv) == conv else {}
        if by_pixels(conv) != conv:
            return {}
        found = whole_times(conv) if self.whole else product_times(conv, split=False)
        return {t: cost for t, cost in found.items() if has_windows(t, pooled_window(p))}


def has_windows(tile: BoxProductTile, window: int) -> bool:
    """Whether a block has whole windows, and each warp that stores what it has."""
    if tile.rows % window or tile.columns % window or tile.stores:
        return False
    own = not tile.turned and WARP_ROWS % (window * tile.columns) == 0
    each = windows_each(tile, window)
    return (own or not tile.staged) and each > 0 and each % _LEAST == 0
