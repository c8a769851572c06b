"""Boxes of tensors that a kernel copies, numbered: each becomes a parameter that the host makes.

The operand of which an instruction copies a box says the number of the map and where the box
begins, the outermost index first. A kernel that copies boxes of one size of a tensor at several
places has one map for them.
"""

from __future__ import annotations

from dataclasses import replace

from tilewright.ir.buffer import Buffer
from tilewright.ir.errors import TargetError
from tilewright.ir.expr import Expr
from tilewright.ir.func import Func
from tilewright.ir.stmt import Access, Instr, Stmt
from tilewright.ir.visit import Steps, loads, statements, stores
from tilewright.lower.context import InContext, analyzer_of
from tilewright.target.boxes import Box, TensorMap, box_of
from tilewright.target.windows import opened


def number_maps(func: Func, kind: str, arch: str) -> Func:
    """``func`` with its maps, where the target has such instructions.

    Raises :class:`TargetError` where a kernel writes what it copies so.
    """
    if not any(_has(s, kind, arch) for s in statements(func.body)):
        return func
    numbering = _Numbering(func, kind, arch)
    body = numbering.stmt(func.body)
    return replace(func, body=body, tensor_maps=tuple(numbering.found))


def _has(s: Stmt, kind: str, arch: str) -> bool:
    return isinstance(s, Instr) and bool(
        getattr(s.instruction, "tensor_map", False) and not s.instruction.lacks(kind, arch)
    )


class _Numbering(InContext):
    def __init__(self, func: Func, kind: str, arch: str) -> None:
        super().__init__(analyzer_of(func))
        self.params, self.kind, self.arch = func.params, kind, arch
        self.body, self.written = func.body, {s.buffer for s in stores(func.body)}
        self.found: list[TensorMap] = []

    def others(self, tensor: Buffer) -> bool:
        """Whether anything but stores of boxes uses a tensor."""
        return any(x.buffer is tensor for x in loads(self.body)) or sum(
            s.buffer is tensor for s in stores(self.body)
        ) > sum(
            isinstance(s, Instr) and s.instruction.boxed == 0 and s.operands[0].buffer is tensor
            for s in statements(self.body)
        )

    def expr(self, e: Expr) -> Expr:
        return e

    def steps(self, s: Stmt) -> Steps:
        if not isinstance(s, Instr):
            return (yield from super().steps(s))
        if not _has(s, self.kind, self.arch):
            return s
        declared = s.instruction
        boxed = s.operands[declared.boxed]
        tensor = boxed.buffer
        if not declared.boxed and self.others(tensor):
            raise TargetError(
                f"{declared.name}: {tensor.name} is read or written otherwise by the kernel that "
                "stores boxes of it, which does not wait for them: use vectorized loops"
            )
        if declared.boxed and tensor in self.written:
            raise TargetError(
                f"{declared.name}: {tensor.name} is written by the kernel that copies boxes of it, "
                "which need not be seen: compute it in a kernel of its own, or use copy_async"
            )
        extents = [axis.extent for axis in declared.axes]
        window = None
        if boxed.window:
            window, places = opened(boxed, s.axes)
            box: Box | str = Box(tuple(range(len(tensor.shape))), tuple(extents))
        else:
            box = box_of(boxed, s.axes, extents, self.analyzer, proved=True)
        if isinstance(box, str):
            raise TargetError(
                f"{declared.name}: it is not known any more where boxes of {tensor.name} are, as "
                f"{box}: use copy_async"
            )
        swizzle = max(declared.operands[1 - declared.boxed].swizzles)
        made = TensorMap(self.params.index(tensor), box, swizzle, window)
        if made not in self.found:
            self.found.append(made)
        if window is None:
            places = tuple(box.begin(boxed, s.axes, self.analyzer))
        operands = list(s.operands)
        operands[declared.boxed] = Access(tensor, places, box=self.found.index(made))
        return replace(s, operands=tuple(operands))
