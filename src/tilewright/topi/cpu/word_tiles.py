"""Which depthwise convolutions of bytes are dot products of words, and the tiles worth trying."""

from __future__ import annotations

from tilewright.target.target import Target
from tilewright.topi.cpu.depthwise_words import LANES, WRITTEN_OUT, WordTile
from tilewright.topi.nn.depthwise_byte_dots import phases, suits_dots, words
from tilewright.topi.operators.conv import Conv

#: Rows and columns of a tile: its sums leave registers for words and the filter.
_SHAPES = ((6, 4), (4, 4), (8, 2), (2, 8), (7, 2), (3, 4), (4, 2), (2, 4), (1, 8), (2, 2), (1, 2))
#: Vectors of channels of a task, at most: where words are made for each tile, and once for all.
_VECTORS = (9, 4)
#: The least number of tasks of a thread, where there are several.
_TASKS = 4
#: Instructions that make a word, and that send a vector of sums through an epilogue; what a tile
#: takes beside.
_WORD, _RESULT, _TILE = 6.0, 9.0, 40.0
#: Rows of results of a task, about: words of all of them, or a copy of what they see, are in a
#: cache.
_BAND = 16


def suits(p: Conv) -> bool:
    """Whether windows begin at words, and each channel has one filter."""
    return p.rank == 2 and p.multiplier == 1 and suits_dots(p)


def word_tiles(p: Conv, target: Target) -> list[WordTile]:
    """For :func:`~tilewright.topi.cpu.depthwise_words.schedule_words`, the best guess first."""
    from tilewright.runtime.llvm_host import thread_count

    threads = thread_count(target)
    least = 1 if threads == 1 else _TASKS * threads
    height, width = p.out_image
    blocks, kept = -(-p.channels // LANES), int(p.kernel_h * p.kernel_w > WRITTEN_OUT)
    even = -(-width // phases(p)) * phases(p)
    fit = [t for t in _SHAPES if t[0] <= height and t[1] <= even] or [(1, 1)]
    vectors = [v for v in range(_VECTORS[kept], 0, -1) if blocks % v == 0]
    found = []
    for rows, columns in sorted(fit, key=lambda t: _cost(p, t[0], t[1], kept))[:4]:
        for each in vectors[:2]:
            tasks, tiles = p.batch * -(-blocks // each), -(-height // rows)
            bands = max(-(-least // tasks), round(height / _BAND), 1)
            band = 0 if bands == 1 else -(-tiles // bands)
            found.append(WordTile(rows, columns, band, each, kept))
    return found


def _cost(p: Conv, rows: int, columns: int, kept: int) -> float:
    """Instructions that all tiles of this size take, of a vector of channels."""
    height, width = p.out_image
    dots = rows * columns * p.kernel_h * words(p)
    seen = -(-columns // phases(p)) * words(p)
    made = ((rows - 1) * p.stride[0] + p.kernel_h) * seen * _WORD
    read = rows * seen * p.kernel_h
    step = dots + (read if kept else made) + _RESULT * rows * columns + _TILE
    return -(-height // rows) * -(-width // columns) * step
