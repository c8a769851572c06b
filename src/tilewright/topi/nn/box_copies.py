"""Convolutions in place of others: what boxes cannot bring as it lies is copied, and then they can.

Groups of few channels are joined: a filter that has zeros where a channel is of another group makes
one group of several. Images of few channels are copied so that the columns that a row of a filter
sees lie side by side, as channels of one column; or, with strides, so that squares as large as
these are pixels, which windows see one by one. Where the channels of the result are few, or do not
lie by eights in the filter, or in groups, a gradient by the input is the convolution of dy with a
copy of the filter that is turned.

The copies of filters are small. Each copy is a kernel of its own.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeVar

from tilewright import te
from tilewright.ir.dtype import dtype
from tilewright.te import Tensor
from tilewright.topi.nn.box_phases import all_phases, is_phased, tap_of_phase
from tilewright.topi.nn.convolved import Convolved
from tilewright.topi.nn.images import Images, or_zero
from tilewright.topi.operators.convolution import Convolution

#: Channels of 16 bits in a row of 128 bytes of shared memory, where those of a factor's own lie
#: side by side.
ROW = 64


@dataclass(frozen=True)
class Widths:
    """Channels of a type in 16 bytes, which TMA can step over, in 32, to a multiple of which those
    of a tap are filled up, since an instruction multiplies as many, and in a row of 128."""

    chunk: int
    deep: int
    row: int

    def filled(self, channels: int) -> int:
        """Those of a tap in shared memory: whole rows if less than a quarter of them is filled up,
        many of them by fours, so that they can be summed in parts.

        >>> [widths("float16").filled(n) for n in (24, 96, 200, 3864)]
        [32, 96, 256, 4096]
        """
        rows = -(-channels // self.row)
        rows = rows if rows < _MANY else -(-rows // 4) * 4
        if 4 * channels > 3 * rows * self.row:
            return rows * self.row
        return -(-channels // self.deep) * self.deep

    def step(self, channels: int) -> int:
        """Channels that are brought at once, of those of a tap."""
        filled = self.filled(channels)
        return next(k for k in (self.row, 2 * self.deep, self.deep) if filled % k == 0)


def widths(kind: str) -> Widths:
    """Those of a type.

    >>> widths("float16")
    Widths(chunk=8, deep=16, row=64)
    """
    size = dtype(kind).bytes
    return Widths(16 // size, 32 // size, 128 // size)


#: Channels of a block of those in which images of integers are brought: an instruction's.
BLOCK = 32

#: Results that see a filter from which on it is read often.
_READ_OFTEN = 2048

#: Channels of a result that an instruction computes at least.
_EIGHT = 8

#: How long a step of half a row takes, beside one of a row.
_HALF = 5 / 8

#: Of as many rows of channels, or more, their number may grow a little.
_MANY = 32

#: Columns that an instruction, and so a tile, has at most.
MOST_COLUMNS = 256

#: For how many products each element of an image and a filter must count, and how many there must
#: be besides, that copies whose pixels begin at lines of memory are sooner.
_COPIED, _LAUNCHED = 1100, 1.75e9

#: A convolution of some number of dimensions.
Kind = TypeVar("Kind", bound=Convolution)

#: An element of a filter: of a channel of the result, of a tap's place and of what is summed.
Tap = Callable[..., Any]


def laid(
    p: Convolution, made: Convolution, image: Any, filter: Any, batch: Any
) -> tuple[Tensor, Tensor]:
    """The operands of a problem as they lie in that which is :func:`as_brought`, the filter with
    channels last, zero where its channels are filled up; ``image`` and ``filter`` are those of the
    problem."""
    images = Images(p.layout)

    def filled(c: Any, read: Any) -> Any:
        return or_zero([c < p.channels] if made.channels > p.channels else [], read)

    def element(m: Any, r: Any, s: Any, c: Any) -> Any:
        return filled(c, filter[p.filter_place(m, c, (r, s))])

    pixels = Images(made.layout).compute(
        batch, made.channels, p.image_extents,
        lambda n, c, at: filled(c, image[images.order(n, c, at)]), "Laid",
    )  # fmt: skip
    shape = (p.out_channels, *p.kernel, made.channels // made.groups)
    return pixels, te.compute(shape, element, name="FilterLaid")


def copies_filter(p: Convolution) -> bool:
    """Whether a filter in blocks is copied with channels last first: rows of 128 bytes come four
    times as fast as those of a block. It pays where many tiles read it, or once for all calls."""
    return in_short_rows(p) and (
        "filter" in p.constants or p.batch * math.prod(p.out_image) >= _READ_OFTEN
    )


def in_short_rows(p: Convolution) -> bool:
    """Whether a filter lies in rows of a block's channels: one of several taps does, and one of a
    single tap as if channels were last."""
    return bool(p.block) and math.prod(p.kernel) > 1


def filter_last(p: Convolution, filter: Any) -> Tensor:
    """A filter in blocks, with channels last."""
    shape = (p.out_channels, *p.kernel, p.channels // p.groups)
    made: Tensor = te.compute(
        shape, lambda m, r, s, c: filter[p.filter_place(m, c, (r, s))], name="FilterLast"
    )
    return made


def of_a_group(p: Convolution) -> tuple[int, int]:
    """Channels of a group of what windows slide over, and of the result or of dy."""
    found = (p.channels // p.groups, p.multiplier)
    return found[::-1] if p.pass_ == "dgrad" else found


def _joined(p: Convolution) -> int:
    """How many groups to join, so that a tile of results reads channels of one. The last of these
    may have fewer, of images of 16 bits, where less is multiplied so than with all in one."""
    if p.groups == 1:
        return 1
    own, filters, w = p.channels // p.groups, p.multiplier, widths(p.dtype)
    # What lies in no rows of 16 bytes has to be copied, which the groups that lack would hide.
    seen = p.out_channels if p.pass_ == "dgrad" else p.channels
    may_lack = w.chunk == 8 and p.pass_ != "wgrad" and not p.block and seen % w.chunk == 0
    for n in range(1, p.groups):
        parts = -(-p.groups // n)
        if p.groups % n and (not may_lack or parts * n * n >= p.groups**2):
            continue
        read, made = (own * n, filters * n)[:: -1 if p.pass_ == "dgrad" else 1]
        if p.pass_ == "wgrad":
            if own * n >= ROW and own * n % w.chunk == 0 and made % ROW == 0:
                return n
        elif (read >= w.row and w.filled(read) == read and made % _EIGHT == 0) or sliced(
            joined_by(p, n)
        ) > 1:
            return n
    return p.groups


def joined_by(p: Kind, n: int) -> Kind:
    """A problem with every ``n`` groups joined; the last one is filled up to as many."""
    groups, own = -(-p.groups // n), p.channels // p.groups
    return p.replace(groups=groups, multiplier=p.multiplier * n, channels=groups * n * own)


def sliced(p: Convolution) -> int:
    """How many groups a row of shared memory has the channels of, if instructions multiply slices
    of it, each with its group's filter; 1 where they multiply whole rows."""
    if p.groups == 1 or p.pass_ == "wgrad" or p.block or is_in_halves(p):
        return 1
    w, (read, made) = widths(p.dtype), of_a_group(p)
    found = w.row // read if read in (w.deep, 2 * w.deep) else 1
    # An instruction has 2^n columns, and so has a tile.
    fits = made >= _EIGHT and made.bit_count() == 1 and found * made <= MOST_COLUMNS
    return found if fits else 1


def _folds(p: Convolution) -> bool:
    """Whether columns of the image are brought together."""
    w = widths(p.dtype)
    few = (p.channels < w.deep and p.kernel[-1] > 1) or p.channels % w.chunk
    return bool(p.pass_ != "dgrad" and p.groups == 1 and few)


@dataclass(frozen=True)
class Fold:
    """``rows`` by ``columns`` of the image that are channels of one pixel, of images whose pixels
    are ``step`` rows apart, and ``filled`` channels; ``taps`` is what is left of a filter."""

    rows: int
    columns: int
    step: int
    filled: int
    taps: tuple[int, ...]

    def bytes(self, p: Convolution) -> int:
        """Elements of an image that is so."""
        space = list(p.image[:-1])
        if self.step > 1:
            space = [p.out_image[0] + self.taps[0] - 1]
        return math.prod(space) * p.out_image[-1] * self.filled


def _fold(p: Convolution) -> Fold:
    """How pixels are brought together: of rows, or of squares where that is less to copy and hardly
    more to multiply."""
    w, taken, (*_, step, across) = widths(p.dtype), p.kernel[-1] * p.channels, p.stride
    filled = next((n for n in (w.deep, 2 * w.deep) if taken <= n), -(-taken // w.row) * w.row)
    by_row = Fold(1, p.kernel[-1], 1, filled, (*p.kernel[:-1], 1))
    beside = w.deep // (step * step * p.channels)
    if p.pass_ != "forward" or step != across or step == 1 or set(p.dilation) != {1} or not beside:
        return by_row
    if len(p.kernel) > 2:  # of whose planes none are brought together
        return by_row
    wide = beside * step
    taps = (-(-p.kernel[0] // step), -(-p.kernel[1] // wide))
    squares = Fold(step, wide, step, w.deep, taps)
    few = 4 * math.prod(taps) * w.deep <= 5 * p.kernel[0] * filled
    return squares if few and 4 * squares.bytes(p) <= 3 * by_row.bytes(p) else by_row


def _fills(p: Convolution) -> bool:
    """Whether pixels are copied so that each begins at a line of memory, as long as a row of shared
    memory: of others, rows that TMA brings lie in two lines, and take up to twice as long. It pays
    where taps read them often, and hardly more is multiplied, or in less short steps."""
    w, read = widths(p.dtype), of_a_group(p)[0]
    if w.chunk != 8 or p.block or p.groups > 1 or p.pass_ == "wgrad" or math.prod(p.kernel) == 1:
        return False
    if read <= w.row or read % w.row == 0 or read % w.chunk:
        return False
    if filled_up(p) % w.row:
        return False
    taps = math.prod(p.kernel) * p.channels * p.out_channels
    image = p.image if p.pass_ == "forward" else p.out_image
    copied = p.batch * math.prod(image) * read + taps
    return p.batch * math.prod(p.out_image) * taps > _COPIED * copied + _LAUNCHED


def _turns(p: Convolution, joined: int) -> bool:
    """Whether a gradient by the input needs the filter turned."""
    return p.pass_ == "dgrad" and max(p.stride) == 1 and not (joined == 1 and is_turned(p))


def is_turned(p: Convolution) -> bool:
    """Whether a gradient by the input reads the filter as it lies, channels of the result side by
    side."""
    plain = p.groups == 1 and p.channels % widths(p.dtype).chunk == 0 and p.channels >= ROW
    return p.pass_ == "dgrad" and plain and p.dtype != "float32"  # of which none is read turned


def filled_up(p: Convolution, whole: bool = False) -> int:
    """Channels of a tap in shared memory, of a problem that boxes can bring. Where each tap brings
    them, of one group, beyond whose channels are zeros, they are no rows of 32 bytes, for several
    of which tensor cores would wait: TMA brings rows of 64 in the same time, and of 128 in little
    more. Those of ``whole`` boxes are brought once, and have to fit into memory."""
    w, read = widths(p.dtype), of_a_group(p)[0]
    filled = w.filled(read)
    if whole or p.groups > 1 or p.block or w.step(filled) > w.deep or filled == w.deep:
        return filled
    rows, half = -(-read // w.row), 2 * w.deep
    halves = -(-read // half)
    return halves * half if _HALF * halves <= rows else rows * w.row


def is_in_halves(p: Convolution) -> bool:
    """Whether each operand is the sum of two numbers that TF32 has (3xTF32)."""
    return p.dtype == "float32" and p.precision == "tf32x3"


def half_step(halves: int) -> int:
    """How many channels of ``halves``, both of each, a step has: with those of a row of shared
    memory, or part of it."""
    w = widths("float32")
    return w.row // 2 if halves % w.row == 0 else w.deep


def by_pixels(p: Kind) -> Kind:
    """A problem whose results see the pixel in their own place alone, as one of images of a pixel
    each, so that a tile may have any number of those that lie side by side; where channels lie in
    blocks, as one of images of a row each. Others themselves."""
    if max(*p.kernel, *p.stride) > 1 or any(p.padding):
        return p
    if p.block:
        return p.resized((1, math.prod(p.image)))
    return p.resized([1] * len(p.image), batch=p.batch * math.prod(p.image))


def as_brought(p: Convolution) -> Convolution:
    """A problem whose result has channels last and whose image lies as boxes bring it, channels
    last too or in blocks of :data:`BLOCK`; often itself. An image of integers that lies otherwise
    is copied to blocks, whose channels are filled up, or to channels last where pixels of it are
    copied again, to be brought together, or groups of it are. Of floats an image with channels
    first whose result has them last is of the latter."""
    if p.channels_last or p.rank != 2:
        return p
    if not p.is_quantized:
        last = p.replace(layout="NHWC", out_layout="") if p.result_layout == "NHWC" else p
        return last if _folds(last) else p
    last, blocks = p.replace(layout="NHWC", out_layout=""), f"NCHW{BLOCK}"
    if p.layout == blocks:
        return p.replace(out_layout="NHWC")
    if p.layout == "NHWC" or p.groups > 1 or _folds(last):
        return last
    channels = -(-p.channels // BLOCK) * BLOCK
    return p.replace(layout=blocks, out_layout="NHWC", channels=channels)


@lru_cache(maxsize=256)
def in_boxes(p: Convolution) -> Convolution | None:
    """The convolution that takes the place of a problem, often itself; None where there is none.

    In halves it has twice the channels of a tap, the two halves of a step's beside one another.
    """
    p = by_pixels(as_brought(p))
    if p.block:
        own, made = of_a_group(p)
        whole = widths(p.dtype).filled(own) == own and made % _EIGHT == 0
        return p if p.groups == 1 or whole else None
    if is_in_halves(p):
        found = in_boxes(p.replace(precision="tf32"))
        if found is None or found.pass_ == "wgrad":
            return None
        halves = 2 * filled_up(found)
        if found.pass_ == "dgrad":
            return found.replace(precision=p.precision, multiplier=halves)
        return found.replace(precision=p.precision, channels=halves * found.groups)
    joined, fills = _joined(p), _fills(p)
    if joined > 1:
        p = joined_by(p, joined)
    if _folds(p):
        fold = _fold(p)
        if fold.step > 1:
            beside = fold.columns // fold.step
            (high, wide), (rows, columns) = p.out_image, fold.taps
            return p.resized(
                (high + rows - 1, wide + (columns - 1) * beside), fold.taps, channels=fold.filled,
                stride=(1, 1), dilation=(1, beside), padding=(0, 0, 0, 0),
            )  # fmt: skip
        half = len(p.image)
        return p.resized(
            (*p.image[:-1], p.out_image[-1]), fold.taps, channels=fold.filled,
            stride=(*p.stride[:-1], 1), dilation=(*p.dilation[:-1], 1),
            padding=(*p.padding[: half - 1], 0, *p.padding[half:-1], 0),
        )  # fmt: skip
    if fills:
        channels = -(-of_a_group(p)[0] // ROW) * ROW
        p = p.replace(**{"channels" if p.pass_ == "forward" else "multiplier": channels})
    if not _turns(p, joined):
        return p
    before = Convolved(p).before
    after = [
        e - o + (k - 1) * d - b
        for e, o, k, d, b in zip(p.image, p.out_image, p.kernel, p.dilation, before, strict=True)
    ]
    if min(*before, *after) < 0:
        return None
    return p.resized(
        p.out_image, pass_="forward", channels=p.out_channels, multiplier=p.channels // p.groups,
        padding=(*before, *after), epilogue=(),
    )  # fmt: skip


@dataclass(frozen=True)
class Boxed:
    """The operands of :func:`in_boxes`: what is read by the indices of that ``problem``'s, and the
    ``copies`` among it; ``place`` says where an element of a gradient by the filter is in its; a
    filter is ``turned`` whose channels of the result lie side by side."""

    problem: Convolution
    first: Any
    second: Any
    copies: tuple[Tensor, ...] = ()
    place: Tap | None = None
    turned: bool = False


def boxed(p: Convolution, first: Any, second: Any, batch: Any, held: bool = False) -> Boxed:
    """The operands of a problem of ``batch`` images, :func:`as_brought`, as boxes bring them;
    ``first`` and ``second`` are anything that is read by the indices of the problem's. Where
    threads have ``held`` a filter in registers, it is read as it lies."""
    if held:
        return Boxed(p, first, second, turned=True)
    made = in_boxes(p)
    assert made is not None
    if is_in_halves(p):
        return _in_halves(made, boxed(p.replace(precision="tf32"), first, second, batch), batch)
    own, joined, gone = p.channels // p.groups, _joined(p), len(p.image) - p.rank
    if made == by_pixels(p) and (not is_phased(p) or is_turned(p)):
        return Boxed(p, first, second, turned=is_turned(p))
    folds = _folds(joined_by(p, joined))

    def offset(m: Any) -> Any:
        """Where the channels of a filter begin among those of the joined groups."""
        return m // p.multiplier % joined * own

    def place(m: Any, *at: Any) -> Any:
        *above, s, c = at
        c = offset(m) + c
        return (m, *above, 0, s * p.channels + c) if folds else (m, *above, s, c)

    copies = []
    if folds:
        copies.append(_columns(p, made, first, batch))
    elif _fills(p):
        copies.append(_whole_lines(p, made, first, batch))
    image = copies[0] if copies else first
    if p.pass_ == "wgrad":
        return Boxed(made, image, second, tuple(copies), place)
    if copies and is_turned(p):
        return Boxed(made, image, _FewerFilters(second, p.out_channels), tuple(copies), turned=True)

    def joint(m: Any, *place: Any) -> Any:
        """An element of the filter of joined groups."""
        *taps, c = place
        at = c - offset(m)
        read = second[p.filter_place(m, at, taps[gone:])]
        inside = [at >= 0, at < own] if joined > 1 else []
        if p.groups % joined:
            inside.append(m < p.out_channels)
        if _fills(p):  # of which there are fewer
            inside = [at < own] if p.pass_ == "forward" else [m < p.out_channels]
        return or_zero(inside, read)

    return Boxed(made, image, _filter(p, made, joined, joint, copies), tuple(copies))


@dataclass(frozen=True)
class _FewerFilters:
    """A filter that is read as if it had more of them, which are zero."""

    filter: Any
    count: int

    def __getitem__(self, place: tuple[Any, ...]) -> Any:
        return or_zero([place[0] < self.count], self.filter[place])


def _whole_lines(p: Convolution, made: Convolution, image: Any, batch: Any) -> Tensor:
    """The image, or dy, with channels that are filled up."""
    images, extents, (read, _) = Images(p.layout), list(p.image_extents), of_a_group(p)
    if p.pass_ == "dgrad":
        extents = list(p.out_image[len(p.image) - p.rank :])

    def element(n: Any, c: Any, at: list[Any]) -> Any:
        return or_zero([c < read], image[images.order(n, c, at)])

    return images.compute(batch, -(-read // ROW) * ROW, extents, element, "Filled")


def _in_halves(made: Convolution, b: Boxed, batch: Any) -> Boxed:
    """The halves of operands as channels of a group, step by step: of the image the smaller ones
    of a step first, of the filter last."""
    own, half = of_a_group(b.problem)[0], of_a_group(made)[0] // 2
    step = half_step(2 * half)

    def halved(c: Any, read: Callable[[Any], Any], second: bool) -> Any:
        k = c // (2 * step) * step + c % step
        value = or_zero([k < own], read(k))
        large = te.round_tf32(value)
        small = te.round_tf32(value - large)
        first, last = (large, small) if second else (small, large)
        return te.if_then_else(c % (2 * step) < step, first, last)

    images, w = Images(made.layout), Convolved(made)

    def pixel(n: Any, c: Any, at: list[Any]) -> Any:
        first = c // (2 * half) * own
        return halved(c % (2 * half), lambda k: b.first[images.order(n, first + k, at)], False)

    image = images.compute(
        batch, 2 * half * made.groups, w.image[len(w.image) - made.rank :], pixel, "Halves"
    )  # fmt: skip
    taps: Tensor = te.compute(
        (*(b.second.shape if is_phased(made) else made.filter_shape)[:-1], 2 * half),
        lambda *at: halved(at[-1], lambda k: b.second[(*at[:-1], k)], True),
        name="FilterHalves",
    )
    return Boxed(made, image, taps, (image, taps))


def _columns(p: Convolution, made: Convolution, image: Any, batch: Any) -> Tensor:
    """What a row of the filter sees, for each column of the result; or squares of pixels."""
    images, fold = Images(p.layout), _fold(p)
    stride, wide = p.stride[-1], p.image[-1]
    row, last = fold.columns * p.channels, len(p.image) - 1
    before = p.padding[0] if fold.step > 1 else 0

    def element(n: Any, j: Any, at: list[Any]) -> Any:
        x = at[-1] * stride + j % row // p.channels * p.dilation[-1] - p.padding[last]
        inside, above = [x >= 0, x < wide, j < fold.rows * row], list(at[:-1])
        if fold.step > 1:
            y = at[0] * fold.step + j // row - before
            inside, above = [*inside, y >= 0, y < p.image[0]], [y]
        read = image[images.order(n, j % p.channels, [*above, x])]
        return or_zero(inside, read)

    return images.compute(batch, made.channels, made.image_extents, element, "Columns")


def _filter(
    p: Convolution, made: Convolution, joined: int, joint: Tap, copies: list[Tensor]
) -> Tensor:
    """The copy of a filter as ``made`` reads it, channels of what is summed last, of groups of
    which some are ``joined``; appended to ``copies``."""
    element: Tap = joint
    name, own, filters = "Joined", p.channels // p.groups * joined, p.multiplier * joined
    if is_phased(p):
        copies.append(_phased(p, joint, own, filters, filled_up(made)))
        return copies[-1]
    if p.pass_ == "dgrad":  # a channel of x is the result, and taps are turned

        def turned(c: Any, *place: Any) -> Any:
            *taps, m = place
            at = [k - 1 - t for k, t in zip(p.kernel, taps, strict=True)]
            return joint(c // own * filters + m, *at, c % own)

        element, name = turned, "Turned"
    elif _folds(joined_by(p, joined)):
        fold = _fold(p)
        row_of = fold.columns * p.channels

        def folded(m: Any, *place: Any) -> Any:
            *above, s, j = place
            x, inside = j // p.channels, [j < row_of]
            if fold.step > 1:
                y = above[0] * fold.rows + j // row_of
                x, above = s * fold.columns + j % row_of // p.channels, [y]
                inside = [j < fold.rows * row_of, y < p.kernel[0], x < p.kernel[1]]
            return or_zero(inside, joint(m, *above, x, j % p.channels))

        element, name = folded, "Folded"
    row = [0] * (len(p.image) - p.rank)  # of images without height
    found: Tensor = te.compute(made.filter_shape, lambda m, *at: element(m, *row, *at), name=name)
    copies.append(found)
    return found


def _phased(p: Convolution, joint: Tap, own: int, filters: int, filled: int) -> Tensor:
    """The filter of every phase of a gradient by the input: (phase, row of taps, tap, channel,
    filter), since a tensor map has five dimensions, of which the first ones may be one."""
    cut = all_phases(p)

    def element(phase: Any, row: Any, s: Any, c: Any, m: Any) -> Any:
        taps = [s]
        for found in reversed(cut[1:-1]):
            taps.insert(0, row % found.taps)
            row = row // found.taps
        at, inside = tap_of_phase(p, phase, [row, *taps])
        read = joint(c // own * filters + m, *at, c % own)
        return or_zero([m < filters, *inside], read)

    *outer, last = (c.taps for c in cut)
    shape = (math.prod(len(c.phases) for c in cut), math.prod(outer), last, p.channels, filled)
    made: Tensor = te.compute(shape, element, name="Phases")
    return made
