"""Instructions over the scopes ``wmma.*``, as TVM's schedules declare them for tensor cores.

TVM writes them as ``nvcuda::wmma``. Here a product is
:func:`~tilewright.target.instructions.wmma`, a tile of 16 by 16 is filled from shared memory by
``ldmatrix``, and what fills others, or stores them away, is loops over the elements of fragments.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilewright.ir.errors import LanguageError
from tilewright.ir.expr import Call, Expr, IntImm, Load, Reduce, StringImm, Var
from tilewright.ir.stmt import Stmt
from tilewright.ir.visit import exprs, walk
from tilewright.target.instruction import Instruction
from tilewright.target.instructions import instruction_named
from tilewright.target.instructions import wmma as product
from tilewright.te.operation import ComputeOp

#: TVM's operations of ``nvcuda::wmma``.
CALLS = ("tvm_load_matrix_sync", "tvm_store_matrix_sync", "tvm_fill_fragment", "tvm_mma_sync")
#: The suffix of ``ldmatrix`` by type.
_TYPES = {"float16": "f16", "bfloat16": "bf16"}


def instruction(op: ComputeOp, scopes: Sequence[str], statements: Any) -> Instruction | None:
    """What carries out ``op``, whose output and inputs are in ``scopes``, where the user's
    statements say so by calls of ``tvm_mma_sync`` and its kin; None where loops over the elements
    of fragments do.

    Raises :class:`LanguageError` where they call none of these, and for a product that tensor cores
    do not have.
    """
    words = calls(statements)
    if isinstance(op.body[0], Reduce):
        if "tvm_mma_sync" not in words:
            raise LanguageError(
                f"decl_tensor_intrin: {op.name} sums in {scopes[0]} without tvm_mma_sync; other "
                "instructions are declared in tilewright.target.instructions"
            )
        return _product(op, op.body[0])
    if words.isdisjoint(CALLS):
        raise LanguageError(
            f"decl_tensor_intrin: {op.name} reads or writes fragments by none of "
            "tvm_load_matrix_sync, tvm_store_matrix_sync and tvm_fill_fragment"
        )
    rows = [a.dom.extent for a in op.axis if a.dom is not None]
    sizes = [e.value for e in rows if isinstance(e, IntImm) and e.value != 1]
    kind = _TYPES.get(str(op.outputs[0].dtype))
    if "tvm_load_matrix_sync" not in words or scopes[1] != "shared" or sizes != [16, 16]:
        return None
    if kind is None or scopes[0] not in ("wmma.matrix_a", "wmma.matrix_b"):
        return None
    operand = scopes[0][-1]
    turned = ("col_major" in words) == (operand == "a")
    return instruction_named(f"ldmatrix_{operand}_{'trans_' * turned}{kind}")


def _product(op: ComputeOp, value: Reduce) -> Instruction:
    axes = {a.var: a for a in (*op.axis, *op.reduce_axis)}
    reads: dict[Load, set[Expr]] = {}
    for node in exprs(value.source[0]):
        if isinstance(node, Load):
            reads[node] = {i for i in node.indices if isinstance(i, Var)}
    if len(reads) != 2:
        raise LanguageError(f"decl_tensor_intrin: {op.name} is no product of two tiles")
    extents: dict[str, int] = {"i": 1, "j": 1, "k": 1}
    first, second = reads.values()
    for var, axis in axes.items():
        inside = (var in first, var in second)
        letter = "k" if axis.kind == "reduce" else {(True, False): "i"}.get(inside, "j")
        assert axis.dom is not None
        extents[letter] *= axis.dom.extent.value if isinstance(axis.dom.extent, IntImm) else 0
    rows, columns, depth = extents.values()
    if rows % 16:  # the transposed product has them the other way round
        rows, columns = columns, rows
    element = str(next(iter(reads)).dtype)
    return product(rows, columns, depth, element, str(op.outputs[0].dtype))


def calls(statements: Any) -> set[str]:
    """The names of functions that statements call, and the words that these get."""
    parts = statements if isinstance(statements, (tuple, list)) else (statements,)
    found = set[str]()
    for part in parts:
        for e in walk(part) if isinstance(part, Stmt) else [part]:
            for node in exprs(e) if isinstance(e, Expr) else ():
                if isinstance(node, Call):
                    found.add(node.name.removeprefix("extern:"))
                    found |= {a.value for a in node.args if isinstance(a, StringImm)}
    return found
