"""What kernels with banded matrices do, in closed form."""

from __future__ import annotations

from math import prod
from typing import Any

from tilewright.topi.pieces.band_blocks import ADDERS
from tilewright.topi.pieces.band_cuts import Bands
from tilewright.topi.pieces.band_tiles import LANES, GradientTile, ImageTile
from tilewright.topi.pieces.counts import Counts


def banded_counts(p: Any, tile: ImageTile) -> Counts:
    """Of results that are images."""
    cut = Bands(p, *tile.product)
    (down, across), (images, rows, columns) = cut.tiles, tile.product
    batch, channels = p.result.shape[:2]
    blocks = -(-batch // (images * tile.teams)) * channels * across
    blocks *= -(-down // (tile.groups * tile.turns))
    warps = -(-batch // images) * channels * across
    met = sum(cut.met(k) for k in range(down))
    copied = cut.kernel[0] * cut.taps if images == 1 else cut.matrix_bytes // 2
    return Counts(
        blocks, tile.lanes * tile.groups * tile.teams,
        warps * met * images * rows * columns * cut.depth, blocks * copied, prod(p.result.shape),
    )  # fmt: skip


def banded_gradient_counts(p: Any, tile: GradientTile) -> Counts:
    """Of a gradient by the filter, of both kernels."""
    cut, teams = Bands(p, *tile.product), min(tile.teams, tile.chunks)
    (down, across), (_, rows, columns), results = cut.tiles, tile.product, prod(p.result.shape)
    tiles, chunks = p.out_channels * down * across, tile.chunks
    met = sum(cut.met(k) for k in range(down))
    kept = chunks * tiles * rows * columns if chunks > 1 else 0
    return Counts(
        -(-chunks // teams) * tiles + (-(-results // ADDERS) if chunks > 1 else 0), LANES * teams,
        p.batch * p.out_channels * across * met * rows * columns * cut.depth,
        -(-p.batch // chunks) * chunks * tiles * cut.kernel[0] * cut.taps,
        results + kept,
    )  # fmt: skip
