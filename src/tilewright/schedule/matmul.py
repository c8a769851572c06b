"""as_matmul: a sum of products computed as a product of matrices, one for each of some groups."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tilewright.arith import Analyzer
from tilewright.ir.errors import ScheduleError
from tilewright.ir.expr import (
    Cast,
    Expr,
    FloatImm,
    FloorDiv,
    FloorMod,
    IfThenElse,
    IntImm,
    Load,
    Mul,
    Reduce,
    Var,
    load,
)
from tilewright.ir.ops import const, if_then_else, logical_and
from tilewright.ir.visit import distinct, free_vars, loads, rewrite_exprs, substitute
from tilewright.schedule.cache import replace_output
from tilewright.schedule.schedule import Schedule
from tilewright.schedule.stage import Stage
from tilewright.te.operation import ComputeOp, compute
from tilewright.te.reduction import reduce_axis, sum
from tilewright.te.tensor import Tensor

#: What matrices are filled up to multiples of with zeros: rows, columns, and products of a sum.
Whole = tuple[int, int, int]


@dataclass(frozen=True)
class Matmul:
    """The stages that :func:`as_matmul` makes, and where their axes are in the tensor.

    Attributes
    ----------
    weights, columns, product : (groups, rows, depth), (groups, depth, columns), (groups, rows,
        columns), all filled up.
    rows, across : the dimensions of the tensor that have the rows and the columns, in order.
    apart : the dimension that has the groups alone; None where there is one group, or where they
        are parts of ``rows[0]``, of ``height`` rows each.
    groups, height, depth : how many groups there are, rows of each, and products of a sum.
    contiguous : whether the products of a row are contiguous in memory in what ``weights`` reads.
    dots : whether they are so in both factors: sums are dot products.
    taps : the extents of the sum's axes, of which ``depth`` is the product.
    run : columns that are contiguous in memory in what ``columns`` reads, as are those behind them.
    """

    weights: Tensor
    columns: Tensor
    product: Tensor
    rows: tuple[int, ...]
    across: tuple[int, ...]
    apart: int | None
    groups: int
    height: int
    depth: int
    contiguous: bool
    dots: bool
    taps: tuple[int, ...]
    run: int


def as_matmul(s: Schedule, tensor: Tensor, whole: Whole = (1, 1, 1)) -> Matmul:
    """Compute ``tensor``, sums of products of two factors, as products of matrices.

    An axis of the tensor that one factor alone reads is one of rows or of columns; one that both
    read, one of them maybe by its quotient alone (``m // 8``), has groups. Columns are of the
    factor that reads windows, whose indices add axes of the tensor and of the sum, else of the one
    that reads the tensor's last dimension. The matrices are stages ahead of that of ``tensor``,
    which gathers its elements; each is declared up to a multiple of what ``whole`` says, and zero
    there, so that tiles need no guards.

    Raises :class:`ScheduleError` where it is no such sum, or was scheduled already.
    """
    stage = s[tensor]
    stage.unused("as_matmul")
    factors = _factors(stage)
    op = stage.op
    assert isinstance(op, ComputeOp)
    data = [axis.var for axis in op.axis]
    used = [set(free_vars(f)) for f in factors]
    shared = [k for k, v in enumerate(data) if v in used[0] and v in used[1]]
    if len(shared) > 1:
        raise _refused(stage, "several of its axes are in both factors")
    group, own = Var.make("g"), list(data)  # of an axis with groups, the part within one
    parts, groups, height = list(factors), 1, 1
    if shared:
        at = shared[0]
        parts, height, own[at] = _grouped(factors, data[at], group)
        groups = _static(stage, op.axis[at].dom, "groups") // height
        used = [set(free_vars(f)) for f in parts]
    sides = [[k for k, v in enumerate(own) if v in u] for u in used]
    sides[1] += [k for k, v in enumerate(own) if not (v in used[0] or v in used[1] or k in shared)]
    first = _columns_factor(parts, own, set(_vars(op.reduce_axis)), sides)
    across, rows = sorted(sides[first]), sorted(sides[1 - first])
    apart = shared[0] if shared and height == 1 and rows else None
    if shared and not rows and height == 1:
        rows = list(shared)  # groups of one row
    if not rows or not across or (shared and apart is None and rows != shared):
        raise _refused(stage, "it has no rows and columns")

    depth = [_static(stage, a.dom, "products") for a in op.reduce_axis]
    extents = [_static(stage, op.axis[k].dom, "rows") for k in rows]
    if shared and apart is None:
        extents[0] = height
    if _static(stage, op.axis[rows[0]].dom, "rows") % extents[0]:
        raise _refused(stage, "its groups are not equal")
    wide = [tensor.shape[k] for k in across]
    inner = [_static(stage, op.axis[k].dom, "columns") for k in across[1:]]
    matrix = _Matrices(groups, extents, [wide[0], *inner], depth, whole)
    reduced = _vars(op.reduce_axis)
    alone = {v: const(0) for v, e in zip(reduced, depth, strict=True) if e == 1}
    read = Analyzer().simplify(substitute(parts[first], alone))

    def weight(g: Any, m: Any, k: Any) -> Expr:
        at = dict(zip((own[i] for i in rows), _parts(m, extents), strict=True))
        at |= dict(zip(reduced, _parts(k, depth), strict=True)) | {group: g}
        return _element(parts[1 - first], at, matrix.guards(m=m, k=k))

    def column(g: Any, k: Any, p: Any) -> Expr:
        at = dict(zip((own[i] for i in across), _parts(p, [wide[0], *inner]), strict=True))
        at |= dict(zip(reduced, _parts(k, depth), strict=True)) | {group: g}
        return _element(parts[first], at, matrix.guards(k=k, p=p))

    high, deep, long = matrix.filled
    weights = compute((groups, high, deep), weight, name="Weights", tag="weights")
    columns = compute((groups, deep, long), column, name="Columns", tag="columns")
    k = reduce_axis((0, deep), "k")
    kind = tensor.dtype
    product = compute(
        (groups, high, long),
        lambda g, m, p: sum(weights[g, m, k].astype(kind) * columns[g, k, p].astype(kind), axis=k),
        name="Product", tag="matmul",
    )  # fmt: skip

    index: list[Any] = list(data)
    g = index[apart] if apart is not None else const(0)
    if shared and apart is None and groups > 1:  # % would hide where the rows of a tile end
        g, index[shared[0]] = data[shared[0]] // height, data[shared[0]] % height
    m = _flat([index[i] for i in rows], extents)
    p = _flat([index[i] for i in across], [wide[0], *inner])
    gathered = op.derive((load(product.buffer, (g, m, p)),))
    stage.replace_op(gathered)
    replace_output(s, op, gathered)
    for made in (weights, columns, product):
        s.add(Stage(s, made.op), before=stage)
    return Matmul(
        weights, columns, product, tuple(rows), tuple(across), apart, groups,
        math.prod(extents), math.prod(depth),
        _is_contiguous(parts[1 - first], reduced, depth),
        all(_is_contiguous(part, reduced, depth) for part in parts),
        tuple(depth), _run(read, [own[k] for k in across], [wide[0], *inner]),
    )  # fmt: skip


@dataclass(frozen=True)
class _Matrices:
    """Extents of matrices, of which only the first of ``wide`` may be symbolic."""

    groups: int
    rows: list[int]
    wide: list[Any]
    depth: list[int]
    whole: Whole

    @property
    def filled(self) -> tuple[int, int, Any]:
        """Rows, depth and columns, filled up."""
        high, long, deep = self.whole
        count = self._columns
        filled = (count + (long - 1)) // long * long if long > 1 else count
        return _up(math.prod(self.rows), high), _up(math.prod(self.depth), deep), filled

    @property
    def _columns(self) -> Any:
        count = self.wide[0]
        for extent in self.wide[1:]:
            count = count * extent
        return count

    def guards(self, m: Any = None, k: Any = None, p: Any = None) -> list[Expr]:
        """That an element is not one of those that fill up."""
        rows, deep = math.prod(self.rows), math.prod(self.depth)
        found = [m < rows] if m is not None and rows % self.whole[0] else []
        found += [k < deep] if k is not None and deep % self.whole[2] else []
        found += [p < self._columns] if p is not None and self.whole[1] > 1 else []
        return found


def _factors(stage: Stage) -> list[Expr]:
    """The two factors of what a stage sums, in the type of their elements."""
    op = stage.op
    body = op.body[0] if isinstance(op, ComputeOp) else None
    if not isinstance(body, Reduce) or body.reducer.name != "sum" or len(op.outputs) != 1:
        raise _refused(stage, "it is no sum")
    whole = isinstance(body.condition, IntImm) and body.condition.value and not body.init
    source = body.source[0]
    if not whole or not isinstance(source, Mul):
        raise _refused(stage, "its terms are no products, or some are left out")
    found = [_narrow(f) for f in (source.a, source.b)]
    if found[0].dtype != found[1].dtype:
        raise _refused(stage, f"its factors are {found[0].dtype} and {found[1].dtype}")
    return found


def _narrow(factor: Expr) -> Expr:
    """A factor without its conversion to the type of sums; that may stand behind a condition."""
    if isinstance(factor, Cast):
        return factor.value
    if isinstance(factor, IfThenElse) and isinstance(factor.on_true, Cast):
        if _is_zero(factor.on_false):
            inner = factor.on_true.value
            return if_then_else(factor.condition, inner, const(0, inner.dtype))
    return factor


def _is_zero(e: Expr) -> bool:
    return isinstance(e, (IntImm, FloatImm)) and e.value == 0


def _grouped(factors: Sequence[Expr], v: Var, group: Var) -> tuple[list[Expr], int, Var]:
    """The factors by group, the extent of a group, and the variable within one: of an axis that one
    of them reads by a quotient alone; else each of its values is a group."""
    own = Var.make(v.name, v.dtype)
    for k, factor in enumerate(factors):
        steps = {
            e.b.value
            for e in _nodes(factor)
            if isinstance(e, FloorDiv) and e.a is v and isinstance(e.b, IntImm) and e.b.value > 1
        }
        for step in steps:

            def rule(e: Expr, step: int = step) -> Expr | None:
                if isinstance(e, (FloorDiv, FloorMod)) and e.a is v and isinstance(e.b, IntImm):
                    if e.b.value == step:
                        return group if isinstance(e, FloorDiv) else own
                return None

            first, other = (rewrite_exprs(f, rule) for f in (factor, factors[1 - k]))
            if v in free_vars(first) or own in free_vars(first):
                continue
            other = substitute(other, {v: group * step + own})
            return ([first, other] if k == 0 else [other, first]), int(step), own
    return [substitute(f, {v: group}) for f in factors], 1, own


def _nodes(e: Expr) -> list[Expr]:
    return [x for x in distinct(e) if isinstance(x, Expr)]


def _columns_factor(
    parts: Sequence[Expr], own: Sequence[Var], reduced: set[Var], sides: Sequence[list[int]]
) -> int:
    """Which of two factors has the columns."""
    data = set(own)
    windows = [
        any(data & set(free_vars(i)) and reduced & set(free_vars(i)) for x in loads(f)
            for i in x.indices)
        for f in parts
    ]  # fmt: skip
    if windows[0] != windows[1]:
        return windows.index(True)
    return 0 if max(sides[0], default=-1) > max(sides[1], default=-1) else 1


def _element(factor: Expr, at: dict[Var, Expr], guards: list[Expr]) -> Expr:
    """A factor at an element of its matrix, 0 where that fills up; one condition for all, which
    reads nothing at an element that fills up."""
    made = substitute(factor, at)
    if isinstance(made, IfThenElse) and _is_zero(made.on_false):
        own, made = made.condition, made.on_true
        guards = [*guards, own] if list(loads(own)) else [own, *guards]
    return if_then_else(logical_and(*guards), made, const(0, made.dtype)) if guards else made


def _parts(flat: Any, extents: Sequence[Any]) -> list[Any]:
    """The indices of dimensions of these extents, by that of all."""
    found: list[Any] = []
    for extent in reversed(extents[1:]):
        found.append(flat % extent)
        flat = flat // extent
    return [flat, *reversed(found)]


def _flat(indices: Sequence[Any], extents: Sequence[Any]) -> Any:
    found = indices[0]
    for index, extent in zip(indices[1:], extents[1:], strict=True):
        found = found * extent + index
    return found


def _is_contiguous(factor: Expr, reduced: Sequence[Var], depth: Sequence[int]) -> bool:
    """Whether a factor reads the last dimensions of a tensor whole, in the order of the sum."""
    if not isinstance(factor, Load):
        return False
    count = len(reduced)
    last = [e.value if isinstance(e, IntImm) else None for e in factor.buffer.shape[-count:]]
    same = all(i is v for i, v in zip(factor.indices[-count:], reduced, strict=True))
    return same and last == list(depth)


def _run(factor: Expr, across: Sequence[Var], extents: Sequence[Any]) -> int:
    """How many columns a factor reads side by side, whole dimensions of them."""
    for k in range(len(across)):
        found = [e.value if isinstance(e, IntImm) else e for e in extents[k:]]
        if all(isinstance(e, int) for e in found) and _is_contiguous(factor, across[k:], found):
            return math.prod(found)
    return 1


def _vars(axes: Sequence[Any]) -> list[Var]:
    return [axis.var for axis in axes]


def _static(stage: Stage, dom: Any, what: str) -> int:
    if isinstance(dom.extent, IntImm) and isinstance(dom.min, IntImm) and dom.min.value == 0:
        return dom.extent.value
    raise _refused(stage, f"the number of its {what} is not a constant")


def _up(extent: int, whole: int) -> int:
    return -(-extent // whole) * whole


def _refused(stage: Stage, why: str) -> ScheduleError:
    return stage.error(
        f"as_matmul: this is no product of matrices: {why}",
        mend="It takes te.sum(a * b, axis), a and b elements of two tensors",
    )
