"""transform_layout: a tensor kept, and computed, with its elements in another order."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tilewright.arith import Analyzer
from tilewright.arith.affine import as_affine
from tilewright.ir.buffer import Buffer
from tilewright.ir.expr import Expr, FloorDiv, FloorMod, IntImm, Load, Var
from tilewright.ir.itervar import IterVar, Range
from tilewright.ir.ops import add, as_index, const, floordiv, floormod, mul
from tilewright.ir.visit import exprs, rewrite_exprs, substitute
from tilewright.schedule.cache import renamed_body, replace_output
from tilewright.schedule.stage import Stage
from tilewright.te.axes import declared
from tilewright.te.operation import ComputeOp, PlaceholderOp
from tilewright.te.tensor import Tensor

#: Between indices that a machine addresses apart, in TVM. Here memory has one dimension, and only
#: the loops that :func:`tilewright.tvm.lower` shows have the others.
AXIS_SEPARATOR = "axis_separator"


#: Stands for an extent that is symbolic: nothing divides it.
_UNKNOWN = 2**31 - 1


@dataclass(frozen=True)
class _Digit:
    """``floor(var / step) % size``, which stands in an index of the new order with ``place``."""

    var: Var
    step: int
    size: int


def transform_layout(stage: Stage, mapping: Callable[..., Any]) -> list[Any]:
    """Keep the output of ``stage`` at the indices that ``mapping`` makes of its own; the new axes
    are returned, as loops of the stage in their order.

    ``mapping`` takes as many indices as the tensor has (``lambda *outer, i: ...`` names the last)
    and returns a list: of them in another order, of parts of them (``i // 4, i % 4``), of several
    in one (``i * 8 + j``). An index whose extent is symbolic stays as it is. Consumers read the
    elements where they are. An argument of the program has the new shape.

    Raises :class:`ScheduleError` where the mapping is no bijection of this kind, such as where an
    extent is not divided, and where the stage was scheduled already.
    """
    op = stage.op
    if not isinstance(op, (ComputeOp, PlaceholderOp)) or len(op.outputs) != 1:
        raise stage.error(
            "transform_layout: the stage is not one tensor that is computed or an argument",
            mend="Declare the order with te.compute",
        )
    stage.unused("transform_layout")
    if stage.relations or stage.marks:
        raise stage.error(
            "transform_layout: the stage was already scheduled",
            mend="Call transform_layout before split, fuse, bind and the like",
        )
    (tensor,) = op.outputs
    old = [Var.make(f"i{k}") for k in range(tensor.ndim)]
    symbolic = {v: e for v, e in zip(old, tensor.shape, strict=True) if not isinstance(e, IntImm)}
    extents = [e.value if isinstance(e, IntImm) else _UNKNOWN for e in tensor.shape]
    analyzer = Analyzer()
    for var, extent in zip(old, extents, strict=True):
        analyzer.bind(var, 0, extent)
    mapped = _mapped(mapping, old)
    given = [g for g in mapped if not isinstance(g, str)]
    separators = [k for k, g in enumerate(mapped) if isinstance(g, str)]
    new = [analyzer.simplify(as_index(g)) for g in given]
    for var in symbolic:
        if [e is var for e in new if var in set(exprs(e))] != [True]:
            raise stage.error(
                "transform_layout: an index whose extent is symbolic is divided, or in a sum",
                mend="Leave it as it is",
            )
    parts = [_digits(stage, e, dict(zip(old, extents, strict=True))) for e in new]
    whole = [math.prod(d.size for d, _ in digits) for digits in parts]
    shape = [symbolic.get(e, const(n)) for e, n in zip(new, whole, strict=True)]  # type: ignore[call-overload]
    axes = tuple(
        declared(IterVar(Range.from_extent(0, extent), Var.make(f"axis{k}"), "data"))
        for k, extent in enumerate(shape)
    )
    back = _inverse(stage, old, extents, parts, [a.var for a in axes])
    _check_divides(stage, given, dict(zip(old, extents, strict=True)))
    buffer = Buffer(tensor.name, tuple(shape), tensor.dtype, tensor.buffer.scope)
    made: ComputeOp | PlaceholderOp
    if isinstance(op, ComputeOp):
        renamed = {a.var: back[v] for a, v in zip(op.axis, old, strict=True)}
        made = op.derive(renamed_body(op.body, renamed), axes)
    else:
        made = PlaceholderOp(op.name, op.tag, op.attrs)
        made.where = op.where
    made.outputs = (Tensor(made, 0, buffer),)
    _reroute(stage, tensor.buffer, buffer, old, new)
    schedule = stage.schedule
    replace_output(schedule, op, made)
    stage.replace_op(made)
    schedule.moved[tensor.buffer] = buffer
    if separators:
        schedule.separators[buffer] = tuple(k - n for n, k in enumerate(separators))
    schedule.know(stage, buffer)
    return list(axes)


def _mapped(mapping: Callable[..., Any], old: Sequence[Var]) -> Any:
    """What ``mapping`` makes of the indices; parameters that have to be named take the last."""
    names = [
        p.name
        for p in inspect.signature(mapping).parameters.values()
        if p.kind is p.KEYWORD_ONLY and p.default is p.empty
    ]
    first = len(old) - len(names)
    return mapping(*old[:first], **dict(zip(names, old[first:], strict=True)))


def _check_divides(stage: Stage, mapped: Sequence[Any], extents: dict[Var, int]) -> None:
    """Raises where an index is split by a number that does not divide its extent."""
    for index in mapped:
        for e in exprs(as_index(index)):
            match e:
                case FloorDiv(Var() as var, IntImm(_, by)) | FloorMod(Var() as var, IntImm(_, by)):
                    if extents.get(var, 0) % by:
                        raise stage.error(
                            f"transform_layout: {e} splits an extent of {extents[var]} by {by}",
                            mend="Split by a number that divides it",
                        )


def _digits(stage: Stage, e: Expr, extents: dict[Var, int]) -> list[tuple[_Digit, int]]:
    """The digits that an index is made of, the smallest place first."""
    found: list[tuple[_Digit, int]] = []
    form = as_affine(e)
    for atom, place in form.terms.items():
        digit = _digit(atom, extents)
        if digit is None or place <= 0:
            raise _refused(stage, e)
        found.append((digit, place))
    found.sort(key=lambda item: item[1])
    expected = 1
    for digit, place in found:
        if place != expected:
            raise _refused(stage, e)
        expected *= digit.size
    if form.const:
        raise _refused(stage, e)
    return found


def _digit(atom: Expr, extents: dict[Var, int]) -> _Digit | None:
    size, step = 0, 1
    match atom:
        case FloorMod(inner, IntImm(_, size)):
            atom = inner
    match atom:
        case FloorDiv(inner, IntImm(_, step)):
            atom = inner
    if not isinstance(atom, Var):
        return None
    whole = -(-extents[atom] // step)
    return _Digit(atom, step, size or whole)


def _refused(stage: Stage, e: Expr) -> Exception:
    return stage.error(
        f"transform_layout: {e} is no index made of digits of the old ones",
        mend="Use parts such as i // 4 and i % 4, which together are all of i, and sums such as "
        "i * 8 + j of whole places",
    )


def _inverse(
    stage: Stage,
    old: Sequence[Var],
    extents: Sequence[int],
    parts: Sequence[Sequence[tuple[_Digit, int]]],
    new: Sequence[Var],
) -> dict[Var, Expr]:
    """The old indices by the new ones."""
    found: dict[Var, Expr] = {}
    for var, extent in zip(old, extents, strict=True):
        total: Expr = const(0)
        expected = 1
        own = [
            (d, place, axis, math.prod(x.size for x, _ in digits))
            for digits, axis in zip(parts, new, strict=True)
            for d, place in digits
            if d.var is var
        ]
        for digit, place, axis, whole in sorted(own, key=lambda item: item[0].step):
            if digit.step != expected:
                raise stage.error(
                    f"transform_layout: an old index is lost, or stands twice, at {digit.step}",
                    mend="Let every digit of every old index stand once",
                )
            value = axis if place == 1 else floordiv(axis, const(place))
            if place * digit.size < whole:
                value = floormod(value, const(digit.size))
            total = add(total, mul(value, const(digit.step)))
            expected *= digit.size
        if expected != extent:
            raise stage.error(
                f"transform_layout: an extent of {extent} becomes {expected} places",
                mend="Split by a number that divides it",
            )
        found[var] = total
    return found


def _reroute(
    stage: Stage, old: Buffer, new: Buffer, indices: Sequence[Var], mapped: Sequence[Expr]
) -> None:
    """Let the consumers read elements where they are now."""

    def rule(e: Expr) -> Expr | None:
        if not isinstance(e, Load) or e.buffer is not old:
            return None
        values = dict(zip(indices, e.indices, strict=True))
        return Load(new, tuple(substitute(m, values) for m in mapped), e.predicate)

    for consumer in stage.schedule.consumers(stage):
        op = consumer.op
        if not isinstance(op, ComputeOp):
            raise consumer.error(
                f"transform_layout: an extern stage reads {old.name!r} as it is declared",
                mend="Leave out transform_layout for what externs read",
            )
        made = op.derive(tuple(rewrite_exprs(e, rule) for e in op.body))
        consumer.op = made
        replace_output(stage.schedule, op, made)
