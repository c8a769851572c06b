"""What a kernel's arguments must be, and what the symbolic extents are for those given."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tilewright.arith import Analyzer
from tilewright.arith.spans import greatest_extent
from tilewright.codegen.arguments import outputs, variables
from tilewright.ir.buffer import Buffer
from tilewright.ir.errors import ArgumentError, TilewrightError
from tilewright.ir.expr import (
    Add,
    Binary,
    Cast,
    Compare,
    Expr,
    FloorDiv,
    FloorMod,
    IntImm,
    Max,
    Min,
    Mul,
    Select,
    Sub,
    TruncDiv,
    TruncMod,
    Var,
)
from tilewright.ir.func import Module
from tilewright.ir.visit import symbolic_extents
from tilewright.runtime.array import resolved, view
from tilewright.runtime.array_view import ArrayView, dense_strides
from tilewright.runtime.narrow_floats import holds

__all__ = ["Signature", "describe", "evaluate", "outputs", "variables"]

_FOLD: dict[type[Expr], Callable[[int, int], int | float]] = {
    Add: lambda a, b: a + b,
    Sub: lambda a, b: a - b,
    Mul: lambda a, b: a * b,
    # Division by zero gives zero, as docs/language.md says.
    FloorDiv: lambda a, b: a // b if b else 0,
    FloorMod: lambda a, b: a % b if b else 0,
    TruncDiv: lambda a, b: abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1) if b else 0,
    TruncMod: lambda a, b: abs(a) % abs(b) * (-1 if a < 0 else 1) if b else 0,
    Min: min,
    Max: max,
}
_COMPARE = {
    "==": lambda a, b: a == b, "!=": lambda a, b: a != b, "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b, ">": lambda a, b: a > b, ">=": lambda a, b: a >= b,
}  # fmt: skip


def evaluate(e: Expr, values: Mapping[str, int]) -> int:
    """An integer expression of variables, by their names: a grid's extent, a workspace's size."""
    if isinstance(e, IntImm):
        return e.value
    if isinstance(e, Var):
        return values[e.name]
    if isinstance(e, Cast):
        return evaluate(e.value, values)
    if isinstance(e, Select):
        return evaluate(e.on_true if evaluate(e.condition, values) else e.on_false, values)
    if isinstance(e, Compare):
        return int(_COMPARE[e.symbol](evaluate(e.a, values), evaluate(e.b, values)))
    fold = _FOLD.get(type(e))
    if fold is None or not isinstance(e, Binary):
        raise TilewrightError(f"the host cannot evaluate {e}")
    return int(fold(evaluate(e.a, values), evaluate(e.b, values)))


class Signature:
    """The parameters of a kernel, for checking and binding arguments.

    Parameters
    ----------
    module : whose ``params`` are the parameters; bodies are not looked at.
    written : positions of outputs among them.
    devices : prefixes of the devices whose arrays are taken.
    """

    def __init__(self, module: Module, written: Sequence[int], devices: tuple[str, ...]) -> None:
        self.name = module.name
        self.params = module.params
        self.written = frozenset(written)
        self.devices = devices
        self.variables = variables(module)
        arrays = [p for p in self.params if isinstance(p, Buffer)]
        self.extents = {v.name for p in arrays for v in symbolic_extents(p)}
        between = (p for f in module.funcs for p in f.params if isinstance(p, Buffer))
        self.doubtful = _doubtful(arrays, [b for b in between if b not in arrays])

    def bind(
        self, args: Sequence[Any], once: bool = False
    ) -> tuple[list[ArrayView], dict[str, int]]:
        """Views of the arrays, and every variable's value.

        With ``once`` the views are for one launch now, so an input may be a view of a copy.
        Raises :class:`ArgumentError` naming the argument, what was expected and what was found.
        Nothing has been written then.
        """
        if len(args) != len(self.params):
            names = ", ".join(p.name for p in self.params)
            raise ArgumentError(
                f"kernel {self.name} takes {len(self.params)} arguments ({names}), got {len(args)}"
            )
        views: list[ArrayView] = []
        values: dict[str, int] = {}
        places: list[int] = []
        for k, (param, arg) in enumerate(zip(self.params, args, strict=True)):
            if isinstance(param, Var):
                self._bind_value(param, self._integer(param, arg), f"argument {k}", values)
                continue
            try:
                found = view(resolved(arg) if once and k not in self.written else arg)
            except ArgumentError as error:
                raise ArgumentError(f"{self._where(k)}: {error}") from None
            self._check_type(k, param, found)
            if not found.pointer and found.size:
                raise ArgumentError(
                    f"{self._where(k)}: the array has no memory (its address is 0): its storage "
                    "was freed, or never made, as of a fake tensor. Pass an array that has "
                    "contents, such as a copy made before"
                )
            for axis, (extent, actual) in enumerate(zip(param.shape, found.shape, strict=True)):
                if isinstance(extent, Var):
                    self._bind_value(extent, actual, f"dimension {axis} of {param.name}", values)
            views.append(found)
            places.append(k)
        for matter in (True, False):
            for k, found in zip(places, views, strict=True):
                self._bind_strides(k, found, values, matter)
        for v in self.variables:
            if v.name not in values:
                raise ArgumentError(
                    f"kernel {self.name}: no argument tells what {v.name} is; it must be the "
                    "extent or the stride of some dimension by itself, or a parameter"
                )
        for k, found in zip(places, views, strict=True):
            self._check_shape(k, found, values)
        self._check_between(values)
        self._check_overlap(places, views)
        return views, values

    def values(self, given: Mapping[str, Any]) -> dict[str, int]:
        """What is ``given`` for each variable; raises :class:`ArgumentError` where a call could not
        have it."""
        values: dict[str, int] = {}
        for v in self.variables:
            self._bind_value(v, self._integer(v, given[v.name]), "extents", values)
        self._check_between(values)
        return values

    def _check_between(self, values: Mapping[str, int]) -> None:
        for buffer, extent in self.doubtful:
            size = evaluate(extent, values)
            if size < 0:
                raise ArgumentError(
                    f"kernel {self.name}: {extent}, an extent of {buffer.name}, is negative: {size}"
                )

    def _bind_strides(self, k: int, found: ArrayView, values: dict[str, int], matter: bool) -> None:
        """Read strides that are variables off an array: those that ``matter``, or, when all of
        these are known, those of dimensions of one element, which may be anything."""
        param = self.params[k]
        if not isinstance(param, Buffer) or param.layout is None:
            return
        for d, stride in enumerate(param.strides):
            known = found.strides[d]
            if not isinstance(stride, Var) or (found.shape[d] > 1) is not matter:
                continue
            if not matter:
                values.setdefault(stride.name, stride.least or 0)
                continue
            if abs(known) >> (stride.dtype.bits - 1):
                raise ArgumentError(
                    f"{self._where(k)}: a stride of {known}, which {stride.dtype} does not hold"
                )
            self._bind_value(stride, known, f"the stride of dimension {d} of {param.name}", values)
        if k in self.written and not _is_apart(found):
            raise ArgumentError(
                f"{self._where(k)} is written, but elements share memory: strides "
                f"{list(found.strides)} (in elements); pass a copy"
            )

    def _where(self, k: int) -> str:
        return f"kernel {self.name}, argument {k} ({self.params[k].name})"

    def _integer(self, param: Var, arg: Any) -> int:
        try:
            value = arg.__index__()
        except (AttributeError, TypeError):
            raise ArgumentError(
                f"kernel {self.name}: {param.name} is a {param.dtype} scalar, got a "
                f"{type(arg).__name__}: pass an int"
            ) from None
        bits = param.dtype.bits
        low = 0 if param.dtype.kind == "uint" else -(2 ** (bits - 1))
        if not low <= value < low + 2**bits:
            raise ArgumentError(f"kernel {self.name}: {param.name}={value} is no {param.dtype}")
        return int(value)

    def _bind_value(self, var: Var, value: int, source: str, values: dict[str, int]) -> None:
        name = var.name
        most = greatest_extent(var) if name in self.extents else var.most
        if most is not None and value > most:
            raise ArgumentError(
                f"kernel {self.name}: {name} is {value} by {source}, and it was built for at most "
                f"{most}: raise most in te.var"
            )
        if var.least and value < var.least:
            raise ArgumentError(
                f"kernel {self.name}: {name} is {value} by {source}, and it was built for at least "
                f"{var.least}: lower least in te.var"
            )
        known = values.setdefault(name, value)
        if known != value:
            raise ArgumentError(
                f"kernel {self.name}: {name} is {known} by an earlier argument, but {value} by "
                f"{source}"
            )
        if value < 0 and name in self.extents:
            raise ArgumentError(f"kernel {self.name}: the extent {name} is negative: {value}")

    def _check_type(self, k: int, param: Buffer, found: ArrayView) -> None:
        expected = describe(param)
        if found.dtype != param.dtype and not holds(found.dtype, param.dtype):
            raise ArgumentError(
                f"{self._where(k)}: expected {expected}, got {_describe(found)}: convert it to "
                f"{param.dtype} first"
            )
        if len(found.shape) != len(param.shape):
            raise ArgumentError(
                f"{self._where(k)}: expected {len(param.shape)} dimensions, {expected}, got "
                f"{len(found.shape)}, {_describe(found)}{self._elsewhere(k, found)}"
            )
        if not found.device.startswith(self.devices):
            raise ArgumentError(
                f"{self._where(k)}: expected an array on {' or '.join(self.devices)}, got "
                f"{_describe(found)} on {found.device}: copy it there first"
            )
        if found.readonly and k in self.written:
            raise ArgumentError(
                f"{self._where(k)} is written, but the array is read-only: pass a copy"
            )

    def _elsewhere(self, k: int, found: ArrayView) -> str:
        """The order of the arguments, where the array would do as another one of them."""
        for j, other in enumerate(self.params):
            if j != k and isinstance(other, Buffer) and other.constant_shape == found.shape:
                names = ", ".join(p.name for p in self.params)
                return f"; that is the shape of {other.name}, and the arguments are {names}"
        return ""

    def _check_shape(self, k: int, found: ArrayView, values: Mapping[str, int]) -> None:
        param = self.params[k]
        assert isinstance(param, Buffer)
        shape = tuple(evaluate(extent, values) for extent in param.shape)
        if shape != found.shape:
            where = "" if param.constant_shape else f" = {list(shape)}"
            raise ArgumentError(
                f"{self._where(k)}: expected {describe(param)}{where}, got {_describe(found)}"
                f"{self._elsewhere(k, found)}"
            )
        if param.layout is None:
            strides = dense_strides(shape)
        else:
            strides = tuple(evaluate(stride, values) for stride in param.strides)
        if found.size and any(
            extent > 1 and a != b
            for extent, a, b in zip(shape, strides, found.strides, strict=True)
        ):
            raise ArgumentError(
                f"{self._where(k)}: expected strides {list(strides)} (in elements), got "
                f"{list(found.strides)}: pass np.ascontiguousarray({param.name}), or .contiguous() "
                "of a torch tensor; kernels that are declared by te.placeholder(strides=[te.var(), "
                "...]) take any"
            )
        align = max(param.align, param.dtype.bytes)
        if found.device == "cpu" and found.pointer % align:
            raise ArgumentError(
                f"{self._where(k)}: its address {found.pointer:#x} is not aligned to {align} "
                "bytes: pass a copy"
            )

    def _check_overlap(self, places: list[int], views: list[ArrayView]) -> None:
        spans = [found.span for found in views]
        for i, k in enumerate(places):
            if k not in self.written:
                continue
            for j, other in enumerate(places):
                if i == j or views[i].device != views[j].device:
                    continue
                if spans[i][0] < spans[j][1] and spans[j][0] < spans[i][1]:
                    raise ArgumentError(
                        f"{self._where(k)} is written, but shares memory with argument {other} "
                        f"({self.params[other].name}): pass a separate array"
                    )


def _is_apart(found: ArrayView) -> bool:
    """Whether each element has memory of its own, by strides that each step over all smaller."""
    pairs = zip(map(abs, found.strides), found.shape, strict=True)
    reach = 0
    for stride, extent in sorted(p for p in pairs if p[1] > 1):
        if stride <= reach:
            return not found.size
        reach += stride * (extent - 1)
    return True


def _doubtful(arrays: list[Buffer], between: list[Buffer]) -> list[tuple[Buffer, Expr]]:
    """Extents of buffers between stages that may be negative where those of ``arrays`` are not."""
    found = [(b, e) for b in between for e in b.shape if not isinstance(e, IntImm)]
    if not found:
        return []
    analyzer = Analyzer()
    analyzer.shapes(arrays)
    return [(b, e) for b, e in found if not analyzer.prove(e >= 0)]


def describe(buffer: Buffer) -> str:
    """``float32[1, n, 14, 14]``."""
    return f"{buffer.dtype}[{', '.join(map(repr, buffer.shape))}]"


def _describe(found: ArrayView) -> str:
    return f"{found.dtype}{list(found.shape)}"
