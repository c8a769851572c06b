"""What a sketch makes a machine do, in closed form: from matrices and a tiling, before anything is
scheduled."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import Any, Protocol

from tilewright.schedule.matmul import Matmul
from tilewright.te import Tensor
from tilewright.topi.nn.padding import static
from tilewright.topi.problem import Problem


@dataclass(frozen=True)
class Counts:
    """Of all blocks of a GPU, or tasks of a CPU, what fills tiles up included.

    Attributes
    ----------
    blocks, threads : how many there are, and threads of each; a task of a CPU has one.
    multiplies : products that are computed.
    copied : elements that are copied to where blocks keep their tiles.
    stored : elements that are stored in global memory, of what is stored on the way, too.
    """

    blocks: int
    threads: int
    multiplies: int
    copied: int
    stored: int


class ProductTile(Protocol):
    """A tile of a product of matrices."""

    @property
    def whole(self) -> tuple[int, int, int]: ...

    @property
    def implicit(self) -> int: ...


def of_products(m: Matmul, tile: ProductTile, threads: int, chunks: int = 1) -> Counts:
    """Of blocks that compute a tile each, step by step, or one of several ``chunks`` of its sums;
    ``m`` are the matrices before they are filled up."""
    rows, columns, step = tile.whole
    count = static(m.product.shape[2], "columns")
    high = rows if m.groups == 1 else min(rows, m.height)
    down, across, deep = -(-m.height // high), -(-count // columns), -(-m.depth // step) * step
    tiles = m.groups * down * across
    results = m.groups * m.height * count
    im2col = 0 if tile.implicit else m.groups * deep * across * columns
    parts = tiles * rows * columns * chunks if chunks > 1 else 0
    return Counts(
        tiles * chunks, threads, tiles * rows * columns * deep, tiles * deep * (rows + columns),
        results + im2col + parts,
    )  # fmt: skip


def of_loops(shape: tuple[int, ...], tile: tuple[int, int], threads: int, depth: int) -> Counts:
    """Of threads that compute tiles of ``tile`` results of ``shape``, each from ``depth`` products,
    ``threads`` in a block."""
    *outer, last = shape or (1,)
    rows, columns = tile
    above = outer.pop() if outer else 1
    tiles = math.prod(outer) * -(-above // rows) * -(-last // columns)
    blocks = -(-tiles // threads)
    return Counts(blocks, threads, tiles * rows * columns * depth, 0, math.prod(shape))


@functools.lru_cache(512)
def declared(p: Problem, form: str = "") -> Any:
    """A problem's declaration, or one of that form, to count by."""
    return p.declare_as(form) if form else p.declare()


def image_extents(d: Any) -> list[int]:
    """Those of a result that is images, in the order of memory; one row where there are none, and
    planes of one as images."""
    found, first = [int(e) for e in d.output.shape], 1 if d.channels_last else 2
    if d.rank == 1:
        found.insert(first, 1)
    if d.rank == 3:
        found[0] *= found.pop(first)
    return found


def elements(x: Tensor) -> int:
    """Of a tensor."""
    return math.prod(static(e, "a tensor") for e in x.shape)
