"""in_tf32: a sum of products of float32 as one of products of TF32, which tensor cores multiply."""

from __future__ import annotations

from typing import Any

from tilewright.ir.dtype import dtype
from tilewright.ir.expr import Expr, Load, Mul, Reduce, Var, load
from tilewright.ir.itervar import IterVar, Range
from tilewright.ir.ops import add, const, floordiv, floormod, mul, select, sub
from tilewright.ir.tf32 import round_tf32, truncate_tf32
from tilewright.schedule.cache import make_operation, replace_output
from tilewright.schedule.schedule import Schedule
from tilewright.schedule.stage import Stage
from tilewright.te.operation import ComputeOp
from tilewright.te.tensor import Tensor

#: Moves a float32 by half of what TF32 tells apart, on average, so that it is the nearest that is
#: left of it more often than not; one that is TF32 stays what it is, and so does NaN.
_HALF_MORE = 1 + 11 * 2.0**-15


def in_tf32(s: Schedule, tensor: Tensor, terms: int) -> tuple[Tensor, Tensor]:
    """Compute ``tensor``, a sum of products of two float32, by products of TF32.

    With three ``terms``, ``C[i] = sum(A[k] * B[i, k], k)`` becomes ``C[i] = sum(t(AP[(term + 1) //
    2, k]) * t(BP[(term + 1) % 2, i, k]), [term, k])``, ``t`` being
    :func:`~tilewright.ir.tf32.truncate_tf32`: each factor is the sum of a small TF32, ``AP[0]``,
    and a large one, ``AP[1]``, and what is left out is the product of the small ones. Results are
    as exact as those of float32 where sums are; what is infinite has no small part, and gives NaN.
    With one term, ``AP[0]`` is the factor itself, rounded to one of the two nearest. The stages of
    the parts, which are returned, in the order of the factors, stand ahead of that of ``tensor``.

    Raises :class:`ScheduleError` where it is no such sum, or was scheduled already, and for other
    numbers of terms.
    """
    stage = s[tensor]
    op = stage.op
    stage.unused("in_tf32")
    if terms not in (1, 3):
        raise stage.error(
            f"in_tf32: a product is the sum of 1 or of 3 of TF32, not of {terms!r}",
            mend="Give 3, or 1 where rounded factors are exact enough",
        )
    if stage.relations or stage.marks:
        raise stage.error(
            "in_tf32: the stage was already scheduled",
            mend="Call in_tf32 first, and split the loops that it leaves",
        )
    body = op.body[0] if isinstance(op, ComputeOp) else None
    if not isinstance(body, Reduce) or body.reducer.name != "sum" or len(op.outputs) != 1:
        raise stage.error("in_tf32: the stage is no sum", mend="Pass the tensor that te.sum makes")
    assert isinstance(op, ComputeOp)
    product = body.source[0]
    factors = (product.a, product.b) if isinstance(product, Mul) else ()
    reads = [f for f in factors if isinstance(f, Load) and f.dtype == dtype("float32")]
    if len(reads) != 2:
        raise stage.error(
            f"in_tf32: {product} is no product of two elements of float32",
            mend="Sum products of what is read as it is",
        )
    term = IterVar(Range.from_extent(0, terms), Var.make("term"), "reduce")
    numbers: list[Expr] = [term.var, term.var]
    if terms == 3:
        numbers = [f(add(term.var, const(1)), const(2)) for f in (floordiv, floormod)]
    made, source = [], []
    for read, number in zip(reads, numbers, strict=True):
        made.append(_parts(s, stage, read, 1 if terms == 1 else 2))
        source.append(truncate_tf32(load(made[-1].buffer, (number, *read.indices))))
    reduced = (term, *body.axes)
    derived = op.derive(
        (Reduce(body.reducer, (mul(*source),), reduced, body.condition, body.index, body.init),)
    )
    stage.replace_op(derived)
    replace_output(s, op, derived)
    return made[0], made[1]


def _parts(s: Schedule, reader: Stage, read: Load, count: int) -> Tensor:
    """A stage of the parts of all elements of what ``read`` is one of."""
    shape = (const(count), *read.buffer.shape)
    axes = tuple(
        IterVar(Range.from_extent(0, n), Var.make(f"ax{k}", n.dtype), "data")
        for k, n in enumerate(shape)
    )
    part, *at = (axis.var for axis in axes)
    whole: Any = load(read.buffer, tuple(at))
    if count == 1:
        value: Expr = truncate_tf32(mul(whole, const(_HALF_MORE, whole.dtype)))
    else:
        large = round_tf32(whole)
        value = select(part.equal(0), sub(whole, large), large)
    op = make_operation(f"{read.buffer.name}.tf32", axes, (value,))
    s.add(Stage(s, op), before=reader)
    return op.output(0)
