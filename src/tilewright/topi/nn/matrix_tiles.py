"""Convolutions and products as products of tiles of 16 rows of 64 bytes, as AMX multiplies them.

Rows of a tile are neighbouring pixels: those of windows in images whose rows are stored one behind
the other (:class:`~tilewright.topi.nn.flat_windows.FlatWindows`), so that a tap moves all of them
by one distance; of windows of single pixels those of an image, whatever row they are in. Columns
are channels of the result. An image is stored in blocks of as many channels as 64 bytes hold, a
filter tile by tile. Of few channels, such as three, what a row of a window sees is one row of
tiles, which overlap: pixels are stored as they lie, each channel behind the last one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tilewright import te
from tilewright.ir.dtype import dtype
from tilewright.te import Tensor
from tilewright.topi.declare import finished, placeholders
from tilewright.topi.declared import Declared
from tilewright.topi.nn.byte_dots import is_flat
from tilewright.topi.nn.flat_windows import FlatWindows, numbered, placed, weight_of
from tilewright.topi.nn.images import Images, or_zero, within
from tilewright.topi.once import once
from tilewright.topi.operators.convolution import OPERANDS, Convolution
from tilewright.topi.operators.gemm import Gemm

#: Rows, and columns of sums, of a tile.
SIDE = 16
#: Multiples of the tiles of pixels, and of channels, that schedules compute at once.
DOWN, ACROSS = 12, 4


@dataclass(frozen=True)
class TileCut:
    """How the results of a forward pass, a gradient by the input that
    :class:`~tilewright.topi.nn.flat_windows.FlatWindows` has, or a product are cut into tiles."""

    problem: Convolution | Gemm

    @once
    def windows(self) -> FlatWindows | None:
        """None where windows are single pixels, and results lie as these do."""
        p = self.problem
        if isinstance(p, Gemm) or (p.pass_ == "forward" and is_flat(p)):
            return None
        return FlatWindows(p)

    @once
    def groups(self) -> tuple[int, int, int]:
        """Groups, and the channels of one: of the result, and of what is convolved."""
        p = self.problem
        if isinstance(p, Gemm):
            return 1, p.n, p.k
        return p.groups, *FlatWindows(p).filters

    @once
    def rows(self) -> int:
        """Rows of results of an image, or pixels where windows are single."""
        if self.windows is not None:
            return self.windows.result[0]
        p = self.problem
        return p.m if isinstance(p, Gemm) else math.prod(p.out_extents)

    @once
    def row(self) -> int:
        """From a result to the one below it."""
        return 1 if self.windows is None else math.prod(self.windows.stored[1:])

    @once
    def tiles(self) -> int:
        """Tiles of pixels, with those beyond the last that schedules may compute with others."""
        w = self.windows
        last = 0 if w is None else w.flat([0, *(e - 1 for e in w.result[1:])])
        count = -(-((self.rows - 1) * self.row + last + 1) // SIDE)
        return -(-count // DOWN) * DOWN

    def rows_of(self, band: int, down: int) -> int:
        """Rows of results of a band of at least ``band``: as many that no group of ``down`` tiles
        is in two bands, or all; or times ``down`` tiles of pixels where windows are single."""
        if self.windows is None:
            return band * down * SIDE
        least = SIDE * down // math.gcd(SIDE * down, self.row)
        return min(-(-band // least) * least, self.rows)

    @property
    def columns(self) -> int:
        """Tiles of a group's channels, as well."""
        return -(-self.groups[1] // (SIDE * ACROSS)) * ACROSS

    @once
    def joined(self) -> int:
        """How many taps are multiplied at once, those of a row of a window, whose channels lie one
        behind the other; 1 where they are many."""
        w, (count, _, own) = self.windows, self.groups
        if w is None or count > 1 or w.dilation[-1] > 1 or self.problem.pass_ != "forward":
            return 1
        return w.kernel[-1] if own <= self.depth // 2 else 1

    @property
    def row_of_pixels(self) -> int:
        """Pixels of a row that is stored."""
        assert self.windows is not None
        return self.windows.stored[-1]

    @property
    def row_of_numbers(self) -> int:
        """Numbers of one, where taps are joined."""
        return self.row_of_pixels * self.unit

    @property
    def unit(self) -> int:
        """From a result to the next one in what is stored, in numbers, where taps are joined."""
        assert self.windows is not None
        return self.windows.stride[-1] * self.groups[2]

    @once
    def taps(self) -> tuple[int, ...]:
        """By dimension the taps of a window, none where they are single pixels, or joined."""
        if self.windows is None:
            return ()
        return self.windows.kernel[:-1] if self.joined > 1 else self.windows.kernel

    @once
    def together(self) -> int:
        """Numbers of a column that lie side by side: 4 bytes."""
        return 4 // dtype(self.problem.dtype).bytes

    @property
    def depth(self) -> int:
        """Channels in a row of a tile."""
        return SIDE * self.together

    @property
    def blocks(self) -> int:
        """Blocks of channels of a group, or of taps that are joined."""
        return -(-self.groups[2] * self.joined // self.depth)

    def shift(self, taps: Sequence[Any]) -> tuple[list[Any], Any]:
        """The phase of the image that a tap reads, and how far behind a result's own pixel."""
        w = self.windows
        if w is None:
            return [], 0
        at = [(t * d, s) for t, d, s in zip(taps, w.dilation, w.stride, strict=False)]
        places = [x // s for x, s in at]
        return [x % s for x, s in at], w.flat(places if self.joined == 1 else [*places, 0])

    @once
    def pixels(self) -> int:
        """Pixels that are stored of a phase of an image."""
        return self.tiles * SIDE + self.reach

    @once
    def reach(self) -> int:
        """How far behind a result's own pixel its window ends."""
        return int(self.shift([k - 1 for k in self.taps])[1])


@dataclass(frozen=True)
class TileDeclaration(Declared):
    """``stored`` is (batch, *phases, blocks of channels, pixels, channels), or where taps are
    joined (batch, *phases, channels of all pixels); ``packed`` the filter, (groups, tiles of
    channels, *taps, blocks, 16, 16, side by side). ``left`` and ``right`` are tiles of these,
    ``sum`` is (batch, groups, tiles of pixels, tiles of channels, 16, 16).
    """

    cut: TileCut
    stored: Tensor
    packed: Tensor
    left: Tensor
    right: Tensor
    sum: Tensor


def declare_matrix_tiles(p: Convolution | Gemm, given: Any = None) -> TileDeclaration:
    """The program of a problem that :class:`TileCut` has; ``given`` as in
    :func:`~tilewright.topi.declare.declare`."""
    cut, inputs = TileCut(p), placeholders(p, given)
    (count, per, _), depth = cut.groups, cut.depth
    stored, packed = _stored(cut, inputs), _packed(cut, inputs)
    batch = stored.shape[0]

    def pixel(n: Any, g: Any, at: Any, *more: Any) -> Any:
        *taps, block, r, c = more
        phase, shift = cut.shift(taps)
        q = at * SIDE + r + shift
        if cut.joined > 1:
            return stored[(n, *phase, q * cut.unit + block * depth + c)]
        return stored[(n, *phase, g * cut.blocks + block, q, c)]

    left = te.compute(
        (batch, count, cut.tiles, *cut.taps, cut.blocks, SIDE, depth), pixel, name="LeftTile"
    )
    right = te.compute(packed.shape, lambda *at: packed[at], name="RightTile")
    extents = [*cut.taps, cut.blocks, SIDE, cut.together]
    axes = [te.reduce_axis((0, e), f"r{k}") for k, e in enumerate(extents)]
    *outer, word, k = axes

    def total(n: Any, g: Any, at: Any, f: Any, r: Any, j: Any) -> Any:
        x = left[(n, g, at, *outer, r, word * cut.together + k)]
        y = right[(g, f, *outer, word, j, k)]
        return te.sum(x.astype(p.accumulate) * y.astype(p.accumulate), axis=axes)

    sums = te.compute(
        (batch, count, cut.tiles, cut.columns, SIDE, SIDE), total, name="TileSums",
        varargs_names=["n", "g", "tile", "f", "r", "j"],
    )  # fmt: skip

    def summed(n: Any, c: Any, row: Any, more: Any = 0, phase: Any = 0, phases: int = 1) -> Any:
        g, f = (c // (per // phases), c % (per // phases)) if count > 1 else (te.const(0), c)
        f = f * phases + phase if phases > 1 else f
        q = row * cut.row + more
        return sums[n, g, q // SIDE, f // SIDE, q % SIDE, f % SIDE]

    if isinstance(p, Gemm):
        result = te.compute(p.result.shape, lambda i, j: summed(0, j, i), name="Product")
    else:
        space = p.image_extents if p.pass_ == "dgrad" else p.out_extents

        def gathered(n: Any, c: Any, at: list[Any]) -> Any:
            w = cut.windows
            if w is None:
                return summed(n, c, numbered(at, space))
            phase, (row, *rest) = w.result_of([*[0] * (len(w.result) - len(at)), *at])
            return summed(n, c, row, w.flat([0, *rest]), phase, math.prod(w.phases))

        result = Images(p.layout).compute(batch, p.result_channels, space, gathered, "Conv")
    output = finished(p, result, inputs)
    return TileDeclaration(p, inputs, output, cut, stored, packed, left, right, sums)


def _stored(cut: TileCut, inputs: dict[str, Tensor]) -> Tensor:
    p, w, (count, _, own) = cut.problem, cut.windows, cut.groups

    def seen(n: Any, phase: Sequence[Any], c: Any, q: Any) -> tuple[Any, list[Any]]:
        """A channel of a pixel of what windows see, and where there is one; where taps are joined
        ``c`` counts the channels of its row."""
        assert w is not None
        assert not isinstance(p, Gemm)
        each = zip(w.place(q), w.stride, phase, w.before, strict=False)
        place = [i * s + a - low for i, s, a, low in each]
        if cut.joined > 1:
            place.append(c // own - w.before[-1])
        inside = within(place, w.image)
        at = Images(p.layout).order(n, c % own if cut.joined > 1 else c, place[-p.rank :])
        return inputs[OPERANDS[p.pass_][0]][at], inside

    def in_rows(n: Any, *at: Any) -> Any:
        *phase, k = at
        row = cut.row_of_numbers
        read, inside = seen(n, phase, k % row, k // row * cut.row_of_pixels)
        return or_zero(inside, read)

    def element(n: Any, *at: Any) -> Any:
        *phase, block, q, k = at
        c = block % cut.blocks * cut.depth + k
        inside = [] if own % cut.depth == 0 else [c < own]
        if isinstance(p, Gemm):
            inside += [q < p.m] if cut.pixels > p.m else []
            read = p.factors(inputs).left((), q, c)
        else:
            c = block // cut.blocks * own + c
            if w is not None:
                read, more = seen(n, phase, c, q)
                inside += more
            else:
                inside += [q < cut.rows] if cut.pixels > cut.rows else []
                place = []
                for i, d in zip(placed(q, p.out_extents), p.dims, strict=True):
                    x = i * d.stride - d.before
                    inside += [x >= 0, x < d.extent] if d.before or d.after else []
                    place.append(x)
                read = inputs["data"][Images(p.layout).order(n, c, place)]
        return or_zero(inside, read)

    batch = 1 if isinstance(p, Gemm) else inputs[OPERANDS[p.pass_][0]].shape[0]
    phases = () if w is None else w.stride
    made: Tensor
    if cut.joined > 1:
        numbers = cut.pixels * cut.unit + cut.blocks * cut.depth
        made = te.compute((batch, *phases[:-1], numbers), in_rows, name="Stored")
        return made
    made = te.compute(
        (batch, *phases, count * cut.blocks, cut.pixels, cut.depth), element, name="Stored"
    )
    return made


def _packed(cut: TileCut, inputs: dict[str, Tensor]) -> Tensor:
    p, (count, per, own) = cut.problem, cut.groups

    def element(g: Any, tile: Any, *at: Any) -> Any:
        *taps, block, word, j, k = at
        f, c = tile * SIDE + j, block * cut.depth + word * cut.together + k
        inside = [] if per == cut.columns * SIDE else [f < per]
        inside += [] if own * cut.joined % cut.depth == 0 else [c < own * cut.joined]
        if isinstance(p, Gemm):
            read = p.factors(inputs).right((), c, f)
        else:
            w = FlatWindows(p)
            taps = taps if cut.windows is not None else [0] * len(w.kernel)
            taps, c = ([*taps, c // own], c % own) if cut.joined > 1 else (taps, c)
            read = weight_of(w, inputs["filter"], g, f, c, taps, False)
        return or_zero(inside, read)

    made: Tensor = te.compute(
        (count, cut.columns, *cut.taps, cut.blocks, SIDE, SIDE, cut.together), element,
        name="Packed",
    )  # fmt: skip
    return made


#: The declaration of this module, by name.
FORMS = {"matrix tiles": declare_matrix_tiles}
