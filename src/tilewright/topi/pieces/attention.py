"""Attention as its schedules take it: filled up to whole tiles of what multiplies it.

How far depends on the tile; ``pad_to`` could say it of a declaration without one, were it not of
stages that others read filled up.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tilewright.topi.nn.attention import AttentionDeclaration, Fill, declare_attention
from tilewright.topi.pieces.group_rows import GROUP_ROWS, ROW
from tilewright.topi.pieces.warp_rows import ROWS

#: Keys of a step of whose mask registers hold two copies.
_FEW = 96


@dataclass(frozen=True)
class AttentionTile:
    """Scores are summed in tiles of ``rows`` by ``vectors`` vectors of ``lanes`` keys, results in
    tiles of ``rows`` by ``across`` vectors of ``lanes`` elements of a value; scores of ``block``
    rows are made at a time. Rows of a head are ``parts`` tasks."""

    rows: int = 6
    vectors: int = 4
    across: int = 4
    lanes: int = 16
    block: int = 12
    parts: int = 1


def declare_vectors(p: Any, tile: AttentionTile, batch: Any = None) -> AttentionDeclaration:
    """The program of a problem, with scores of whole vectors of keys, and sums of whole vectors of
    a value's elements."""
    return declare_attention(p, fill=Fill(keys=tile.lanes, width=tile.lanes))


@dataclass(frozen=True)
class AttentionMmaTile:
    """A block has ``warps`` warps, of ``rows`` times 16 rows each. It takes ``step`` keys at a
    time, which are copied ``stages - 1`` steps ahead; 0 are all at once."""

    warps: int = 4
    step: int = 0
    stages: int = 2
    rows: int = 1


def declare_mma(p: Any, tile: AttentionMmaTile, batch: Any = None) -> AttentionDeclaration:
    """The program of a problem, filled up to whole instructions and steps."""
    keys = tile.step or ROWS
    fill = Fill(ROWS * tile.rows * tile.warps, keys, ROWS, ROWS, keys)
    return declare_attention(p, rounded=True, fill=fill, together=bool(tile.step))


def reads_mask_ahead(p: Any) -> bool:
    """Whether a mask is of numbers of all rows and keys: of bytes each takes a register."""
    return bool(p.mask) and not p.mask_dtype and p.mask[-2:] == (p.rows, p.keys)


@dataclass(frozen=True)
class AttentionGroupTile:
    """A block has ``groups`` warpgroups, of 64 rows each. It takes ``step`` keys at a time, which
    are copied ``stages - 1`` steps ahead."""

    groups: int = 2
    step: int = 128
    stages: int = 2

    @property
    def masks(self) -> int:
        """Copies of a step of a mask in registers, which have room for two of few keys."""
        return 2 if self.step <= _FEW else 1


def declare_wgmma(p: Any, tile: AttentionGroupTile, batch: Any = None) -> AttentionDeclaration:
    """The program of a problem, filled up to whole instructions and steps."""
    fill = Fill(GROUP_ROWS * tile.groups, tile.step, ROW, ROW, tile.step)
    return declare_attention(p, rounded=True, fill=fill, together=True)
