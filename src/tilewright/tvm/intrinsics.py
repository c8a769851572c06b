"""``decl_buffer`` and ``decl_tensor_intrin``: an instruction written in statements of its own."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tilewright.ir import ops
from tilewright.ir.buffer import SCOPES, Buffer, Layout, known_scope
from tilewright.ir.dtype import dtype as to_dtype
from tilewright.ir.errors import LanguageError
from tilewright.ir.expr import Expr, IntImm, Load, Reduce, Var
from tilewright.ir.stmt import Evaluate, Stmt
from tilewright.ir.visit import apply_reducer, exprs, rewrite_exprs
from tilewright.target.instruction import (
    INSTRUCTIONS,
    MEMORIES,
    Argument,
    Axis,
    Instruction,
    decl_instruction,
)
from tilewright.target.instructions import dp4a, dp4a_u8, dp4a_u8_s8
from tilewright.te.operation import ComputeOp
from tilewright.te.tensor import Tensor, as_shape, tensor_of
from tilewright.tvm import wmma

#: What calls of CUDA's ``__dp4a`` are, by the types of what they multiply.
_DP4A = {"int8 int8": dp4a, "uint8 uint8": dp4a_u8, "uint8 int8": dp4a_u8_s8}


def decl_buffer(
    shape: Any,
    dtype: Any = "float32",
    name: str = "buffer",
    data: Any = None,
    strides: Sequence[Any] | None = None,
    elem_offset: Any = None,
    scope: str = "",
    data_alignment: int = -1,
    offset_factor: int = 0,
    **_: Any,
) -> Buffer:
    """A buffer with strides in elements, integers or variables; what else TVM's are declared with
    is known without it, or follows from where the buffer is used."""
    extents = as_shape(shape, f"decl_buffer {name}")
    layout = None
    if strides:
        layout = Layout(tuple(ops.as_index(s) for s in strides))
    known = scope if scope.startswith("wmma.") else known_scope(scope) or "global"
    return Buffer(name, extents, to_dtype(dtype), known, layout)


def decl_tensor_intrin(
    op: ComputeOp,
    fcompute: Callable[[list[Buffer], list[Buffer]], Any],
    name: str = "tensor_intrin",
    binds: Mapping[Tensor, Buffer] | None = None,
    scalar_params: Any = None,
    default_buffer_params: Mapping[str, Any] | None = None,
) -> Instruction:
    """An instruction that computes what ``op`` declares, for ``s[stage].tensorize(axis, it)``.

    ``fcompute`` gets the buffers of the inputs and of the output, with the strides that ``binds``
    declares, and returns what carries it out: a statement or a call, or for a reduction three, of
    which the last adds to what is there; the first two are not needed then. None leaves the loops
    as they are. The loops of ``op`` are
    what proofs and ``sim`` know of it, so that a statement that does otherwise is the caller's.
    Calls of ``__dp4a``, and of ``tvm_mma_sync`` and its kin over the scopes ``wmma.*``, become
    instructions that Tilewright has.

    Raises :class:`LanguageError` where the extents are symbolic or an input is read otherwise than
    at axes.
    """
    value = op.body[0]
    reduction = value if isinstance(value, Reduce) else None
    axes = (*op.axis, *op.reduce_axis)
    extents = [a.dom.extent for a in axes if a.dom is not None]
    if len(op.body) != 1 or not all(isinstance(e, IntImm) for e in extents):
        raise LanguageError(f"decl_tensor_intrin: {op.name} is to have one output of a fixed shape")
    source = value if reduction is None else reduction.source[0]
    names = {a.var: f"{a.name}.{k}" for k, a in enumerate(axes)}
    declared = [
        Axis(names[a.var], e.value, reduce=a.kind == "reduce")
        for a, e in zip(axes, extents, strict=True)
        if isinstance(e, IntImm)
    ]
    tensors = list(op.inputs)
    reads: dict[Tensor, Load] = {}
    for node in exprs(source):
        tensor = tensor_of(node.buffer) if isinstance(node, Load) else None
        if isinstance(node, Load) and tensor is not None:
            known = reads.setdefault(tensor, node)
            if known.indices != node.indices or not all(
                i in names or isinstance(i, IntImm) for i in node.indices
            ):
                raise LanguageError(
                    f"decl_tensor_intrin: {op.name} reads {tensor.name} at {list(node.indices)}; "
                    "an instruction reads each input once, at its axes"
                )
    made = {t: (binds or {}).get(t) or _buffer(t) for t in (*tensors, op.outputs[0])}
    found = fcompute([made[t] for t in tensors], [made[op.outputs[0]]])
    own = _DP4A.get(" ".join(str(x.dtype) for x in tensors))
    if own is not None and "__dp4a" in wmma.calls(found):
        return own
    scopes = [made[t].scope for t in (op.outputs[0], *tensors)]
    fragments = any(scope.startswith("wmma.") for scope in scopes)
    if fragments:
        whole = wmma.instruction(op, scopes, found)
        if whole is not None:
            return whole
        found = None
    parts = list(found) if isinstance(found, (tuple, list)) else [found]
    overwrites = reduction is not None and len(parts) < 3
    chosen = parts[-1] if len(parts) == 3 else parts[0]
    body: Stmt | None = None
    if chosen is not None:
        body = chosen if isinstance(chosen, Stmt) else Evaluate(ops.as_expr(chosen))

    operands = []
    places: dict[Tensor, tuple[int, ...]] = {}
    for t in (op.outputs[0], *tensors):
        indices: tuple[Expr, ...] = (
            tuple(a.var for a in op.axis) if t is op.outputs[0] else reads[t].indices
        )
        places[t] = tuple(k for k, i in enumerate(indices) if i in names)
        # The loops that stay in the place of an access to fragments have strides of their own.
        layout = None if fragments else made[t].layout
        strides = layout.strides if layout is not None else (None,) * len(indices)
        operands.append(
            Argument(
                t.name,
                tuple(names[i] for i in indices if isinstance(i, Var)),
                str(t.dtype),
                strides=tuple(
                    s.value if isinstance(s, IntImm) else None
                    for s in (strides[k] for k in places[t])
                ),
                scopes=SCOPES if fragments else MEMORIES,
            )
        )

    def element(out: Expr, *elements: Expr) -> Expr:
        given = dict(zip(tensors, elements, strict=True))

        def rule(e: Expr) -> Expr | None:
            tensor = tensor_of(e.buffer) if isinstance(e, Load) else None
            return given[tensor] if tensor is not None else None

        term: Expr = rewrite_exprs(source, rule)
        if reduction is None:
            return term
        return apply_reducer(reduction.reducer, (out,), (term,))[0]

    digest = hashlib.sha256(f"{declared}{operands}{value}{body}{overwrites}".encode()).hexdigest()
    unique = f"{name}.{op.name}.{digest[:12]}"
    INSTRUCTIONS.pop(unique, None)
    return decl_instruction(
        unique,
        declared,
        operands,
        element,
        statement=None
        if body is None
        else (body, tuple((made[t], places[t]) for t in (op.outputs[0], *tensors))),
        overwrites=overwrites and body is not None,
    )


def _buffer(t: Tensor) -> Buffer:
    return Buffer(t.name, t.shape, t.dtype)
