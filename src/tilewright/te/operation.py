"""Operations: placeholders, computations, calls to libraries."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace
from typing import Any

from tilewright.ir.buffer import Buffer, Layout
from tilewright.ir.errors import LanguageError, NestedTagError, user_location
from tilewright.ir.expr import Expr, IntImm, Load, Reduce, Var
from tilewright.ir.itervar import IterVar, Range
from tilewright.ir.ops import Value, as_expr, as_index, const
from tilewright.ir.stmt import Evaluate, Stmt
from tilewright.ir.visit import children, exprs
from tilewright.te.axes import axis_kind, declared, named
from tilewright.te.settled import settled
from tilewright.te.tensor import Tensor, as_shape, make_buffer, tensor_of

_tag: ContextVar[str | None] = ContextVar("tag", default=None)


@contextmanager
def tag_scope(tag: str) -> Iterator[None]:
    """Give a tag to the operations that are declared within; also to decorate a function with.

    Raises :class:`NestedTagError` within another one.
    """
    if _tag.get() is not None:
        raise NestedTagError(f"tag_scope({tag!r}) stands within tag_scope({_tag.get()!r})")
    token = _tag.set(tag)
    try:
        yield
    finally:
        _tag.reset(token)


class Operation:
    """What makes tensors. ``outputs`` are they; ``inputs`` the tensors that it reads."""

    name: str
    tag: str
    attrs: Mapping[str, Any]
    axis: tuple[IterVar, ...] = ()
    reduce_axis: tuple[IterVar, ...] = ()
    outputs: tuple[Tensor, ...]
    where: str

    def __init__(self, name: str, tag: str = "", attrs: Mapping[str, Any] | None = None) -> None:
        self.name, self.tag, self.attrs = named("an operation", name), tag, attrs or {}
        self.where = user_location()
        around = _tag.get()
        if around is not None:
            if tag:
                raise LanguageError(
                    f"{name}: tag={tag!r} stands within tag_scope({around!r}): give one of them"
                )
            self.tag = around

    @property
    def num_outputs(self) -> int:
        return len(self.outputs)

    def output(self, index: int) -> Tensor:
        """Output number ``index``."""
        return self.outputs[index]

    @property
    def inputs(self) -> list[Tensor]:
        return []

    @property
    def input_tensors(self) -> list[Tensor]:
        return self.inputs

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name})"


class PlaceholderOp(Operation):
    """An argument of the program."""


class ComputeOp(Operation):
    """Elements as expressions of their index: ``outputs[k][axis] = body[k]``."""

    body: tuple[Expr, ...]
    _read: tuple[tuple[Expr, ...], list[Tensor]] | None = None  # a body, and what it reads

    @property
    def inputs(self) -> list[Tensor]:
        if self._read is None or self._read[0] is not self.body:
            self._read = self.body, self._inputs()
        return list(self._read[1])

    @property
    def ends(self) -> tuple[Expr, ...]:
        """Where the axes of its reduction begin, and how often each runs, but for constants."""
        domains = [axis.dom for axis in self.reduce_axis if axis.dom is not None]
        return tuple([e for d in domains for e in (d.min, d.extent) if type(e) is not IntImm])

    def _inputs(self) -> list[Tensor]:
        found: dict[Tensor, None] = {}
        for expr in (*self.body, *self.ends):
            for node in exprs(expr):
                tensor = tensor_of(node.buffer) if isinstance(node, Load) else None
                if tensor is not None:
                    found[tensor] = None
        return list(found)

    @property
    def input_tensors(self) -> list[Tensor]:
        """:attr:`inputs` in TVM's order: what an index or an extent is read from comes before what
        it is used for."""
        found: dict[Tensor, None] = {}
        seen = set[Any]()
        stack: list[tuple[Any, bool]] = [(e, False) for e in reversed(self.body)]
        while stack:
            e, done = stack.pop()
            if done:
                tensor = tensor_of(e.buffer)
                if tensor is not None:
                    found[tensor] = None
            elif e not in seen:
                seen.add(e)
                stack += [(e, True)] * isinstance(e, Load)
                ends = self.ends if isinstance(e, Reduce) else ()
                stack += [(x, False) for x in reversed([*ends, *children(e)])]
        return list(found)

    def derive(
        self,
        body: tuple[Expr, ...],
        axis: tuple[IterVar, ...] | None = None,
    ) -> ComputeOp:
        """The same outputs, computed otherwise."""
        made = ComputeOp.__new__(ComputeOp)
        made.name, made.tag, made.attrs = self.name, self.tag, self.attrs
        made.where = self.where
        made.axis = self.axis if axis is None else axis
        made.body = body
        made.outputs = self.outputs
        made.reduce_axis = _reduce_axes(body)
        return made


class ExternOp(Operation):
    """A statement of the user's own, that fills ``outputs`` from ``reads``."""

    body: Stmt
    reads: tuple[Tensor, ...]

    @property
    def inputs(self) -> list[Tensor]:
        return list(self.reads)


def placeholder(
    shape: Value | Sequence[Value],
    dtype: str = "float32",
    name: str = "placeholder",
    strides: Sequence[Value] | None = None,
) -> Tensor:
    """An argument of the program, of ``shape`` (extents: integers or ``te.var``) and ``dtype``.

    ``strides`` are how far neighbours along each dimension lie apart, in elements, by default those
    of a dense array: a call takes arrays of just these strides, such as slices of larger ones. One
    that is a ``te.var`` is read off the array, and may be 0 or negative.

    Raises :class:`LanguageError` where they are not as many as dimensions.
    """
    op = PlaceholderOp(name)
    buffer = make_buffer(name, as_shape(shape, f"placeholder {name}"), dtype)
    if strides is not None:
        if len(strides) != len(buffer.shape):
            raise LanguageError(
                f"placeholder {name}: {len(buffer.shape)} dimensions, {len(strides)} strides"
            )
        buffer = replace(buffer, layout=Layout(tuple(as_index(s) for s in strides)))
    op.outputs = (Tensor(op, 0, buffer),)
    return op.outputs[0]


def _reduce_axes(body: tuple[Expr, ...]) -> tuple[IterVar, ...]:
    return body[0].axes if isinstance(body[0], Reduce) else ()


def _check_body(name: str, body: tuple[Expr, ...], axes: tuple[IterVar, ...]) -> None:
    if not body:
        raise LanguageError(f"compute {name}: its function returns no value")
    for expr in body:
        own = {a.var for a in axes}
        if isinstance(expr, Reduce):
            own.update(a.var for a in expr.axes)
        for node in exprs(expr):
            if isinstance(node, Var) and node not in own:
                _check_variable(name, node)
            if isinstance(node, Reduce) and node is not expr:
                raise LanguageError(
                    f"compute {name}: a reduction stands inside a larger expression. Compute the "
                    "reduction as a stage of its own and use its result in a second compute"
                )
    reductions = [e for e in body if isinstance(e, Reduce)]
    if reductions and (
        len(reductions) != len(body)
        or any(r.reducer is not reductions[0].reducer for r in reductions)
        or (
            any(r.source is not reductions[0].source for r in reductions)
            and any(r.source != reductions[0].source for r in reductions)
        )
    ):
        raise LanguageError(
            f"compute {name}: several outputs with reductions must be the components of one "
            "reduction, as te.comm_reducer returns them"
        )


def _check_variable(name: str, var: Var) -> None:
    kind = axis_kind(var)
    if kind == "reduce":
        raise LanguageError(
            f"compute {name}: the reduction axis {var.name} stands outside of a reduction over "
            f"it. Reduce over it, as in te.sum(..., axis={var.name})"
        )
    if kind is not None:
        raise LanguageError(
            f"compute {name}: {var.name} is an axis of something else. Use the parameters of "
            "its own function"
        )


def compute(
    shape: Value | Sequence[Value],
    fcompute: Callable[..., Any],
    name: str = "compute",
    tag: str = "",
    attrs: Mapping[str, Any] | None = None,
    varargs_names: Sequence[str] | None = None,
) -> Any:
    """The tensor whose element at ``(i, j, ...)`` is ``fcompute(i, j, ...)``.

    ``fcompute`` returns an expression, or a tuple of them for as many tensors of one shape; then
    a tuple of tensors is returned. Axes take the names of its parameters.

    >>> A = placeholder((4, 8), name="A")
    >>> compute((4, 8), lambda i, j: A[i, j] * 2.0, name="B")
    Tensor(B, shape=[4, 8], dtype=float32)
    """
    op = ComputeOp(name, tag, attrs)
    extents = as_shape(shape, f"compute {name}")
    names = list(varargs_names or _axis_names(fcompute, len(extents), name))
    if len(names) != len(extents):
        raise LanguageError(
            f"compute {name} has {len(extents)} dimensions, but {len(names)} names for its axes"
        )
    op.axis = tuple(
        declared(IterVar(Range.from_extent(const(0), extent), Var.make(n, extent.dtype), "data"))
        for n, extent in zip(names, extents, strict=True)
    )
    try:
        found = fcompute(*(axis.var for axis in op.axis))
    except IndexError as error:
        if "integer or boolean arrays are valid indices" not in str(error):  # as NumPy says it
            raise
        raise LanguageError(
            f"compute {name}: an array has no element at an axis while the program is being "
            "written: make it a te.placeholder, and pass the array to the kernel that is built"
        ) from error
    if found is None:
        raise LanguageError(f"compute {name}: its function returns None, not an expression")
    several = isinstance(found, (tuple, list))
    body = tuple(as_expr(e) for e in (found if several else (found,)))
    _check_body(name, body, op.axis)
    op.body = settled(name, body, op.axis)
    op.reduce_axis = _reduce_axes(op.body)
    op.outputs = tuple(
        Tensor(op, k, make_buffer(f"{name}.v{k}" if several else name, extents, e.dtype))
        for k, e in enumerate(op.body)
    )
    return op.outputs if several else op.outputs[0]


def _axis_names(fcompute: Callable[..., Any], rank: int, name: str) -> list[str]:
    """Of the parameters, without those that have a default and are no more indices."""
    if not callable(fcompute):
        raise LanguageError(f"compute {name} takes a function of indices, got {fcompute!r}")
    parameters = list(inspect.signature(fcompute).parameters.values())
    if any(p.kind is p.VAR_POSITIONAL for p in parameters):
        named = [p.name for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD]
        return named[:rank] + [f"i{k}" for k in range(len(named), rank)]
    indices = [p for p in parameters if p.kind is not p.KEYWORD_ONLY]
    while len(indices) > rank and indices[-1].default is not inspect.Parameter.empty:
        indices.pop()
    if len(indices) != rank:
        right = ", ".join("ijklmnop"[k] if rank <= 8 else f"i{k}" for k in range(rank))
        raise LanguageError(
            f"compute {name} has {rank} dimensions, but its function takes {len(indices)} indices: "
            f"write lambda {right}: ..., an index for each dimension of the shape"
        )
    return [p.name for p in indices]


def extern(
    shape: Any,
    inputs: Sequence[Tensor],
    fcompute: Callable[[list[Buffer], list[Buffer]], Stmt | Expr],
    name: str = "extern",
    dtype: str | Sequence[str] | None = None,
    tag: str = "",
) -> Any:
    """Tensors filled by a statement of the user's, usually a call to a C function.

    Parameters
    ----------
    shape : one shape, or a list of shapes for as many outputs.
    inputs : the tensors that it reads.
    fcompute : called with the buffers of ``inputs`` and of the outputs; returns a statement, or
        an expression to evaluate, such as ``te.call_extern("int32", "my_gemm", ...)``.
    dtype : the type of the outputs, by default that of the first input.
    """
    if isinstance(inputs, Tensor):
        raise LanguageError(f"extern {name}: its inputs are a list, got {inputs!r}: write [A]")
    for read in inputs:
        if not isinstance(read, Tensor):
            raise LanguageError(f"extern {name}: its inputs are tensors, got {read!r}")
    if not callable(fcompute):
        raise LanguageError(
            f"extern {name} takes a function of the buffers of its inputs and of its outputs, got "
            f"{fcompute!r}"
        )
    shapes = [shape]
    if isinstance(shape, (tuple, list)) and shape and isinstance(shape[0], (tuple, list)):
        shapes = list(shape)
    if dtype is None:
        if not inputs:
            raise LanguageError(f"extern {name}: with no inputs, say the dtype of its outputs")
        dtype = inputs[0].dtype
    types = [dtype] * len(shapes) if isinstance(dtype, str) else list(dtype)
    if len(types) != len(shapes):
        raise LanguageError(
            f"extern {name} has {len(shapes)} outputs, but {len(types)} types for them"
        )
    op = ExternOp(name, tag)
    op.reads = tuple(inputs)
    op.outputs = tuple(
        Tensor(
            op,
            k,
            make_buffer(
                name if len(shapes) == 1 else f"{name}.v{k}", as_shape(s, f"extern {name}"), t
            ),
        )
        for k, (s, t) in enumerate(zip(shapes, types, strict=True))
    )
    body = fcompute([t.buffer for t in op.reads], [t.buffer for t in op.outputs])
    if body is None:
        raise LanguageError(
            f"extern {name}: its function returns None. Return a statement, or a call such as "
            "te.call_extern('int32', 'symbol', ...)"
        )
    op.body = body if isinstance(body, Stmt) else Evaluate(as_expr(body))
    return op.outputs[0] if len(op.outputs) == 1 else op.outputs
