"""The convolution that takes the place of one that boxes cannot bring as it lies.

What differs of the two is copied (:mod:`~tilewright.topi.nn.box_copies`); this module says which of
them it is.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeVar

from tilewright.ir.dtype import dtype
from tilewright.topi.nn.convolved import Convolved
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


def copies_filter(p: Convolution, whole: bool = False) -> bool:
    """Whether a filter in blocks is copied with channels last first: rows of 128 bytes come four
    times as fast as those of a block. It pays where many tiles read it step by step, not where each
    keeps what it reads of it with ``whole`` boxes, or once for all calls."""
    often = not whole and p.batch * math.prod(p.out_image) >= _READ_OFTEN
    return in_short_rows(p) and ("filter" in p.constants or often)


def in_short_rows(p: Convolution) -> bool:
    """Whether a filter lies in rows of a block's channels: one of several taps does, and one of a
    single tap as if channels were last."""
    return bool(p.block) and math.prod(p.kernel) > 1


def of_a_group(p: Convolution) -> tuple[int, int]:
    """Channels of a group of what windows slide over, and of the result or of dy."""
    found = (p.channels // p.groups, p.multiplier)
    return found[::-1] if p.pass_ == "dgrad" else found


def joined_groups(p: Convolution) -> int:
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


def folds_columns(p: Convolution) -> bool:
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


def fold_of(p: Convolution) -> Fold:
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


def fills_up(p: Convolution) -> bool:
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
        return last if folds_columns(last) else p
    last, blocks = p.replace(layout="NHWC", out_layout=""), f"NCHW{BLOCK}"
    if p.layout == blocks:
        return p.replace(out_layout="NHWC")
    if p.layout == "NHWC" or p.groups > 1 or folds_columns(last):
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
    joined, fills = joined_groups(p), fills_up(p)
    if joined > 1:
        p = joined_by(p, joined)
    if folds_columns(p):
        fold = fold_of(p)
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
