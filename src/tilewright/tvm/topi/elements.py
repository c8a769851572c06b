"""topi's functions of elements and its reductions: tables of what they do to each."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from tilewright import te
from tilewright.ir import ops
from tilewright.ir.errors import LanguageError
from tilewright.ir.expr import IntImm
from tilewright.te import Tensor
from tilewright.te.arithmetic import elementwise
from tilewright.topi import broadcast as _broadcast
from tilewright.topi import elementwise as _elementwise
from tilewright.topi.reduction import above, dimension
from tilewright.tvm import functions

_E, _B = _elementwise.ELEMENTS, _broadcast.ELEMENTS


def _same_integers(apply: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Integers are what they round to."""
    return lambda v: v if v.dtype.is_int else apply(v)


#: Functions of one element, by name; further parameters are keywords of the function.
ONE: dict[str, Callable[..., Any]] = {
    **{
        name: _E[name]
        for name in (
            "abs acos acosh asin asinh atan atanh bitwise_not cos cosh erf exp identity isinf "
            "isnan log logical_not negative rsqrt sigmoid sign sin sinh sqrt tan tanh"
        ).split()
    },
    **{name: _same_integers(_E[name]) for name in ("ceil", "floor", "trunc")},
    "round": _same_integers(te.round),
    "cast": lambda v, dtype: v.astype(dtype),
    "ceil_log2": lambda v: te.ceil(te.log2(v.astype("float64"))).astype(v.dtype),
    "clip": lambda v, a_min, a_max: te.max(
        te.min(v, ops.cast(v.dtype, ops.as_expr(a_max))), ops.cast(v.dtype, ops.as_expr(a_min))
    ),
    "fast_erf": te.erf,
    "fast_exp": te.exp,
    "fast_tanh": te.tanh,
    "fixed_point_multiply": lambda v, multiplier, shift: (
        (v.astype("int64") * multiplier + (1 << (30 - shift))) >> (31 - shift)
    ).astype("int32"),
    "isfinite": functions.isfinite,
    "leaky_relu": lambda v, alpha: te.Select(v > 0, v, v * te.const(alpha, v.dtype)),
    "log10": te.log10,
    "log2": te.log2,
    "reinterpret": _E["reinterpret"],
    "relu": lambda v: te.max(v, te.const(0, v.dtype)),
}

#: Functions of two elements, or of three.
SEVERAL: dict[str, Callable[..., Any]] = {
    **{
        name: _B[name]
        for name in (
            "add bitwise_and bitwise_or bitwise_xor equal greater greater_equal left_shift less "
            "less_equal logical_and logical_or logical_xor multiply right_shift subtract"
        ).split()
    },
    "divide": functions.div,
    "floor_divide": te.floordiv,
    "floor_mod": te.floormod,
    "maximum": te.max,
    "minimum": te.min,
    "mod": functions.fmod,
    "not_equal": lambda a, b: a != b,
    "power": te.power,
    "where": lambda c, x, y: te.Select(c if c.dtype.is_bool else c != 0, *ops.unify(x, y)),
}

#: The parameters of :data:`ONE` behind the tensor, in their order.
_PARAMETERS = {
    "cast": ("dtype",),
    "clip": ("a_min", "a_max"),
    "fixed_point_multiply": ("multiplier", "shift"),
    "leaky_relu": ("alpha",),
    "reinterpret": ("dtype",),
}


def one(name: str) -> Callable[..., Any]:
    """A function of :data:`ONE`, of a tensor or of an expression."""
    apply, names = ONE[name], _PARAMETERS.get(name, ())

    def function(x: Any, *values: Any, **more: Any) -> Any:
        more.pop("span", None)
        given = dict(zip(names, values, strict=False)) | more
        return elementwise(functools.partial(apply, **given), x, name=f"T_{name}")

    return _named(function, name, f"``{name}`` of every element of ``x``.")


def several(name: str) -> Callable[..., Any]:
    """A function of :data:`SEVERAL`, of tensors and expressions, which are broadcast."""

    def function(*operands: Any, **more: Any) -> Any:
        return elementwise(SEVERAL[name], *operands, *more.values(), name=f"T_{name}")

    return _named(function, name, f"``{name}`` of elements, of shapes that are broadcast.")


def _named(function: Callable[..., Any], name: str, doc: str) -> Callable[..., Any]:
    function.__name__ = function.__qualname__ = name
    function.__doc__ = doc
    return function


# -- reductions --------------------------------------------------------------------------------


def nearest(index: Any, extent: Any) -> Any:
    """An index, or the nearest to it that a dimension of ``extent`` elements has."""
    return te.max(te.min(index, extent - 1), 0)


def axes_of(axis: int | Sequence[int] | None, rank: int) -> list[int]:
    """The axes that a reduction goes over, all where none is named, from the front."""
    given: Any = range(rank) if axis is None else axis
    given = [given] if not isinstance(given, Sequence) or isinstance(given, str) else given
    return sorted({dimension(a, rank) for a in given})


def reduced(data: Tensor, axis: Any, keepdims: bool, combine: Any, name: str) -> Any:
    """``combine(value, index, axes)`` over the elements along ``axis``; without any axis, the
    elements themselves."""
    axes = axes_of(axis, data.ndim)
    if not axes:
        return te.compute(data.shape, lambda *i: data(*i), name, tag="injective")
    over = {d: te.reduce_axis((0, data.shape[d]), f"k{d}") for d in axes}
    shape = [ops.const(1) if d in axes else e for d, e in enumerate(data.shape)]
    if not keepdims:
        shape = [e for d, e in enumerate(data.shape) if d not in axes]

    def element(*at: Any) -> Any:
        own = iter(at if not keepdims else [i for d, i in enumerate(at) if d not in axes])
        index = tuple(over[d].var if d in axes else next(own) for d in range(data.ndim))
        return combine(data(*index), index, list(over.values()))

    return te.compute(tuple(shape), element, name, tag="comm_reduce")


def _counted(value: Any) -> Any:
    return value.astype("int8") if value.dtype.is_bool else value


#: What reductions combine elements by.
REDUCTIONS: dict[str, Callable[..., Any]] = {
    "all": lambda v, _, k: te.min(_counted(v), axis=k),
    "any": lambda v, _, k: te.max(_counted(v), axis=k),
    "max": lambda v, _, k: te.max(v, axis=k),
    "min": lambda v, _, k: te.min(v, axis=k),
    "prod": lambda v, _, k: te.prod(v, axis=k),
    "sum": lambda v, _, k: te.sum(v, axis=k),
}


def reduction(name: str) -> Callable[..., Tensor]:
    """A reduction of :data:`REDUCTIONS`."""

    def function(data: Tensor, axis: Any = None, keepdims: bool = False) -> Any:
        sums = "any" if name == "sum" and data.dtype.is_bool else name
        found = reduced(data, axis, keepdims, REDUCTIONS[sums], f"T_{name}")
        return one("cast")(found, dtype="bool") if sums in ("all", "any") else found

    return _named(function, name, f"``{name}`` of the elements along ``axis``, all by default.")


def argument(name: str) -> Callable[..., Tensor]:
    """``argmax`` and ``argmin``: an int32, counted along all elements where no axis is named."""
    largest = name == "argmax"

    def function(
        data: Tensor, axis: Any = None, keepdims: bool = False, select_last_index: bool = False
    ) -> Any:
        def better(a: Any, b: Any) -> Any:
            place = a[0] > b[0] if select_last_index else a[0] < b[0]
            x, y = a[1], b[1]
            if not largest:  # NaN comes first of all
                x, y = (-x, -y) if data.dtype.is_float else (y, x)
            first = above(x, y, place)
            return te.Select(first, a[0], b[0]), te.Select(first, a[1], b[1])

        nowhere = -1 if select_last_index else 2**31 - 1
        pick = te.comm_reducer(
            better,
            lambda t0, t1: (te.const(nowhere, t0), (te.min_value if largest else te.max_value)(t1)),
            name=name,
        )
        axes = axes_of(axis, data.ndim)
        if not axes:
            return te.compute(data.shape, lambda *_: te.const(0, "int32"), f"T_{name}_place")

        def combine(value: Any, index: Any, over: Any) -> Any:
            flat: Any = te.const(0, "int32")
            for d in axes:
                flat = flat * data.shape[d] + index[d]
            return pick((flat.astype("int32"), value), axis=over)

        places, _ = reduced(data, axis, keepdims, combine, f"T_{name}")
        return te.compute(places.shape, lambda *i: places(*i), f"T_{name}_place", tag="injective")

    return _named(function, name, "Where it is, the first of several, or NaN is, along ``axis``.")


def cumulative(name: str) -> Callable[..., Tensor]:
    """``cumsum`` and ``cumprod``: along ``axis``, of all elements in a row where none is named."""
    combine, neutral = (te.sum, 0) if name == "cumsum" else (te.prod, 1)

    def function(
        data: Tensor, axis: int | None = None, dtype: Any = None, exclusive: Any = None
    ) -> Any:
        if axis is None:
            from tilewright.tvm.topi.transform import reshape

            data, axis = reshape(data, (functools.reduce(ops.mul, data.shape),)), 0
        place = dimension(axis, data.ndim)
        k = te.reduce_axis((0, data.shape[place]), "k")

        def element(*at: Any) -> Any:
            value = data(*at[:place], k.var, *at[place + 1 :])
            value = value if not dtype else value.astype(dtype)
            before = k.var < at[place] if exclusive else k.var <= at[place]
            return combine(te.Select(before, value, te.const(neutral, value.dtype)), axis=k)

        return te.compute(data.shape, element, f"T_{name}", tag="comm_reduce")

    return _named(function, name, f"``{name}``, without the element itself where ``exclusive``.")


NAMES: dict[str, Callable[..., Any]] = {
    **{name: one(name) for name in ONE if name not in ("relu", "leaky_relu")},
    **{name: several(name) for name in SEVERAL},
    **{name: reduction(name) for name in REDUCTIONS},
    **{name: argument(name) for name in ("argmax", "argmin")},
    **{name: cumulative(name) for name in ("cumsum", "cumprod")},
}
NN: dict[str, Callable[..., Any]] = {name: one(name) for name in ("relu", "leaky_relu")}


def check_same(what: str, first: Any, second: Any) -> None:
    """Raises :class:`LanguageError` for two extents that are to be one, where both are known."""
    known = isinstance(first, IntImm) and isinstance(second, IntImm)
    if known and first.value != second.value:
        raise LanguageError(f"{what}: {first.value} and {second.value}, which are to be the same")
