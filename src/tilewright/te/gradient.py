"""gradient: the derivatives of a tensor with respect to those that it is computed from."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from tilewright.arith.affine import as_affine
from tilewright.ir import expr as E
from tilewright.ir import ops
from tilewright.ir.errors import LanguageError
from tilewright.ir.expr import Call, Expr, Load, Reduce
from tilewright.ir.visit import exprs, substitute
from tilewright.te import functions as F
from tilewright.te.operation import ComputeOp, Operation, compute
from tilewright.te.reduction import prod, reduce_axis, sum
from tilewright.te.tensor import Tensor, tensor_of

#: The derivative of a function of one value, from that value and the function's.
_FUNCTIONS: dict[str, Callable[[Expr, Expr], Any]] = {
    "exp": lambda x, y: y,
    "exp2": lambda x, y: y * 0.6931471805599453,
    "exp10": lambda x, y: y * 2.302585092994046,
    "expm1": lambda x, y: y + 1.0,
    "log": lambda x, y: 1.0 / x,
    "log2": lambda x, y: 1.4426950408889634 / x,
    "log10": lambda x, y: 0.4342944819032518 / x,
    "log1p": lambda x, y: 1.0 / (1.0 + x),
    "sqrt": lambda x, y: 0.5 / y,
    "rsqrt": lambda x, y: -0.5 * y / x,
    "sin": lambda x, y: F.cos(x),
    "cos": lambda x, y: -F.sin(x),
    "tan": lambda x, y: 1.0 + y * y,
    "asin": lambda x, y: F.rsqrt(1.0 - x * x),
    "acos": lambda x, y: -F.rsqrt(1.0 - x * x),
    "atan": lambda x, y: 1.0 / (1.0 + x * x),
    "sinh": lambda x, y: F.cosh(x),
    "cosh": lambda x, y: F.sinh(x),
    "tanh": lambda x, y: 1.0 - y * y,
    "sigmoid": lambda x, y: y * (1.0 - y),
    "erf": lambda x, y: 1.1283791670955126 * F.exp(-(x * x)),
    "erfc": lambda x, y: -1.1283791670955126 * F.exp(-(x * x)),
    "abs": lambda x, y: ops.select(x < 0, ops.const(-1, x.dtype), ops.const(1, x.dtype)),
}
#: Functions whose derivative is 0 wherever they have one.
_STEPS = ("floor", "ceil", "round", "trunc", "nearbyint", "popcount", "isnan", "bits_of_float")


def gradient(output: Tensor, inputs: Tensor | Sequence[Tensor], head: Tensor | None = None) -> Any:
    """The derivatives of ``output`` with respect to ``inputs``, a list in their order.

    Parameters
    ----------
    output : a tensor of floats, made by ``te.compute`` from ``inputs``.
    head : what stands in front of the derivatives, of a shape that ends with that of ``output``:
        element ``[p, x]`` of a result is the sum over ``o`` of ``head[p, o]`` times the derivative
        of ``output[o]`` by ``input[x]``. Without it, the derivatives themselves, of the shape of
        ``output`` followed by that of the input.

    Where a function has a kink, as ``max``, the derivative of one side counts.

    >>> from tilewright import te
    >>> A, k = te.placeholder((4, 8), name="A"), te.reduce_axis((0, 8), name="k")
    >>> B = te.compute((4,), lambda i: te.sum(A[i, k] * A[i, k], axis=k), name="B")
    >>> gradient(B, [A])[0].shape
    (4, 4, 8)

    Raises :class:`LanguageError` for what has no derivative here: externs, scans, integers, and
    reductions other than sum, prod, max and min.
    """
    wanted: list[Tensor] = [inputs] if isinstance(inputs, Tensor) else list(inputs)
    if not output.dtype.is_float:
        raise LanguageError(f"gradient: {output.name} is of {output.dtype}, which has none")
    if head is None:
        rank = output.ndim
        head = compute(
            (*output.shape, *output.shape),
            lambda *i: ops.cast(
                output.dtype,
                ops.logical_and(
                    *(ops.as_expr(a).equal(b) for a, b in zip(i, i[rank:], strict=False))
                ),
            ),
            name="identity",
            tag="injective",
        )
    prefix = tuple(head.shape[: head.ndim - output.ndim])
    adjoints: dict[Tensor, list[Tensor]] = {output: [head]}
    found: dict[Tensor, Tensor] = {}
    for op in _consumers_first(output.op, wanted):
        for tensor in op.outputs:
            if tensor not in adjoints:
                continue
            total = functools.reduce(_added, adjoints.pop(tensor))
            if tensor in wanted:
                found[tensor] = total
            if isinstance(op, ComputeOp):
                for read, part in _contributions(op, tensor, total, len(prefix)):
                    adjoints.setdefault(read, []).append(part)
    return [found.get(t) or _zeros((*prefix, *t.shape), t.dtype) for t in wanted]


def _added(a: Tensor, b: Tensor) -> Tensor:
    made: Tensor = compute(a.shape, lambda *i: a(*i) + b(*i), f"{a.name}.sum", "elemwise")
    return made


def _zeros(shape: tuple[Expr, ...], type: str) -> Tensor:
    made: Tensor = compute(shape, lambda *i: ops.const(0, type), "zeros", "elemwise")
    return made


def _consumers_first(op: Operation, wanted: list[Tensor]) -> list[Operation]:
    """The operations between ``op`` and the wanted tensors, each before those it reads."""
    order: dict[Operation, bool] = {}
    goal = {t.op for t in wanted}

    def visit(current: Operation) -> bool:
        if current not in order:
            reads = [visit(t.op) for t in current.inputs]
            order[current] = any(reads) or current in goal
        return order[current]

    visit(op)
    return [o for o, leads in reversed(order.items()) if leads]


def _contributions(
    op: ComputeOp, tensor: Tensor, adjoint: Tensor, prefix: int
) -> list[tuple[Tensor, Tensor]]:
    """By tensor that ``op`` reads, what it adds to its adjoint."""
    value = op.body[tensor.index]
    own = tuple(a.var for a in op.axis)
    seed_of: Callable[..., Expr] = lambda at: adjoint(*at, *own)  # noqa: E731
    source, weight = value, ops.const(1, tensor.dtype)
    if isinstance(value, Reduce):
        name = value.reducer.name
        source = value.source[value.index]
        if name not in ("sum", "prod", "max", "min") or len(value.source) > 1:
            raise LanguageError(f"gradient: {op.name} reduces by {name}, which has none here")
        if name in ("max", "min"):
            weight = ops.cast(tensor.dtype, source.equal(tensor(*own)))
        elif name == "prod":
            weight = _others(op, value, source)
        weight = ops.if_then_else(value.condition, weight, ops.const(0, weight.dtype))
    partials: dict[Load, Expr] = {}
    _differentiate(source, weight, partials)
    found = []
    for read, partial in partials.items():
        of = tensor_of(read.buffer)
        if of is not None and of.dtype.is_float:
            found.append((of, _pulled_back(op, of, read, partial, seed_of, adjoint, prefix)))
    return found


def _others(op: ComputeOp, value: Reduce, source: Expr) -> Expr:
    """Of a product, for each factor the product of the others, which divides by none."""
    axes = (*op.axis, *value.axes)
    fresh = [reduce_axis((0, a.dom.extent), name=f"{a.name}.other") for a in value.axes]

    def element(*at: Any) -> Any:
        mapping = dict(zip((a.var for a in axes), at, strict=True))
        mapping |= {a.var: b.var for a, b in zip(value.axes, fresh, strict=True)}
        own = at[len(op.axis) :]
        same = ops.logical_and(*(b.var.equal(i) for b, i in zip(fresh, own, strict=True)))
        one = ops.const(1, source.dtype)
        return prod(ops.if_then_else(same, one, substitute(source, mapping)), axis=fresh)

    shape = tuple(a.dom.extent for a in axes if a.dom is not None)
    others: Tensor = compute(shape, element, f"{op.name}.others")
    return others(*(a.var for a in axes))


def _differentiate(e: Expr, seed: Any, found: dict[Load, Expr]) -> None:
    """Add to ``found``, by element that ``e`` reads, ``seed`` times the derivative by it."""
    if not any(isinstance(x, Load) for x in exprs(e)) or not e.dtype.is_float:
        return
    match e:
        case Load():
            found[e] = found[e] + seed if e in found else ops.as_expr(seed)
        case E.Add(a, b):
            _differentiate(a, seed, found)
            _differentiate(b, seed, found)
        case E.Sub(a, b):
            _differentiate(a, seed, found)
            _differentiate(b, -seed, found)
        case E.Mul(a, b):
            _differentiate(a, seed * b, found)
            _differentiate(b, seed * a, found)
        case E.Div(a, b):
            _differentiate(a, seed / b, found)
            _differentiate(b, -seed * a / (b * b), found)
        case E.Max(a, b) | E.Min(a, b):
            first = a >= b if isinstance(e, E.Max) else a <= b
            zero = ops.const(0, e.dtype)
            _differentiate(a, ops.select(first, seed, zero), found)
            _differentiate(b, ops.select(first, zero, seed), found)
        case E.Select(condition, a, b):
            zero = ops.const(0, e.dtype)
            choose = ops.if_then_else if isinstance(e, E.IfThenElse) else ops.select
            _differentiate(a, choose(condition, seed, zero), found)
            _differentiate(b, choose(condition, zero, seed), found)
        case E.Cast(_, a):
            _differentiate(a, ops.cast(a.dtype, ops.as_expr(seed)), found)
        case Call(_, "pow", (a, b)):
            _differentiate(a, seed * b * ops.power(a, b - 1.0), found)
            _differentiate(b, seed * e * F.log(a), found)
        case Call(_, "fma", (a, b, c)):
            _differentiate(a * b + c, seed, found)
        case Call(_, name, (a,)) if name in _FUNCTIONS:
            _differentiate(a, seed * _FUNCTIONS[name](a, e), found)
        case Call(_, name) if name in _STEPS:
            return
        case _:
            raise LanguageError(f"gradient: {e} has none here")


def _pulled_back(
    op: ComputeOp, of: Tensor, read: Load, partial: Expr, seed_of: Any, adjoint: Tensor, prefix: int
) -> Tensor:
    """The sum over the elements that read an element of ``of`` of adjoint and derivative."""
    axes = {a.var: a for a in (*op.axis, *op.reduce_axis)}

    def element(*at: Any) -> Any:
        before, place = at[:prefix], at[prefix:]
        values: dict[Expr, Expr] = {}
        conditions: list[Expr] = []
        left: list[tuple[Expr, Expr]] = []
        for index, wanted in zip(read.indices, place, strict=True):
            form = as_affine(index)
            free = [v for v in axes if abs(form.coefficient(v)) == 1 and v not in values]
            if not free:
                left.append((index, wanted))
                continue
            var = free[-1] if len(free) > 1 and free[-1] in {a.var for a in op.axis} else free[0]
            sign, dom = form.coefficient(var), axes[var].dom
            assert dom is not None
            rest = substitute(form.without(var).to_expr(var.dtype), values)
            solved = ops.cast(var.dtype, (wanted - rest) * sign)
            values = {k: substitute(v, {var: solved}) for k, v in values.items()}
            values[var] = solved
            exact = ops.is_const(rest, 0) and dom.extent is of.shape[read.indices.index(index)]
            if not exact:
                conditions += [solved >= dom.min, solved < dom.min + dom.extent]
        fresh = {
            v: reduce_axis((0, a.dom.extent), name=f"{a.name}.g")
            for v, a in axes.items()
            if v not in values and a.dom is not None
        }
        renamed: dict[Expr, Expr] = {v: axes[v].dom.min + a.var for v, a in fresh.items()}  # type: ignore[union-attr]
        mapping = {**{v: substitute(e, renamed) for v, e in values.items()}, **renamed}
        conditions = [substitute(c, mapping) for c in conditions]
        conditions += [substitute(i, mapping).equal(w) for i, w in left]
        term: Expr = substitute(seed_of(before) * partial, mapping)
        if conditions:
            term = ops.if_then_else(ops.logical_and(*conditions), term, ops.const(0, term.dtype))
        return sum(term, axis=list(fresh.values())) if fresh else term

    shape = (*adjoint.shape[:prefix], *of.shape)
    made: Tensor = compute(shape, element, f"{op.name}.{of.name}.grad")
    return made
