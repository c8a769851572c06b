"""Where elements lie: the offsets of lanes are base and step where they are one progression."""

from __future__ import annotations

from tilewright.codegen.llvm.builder import Builder, Value, constant, vector_type
from tilewright.codegen.llvm.expr import Expressions
from tilewright.codegen.llvm.lane_blocks import block_of
from tilewright.codegen.llvm.sums import I64, Spread, Terms, spread
from tilewright.codegen.llvm.types import Types
from tilewright.ir import expr as E
from tilewright.ir import ops
from tilewright.ir.buffer import Buffer
from tilewright.ir.dtype import int_range
from tilewright.ir.errors import TargetError
from tilewright.ir.expr import Expr, Var
from tilewright.ir.visit import contents

#: An offset by lane: ``base + k * step``, or each by itself.
Lanes = tuple[Value, Value] | Value
#: An offset in parts; see :meth:`Offsets._place`.
Place = tuple[Spread, int, list[tuple[Expr, Expr]]]
_ZERO = Value(I64, "0")


class Offsets(Expressions):
    """Writes offsets; ``pointers`` are the buffers in scope."""

    def __init__(self, b: Builder, types: Types) -> None:
        super().__init__(b, types)
        self.pointers: dict[Buffer, Value] = {}
        self._strides: dict[Buffer, tuple[Expr, ...]] = {}
        self._places: dict[tuple[Buffer, tuple[Expr, ...]], Place] = {}

    def pointer(self, buffer: Buffer) -> Value:
        """Where a buffer begins."""
        found = self.pointers.get(buffer)
        if found is None:
            raise TargetError(f"buffer {buffer.name} is neither a parameter nor allocated")
        return found

    def strides(self, buffer: Buffer) -> tuple[Expr, ...]:
        """The strides of a buffer, in elements."""
        found = self._strides.get(buffer)
        if found is None:
            found = self._strides[buffer] = buffer.strides
        return found

    def offset(self, buffer: Buffer, indices: tuple[Expr, ...]) -> Value:
        """The offset of one element."""
        if buffer.layout is not None and buffer.layout.swizzle is not None:
            return self.index(buffer.offset(indices))
        parts, _, rest = self._place(buffer, indices)
        terms: Terms = {}
        least = self.gather(parts, 1, terms)
        for index, stride in rest:
            least += self.add(self.product(self.index(index), self.index(stride)), 1, terms)
        return self.total(terms, least)

    def lane_offsets(self, buffer: Buffer, indices: tuple[Expr, ...], lanes: int) -> Lanes:
        """The offsets of a vector of elements."""
        if buffer.layout is not None and buffer.layout.swizzle is not None:
            return self._form(buffer.offset(indices), lanes)
        parts, known, rest = self._place(buffer, indices)
        terms: Terms = {}
        least, step = self.gather(parts, 1, terms), Value(I64, str(known))
        scattered: Value | None = None
        for index, stride in rest:
            scale = self.index(stride)
            form = self._form(index, lanes)
            if isinstance(form, Value):
                part = self.b.binary("mul nsw", form, self.b.splat(scale, lanes))
                scattered = part if scattered is None else self.b.binary("add", scattered, part)
            else:
                least += self.add(self.product(form[0], scale), 1, terms)
                step = self.arithmetic("add", step, self.product(form[1], scale))
        base = self.total(terms, least)
        if scattered is None:
            return base, step
        return self.b.binary("add", scattered, self.scattered(base, step, lanes))

    def lane_block(
        self, buffer: Buffer, indices: tuple[Expr, ...]
    ) -> tuple[Value, int, list[int]] | None:
        """The offset and the size of the block of neighbours that all lanes are of, and which of it
        they are, where they are no progression; None where there is no such block."""
        *others, last = indices
        if buffer.layout is not None or isinstance(last, (E.Ramp, E.Broadcast)):
            return None
        if last.dtype.lanes == 1 or self.strides(buffer)[-1] != ops.const(1, "int32"):
            return None
        if any(i.dtype.lanes > 1 and not isinstance(i, E.Broadcast) for i in others):
            return None
        found = block_of(last, buffer.shape[-1], lambda e: constant(self.index(e)))
        if found is None:
            return None
        start = ops.const(0, last.dtype.element)
        parts, _, rest = self._place(buffer, (*others, start))
        terms: Terms = {}
        least = self.gather(parts, 1, terms) + self.gather(found[0], 1, terms)
        return (self.total(terms, least), *found[1:]) if not rest else None

    def is_multiple(self, buffer: Buffer, indices: tuple[Expr, ...], elements: int) -> bool:
        """Whether ``elements`` divides the offset of the first lane, whatever variables hold."""
        if buffer.layout is not None and buffer.layout.swizzle is not None:
            return False
        parts, _, rest = self._place(buffer, indices)
        terms: Terms = {}
        least = self.gather(parts, 1, terms)
        return not rest and all(k % elements == 0 for k in (least, *terms.values()))

    def follows(self, buffer: Buffer, indices: tuple[Expr, ...], var: Var, step: int) -> bool:
        """Whether lanes are ``step`` elements apart, and an increment of ``var`` one element."""
        if buffer.layout is not None and buffer.layout.swizzle is not None:
            return False
        (atoms, _), known, rest = self._place(buffer, indices)
        moving = [(atom, k) for atom, k in atoms if var in contents(atom)[0]]
        return known == step and not rest and moving == [(var, 1)]

    def _place(self, buffer: Buffer, indices: tuple[Expr, ...]) -> Place:
        """An offset in its parts: a sum, the step from lane to lane that is known, and the indices
        of other kinds with their strides."""
        found = self._places.get((buffer, indices))
        if found is not None:
            return found
        parts: list[tuple[Expr, int]] = []
        rest: list[tuple[Expr, Expr]] = []
        step = 0
        strides = self.strides(buffer)
        joined = _rejoined(indices, strides)
        for index, stride, extent in zip(joined, strides, buffer.shape, strict=True):
            match index, stride:
                case E.Ramp(base, E.IntImm(_, by), _), E.IntImm(_, scale) if _rises(index, extent):
                    parts.append((base, scale))
                    step += by * scale
                case E.Broadcast(value, _), E.IntImm(_, scale):
                    parts.append((value, scale))
                case _, E.IntImm(_, scale) if index.dtype.lanes == 1:
                    parts.append((index, scale))
                case _:
                    rest.append((index, stride))
        if buffer.layout is not None:
            parts.append((buffer.layout.base, 1))
        found = self._places[buffer, indices] = spread(parts), step, rest
        return found

    def _form(self, e: Expr, lanes: int) -> Lanes:
        """An index as base and step where it is one progression, as arithmetic on data is not:
        its lanes wrap around one by one."""
        if e.dtype.lanes == 1:
            return self.index(e), _ZERO
        match e:
            case E.Broadcast(value, _):
                return self.index(value), _ZERO
            case _ if not e.exact:
                pass
            case E.Ramp(base, stride, _):
                return self.index(base), self.index(stride)
            case E.Add() | E.Sub():
                x, y = self._form(e.a, lanes), self._form(e.b, lanes)
                if not isinstance(x, Value) and not isinstance(y, Value):
                    opcode = "add" if isinstance(e, E.Add) else "sub"
                    return self.arithmetic(opcode, x[0], y[0]), self.arithmetic(opcode, x[1], y[1])
            case E.Mul():
                x, y = self._form(e.a, lanes), self._form(e.b, lanes)
                if not isinstance(x, Value) and not isinstance(y, Value):
                    if constant(x[1]) == 0:
                        x, y = y, x
                    if constant(y[1]) == 0:
                        return self.arithmetic("mul", x[0], y[0]), self.arithmetic(
                            "mul", x[1], y[0]
                        )
        held = self.expr(e)
        opcode = "sext" if e.dtype.kind == "int" else "zext"
        return self.b.convert(opcode, held, vector_type(I64, lanes))

    def scattered(self, base: Value, step: Value, lanes: int) -> Value:
        """Base and step as a vector of offsets."""
        all = self.b.splat(base, lanes)
        if constant(step) == 0:
            return all
        numbers = ", ".join(f"i64 {k}" for k in range(lanes))
        ramp = Value(vector_type(I64, lanes), f"<{numbers}>")
        return self.b.binary("add", all, self.b.binary("mul", ramp, self.b.splat(step, lanes)))

    def address(self, e: Expr) -> Value:
        """Where the element that ``e`` loads lies."""
        if not isinstance(e, E.Load) or e.dtype.lanes > 1:
            raise TargetError(f"address_of needs one element of a buffer, got {e}")
        element = self.types.memory(e.buffer.dtype)
        return self.element(element, self.pointer(e.buffer), self.offset(e.buffer, e.indices))


def _rejoined(indices: tuple[Expr, ...], strides: tuple[Expr, ...]) -> list[Expr]:
    """Indices of the same element, where two dimensions have the quotient and the remainder of one
    index, or of one progression, and lie as far apart: all of it along the inner one.

    So what is a row of pixels, by number and channel, is read as it lies.
    """
    found = list(indices)
    for k, inner in enumerate(indices):
        match inner:
            case E.FloorMod(whole, E.IntImm(_, by) | E.Broadcast(E.IntImm(_, by), _)):
                pass
            case _:
                continue
        near = strides[k]
        if not whole.exact or by <= 0 or not isinstance(near, E.IntImm):
            continue
        quotient = E.FloorDiv(whole, inner.b)
        for j, (outer, far) in enumerate(zip(found[:k], strides, strict=False)):
            if not isinstance(far, E.IntImm) or far.value != near.value * by:
                continue
            if outer == quotient:
                found[j], found[k] = _zero(outer), whole
            elif isinstance(outer, (E.Add, E.Sub)) and outer.a == quotient:
                found[j], found[k] = type(outer)(_zero(outer.a), outer.b), whole
            else:
                continue
            break
    return found


def _zero(e: Expr) -> Expr:
    """In each lane of an index, which may be one of several lanes where its quotient is of one."""
    zero = ops.const(0, e.dtype.element)
    return E.Broadcast(zero, e.dtype.lanes) if e.dtype.lanes > 1 else zero


def _rises(index: E.Ramp, extent: Expr) -> bool:
    """Whether the lanes of an index that are within ``extent`` are one progression.

    Lanes of arithmetic on data wrap around where they leave the type, and are then near its ends:
    no element is there, unless there are nearly as many as the type counts.
    """
    if index.exact:
        return True
    assert isinstance(index.stride, E.IntImm)
    _, most = int_range(index.dtype.element)
    reach = abs(index.stride.value) * index.dtype.lanes
    return isinstance(extent, E.IntImm) and extent.value <= most - reach
