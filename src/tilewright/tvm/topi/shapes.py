"""``tvm.topi.utils``: shapes and numbers of programs that are being written."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tilewright import te
from tilewright.arith import Analyzer
from tilewright.ir import ops
from tilewright.ir.errors import LanguageError
from tilewright.ir.expr import Expr, FloatImm, IntImm
from tilewright.target import current_target
from tilewright.topi.utils import get_const_int as get_const_int
from tilewright.topi.utils import get_const_tuple as get_const_tuple
from tilewright.topi.utils import traverse_inline as traverse_inline
from tilewright.tvm.namespaces import Namespace


def simplify(expr: Any) -> Any:
    """An expression in its simplest form; integers as they are."""
    return Analyzer().simplify(expr) if isinstance(expr, Expr) else expr


def equal_const_int(expr: Any, value: int) -> bool:
    """Whether an expression is that constant."""
    found = simplify(expr)
    return isinstance(found, (int, IntImm)) and int(found) == value


def get_const_float(expr: Any) -> float:
    """The real number that a constant is; raises :class:`LanguageError` for other expressions."""
    found = simplify(ops.as_expr(expr))
    if not isinstance(found, FloatImm):
        raise LanguageError(f"{expr!r} is no constant of a real type")
    return found.value


def get_float_tuple(in_tuple: Sequence[Any]) -> tuple[float, ...]:
    """:func:`get_const_float` of each."""
    return tuple(map(get_const_float, in_tuple))


def prod(x: Sequence[Any]) -> Any:
    """The product of extents."""
    return functools.reduce(ops.mul, x, ops.const(1))


def ravel_index(indices: Sequence[Any], shape: Sequence[Any]) -> Any:
    """The place of an element, counted through all dimensions in their order."""
    found: Any = ops.const(0)
    for index, extent in zip(indices, shape, strict=True):
        found = ops.add(ops.mul(found, extent), index)
    return found


def unravel_index(idx: Any, shape: Sequence[Any]) -> list[Any]:
    """The indices of an element by its place."""
    found: list[Any] = []
    for extent in reversed(shape[1:]):
        found.append(ops.floormod(idx, extent))
        idx = ops.floordiv(idx, extent)
    return [*([idx] if shape else []), *reversed(found)]


def ceil_div(a: Any, b: Any) -> Any:
    """``a / b``, rounded up."""
    return ops.floordiv(ops.add(a, ops.sub(b, 1)), b)


def swap(arr: list[Any], axis: int) -> list[Any]:
    """A list whose last element and that of ``axis`` have changed places."""
    return arr[:axis] + [arr[-1]] + arr[axis + 1 : -1] + [arr[axis]]


def get_max_power2_factor(n: int, max_value: int | None = None) -> int:
    """The largest power of two that divides ``n``, at most ``max_value``."""
    found = 1
    while n % (2 * found) == 0 and (max_value is None or 2 * found <= max_value):
        found *= 2
    return found


def get_shape(src_shape: Sequence[Any], src_layout: str, dst_layout: str) -> tuple[Any, ...]:
    """A shape in another order of its dimensions."""
    source, target = ([c for c in x if c.isalpha()] for x in (src_layout, dst_layout))
    return get_const_tuple([src_shape[source.index(c)] for c in target])


def is_empty_shape(shape: Sequence[Any]) -> bool:
    """Whether a dimension has no elements."""
    return any(equal_const_int(extent, 0) for extent in shape)


def is_dynamic_shape(shape: Sequence[Any]) -> bool:
    """Whether an extent is symbolic."""
    return not all(isinstance(simplify(e), (int, IntImm)) for e in shape)


def is_target(names: Any) -> bool:
    """Whether the target of the enclosing ``with`` has one of these names or keys."""
    target = current_target()
    wanted = [names] if isinstance(names, str) else names
    return target is not None and any(name in target.keys for name in wanted)


def const_array(array: Any, name: str = "const_array", attrs: Any = None) -> Any:
    """The elements of an array of NumPy's as constants of a program."""
    values = np.asarray(array)
    rows, type = values.reshape(-1), str(values.dtype)

    def element(*i: Any) -> Any:
        place = ravel_index(i, values.shape)
        found: Any = te.const(rows[0].item(), type)
        for k in range(1, len(rows)):
            found = te.Select(place.equal(k), te.const(rows[k].item(), type), found)
        return found

    return te.compute(values.shape, element, name, attrs=attrs)


def make_idx(b: Any, e: Any, s: Any, z: Any, i: Any) -> Any:
    """Where index ``i`` stands in the slice ``b:e:s`` of ``z`` elements; of an index that is not
    in the slice, 88."""
    first = te.Select(ops.as_expr(z) < b, ops.sub(z, 1), ops.as_expr(b))
    there = te.floordiv(ops.sub(i, first), s)
    back = te.floordiv(ops.sub(first, i), _size(s))
    return te.if_then_else(_outside(b, e, s, i), 88, te.if_then_else(_down(s), back, there))


def within_index(b: Any, e: Any, s: Any, i: Any) -> Any:
    """Whether index ``i`` is in the slice ``b:e:s``."""
    far = _size(s)
    off = te.Select(_down(s), te.floormod(ops.sub(b, i), far), te.floormod(ops.sub(i, b), far))
    return te.all(ops.as_condition(_outside(b, e, s, i).equal(te.const(False))), off.equal(0))


def _size(s: Any) -> Any:
    return te.Select(_down(s), ops.sub(0, s), ops.as_expr(s))


def _down(s: Any) -> Any:
    return ops.as_expr(s) < 0


def _outside(b: Any, e: Any, s: Any, i: Any) -> Any:
    index = ops.as_expr(i)
    back = te.any(index <= e, index > b)
    return te.Select(_down(s), back, te.any(index < b, index >= e))


def _layout(outer: str, inner: str) -> Callable[[str], bool]:
    """Whether a layout has the dimensions ``outer`` and parts ``inner`` of them: "NCHW2n4c"."""

    def accepts(layout_info: str) -> bool:
        capital = [c for c in layout_info if c.isupper()]
        parts = [c for c in layout_info if c.islower()]
        return capital == list(outer) and parts == list(inner)

    return accepts


utils: Any = Namespace(
    "topi.utils",
    **{
        f.__name__: f
        for f in (
            ceil_div, equal_const_int, get_const_float, get_const_int, get_const_tuple,
            get_float_tuple, get_max_power2_factor, get_shape, is_dynamic_shape, is_empty_shape,
            is_target, make_idx, prod, ravel_index, simplify, swap, traverse_inline, unravel_index,
            within_index,
        )
    },
    const_matrix=const_array,
    const_vector=const_array,
    nchw_pack_layout=_layout("NCHW", "nc"),
    nchw_xc_layout=_layout("NCHW", "c"),
    ncw_pack_layout=_layout("NCW", "nc"),
    ncw_xc_layout=_layout("NCW", "c"),
)  # fmt: skip
