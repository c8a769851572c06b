"""Boxes of tensors that a kernel copies, numbered: each becomes a parameter that the host makes.

An instruction that copies a box keeps, as its second operand, the number of the map and where the
box begins: ``box(number, outermost, ..., innermost)``. A kernel that asks for boxes of one size of
a tensor at several places has one map for them.
"""

from __future__ import annotations

from dataclasses import replace

from tilewright.ir.buffer import Buffer
from tilewright.ir.errors import TargetError
from tilewright.ir.expr import Call, Expr, IntImm
from tilewright.ir.func import Func
from tilewright.ir.ops import const
from tilewright.ir.stmt import Access, Instr, Stmt
from tilewright.ir.visit import Rewriter, statements, stores, substitute
from tilewright.target.boxes import TensorMap, box_of

#: The attribute of a function that holds its maps, in the order of their parameters.
MAPS = "tensor_maps"
#: The name of the call that stands for a box.
CALL = "box"


def number_maps(func: Func, kind: str, arch: str) -> Func:
    """``func`` with its maps in its attributes, where the target has such instructions.

    Raises :class:`TargetError` where a kernel writes what it copies so.
    """
    if not any(_has(s, kind, arch) for s in statements(func.body)):
        return func
    numbering = _Numbering(func, kind, arch)
    body = numbering.stmt(func.body)
    return replace(func, body=body, attrs={**func.attrs, MAPS: tuple(numbering.found)})


def box_at(index: Expr) -> tuple[int, tuple[Expr, ...]] | None:
    """The number of a map and where the box begins; None where that is not what ``index`` says."""
    match index:
        case Call(_, name, (IntImm(_, number), *places)) if name == CALL:
            return number, tuple(places)
    return None


def _has(s: Stmt, kind: str, arch: str) -> bool:
    return isinstance(s, Instr) and bool(
        getattr(s.instruction, "tensor_map", False) and not s.instruction.lacks(kind, arch)
    )


class _Numbering(Rewriter):
    def __init__(self, func: Func, kind: str, arch: str) -> None:
        self.params, self.kind, self.arch = func.params, kind, arch
        self.written = {s.buffer for s in stores(func.body)}
        self.found: list[TensorMap] = []

    def expr(self, e: Expr) -> Expr:
        return e

    def stmt(self, s: Stmt) -> Stmt:
        if not isinstance(s, Instr):
            return super().stmt(s)
        if not _has(s, self.kind, self.arch):
            return s
        target, source = s.operands
        tensor, declared = source.buffer, s.instruction
        if tensor in self.written:
            raise TargetError(
                f"{declared.name}: {tensor.name} is written by the kernel that copies boxes of it, "
                "which need not be seen: compute it in a kernel of its own, or use copy_async"
            )
        box = box_of(source, s.axes, [axis.extent for axis in declared.axes])
        assert not isinstance(box, str), box
        made = TensorMap(self.params.index(tensor), box, max(declared.operands[0].swizzles))
        if made not in self.found:
            self.found.append(made)
        zero: dict[Expr, Expr] = {axis: const(0, axis.dtype) for axis in s.axes}
        places = (substitute(source.indices[d], zero) for d in box.dimensions)
        call = Call(source.indices[0].dtype, CALL, (const(self.found.index(made)), *places))
        one = Buffer(tensor.name, (const(1),), tensor.dtype, tensor.scope)
        return replace(s, operands=(target, Access(one, (call,))))
