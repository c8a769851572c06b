"""What tiles of products of boxes are made for: a problem's convolution, its extents and steps, and
the channels that a tile may have.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from tilewright.ir.dtype import dtype
from tilewright.target.boxes import MOST_STEP
from tilewright.topi.gpu.box_shapes import FEW_PARTS
from tilewright.topi.gpu.machine import sees_nothing
from tilewright.topi.nn.box_matmul import as_convolution, as_convolutions
from tilewright.topi.nn.box_phases import all_phases, is_phased
from tilewright.topi.nn.box_problems import (
    ROW,
    Widths,
    as_brought,
    copies_filter,
    filled_up,
    half_step,
    in_boxes,
    in_short_rows,
    is_in_halves,
    is_turned,
    of_a_group,
    sliced,
    widths,
)
from tilewright.topi.nn.convolved import Convolved
from tilewright.topi.operators.conv import Conv
from tilewright.topi.operators.conv_shapes import BLOCKED
from tilewright.topi.operators.convolution import Convolution
from tilewright.topi.operators.gemm import Gemm
from tilewright.topi.pieces.box_tiles import ROWS
from tilewright.topi.pieces.step_sums import are_apart
from tilewright.topi.pieces.thread_order import in_order
from tilewright.topi.problem import Problem

#: Channels of a tile, and steps that are loaded ahead of the last.
CHANNELS, STAGES = (256, 128, 64, 32, 16, 8), (3, 4, 2)
#: Channels of which those of a tile are a multiple.
_LEAST = 8
#: By type of images, or of TF32 with the pass, that of sums.
_KINDS = {
    "float16": "float32", "bfloat16": "float32", "int8": "int32", "uint8": "int32",
    "float8_e4m3fn": "float32", "float8_e5m2": "float32",
    **{f"{x}, {pass_}": "float32" for x in ("tf32", "tf32x3") for pass_ in ("forward", "dgrad")},
    "tf32, wgrad": "float32",
}  # fmt: skip


def convolution_of(p: Problem) -> Convolution | None:
    """The convolution whose tiles a problem has: itself, or that of a product of matrices."""
    if isinstance(p, Gemm):
        return as_convolution(p)
    return p if isinstance(p, Convolution) else None


def suited(problem: Problem) -> Convolution | None:
    """The convolution of a problem that :func:`suits`, as boxes compute it."""
    p = convolution_of(problem)
    if p is None or p.is_depthwise or not (as_brought(p).channels_last or as_brought(p).block):
        return None
    kind = f"{p.precision}, {p.pass_}" if p.dtype == "float32" else p.dtype
    if kind not in _KINDS or p.accumulate != _KINDS[kind]:
        return None
    chunk = widths(p.dtype).chunk
    if (p.pass_ != "forward" and p.out_channels % chunk) or max(p.stride) > MOST_STEP:
        return None
    if is_phased(p) and (set(p.dilation) != {1} or p.epilogue):
        return None
    found = None if sees_nothing(p) else in_boxes(p)
    if found is None or p.pass_ != "forward" or found.channels == p.channels or found.groups > 1:
        return found
    # What threads load themselves is sooner there than a copy, where all is one step of 16 bits.
    return None if chunk == 8 and p.channels * math.prod(p.kernel) <= ROW else found


def each_image(problem: Problem) -> Convolution | None:
    """The convolution of images with a filter each that several products of matrices are."""
    if not isinstance(problem, Gemm) or problem.batch == 1 or are_apart(problem):
        return None
    return as_convolutions(problem) if suited(problem.replace(batch=1)) is not None else None


@dataclass(frozen=True)
class Sizes:
    """What tiles of a problem are made for: images of results and extents in them, and how far
    those of neighbours are apart; taps, and those that a result has in the mean of the phases;
    phases of results, bytes of a step and steps of a tap; the widths of what is stored, and bytes
    of it; where channels lie in blocks, bytes of one; and how many products a step sums of each two
    numbers that it brings."""

    extents: tuple[int, ...]
    strides: tuple[int, ...]
    taps: int
    mean: float
    phases: int
    depth: int
    parts: int
    made: Widths
    stored: int
    block: int = 0
    terms: float = 1.0

    @property
    def written(self) -> int:
        """Bytes of a result as writing it counts: threads write pairs of bytes as pairs of 16
        bits."""
        return max(self.stored, 2)

    @staticmethod
    def of(p: Convolution, result: str, whole: bool = False) -> Sizes:
        """Those of a problem that boxes can bring, ``whole`` or for each tap, whose results are of
        that type."""
        w, taps, number = Convolved(p), math.prod(Convolved(p).kernel), 1
        mean: float = taps
        extents = (p.batch, *w.result)
        if is_phased(p):
            rows = [-(-e // s) for e, s in zip(p.image, p.stride, strict=True)]
            cut = all_phases(p)
            extents, number = (p.batch, *rows), math.prod(len(c.phases) for c in cut)
            taps = math.prod(c.taps for c in cut)
            mean = math.prod(sum(n for _, n in c.seen) for c in cut) / number
        own, made = widths(p.dtype), widths(result)
        deep = filled_up(p, whole)
        step, terms = own.step(deep), 1.0
        if is_in_halves(p):
            deep = of_a_group(p)[0]
            step, terms = 2 * half_step(deep), 1.5
        parts = deep // step
        return Sizes(
            extents, (1, *w.stride), taps, mean, number, step * 16 // own.chunk, parts, made,
            16 // made.chunk, p.block * 16 // own.chunk, terms,
        )  # fmt: skip

    def staged(self, problem: Problem, rows: int, channels: int, directly: bool = False) -> int:
        """Bytes of results in shared memory, unless they leave ``directly``, and of numbers."""
        chunk, numbers = self.made.chunk, 8 * channels * computes_numbers(problem)
        if directly:
            return numbers
        whole = min(self.made.row, max(channels, chunk))
        row = -(-(channels - chunk) // whole) * whole + chunk
        return rows * row * self.stored + numbers

    def boxes(self, box: tuple[int, ...]) -> int:
        """How many boxes cover results."""
        return math.prod([-(-e // n) for e, n in zip(self.extents, box, strict=True)])

    def is_less(self, box: tuple[int, ...]) -> bool:
        """Whether one of half as many rows has all that this has."""
        return math.prod(box) > ROWS and any(
            n >= 2 * e for n, e in zip(box, self.extents, strict=True)
        )


def has_short_rows(problem: Problem, p: Convolution, whole: bool = False) -> bool:
    """Whether boxes of a tap, or ``whole`` ones, come with a filter in rows of a block of channels,
    of a problem that is computed as ``p``: one that is copied has long ones."""
    if not isinstance(problem, Conv) or problem.layout != p.layout:
        return False
    return in_short_rows(p) and not copies_filter(problem, whole)


def direct_channels(
    problem: Problem, p: Convolution, channels: Iterable[int], whole: bool = False
) -> list[int]:
    """Of channels that tiles may have, which are no rows of instructions, those whose results leave
    shared memory out: of a problem that is computed as ``p``, in ``whole`` boxes or not."""
    if is_turned(p) or sliced(p) > 1 or (not whole and has_short_rows(problem, p)):
        return []
    return [c for c in channels if in_order(problem, p.result_channels, c)]


def stores_last(problem: Problem, p: Convolution) -> bool:
    """Whether results of a problem that is computed as ``p`` are stored as ``p`` has them."""
    if not isinstance(problem, Conv) or problem.layout == p.layout:
        return not p.block
    return not problem.is_quantized and problem.result_layout == p.layout


def added_bytes(problem: Problem, rows: int, channels: int) -> tuple[int, int]:
    """Bytes of what is added to the results of a box: that TMA brings, and that threads read."""
    names = {name for x in problem.epilogue for name, shape in x.tensors if shape == "output"}
    brought = read = 0
    for shape, kind in (problem.inputs()[name] for name in names):
        w, size = widths(kind), rows * channels * dtype(kind).bytes
        if shape[-1] % w.chunk == 0 and channels % w.row == 0:
            brought += size
        else:
            read += size
    return brought, read


def computes_numbers(p: Problem) -> bool:
    """Whether an epilogue computes numbers of channels, of which others are read as they are."""
    return bool(p.epilogue) and any(len(step.tensors) > 2 for step in p.epilogue)


def channels_of(problem: Problem, p: Convolution) -> list[int]:
    """How many channels of the result a tile may have: whole blocks, where it has such."""
    return [c for c in _channels_of(p) if c % result_block(problem) == 0]


def result_block(problem: Problem) -> int:
    """Channels of a block of the result; 1 where they do not lie in such."""
    return BLOCKED.get(problem.result_layout, 1) if isinstance(problem, Conv) else 1


def _channels_of(p: Convolution) -> list[int]:
    (_, made), slices, wide = of_a_group(p), sliced(p), p.result_channels
    if slices > 1:
        return [slices * made]
    least = ROW if is_turned(p) else 1
    most = next((c for c in reversed(CHANNELS) if c >= wide), CHANNELS[0])
    found = [
        c for c in CHANNELS
        if least <= c <= max(most, least) and (p.groups == 1 or made % c == 0)
    ]  # fmt: skip
    if p.groups > 1 or p.pass_ != "forward":
        return found
    # Those of which a few tiles have all, and hardly more.
    even = (-(-wide // (parts * _LEAST)) * _LEAST for parts in range(1, FEW_PARTS + 1))
    return [*found, *(c for c in dict.fromkeys(even) if c < CHANNELS[0] and c & (c - 1))]
