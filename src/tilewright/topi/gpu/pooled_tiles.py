"""The tiles worth trying for convolutions whose results are pooled, on Hopper, best guess first: of
those of the convolution the ones that have whole windows."""

from __future__ import annotations

from tilewright.ir.dtype import dtype
from tilewright.topi.gpu.box_products import product_times
from tilewright.topi.gpu.box_sizes import suited
from tilewright.topi.gpu.whole_boxes import whole_times
from tilewright.topi.nn.box_problems import as_brought, by_pixels
from tilewright.topi.operators.conv_program import ConvProgram, pooled_window
from tilewright.topi.pieces.box_stores import windows_each
from tilewright.topi.pieces.box_tiles import WARP_ROWS, BoxProductTile
from tilewright.topi.problem import Problem

#: What it is for.
OPERATORS = ConvProgram.NAMES
#: Results that a thread stores at once, at least.
_LEAST = 2


def pooled_times(
    p: Problem, /, *, whole: bool = False, split: bool = False, windows: bool = False
) -> dict[BoxProductTile, float]:
    """Tiles of one of the schedules of products of boxes, whose results are pooled: of ``whole``
    boxes, or of taps one by one, or of parts of the sums (``split``), which of ``windows`` have
    results that follow one another. They are predicted to take as long as where results are
    stored, in microseconds."""
    if not isinstance(p, ConvProgram) or dtype(p.result_dtype).bits != 16:
        return {}
    conv, window = p.inner, pooled_window(p)
    if conv.is_depthwise or "output" in p.epilogue_shapes or window <= 1:
        return {}
    if suited(conv) is None or as_brought(conv) != conv:
        return {}
    if not windows and by_pixels(conv) != conv:
        return {}
    if split:
        return product_times(conv, split=True, windows=windows)
    found = whole_times(conv, pooled=True) if whole else product_times(conv, pooled=True)
    return {t: cost for t, cost in found.items() if has_windows(t, window)}


def has_windows(tile: BoxProductTile, window: int) -> bool:
    """Whether a block has whole windows, and each warp that stores what it has."""
    if tile.rows % window or tile.columns % window or tile.stores:
        return False
    own = not tile.turned and WARP_ROWS % (window * tile.columns) == 0
    each = windows_each(tile, window)
    return (own or not tile.staged) and each > 0 and each % _LEAST == 0
