"""GPU kernels put together by hand: what lowering makes of a schedule, written out."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tilewright.ir import Buffer, Func, LaunchAxis, Module, dtype
from tilewright.ir import stmt as S
from tilewright.ir.dtype import DType
from tilewright.ir.expr import Expr, Var
from tilewright.ir.ops import as_expr, as_index, const
from tilewright.ir.stmt import ForKind, seq


def buffer(
    name: str, shape: Sequence[int | Expr], scope: str = "global", type: str = "float32"
) -> Buffer:
    return Buffer(name, tuple(as_index(n) for n in shape), dtype(type), scope)


def store(b: Buffer, at: Sequence[int | Expr] | Expr | int, value: object, **more: Expr) -> S.Store:
    indices = at if isinstance(at, (tuple, list)) else (at,)
    t: DType = b.dtype
    made = value if isinstance(value, Expr) else as_expr(const(value, t))
    return S.Store(b, tuple(as_index(i) for i in indices), made, **more)


def loop(
    name: str,
    extent: int | Expr,
    body: Callable[[Var], S.Stmt],
    start: int | Expr = 0,
    kind: ForKind = ForKind.SERIAL,
) -> S.For:
    var = Var.make(name)
    return S.For(var, as_index(start), as_index(extent), kind, body(var))


def barrier(scope: str = "shared") -> S.Sync:
    return S.Sync(scope)


class Launch:
    """The hardware axes of a kernel: ``Launch(threadIdx_x=32, blockIdx_x=n)``."""

    def __init__(self, **extents: int | Expr) -> None:
        self.axes = tuple(
            LaunchAxis(name.replace("_", "."), Var.make(name.replace("_", ".")), as_index(extent))
            for name, extent in extents.items()
        )
        for axis in self.axes:
            setattr(self, axis.tag.replace("Idx.", ""), axis.var)

    def __getattr__(self, name: str) -> Var:  # .threadx, .blocky
        raise AttributeError(name)

    def func(self, name: str, params: Sequence[Buffer | Var], *body: S.Stmt) -> Func:
        return Func(name, tuple(params), seq(*body), self.axes)


def module(*funcs: Func, params: Sequence[Buffer | Var] = (), **more: tuple[Buffer, ...]) -> Module:
    return Module(funcs[0].name, tuple(params) or funcs[0].params, funcs, **more)
