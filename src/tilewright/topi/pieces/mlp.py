"""Tiles of two products, and what they are declared for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tilewright.topi.nn.mlp import MlpDeclaration, MlpFill, declare_mlp
from tilewright.topi.pieces.group_rows import GROUP_ROWS, ROW


@dataclass(frozen=True)
class MlpTile:
    """A block has ``groups`` warpgroups, of 64 rows each. It takes ``step`` hidden elements at a
    time, whose weights are copied ``stages - 1`` steps ahead."""

    groups: int = 2
    step: int = 64
    stages: int = 2


def declare_groups(p: Any, tile: MlpTile, batch: Any = None) -> MlpDeclaration:
    """The program of a problem, filled up to whole instructions and steps."""
    return declare_mlp(p, MlpFill(GROUP_ROWS * tile.groups, ROW, tile.step, ROW))
