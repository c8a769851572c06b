"""``tvm.tir.ir_builder``: programs written statement by statement, for the bodies of externs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from tilewright.ir import ops
from tilewright.ir.buffer import Buffer
from tilewright.ir.dtype import dtype as to_dtype
from tilewright.ir.errors import LanguageError
from tilewright.ir.expr import Expr, Load, Var
from tilewright.ir.itervar import IterVar
from tilewright.ir.stmt import Allocate, Evaluate, For, ForKind, If, Let, Stmt, Store, seq

_KINDS = {"serial": ForKind.SERIAL, "parallel": ForKind.PARALLEL, "unroll": ForKind.UNROLLED,
          "vectorize": ForKind.VECTORIZED}  # fmt: skip


class BufferVar:
    """A buffer whose elements are read and written by index: ``A[i] = A[i] + 1``.

    One index counts the elements of all dimensions in their order.
    """

    def __init__(self, builder: IRBuilder, buffer: Buffer) -> None:
        self._builder, self.buffer = builder, buffer

    @property
    def dtype(self) -> str:
        return self.buffer.dtype

    def _indices(self, index: Any) -> tuple[Expr, ...]:
        given = tuple(map(ops.as_index, index if isinstance(index, tuple) else (index,)))
        shape = self.buffer.shape
        if len(given) == len(shape):
            return given
        if len(given) > 1:
            raise LanguageError(
                f"buffer {self.buffer.name} has {len(shape)} dimensions, got {len(given)} indices"
            )
        found: list[Expr] = []
        rest = given[0]
        for extent in reversed(shape[1:]):
            found.append(ops.floormod(rest, extent))
            rest = ops.floordiv(rest, extent)
        return (*((rest,) if shape else ()), *reversed(found))

    def __getitem__(self, index: Any) -> Expr:
        return Load(self.buffer, self._indices(index), None)

    def __setitem__(self, index: Any, value: Any) -> None:
        made = ops.cast(self.buffer.dtype, ops.as_expr(value))
        self._builder.emit(Store(self.buffer, self._indices(index), made))


class IRBuilder:
    """Collects statements; :meth:`get` returns them as one."""

    def __init__(self) -> None:
        self._open: list[list[Callable[[Stmt], Stmt] | Stmt]] = []
        self._branch: list[If | None] = []
        self._begin()

    def _begin(self) -> None:
        """Open a sequence of statements."""
        self._open.append([])
        self._branch.append(None)

    def emit(self, stmt: Any) -> None:
        """Add a statement, or an expression for its effect."""
        self._add(stmt if isinstance(stmt, Stmt) else Evaluate(ops.as_expr(stmt)))

    def _add(self, made: Callable[[Stmt], Stmt] | Stmt) -> None:
        self._open[-1].append(made)
        self._branch[-1] = made if isinstance(made, If) else None

    def _closed(self) -> Stmt:
        """The innermost sequence; what stands around the rest of it is put around."""
        body: Stmt = seq()
        self._branch.pop()
        for made in reversed(self._open.pop()):
            body = seq(made, body) if isinstance(made, Stmt) else made(body)
        return body

    @contextmanager
    def _nested(self) -> Iterator[list[Stmt]]:
        inner: list[Stmt] = []
        self._begin()
        yield inner
        inner.append(self._closed())

    @contextmanager
    def for_range(
        self, begin: Any, end: Any, name: str = "i", dtype: Any = None, kind: str = "serial"
    ) -> Iterator[Var]:
        """A loop over ``begin .. end - 1``; ``with ib.for_range(0, n) as i:``."""
        if kind not in _KINDS:
            raise LanguageError(f"for_range: kind {kind!r} is none of {', '.join(_KINDS)}")
        low, high = ops.as_index(begin), ops.as_index(end)
        var = Var.make(name, str(dtype or ops.common_type(low.dtype, high.dtype)))
        with self._nested() as inner:
            yield var
        extent = ops.cast(var.dtype, ops.sub(high, low))
        self._add(For(var, ops.cast(var.dtype, low), extent, _KINDS[kind], inner[0]))

    @contextmanager
    def if_scope(self, cond: Any) -> Iterator[None]:
        """What is done where ``cond`` holds."""
        with self._nested() as inner:
            yield
        self._add(If(ops.as_condition(cond), inner[0]))

    @contextmanager
    def else_scope(self) -> Iterator[None]:
        """What is done otherwise; directly behind :meth:`if_scope`."""
        last = self._branch[-1]
        if last is None:
            raise LanguageError("else_scope stands directly behind an if_scope")
        with self._nested() as inner:
            yield
        self._open[-1].pop()
        self._add(If(last.condition, last.then, inner[0]))

    @contextmanager
    def new_scope(self) -> Iterator[None]:
        """A sequence of its own: what is allocated in it lives as long."""
        with self._nested() as inner:
            yield
        self._add(inner[0])

    def scope_attr(self, node: Any, attr_key: str, value: Any) -> None:
        """``thread_extent`` puts a loop over threads around what follows; others say nothing
        that is not found without them."""
        if attr_key in ("thread_extent", "virtual_thread") and isinstance(node, IterVar):
            extent = ops.as_index(value)
            kind = ForKind.VTHREAD if node.tag == "vthread" else ForKind.THREAD
            low = ops.const(0, node.var.dtype)
            self._add(lambda body: For(node.var, low, extent, kind, body, node.tag))

    def let(self, var_name: Any, value: Any) -> Expr:
        """A variable that stands for ``value`` in what follows."""
        made = ops.as_expr(value)
        var = var_name if isinstance(var_name, Var) else Var.make(var_name, made.dtype, exact=False)
        self._add(lambda body: Let(var, made, body))
        return var

    def allocate(
        self, dtype: str, shape: Any, name: str = "buf", axis_separators: Any = None,
        scope: str = "", annotations: Any = None,
    ) -> BufferVar:  # fmt: skip
        """A buffer that lives through what follows, in the memory ``scope`` ("local" without)."""
        extents = shape if isinstance(shape, (tuple, list)) else (shape,)
        made = Buffer(name, tuple(map(ops.as_index, extents)), to_dtype(dtype), scope or "local")
        self._add(lambda body: Allocate(made, body))
        return BufferVar(self, made)

    def buffer_ptr(self, buf: Buffer, shape: Any = None) -> BufferVar:
        """A buffer, to read and write its elements by index."""
        return BufferVar(self, buf)

    def likely(self, expr: Any) -> Expr:
        return ops.as_condition(expr)

    def get(self) -> Stmt:
        """The program; nothing may be open. The builder is empty then."""
        if len(self._open) != 1:
            raise LanguageError("ir_builder: a scope is still open")
        body = self._closed()
        self._begin()
        return body


def create() -> IRBuilder:
    """A builder without statements."""
    return IRBuilder()
