"""Boxes of tensors in global memory, as tensor maps describe them."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tilewright.arith import Analyzer
from tilewright.arith.affine import as_affine
from tilewright.ir.buffer import Buffer
from tilewright.ir.dtype import FLOAT8
from tilewright.ir.expr import Expr, IntImm, Var
from tilewright.ir.ops import const, floordiv, floormod
from tilewright.ir.stmt import Access
from tilewright.ir.visit import substitute, uses
from tilewright.target.instruction import through_widening
from tilewright.target.windows import Window

#: Dimensions that a map may have.
MOST_DIMENSIONS = 5
#: What strides, but that of the last dimension, are multiples of, in bytes, and where along that a
#: box begins. Where along other dimensions is free, and may be before the first element.
STRIDE = 16
#: How many elements apart those of a box may be, and how far it may reach in all.
MOST_STEP, REACH = 8, 256
#: Types of elements that maps are of.
TYPES = ("float16", "bfloat16", "float32", "float64", *FLOAT8, "int8", "uint8", "int16", "uint16",
         "int32", "uint32", "int64", "uint64")  # fmt: skip
_MEND = "copy rows of it with copy_async"


#: What a digit of an index counts, and of how many: of 16 i + 2 j + k, j is (2, 8).
Digit = tuple[int, int]


@dataclass(frozen=True)
class Box:
    """Of which dimensions of a tensor a box has how many elements, the outermost of the box first.

    A box may go through the dimensions of its tensor in another order, but for the last one.
    ``steps`` is how far its elements are apart along each, empty where that is 1. ``joined`` is of
    how many dimensions of the tensor, up to the one that is named, each of the box is: those whose
    elements follow one another are one; empty where all are of one. ``digits`` are of which digit
    of the index along that dimension, by what it counts, and how many there are of it, 0 where
    these are as many as the dimension has; empty where all are of whole indices.
    """

    dimensions: tuple[int, ...]
    extents: tuple[int, ...]
    steps: tuple[int, ...] = ()
    joined: tuple[int, ...] = ()
    digits: tuple[Digit, ...] = ()

    @property
    def counts(self) -> tuple[int, ...]:
        """``joined``, of all dimensions."""
        return self.joined or (1,) * len(self.dimensions)

    @property
    def places(self) -> tuple[Digit, ...]:
        """``digits``, of all dimensions."""
        return self.digits or ((1, 0),) * len(self.dimensions)

    @property
    def within(self) -> set[int]:
        """The dimensions of the tensor that are joined to the next one: the map has no strides of
        these."""
        pairs = zip(self.dimensions, self.counts, strict=True)
        return {d for last, count in pairs for d in range(last - count + 1, last)}

    def begin(self, access: Access, axes: Sequence[Var], analyzer: Analyzer) -> list[Expr]:
        """Where along the dimensions of the box the first element, of which all ``axes`` are 0,
        is."""
        zero: dict[Expr, Expr] = {axis: const(0, axis.dtype) for axis in axes}
        shape, found = access.buffer.shape, []
        for last, count, (step, most) in zip(
            self.dimensions, self.counts, self.places, strict=True
        ):
            first = last - count + 1
            indices = [substitute(i, zero) for i in access.indices[first : last + 1]]
            index = _joint(indices, shape[first : last + 1], analyzer)
            if step > 1:
                index = analyzer.simplify(floordiv(index, const(step, index.dtype)))
            if most:
                index = analyzer.simplify(floormod(index, const(most, index.dtype)))
            found.append(index)
        return found


@dataclass(frozen=True)
class TensorMap:
    """What the host describes to TMA: boxes of one parameter of a kernel.

    ``param`` is its position among the kernel's; ``swizzle`` is in bytes. Where there is a
    ``window``, the box has pixels by channels of it.
    """

    param: int
    box: Box
    swizzle: int = 0
    window: Window | None = None

    @property
    def row(self) -> list[Any]:
        """The map as JSON has it."""
        box = self.box
        if self.window is not None:
            w = self.window
            own = [[*w.grid], [*w.steps], [*w.first]]
            return [self.param, [*box.dimensions], [*box.extents], self.swizzle, *own]
        more = [[*box.steps], [*box.joined]] if box.joined else [[*box.steps]] if box.steps else []
        if box.digits:
            more = [[*box.steps], [*box.joined], *(list(d) for d in zip(*box.digits, strict=True))]
        return [self.param, [*box.dimensions], [*box.extents], self.swizzle, *more]

    @staticmethod
    def of(row: Sequence[Any]) -> TensorMap:
        """The map that :attr:`row` is of."""
        param, dimensions, extents, swizzle, *more = row
        if len(more) == 3:
            grid, steps, first = map(tuple, more)
            box = Box(tuple(dimensions), tuple(extents))
            return TensorMap(param, box, swizzle, Window(grid, steps, first))
        if len(more) == 4:
            digits = tuple(zip(*more[2:], strict=True))
            own = [tuple(x) for x in (dimensions, extents, *more[:2])]
            return TensorMap(param, Box(own[0], own[1], own[2], own[3], digits), swizzle)
        return TensorMap(param, Box(*map(tuple, (dimensions, extents, *more))), swizzle)


def box_of(
    access: Access, axes: Sequence[Var], extents: Sequence[int], analyzer: Analyzer | None = None,
    proved: bool = False,
) -> Box | str:  # fmt: skip
    """The box of which ``access``, by ``axes`` of ``extents``, is an element; or why it is none.

    Dimensions are joined where an axis runs over several of them, as over all pixels of images. The
    ``analyzer`` has to prove then that the inner ones start again where they end, unless that is
    ``proved`` already.
    """
    az = analyzer or Analyzer()
    with az.scope():
        for axis, extent in zip(axes, extents, strict=True):
            az.bind(axis, 0, const(extent))
        simple = replace(access, indices=tuple(az.simplify(i) for i in access.indices))
        return _box_of(simple, axes, extents, az, proved)


def _box_of(
    access: Access, axes: Sequence[Var], extents: Sequence[int], analyzer: Analyzer, proved: bool
) -> Box | str:
    own = {v: n for v, n in zip(axes, extents, strict=True) if n > 1}
    found: dict[Var, int] = {}
    steps: dict[Var, int] = {}
    rest: list[int] = []
    dimensions = _dimensions(access, own, analyzer, proved)
    if len(dimensions) > MOST_DIMENSIONS:
        dimensions = _fewer(dimensions, access, own, analyzer, proved)
    for d, (_, _, index, _) in enumerate(dimensions):
        form = as_affine(index, through_widening)
        here = [v for v in own if uses(index, {v})]
        if not _is_plain(index, own):
            return f"index {index} is not one axis of the box and where it begins"
        if not here:
            rest.append(d)
        elif here[0] in found:
            return f"{here[0].name} is along two of its dimensions"
        else:
            step = form.coefficient(here[0])
            if not 1 <= step <= MOST_STEP or step * own[here[0]] > REACH:
                return (
                    f"index {index} takes {own[here[0]]} elements, {step} apart: at most "
                    f"{MOST_STEP} apart, over {REACH} elements"
                )
            found[here[0]], steps[here[0]] = d, step
    for v in own:
        if v not in found:
            return f"{v.name} is along none of its dimensions"
    if found.get(axes[-1]) != len(dimensions) - 1:
        return "the rows of the box are not along its last dimension"
    if steps[axes[-1]] != 1:
        return f"index {access.indices[-1]} skips elements"
    if len(dimensions) > MOST_DIMENSIONS:
        return f"it has {len(dimensions)} dimensions, a tensor map {MOST_DIMENSIONS} at most"
    single, along = [1] * len(rest), [found[v] for v in own]
    apart = (*single, *(steps[v] for v in own)) if set(steps.values()) != {1} else ()
    taken = [dimensions[d] for d in (*rest, *along)]
    strides = _strides(access.buffer)
    for _, last, index, (step, _) in taken[:-1]:
        size = (strides[last] or 0) * step * access.buffer.dtype.bytes
        if size % STRIDE:
            return (
                f"along {index} elements are {size} bytes apart, in a tensor map they are a "
                f"multiple of {STRIDE}"
            )
    counts = tuple(last - first + 1 for first, last, *_ in taken)
    digits = tuple(digit for *_, digit in taken)
    return Box(
        tuple(last for _, last, *_ in taken), (*single, *own.values()), apart,
        counts if max(counts) > 1 else (), digits if set(digits) != {_WHOLE} else (),
    )  # fmt: skip


def _is_plain(index: Expr, own: Mapping[Var, int]) -> bool:
    """Whether an index is affine in at most one of these variables."""
    terms = as_affine(index, through_widening).terms
    if any(uses(atom, set(own)) for atom in terms if not isinstance(atom, Var)):
        return False
    return sum(atom in own for atom in terms) < 2


def _joint(indices: Sequence[Expr], extents: Sequence[Expr], analyzer: Analyzer) -> Expr:
    """The index along dimensions that are joined."""
    found, *others = indices
    for index, extent in zip(others, extents[1:], strict=True):
        found = found * extent + index
    return analyzer.simplify(found) if others else found


#: The digit that is a whole index.
_WHOLE: Digit = (1, 0)

#: The first and the last dimension of a tensor that is one of a map, the index along it, and which
#: digit of that it is.
_Dimension = tuple[int, int, Expr, Digit]


def _dimensions(
    access: Access, own: Mapping[Var, int], analyzer: Analyzer, proved: bool
) -> list[_Dimension]:
    """The dimensions of a tensor, some of them joined or taken apart, only the fewest so that
    indices are plain."""
    found: list[_Dimension] = []
    last = len(access.indices) - 1
    while last >= 0:
        for first in range(last, -1, -1):
            index = _joined(access, first, last, analyzer, proved)
            if index is None:
                continue
            if _is_plain(index, own):
                digits = [(index, _WHOLE)]
                break
            digits = _digits(index, access.buffer.shape[first : last + 1], own, analyzer)
            if digits:
                break
        else:
            first, digits = last, [(access.indices[last], _WHOLE)]
        found = [*((first, last, i, digit) for i, digit in digits), *found]
        last = first - 1
    return found


def _digits(
    index: Expr, extents: Sequence[Expr], own: Mapping[Var, int], analyzer: Analyzer
) -> list[tuple[Expr, Digit]]:
    """An index that several of these variables count in steps of their own, as 16 i + 2 j + k, as
    its digits, the largest first; none where it is not that, or the extent is not whole ones."""
    form = as_affine(index, through_widening)
    steps = {form.coefficient(v): v for v in own if uses(index, {v})}
    parts = sorted(steps)
    if (
        len(parts) < 2
        or parts[0] != 1
        or any(uses(a, set(own)) for a in form.terms if a not in own)
    ):
        return []
    for step, more in itertools.pairwise(parts):
        if more % step or own[steps[step]] * step > more:
            return []
    top = parts[-1]
    first = analyzer.simplify(substitute(index, {v: const(0, v.dtype) for v in steps.values()}))
    inner = math.prod(e.value for e in extents if isinstance(e, IntImm))
    if not isinstance(extents[-1], IntImm) or inner % top:
        return []
    if not analyzer.prove(floormod(first, const(top, first.dtype)).equal(0)):
        return []
    found: list[tuple[Expr, Digit]] = []
    for step, more in itertools.pairwise([*parts, 0]):
        own_index: Expr = steps[step]
        if step == top:
            own_index = analyzer.simplify(floordiv(first, const(top, first.dtype))) + own_index
        found.insert(0, (own_index, (step, more // step)))
    return found


def _fewer(
    dimensions: list[_Dimension], access: Access, own: Mapping[Var, int], analyzer: Analyzer,
    proved: bool,
) -> list[_Dimension]:  # fmt: skip
    """The same, neighbours along which a box has one element joined."""
    found = list[_Dimension]()
    for new in dimensions:
        _, last, index, digit = new
        if found and digit == found[-1][3] == _WHOLE and not uses(index, set(own)):
            before = found[-1]
            joint = _joined(access, before[0], last, analyzer, proved)
            if joint is not None and not uses(before[2], set(own)):
                new = (before[0], last, joint, _WHOLE)
                found.pop()
        found.append(new)
    return found


def _joined(access: Access, first: int, last: int, analyzer: Analyzer, proved: bool) -> Expr | None:
    """The index along some dimensions that are joined; None where they cannot be."""
    inner = range(first + 1, last + 1)
    shape = access.buffer.shape
    strides = _strides(access.buffer)
    for d in inner:
        extent, stride, outer = shape[d], strides[d], strides[d - 1]
        if not isinstance(extent, IntImm):
            return None
        if stride is not None and outer is not None and outer != stride * extent.value:
            return None
    bounds = (b for d in inner for b in (access.indices[d] >= 0, access.indices[d] < shape[d]))
    if not proved and not all(map(analyzer.prove, bounds)):
        return None
    return _joint(access.indices[first : last + 1], shape[first : last + 1], analyzer)


def limits(buffer: Buffer, box: Box | None = None) -> str:
    """Why there is no map of a tensor, or none for a ``box`` of it, with what to do instead; empty
    where there is one.

    Strides that only a call fixes are left to the launch.
    """
    if len(buffer.shape) > MOST_DIMENSIONS:
        return (
            f"{buffer.name} has {len(buffer.shape)} dimensions, a tensor map {MOST_DIMENSIONS} at "
            f"most: declare it with some of them joined, or {_MEND}"
        )
    *outer, last = _strides(buffer)
    if last != 1:
        return f"neighbours along the last dimension of {buffer.name} do not lie side by side"
    within = set() if box is None else box.within
    for d, stride in enumerate(outer):
        problem = "" if stride is None or d in within else stride_problem(buffer, d, stride)
        if problem:
            return problem
    return ""


def _strides(buffer: Buffer) -> list[int | None]:
    """Those of a buffer that are constants, which may be more than the type of its indices holds;
    None of the others."""
    shape = buffer.constant_shape
    if buffer.layout is None and shape is not None:
        return [math.prod(shape[d + 1 :]) for d in range(len(shape))]
    return [s.value if isinstance(s, IntImm) else None for s in buffer.strides]


def stride_problem(buffer: Buffer, dimension: int, stride: int) -> str:
    """Why a map cannot have a dimension whose elements are ``stride`` apart."""
    size = stride * buffer.dtype.bytes
    if size % STRIDE == 0 and 0 < size < 1 << 40:
        return ""
    return (
        f"along dimension {dimension} of {buffer.name} elements are {size} bytes apart, in a "
        f"tensor map they are a multiple of {STRIDE}, less than 2**40: pad its rows, or {_MEND}"
    )


def start_problem(access: Access, axes: Sequence[Var], box: Box | None, analyzer: Analyzer) -> str:
    """Why the box, or the windows, of which ``access`` is an element, by ``axes``, the last one
    along the last dimension of the tensor, cannot begin where it does; empty where that is known to
    be a multiple of 16 bytes.

    TMA stops with "illegal instruction" anywhere else.
    """
    kind = access.buffer.dtype
    whole = max(1, STRIDE // kind.bytes)
    if box is None:
        start = substitute(access.indices[-1], {axes[-1]: const(0, axes[-1].dtype)})
    else:
        start = box.begin(access, axes, analyzer)[-1]
    start = analyzer.simplify(start)
    if analyzer.prove(start % whole == 0):
        return ""
    return (
        f"along {axes[-1].name} it begins at element {start} of the last dimension of "
        f"{access.buffer.name}, and it is not known that this is a multiple of {whole} {kind}, "
        f"which are {STRIDE} bytes: begin the stage at the multiple before, that many elements "
        f"wider, or {_MEND}"
    )


def inside(access: Access, extents: Sequence[Expr]) -> list[Expr]:
    """What holds of an element that lies in the tensor, one condition a bound."""
    found: list[Expr] = []
    for index, extent in zip(access.indices, extents, strict=True):
        found += [index >= 0, index < extent]
    return found
