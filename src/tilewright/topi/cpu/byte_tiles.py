"""The tiles worth trying for products of bytes, after the cycles that they are predicted to
take."""

from __future__ import annotations

import math
from itertools import product

from tilewright.target.target import Target
from tilewright.topi.nn.byte_dots import LANES, TOGETHER, Groups, constant, is_flat
from tilewright.topi.operators.convolution import Convolution
from tilewright.topi.operators.gemm import Gemm
from tilewright.topi.problem import Problem
from tilewright.topi.sketches.byte_dots import ByteTile

#: Vectors beside sums: of the filter, and a pixel in all lanes.
_REGISTERS = 32
#: Products in flight before one is done.
_LATENCY = 6
#: Cycles for each turn of the innermost loop, each tile, and each result of a vector.
_TURN, _TILE, _RESULT = 2.0, 30.0, 10.0
#: Cycles for a byte of the image that is stored, of the filter that is packed, and that is read
#: from behind the second-level cache.
_STORED, _PACKED, _FAR = 0.05, 0.08, 0.03
#: Bytes that a task keeps in the second-level cache.
_KEPT = 2**19


def suits(p: Problem) -> bool:
    """Whether it is a forward pass in 8 bits, of one product, or of groups of several channels that
    fill vectors."""
    if not p.is_quantized:
        return False
    if isinstance(p, Gemm):
        return p.batch == 1
    return (
        isinstance(p, Convolution)
        and p.channels_last is not None
        and p.groups < p.channels
        and Groups.of(p).suit
    )


def byte_times(p: Convolution | Gemm, target: Target) -> dict[ByteTile, float]:
    """For :func:`~tilewright.topi.sketches.byte_dots.schedule_bytes`, with what each takes."""
    from tilewright.runtime.llvm_host import thread_count

    work, threads, found = _Work(p), thread_count(target), {}
    for rows, vectors in product(range(1, 29), (1, 2, 3, 4, 6)):
        if rows * vectors + vectors + 1 > _REGISTERS or rows > work.line or work.blocks % vectors:
            continue
        lines = -(-work.line // rows) if work.flat else work.lines
        bands = dict.fromkeys(-(-lines // n) for n in (1, 2, 4, 8, 16, 32) if n <= lines)
        for band, parts in product(bands, (1, 2, 4, 8)):
            if work.blocks // vectors % parts == 0 and (parts == 1 or parts <= 2 * threads):
                tile = ByteTile(rows, vectors, band, parts)
                found[tile] = work.cycles(tile, lines, threads)
    return found


class _Work:
    """What there is to do: ``lines`` of ``line`` results of ``blocks`` vectors of channels, each of
    which ``steps`` dot products are added to."""

    def __init__(self, p: Convolution | Gemm) -> None:
        self.flat, self.halo, self.seen, self.constant = is_flat(p), 0.0, 1, constant(p)
        if isinstance(p, Gemm):
            self.batch, self.lines, self.line, taps = 1, 1, p.m, 1
        else:
            *outer, self.line = p.out_extents
            self.lines = math.prod(outer)
            if self.flat:
                self.line, self.lines = self.line * self.lines, 1
            self.batch, taps = p.batch, math.prod(d.taps for d in p.dims)
            if not self.flat:
                self.seen = math.prod(d.stride for d in p.dims)
                self.halo = (p.dims[0].window - p.dims[0].stride) / p.dims[0].stride
        g = Groups.of(p)
        own = -(-g.channels // TOGETHER)
        self.channels, self.steps = g.count * own * TOGETHER, taps * own
        self.blocks, self.each = -(-g.count * g.filters // LANES), max(1, g.filters // LANES)

    def cycles(self, t: ByteTile, lines: int, threads: int) -> float:
        """Those of the thread that has most to do."""
        sums, vectors = t.rows * t.vectors, self.blocks // t.vectors // t.parts
        bands = -(-lines // t.band)
        across = 1 if self.flat else -(-self.line // t.rows)
        tiles = min(t.band, lines) * across
        pixels = (min(t.band, lines) + self.halo) * across * t.rows * self.seen
        image, filter = pixels * self.channels, 64 * self.steps * self.blocks
        read = t.rows * -(-t.vectors // self.each) + t.vectors
        step = max(sums, read, _LATENCY) + _TURN
        tile = self.steps * step + _TILE + _RESULT * sums
        far = max(0, filter / t.parts + image - _KEPT) * min(tiles, 4) * _FAR / 4
        alone = self.batch * bands == 1
        packed = 0.0 if not alone else filter / t.parts * _PACKED
        before = filter * _PACKED * 1.3 / threads if not alone else 0
        if self.constant:
            packed, before = 0, 0
        task = vectors * tiles * tile + image * _STORED + far + packed + 1000
        return float(-(-self.batch * bands * t.parts // threads) * task + before)
