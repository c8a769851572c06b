"""Tiles of two products, what they are declared for, and how their rows are normalised in shared
memory before warpgroups multiply them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tilewright.ir.itervar import IterVar
from tilewright.schedule import Schedule, Stage
from tilewright.te import Tensor
from tilewright.topi.nn.mlp import MlpDeclaration, MlpFill, Normalization, declare_mlp
from tilewright.topi.pieces.group_rows import GROUP_ROWS, ROW, hold_rows
from tilewright.topi.pieces.tiling import extent_of


@dataclass(frozen=True)
class MlpTile:
    """A block has ``groups`` warpgroups, of 64 rows each. It takes ``step`` hidden elements at a
    time, whose weights are copied ``stages - 1`` steps ahead. Of a cluster, each of ``splits``
    blocks has some of the hidden elements."""

    groups: int = 2
    step: int = 64
    stages: int = 2
    splits: int = 1


def declare_groups(p: Any, tile: MlpTile, batch: Any = None) -> MlpDeclaration:
    """The program of a problem, filled up to whole instructions and steps."""
    return declare_mlp(p, MlpFill(GROUP_ROWS * tile.groups, ROW, tile.step, ROW), batch)


#: 16-bit numbers of 16 bytes, and threads of a row, each of which has all of it in registers.
_CHUNK, _SHARING = 8, 2


def normalize_rows(
    s: Schedule, rows: Tensor, n: Normalization, out: Stage, block: IterVar, threads: list[IterVar]
) -> None:
    """Rows come by TMA, and are written beside as they are normalised, each by two threads."""
    groups = extent_of(threads[0])
    kept = s.cache_read(n.given, "local", [n.total, n.squares])
    hold_rows(s[n.given], out, block, GROUP_ROWS * groups)
    made = s[rows]
    made.set_scope("shared")
    made.transform_layout(lambda j, e: (e // ROW, j, e % ROW))
    made.compute_at(out, block)
    made.swizzle(2 * ROW)
    part, row, e = made.op.axis
    e, lane = made.split(e, factor=_CHUNK)
    half, e = made.split(e, nparts=_SHARING)
    group, row = made.split(row, factor=GROUP_ROWS)
    made.reorder(group, row, half, part, e, lane)
    thread = made.fuse(row, half)
    made.bind(group, threads[0])
    made.bind(thread, threads[1])
    made.unroll(part, e)
    made.vectorize(lane)
    for tensor in (n.total, n.squares):
        _, lane = s[tensor].split(s[tensor].op.reduce_axis[0], factor=_CHUNK)
        chains = s[s.rfactor(tensor, lane, tensor.ndim)]
        s[tensor].unroll(*s[tensor].op.reduce_axis)
        chains.reorder(chains.op.axis[0], *chains.op.reduce_axis, chains.op.axis[1])
        chains.unroll(*chains.op.reduce_axis, chains.op.axis[1])
        for stage in (chains, s[tensor]):
            stage.set_scope("local")
            stage.compute_at(made, thread)
    s[n.share].set_scope("local")
    s[n.share].compute_at(made, thread)
    copy = s[kept]
    copy.compute_at(made, thread)
    *_, e = copy.op.axis
    e, lane = copy.split(e, factor=_CHUNK)
    copy.unroll(e)
    copy.vectorize(lane)
