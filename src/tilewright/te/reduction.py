"""Axes and reductions."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Sequence
from typing import Any

from tilewright.ir.dtype import DType, dtype, int_range
from tilewright.ir.dtype import dtype as to_dtype
from tilewright.ir.errors import LanguageError
from tilewright.ir.expr import Expr, IntImm, Reduce, Reducer, Var
from tilewright.ir.itervar import IterVar, Range
from tilewright.ir.ops import Value, as_condition, as_expr, cast, const, maximum, minimum
from tilewright.te.axes import declared, named

THREAD_TAGS = tuple(f"{kind}.{d}" for kind in ("blockIdx", "threadIdx") for d in "xyz")


def var(name: str = "n", dtype: str = "int32", most: int | None = None, least: int = 0) -> Var:
    """A symbolic integer, such as an extent that is known only when the kernel runs.

    It is at least ``least`` (where nothing is said an extent may be 0, and what is the extent of
    nothing negative), and with ``most`` never
    greater than that; a call checks both. Where ``most`` keeps all offsets below 2^31, indices are
    computed in 32 bits. ``least=1`` proves ``A[n - 1]`` in bounds.

    Raises :class:`LanguageError` unless ``0 <= least <= most`` and the type holds ``most``.
    """
    t = to_dtype(dtype)
    named("a variable", name)
    if strange := [x for x in (least, most) if x is not None and not isinstance(x, int)]:
        raise LanguageError(f"te.var {name}: least and most are integers, got {strange[0]!r}")
    top = int_range(t)[1] if t.is_int else 0
    if not 0 <= least <= (top if most is None else most) <= top and (least or most is not None):
        raise LanguageError(
            f"te.var {name}: it is to be within {least} and {most}: take 0 <= least <= most, and "
            f"most at most {top} for {t}"
        )
    return Var.make(name, dtype, most, least)


def _range(dom: Any, what: str) -> Range:
    if isinstance(dom, Range):
        return dom
    if isinstance(dom, (tuple, list)) and len(dom) == 2:
        try:
            return Range(dom[0], dom[1])
        except LanguageError:
            pass
    raise LanguageError(f"the domain of {what} is (begin, end), two integers, got {dom!r}")


def reduce_axis(dom: Any, name: str = "rv", thread_tag: str = "") -> IterVar:
    """An axis to reduce over, with domain ``(begin, end)``."""
    found = _range(dom, f"reduce axis {named('an axis', name)}")
    extent = found.extent
    if isinstance(extent, IntImm) and extent.value <= 0:
        raise LanguageError(
            f"reduce axis {name} is empty: its domain is {dom!r}, from the first value to the one "
            "after the last"
        )
    return declared(IterVar(found, Var.make(name, extent.dtype), "reduce"))


def thread_axis(dom: Any = None, tag: str = "", name: str = "") -> IterVar:
    """A hardware axis, as ``thread_axis("threadIdx.x")`` or ``thread_axis((0, 8), "vthread")``.

    Tags are blockIdx.x/y/z, threadIdx.x/y/z, and vthread for virtual threads.
    """
    if isinstance(dom, str):
        dom, tag = None, dom
    if isinstance(dom, int):
        dom = (0, dom)
    named("an axis", name)
    if tag not in THREAD_TAGS and not str(tag).startswith(("vthread", "cthread")):
        raise LanguageError(f"unknown thread tag {tag!r}: use {', '.join(THREAD_TAGS)} or vthread")
    if tag.startswith("cthread"):
        tag = "vthread"
    found = None if dom is None else _range(dom, f"thread axis {tag}")
    if found is not None and isinstance(found.extent, IntImm) and found.extent.value <= 0:
        raise LanguageError(f"thread axis {tag} is empty: its domain is {dom!r}")
    return declared(IterVar(found, Var.make(name or tag), "thread", tag))


def _axes(axis: Any) -> tuple[IterVar, ...]:
    found = tuple(axis) if isinstance(axis, (tuple, list)) else (axis,)
    for a in found:
        if not isinstance(a, IterVar) or a.kind != "reduce":
            raise LanguageError(f"a reduction goes over axes made by te.reduce_axis, got {a!r}")
    if len(set(found)) != len(found):
        raise LanguageError("a reduction names the same axis twice: name every axis once")
    if not found:
        raise LanguageError("a reduction names no axis: make one with te.reduce_axis")
    return found


def _takes(function: Any, count: int) -> bool:
    """Whether it may be called with as many arguments, as far as it says."""
    try:
        inspect.signature(function).bind(*range(count))
    except TypeError:
        return False
    except ValueError:  # one of C's that says nothing
        pass
    return True


def comm_reducer(
    fcombine: Callable[[Any, Any], Any], fidentity: Callable[..., Any], name: str = "reduce"
) -> Callable[..., Any]:
    """A reduction from a commutative, associative function and its identity.

    For tuples, ``fcombine`` takes and returns tuples, ``fidentity`` takes one type name each
    component, and the reducer returned takes and returns tuples::

        argmax = te.comm_reducer(
            lambda a, b: (te.if_then_else(a[1] >= b[1], a[0], b[0]), te.max(a[1], b[1])),
            lambda t0, t1: (te.const(-1, t0), te.min_value(t1)), name="argmax")
        te.compute((n,), lambda i: argmax((k, A[i, k]), axis=k))

    Of two expressions, the reducer returned is ``fcombine`` itself.
    """
    made: dict[tuple[str, ...], Reducer] = {}
    if not (_takes(fcombine, 2) and callable(fidentity)):
        raise LanguageError(
            f"comm_reducer {name} takes a function of two values, and one of their types that "
            f"gives the identity, got {fcombine!r} and {fidentity!r}"
        )

    def reducer_for(types: tuple[DType, ...], several: bool) -> Reducer:
        if types not in made:
            lhs = tuple(Var.make(f"lhs{k}", t, exact=False) for k, t in enumerate(types))
            rhs = tuple(Var.make(f"rhs{k}", t, exact=False) for k, t in enumerate(types))
            result = fcombine(lhs, rhs) if several else (fcombine(lhs[0], rhs[0]),)
            if not _takes(fidentity, len(types)):
                raise LanguageError(
                    f"comm_reducer {name}: the function of its identity is called with the types "
                    f"of its values, {', '.join(types)}, as lambda t: te.const(0, t)"
                )
            identity = fidentity(*types)
            identities = identity if several else (identity,)
            made[types] = Reducer(
                name,
                lhs,
                rhs,
                _components(name, "combines to", result, types),
                _components(name, "has for identity", identities, types),
            )
        return made[types]

    def reduce(
        expr: Any,
        axis: Any,
        where: Value | None = None,
        init: Any = None,
    ) -> Any:
        several = isinstance(expr, (tuple, list))
        source = tuple(as_expr(e) for e in (expr if several else (expr,)))
        if isinstance(axis, Expr) and where is None and init is None:
            return fcombine(source[0], axis)
        reducer = reducer_for(tuple(e.dtype for e in source), several)
        condition = const(True) if where is None else as_condition(where)
        starts: tuple[Expr, ...] = ()
        if init is not None:
            given: Sequence[Any] = init if isinstance(init, (tuple, list)) else (init,)
            starts = _components(name, "starts from", given, tuple(e.dtype for e in source))
        axes = _axes(axis)
        results = tuple(
            Reduce(reducer, source, axes, condition, k, starts) for k in range(len(source))
        )
        return results if several else results[0]

    reduce.__name__ = name
    reduce.__doc__ = f"Reduce an expression over ``axis`` by {name}, where ``where`` holds."
    return reduce


def _components(name: str, what: str, values: Any, types: tuple[DType, ...]) -> tuple[Expr, ...]:
    """One value of each type."""
    found = values if isinstance(values, (tuple, list)) else (values,)
    if len(found) != len(types):
        raise LanguageError(
            f"reducer {name} {what} {len(found)} values, but reduces tuples of {len(types)}"
        )
    made = tuple(as_expr(e, t) for e, t in zip(found, types, strict=True))
    for e, t in zip(made, types, strict=True):
        if e.dtype != t:
            raise LanguageError(
                f"reducer {name} {what} {e}, of {e.dtype}, where a value of {t} is needed: cast it "
                f"with .astype('{t}')"
            )
    return made


def min_value(type: str) -> Expr:
    """The smallest value of a type; minus infinity for floats."""
    t = dtype(type)
    return const(-math.inf, t) if t.is_float else const(0 if t.is_bool else int_range(t)[0], t)


def max_value(type: str) -> Expr:
    """The largest value of a type; infinity for floats."""
    t = dtype(type)
    return const(math.inf, t) if t.is_float else const(1 if t.is_bool else int_range(t)[1], t)


_sum = comm_reducer(lambda x, y: x + y, lambda t: const(0, t), name="sum")
_prod = comm_reducer(lambda x, y: x * y, lambda t: const(1, t), name="prod")
_max = comm_reducer(maximum, min_value, name="max")
_min = comm_reducer(minimum, max_value, name="min")


def sum(expr: Any, axis: Any, where: Value | None = None, init: Any = None) -> Any:
    """The sum of ``expr`` over ``axis``, of the elements where ``where`` holds.

    Of conditions it is the number that hold, an int32.
    """
    return _sum(_counted(expr), _axes(axis), where, init)


def prod(expr: Any, axis: Any, where: Value | None = None, init: Any = None) -> Any:
    """The product of ``expr`` over ``axis``, of the elements where ``where`` holds."""
    return _prod(_counted(expr), _axes(axis), where, init)


def max(lhs: Any, rhs: Any = None, axis: Any = None, where: Any = None, init: Any = None) -> Any:
    """``max(a, b)`` of two values, or ``max(expr, axis=k)`` over an axis; NaN where one is."""
    return _extremum(maximum, _max, lhs, rhs, axis, where, init)


def min(lhs: Any, rhs: Any = None, axis: Any = None, where: Any = None, init: Any = None) -> Any:
    """``min(a, b)`` of two values, or ``min(expr, axis=k)`` over an axis; NaN where one is."""
    return _extremum(minimum, _min, lhs, rhs, axis, where, init)


def _extremum(
    pair: Callable[[Any, Any], Expr],
    over: Callable[..., Any],
    lhs: Any,
    rhs: Any,
    axis: Any,
    where: Any,
    init: Any,
) -> Any:
    if isinstance(rhs, (IterVar, list, tuple)) and axis is None and _all_reduce(rhs):
        rhs, axis = None, rhs
    if axis is not None:
        if rhs is not None:
            raise LanguageError("give either a second value or an axis, not both")
        return over(_counted(lhs), _axes(axis), where, init)
    if rhs is None:
        raise LanguageError("give a second value, or axis= to reduce over")
    return pair(lhs, rhs)


def _counted(expr: Any) -> Any:
    """A condition as 0 or 1, as it is in arithmetic."""
    if isinstance(expr, (tuple, list)):
        return expr
    made = as_expr(expr)
    return cast("int32", made) if made.dtype.is_bool else made


def _all_reduce(value: Any) -> bool:
    axes = value if isinstance(value, (list, tuple)) else (value,)
    return all(isinstance(a, IterVar) and a.kind == "reduce" for a in axes)
