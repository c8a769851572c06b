"""Instructions and their queues as text of a C-like language."""

from __future__ import annotations

from tilewright.arith.affine import Affine, as_affine
from tilewright.codegen.c_like_dialect import Dialect
from tilewright.codegen.c_like_store import StorePrinter
from tilewright.codegen.mbarriers import NAMES
from tilewright.codegen.mbarriers import STORES as TILE_STORES
from tilewright.ir import ops
from tilewright.ir import stmt as S
from tilewright.ir.buffer import Buffer
from tilewright.ir.dtype import dtype
from tilewright.ir.errors import TargetError
from tilewright.ir.expr import Expr
from tilewright.ir.func import Func
from tilewright.ir.swizzle import pattern
from tilewright.ir.visit import statements
from tilewright.lower.substitution import put
from tilewright.target.boxes import TensorMap
from tilewright.target.fragments import slot_values
from tilewright.target.instruction import Argument, Pointer, stride_along
from tilewright.target.instructions._shared import EXCHANGE, OWN
from tilewright.target.instructions.tma_load import ALIGN
from tilewright.target.queues import AWAIT_PRODUCTS, QUEUES


class InstructionPrinter(StorePrinter):
    """Prints instructions where the dialect has them, else the loops that they stand for."""

    def __init__(self, dialect: Dialect) -> None:
        super().__init__(dialect)
        self.maps: list[str] = []  # the names of tensor maps
        #: By queue, the shared memory that tile loads report their ends in.
        self.barriers = {
            name: Buffer(f"barriers{name[3:]}", (ops.const(1),), dtype("uint64"), "shared")
            for name in NAMES
        }
        self.written_out: set[Expr] = set()  # variables of the loops around that are
        self._queues: set[str] = set()  # whose instructions the language has

    def stmt(self, s: S.Stmt) -> None:
        """Add the lines of a statement."""
        raise NotImplementedError

    def begin_instructions(self, func: Func) -> tuple[TensorMap, ...]:
        """Name the tensor maps of a function, which are returned."""
        d = self.dialect
        maps = d.tensor_maps(func)
        for made in maps:
            self.maps.append(self.names.fresh(f"{func.params[made.param].name}_map"))
        issued = (s.instruction for s in statements(func.body) if isinstance(s, S.Instr))
        self._queues = {i.queue for i in issued if not i.lacks(d.kind, d.arch)}
        if not maps:
            self._queues -= {*NAMES, TILE_STORES}
        return maps

    def queue(self, queue: str, action: str, pending: int) -> None:
        """Add the line of what a thread does about a queue.

        Where its instructions are loops, nothing is under way; but other queues' may read what
        those store, and not as a thread would.
        """
        if queue in self._queues:
            text = QUEUES[queue].text(action, pending)
            if AWAIT_PRODUCTS in text:
                self.dialect.require(AWAIT_PRODUCTS)
            self.line(text)
        elif QUEUES[queue].proxy and action in ("proxy", "commit") and self._queues:
            self.line(QUEUES[queue].text("proxy"))

    def instruction(self, s: S.Instr) -> None:
        """Add the lines of an instruction, or of its loops where the language does not have it."""
        d = self.dialect
        lacks = bool(s.instruction.lacks(d.kind, d.arch)) or not all(
            d.promises(operand.buffer, argument.align)
            for operand, argument in zip(s.operands, s.instruction.operands, strict=True)
        )
        if s.instruction.tensor_map:
            found = None if lacks else self._box(s)
        else:
            found = None if lacks else self._views(s)
        if found is None:
            self.stmt(s.body)
            return
        pointers, strides = found
        self.line(f"// {s.instruction.name}")
        text = s.instruction.emit(d.kind, pointers, strides)
        d.require(*(name for name in ("shared_address", OWN, EXCHANGE) if name in text))
        for line in text.splitlines():
            self.line(line)

    def _views(self, s: S.Instr) -> tuple[list[str], list[list[str]]] | None:
        """Pointers to the operands and their strides (slots, of fragments); None if they vary."""
        pointers: list[str] = []
        strides: list[list[str]] = []
        zero: dict[Expr, Expr] = {axis: ops.const(0, axis.dtype) for axis in s.axes}
        for operand, argument in zip(s.operands, s.instruction.operands, strict=True):
            index = operand.indices[0]
            first = self.analyzer.simplify(put(index, zero))
            found = (
                self._slots(s, index, argument, first)
                if argument.fragment
                else stride_along(S.Access(operand.buffer, (index,)), s.axes)
            )
            if found is None:
                return None
            pointers.append(self._pointer(operand.buffer, first, operand.swizzle))
            strides.append([str(self.expr(x)) for x in found])
        return pointers, strides

    def _pointer(self, buffer: Buffer, place: Expr, width: int) -> Pointer:
        """A pointer to an element, in two parts where it lies in shared memory."""
        d, name = self.dialect, self.name_of(buffer)
        whole = d.pointer(name, self.expr(place))
        if buffer.scope != "shared":
            return Pointer(whole, width)
        form, repeats = as_affine(place), pattern(width) // buffer.dtype.bytes if width else 0
        far = {
            atom: k
            for atom, k in form.terms.items()
            if atom in self.written_out or (repeats and k % repeats == 0)
        }
        near = {atom: k for atom, k in form.terms.items() if atom not in far}
        first = d.pointer(name, self.expr(Affine(near).to_expr(place.dtype)))
        behind = self.expr(Affine(far, form.const).to_expr(place.dtype))
        return Pointer(whole, width, (str(first), str(behind)))

    def _box(self, s: S.Instr) -> tuple[list[str], list[list[str]]] | None:
        """A pointer to where a box is in shared memory and its map, and where the box begins."""
        source = s.operands[s.instruction.boxed]
        target = s.operands[1 - s.instruction.boxed]
        if source.box is None or not self.maps:
            return None
        zero: dict[Expr, Expr] = {axis: ops.const(0, axis.dtype) for axis in s.axes}
        first = self.analyzer.simplify(put(target.indices[0], zero))
        unit = ALIGN // target.buffer.dtype.bytes
        if not self.analyzer.prove(ops.floormod(first, ops.const(unit, first.dtype)).equal(0)):
            raise TargetError(
                f"{s.instruction.name}: a box in {target.buffer.name} is not known to begin at a "
                f"multiple of {ALIGN} bytes: make the boxes, and the copies of a pipeline, such "
                "multiples, or use copy_async"
            )
        to = self.dialect.pointer(self.name_of(target.buffer), self.expr(first))
        begins = [str(self.expr(i)) for i in source.indices]
        return [str(to), f"&{self.maps[source.box]}"], [[], begins]

    def _slots(self, s: S.Instr, place: Expr, argument: Argument, first: Expr) -> tuple[Expr, ...]:
        """Where a thread has the elements of an operand in fragments, from the first one on."""
        own, extents = s.instruction.axes_of(argument)
        found = []
        for values in slot_values(extents, argument.fragment):
            at: dict[Expr, Expr] = {axis: ops.const(0, axis.dtype) for axis in s.axes}
            at |= {s.axes[k]: ops.const(v) for k, v in zip(own, values, strict=True)}
            found.append(self.analyzer.simplify(put(place, at) - first))
        return tuple(found)
