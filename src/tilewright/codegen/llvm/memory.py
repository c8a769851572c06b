"""Loads and stores: neighbours as one vector, strided and scattered lanes, masks."""

from __future__ import annotations

from collections.abc import Callable

from tilewright.codegen.llvm.builder import (
    Builder,
    Value,
    constant,
    literal,
    mangled,
    split_type,
    vector_type,
)
from tilewright.codegen.llvm.conditions import uniform
from tilewright.codegen.llvm.offsets import Offsets
from tilewright.codegen.llvm.sums import I64
from tilewright.codegen.llvm.types import Types
from tilewright.ir import expr as E
from tilewright.ir.buffer import Buffer
from tilewright.ir.expr import Expr

#: What vectors may have that are streamed; results begin at multiples of the most of them.
STREAMED_BYTES = (16, 32, 64)


class Memory(Offsets):
    """Expressions with access to memory."""

    def __init__(self, b: Builder, types: Types) -> None:
        super().__init__(b, types)
        #: Arrays on the stack of the function being written, with the elements each has room for.
        self.capacity: dict[Buffer, int] = {}
        #: Results that begin on lines of the caches and are written past them.
        self.streaming: frozenset[Buffer] = frozenset()
        self.has_mask_registers = False  # as AVX-512 has them
        self.masks_are_vectors = False  # as AVX and AVX2 have them, which have no mask registers
        self._once = ""  # the remark on stores that are streamed

    # Loads

    def load(self, e: E.Load) -> Value:
        lanes = e.dtype.lanes
        mask = self._lane_mask(e.predicate, lanes)
        known = None if mask is None else uniform(mask)
        if known is False:
            return literal(self.types.register(e.dtype), 0)
        if known:
            mask = None
        if lanes == 1:
            return self._load_scalar(e, mask)
        found = self._load_lanes(e, mask, lanes)
        return self._from_memory(found, e.buffer)

    def _from_memory(self, x: Value, buffer: Buffer) -> Value:
        if buffer.dtype.is_bool:
            return self.b.compare("icmp ne", x, literal(x.type, 0))
        return x

    def _lane_mask(self, predicate: Expr | None, lanes: int) -> Value | None:
        """Under which lanes an access happens: its predicate, and what it is evaluated under."""
        mask = self.mask
        if predicate is None:
            return mask
        own = self.expr(predicate)
        if lanes > 1 and own.type == "i1":
            own = self.b.splat(own, lanes)
        if mask is None:
            return own
        if mask.type != own.type:
            mask = self._any(mask)
        return self.b.select(mask, own, literal(own.type, 0))

    def _load_scalar(self, e: E.Load, mask: Value | None) -> Value:
        """One element; under a mask of lanes, only where any of them is on."""
        element = self.types.memory(e.buffer.dtype)

        def read() -> Value:
            at = self.element(element, self.pointer(e.buffer), self.offset(e.buffer, e.indices))
            return self._from_memory(self._read_at(e.buffer, element, at), e.buffer)

        return read() if mask is None else self._where_any(mask, read)

    def _any(self, mask: Value) -> Value:
        """Whether any lane is on."""
        if mask.type == "i1":
            return mask
        return self.b.call("i1", f"llvm.vector.reduce.or.{mangled(mask.type)}", [mask])

    def _where_any(self, mask: Value, read: Callable[[], Value]) -> Value:
        b = self.b
        any = self._any(mask)
        came, some, done = b.block, b.label("some"), b.label("end")
        b.branch(any, some, done)
        b.start(some)
        outer, self.mask = self.mask, None
        with self.region():
            found = read()
        self.mask = outer
        last = b.block
        b.jump(done)
        b.start(done)
        return b.phi((literal(found.type, 0), came), (found, last))

    def _load_lanes(self, e: E.Load, mask: Value | None, lanes: int) -> Value:
        b, buffer = self.b, e.buffer
        element, size = self.types.memory(buffer.dtype), buffer.dtype.bytes
        type, pointer = vector_type(element, lanes), self.pointer(buffer)
        block = None if mask is not None else self.lane_block(buffer, e.indices)
        if block is not None:
            start, count, picks = block
            whole = vector_type(element, count)
            found = self._read_at(buffer, whole, self.element(element, pointer, start))
            return b.shuffle(found, Value(whole, "poison"), picks)
        form = self.lane_offsets(buffer, e.indices, lanes)
        if not isinstance(form, Value):
            base, step = form[0], constant(form[1])
            if step == 0:
                found = self._load_same(buffer, element, base, mask, lanes)
                if e.predicate is None or mask is None or mask.type == "i1":
                    return found
                return b.select(mask, found, literal(type, 0))
            if step == 1:
                at = self.element(element, pointer, base, mask is None)
                if mask is not None and self._fits(buffer, base, lanes):
                    found = self._read_at(buffer, type, at)
                    return b.select(mask, found, literal(type, 0))
                return self._read_at(buffer, type, at, mask)
            if step == -1:
                first = self.arithmetic("add", base, Value(I64, str(1 - lanes)))
                turned = range(lanes - 1, -1, -1)
                mask = mask and b.shuffle(mask, Value(mask.type, "poison"), turned)
                at = self.element(element, pointer, first, mask is None)
                found = self._read_at(buffer, type, at, mask)
                return b.shuffle(found, Value(type, "poison"), turned)
            if step is not None and 2 <= step <= min(4, lanes) and mask is None:
                return self._load_every(buffer, step, type, element, base, lanes)
            if mask is None:
                return b.gather(
                    [self._load_one(buffer, element, base, form[1], k) for k in range(lanes)]
                )
            form = self.scattered(*form, lanes)
        at = self.element(element, pointer, form, mask is None)
        if mask is None:
            return b.gather([self._read_at(buffer, element, b.lane(at, k)) for k in range(lanes)])
        return b.call(
            type,
            f"llvm.masked.gather.{mangled(type)}.v{lanes}p0",
            [at, Value("i32", str(size)), mask, literal(type, 0)],
        )

    def _fits(self, buffer: Buffer, base: Value, lanes: int) -> bool:
        """Whether lanes that are off may be accessed too: they lie in an array of our own.

        LLVM keeps an array in registers only where no access of it is masked.
        """
        first, capacity = constant(base), self.capacity.get(buffer, 0)
        return first is not None and first >= 0 and first + lanes <= capacity

    def _read_at(self, buffer: Buffer, type: str, at: Value, mask: Value | None = None) -> Value:
        """The value, or neighbours under ``mask``, at an address; read once as long as nobody
        writes to the buffer."""
        b, size = self.b, buffer.dtype.bytes

        def read() -> Value:
            if mask is None:
                return b.op(type, f"load {type}, {at}, align {size}")
            if self.masks_are_vectors and size in (4, 8):
                return self._read_registers(type, at, mask, size)
            return self._read_masked(type, at, mask, size)

        return self.once_read(buffer, (type, at.text, mask and mask.text), read)

    def _read_masked(self, type: str, at: Value, mask: Value, size: int) -> Value:
        operands = [at, Value("i32", str(size)), mask, literal(type, 0)]
        return self.b.call(type, f"llvm.masked.load.{mangled(type)}.p0", operands)

    def _read_registers(self, type: str, at: Value, mask: Value, size: int) -> Value:
        """Neighbours under a mask, register by register, with masks that LLVM cannot know.

        Where masks are vectors, of which the sign counts, LLVM 22 may leave a constant 1 for lanes
        that it knows to be off, takes that for on, and reads them all (combineMaskedLoad of its
        X86ISelLowering.cpp): wrong values, or none of our memory.
        """
        b, (element, lanes) = self.b, split_type(type)
        parts = []
        for first in range(0, lanes, 32 // size):
            there = range(first, min(first + 32 // size, lanes))
            full = (16 if len(there) * size <= 16 else 32) // size
            on = b.shuffle(mask, literal(mask.type, 0), [*there, *[lanes] * (full - len(there))])
            sign = vector_type(f"i{8 * size}", full)
            hidden = b.op(sign, f'call {sign} asm "", "=x,0"({b.convert("sext", on, sign)})')
            on = b.compare("icmp slt", hidden, literal(sign, 0))
            start = self.element(element, at, Value(I64, str(first)), False)
            part = vector_type(element, full)
            found = self._read_masked(part, start, on, size)
            if full > len(there):
                found = b.shuffle(found, Value(part, "poison"), range(len(there)))
            parts.append(found)
        return b.join(parts)

    def _load_same(
        self, buffer: Buffer, element: str, base: Value, mask: Value | None, lanes: int
    ) -> Value:
        def read() -> Value:
            return self._read_at(buffer, element, self.element(element, self.pointer(buffer), base))

        return self.b.splat(read() if mask is None else self._where_any(mask, read), lanes)

    def _load_one(self, buffer: Buffer, element: str, base: Value, step: Value, k: int) -> Value:
        offset = self.arithmetic("mul", step, Value(I64, str(k)))
        at = self.element(element, self.pointer(buffer), self.arithmetic("add", base, offset))
        return self._read_at(buffer, element, at)

    def _load_every(
        self, buffer: Buffer, step: int, type: str, element: str, base: Value, lanes: int
    ) -> Value:
        """``step`` loads of neighbours that together end with the last lane, so within bounds."""
        b, last = self.b, (lanes - 1) * step + 1 - lanes
        starts = [min(k * lanes, last) for k in range(step)]

        def read(start: int) -> Value:
            at = self.arithmetic("add", base, Value(I64, str(start)))
            return self._read_at(buffer, type, self.element(element, self.pointer(buffer), at))

        found = read(0)
        for k, start in enumerate(starts[1:], 1):
            picks = []
            for lane, wanted in enumerate(range(0, lanes * step, step)):
                if wanted // lanes == k:
                    picks.append(lanes + wanted - start)
                else:  # of the first vector as it was read, later of what was picked so far
                    picks.append(wanted if k == 1 and wanted < lanes else lane)
            found = b.shuffle(found, read(start), picks)
        return found

    # Stores

    def store(
        self,
        buffer: Buffer,
        indices: tuple[Expr, ...],
        value: Expr,
        predicate: Expr | None,
    ) -> None:
        """``buffer[indices] = value`` where ``predicate`` holds."""
        lanes = max([value.dtype.lanes, *(i.dtype.lanes for i in indices)])
        if lanes == 1:
            self._store_scalar(buffer, indices, value, predicate)
        else:
            self._store_lanes(buffer, indices, value, predicate, lanes)
        self.forget_loads(buffer)

    def _store_scalar(
        self, buffer: Buffer, indices: tuple[Expr, ...], value: Expr, predicate: Expr | None
    ) -> None:
        b, element = self.b, self.types.memory(buffer.dtype)

        def write() -> None:
            held = self.to_memory(self.expr(value), element)
            at = self.element(element, self.pointer(buffer), self.offset(buffer, indices))
            b.do(f"store {held}, {at}, align {buffer.dtype.bytes}")

        if predicate is None:
            write()
            return
        then, done = b.label("then"), b.label("end")
        b.branch(self.expr(predicate), then, done)
        b.start(then)
        with self.region():
            write()
        b.jump(done)
        b.start(done)

    def to_memory(self, x: Value, type: str) -> Value:
        """A value as memory holds it."""
        return self.b.convert("zext", x, type) if split_type(x.type)[0] == "i1" else x

    def _store_lanes(
        self,
        buffer: Buffer,
        indices: tuple[Expr, ...],
        value: Expr,
        predicate: Expr | None,
        lanes: int,
    ) -> None:
        b, size = self.b, buffer.dtype.bytes
        element = self.types.memory(buffer.dtype)
        type, pointer = vector_type(element, lanes), self.pointer(buffer)
        mask = self._lane_mask(predicate, lanes)
        if mask is not None and uniform(mask):
            mask = None
        if mask is None:
            held = self.expr(value)
        else:
            with self.masked(mask):
                held = self.expr(value)
        held = self.to_memory(b.splat(held, lanes), type)
        form = self.lane_offsets(buffer, indices, lanes)
        if not isinstance(form, Value):
            base, step = form[0], constant(form[1])
            if step in (1, -1):
                if step == -1:
                    base = self.arithmetic("add", base, Value(I64, str(1 - lanes)))
                    turned = range(lanes - 1, -1, -1)
                    held = b.shuffle(held, Value(type, "poison"), turned)
                    mask = mask and b.shuffle(mask, Value(mask.type, "poison"), turned)
                at = self.element(element, pointer, base, mask is None)
                if mask is not None and self._fits(buffer, base, lanes):
                    held = b.select(mask, held, self._read_at(buffer, type, at))
                    mask = None
                if mask is None and self._streams(buffer, indices, lanes):
                    self._once = self._once or b.note("!{i32 1}")
                    b.do(f"store {held}, {at}, align {lanes * size}, !nontemporal {self._once}")
                    return
                self._store_vector(type, held, at, mask, size)
                return
            form = self.scattered(*form, lanes)
        at = self.element(element, pointer, form, mask is None)
        if mask is None:
            for k in range(lanes):
                b.do(f"store {b.lane(held, k)}, {b.lane(at, k)}, align {size}")
            return
        b.call(
            "void",
            f"llvm.masked.scatter.{mangled(type)}.v{lanes}p0",
            [held, at, Value("i32", str(size)), mask],
        )

    def _streams(self, buffer: Buffer, indices: tuple[Expr, ...], lanes: int) -> bool:
        """Whether a vector is to be streamed: of a result that is, at a multiple of its size."""
        if buffer not in self.streaming or lanes * buffer.dtype.bytes not in STREAMED_BYTES:
            return False
        return self.is_multiple(buffer, indices, lanes)

    def _store_vector(
        self, type: str, held: Value, at: Value, mask: Value | None, size: int
    ) -> None:
        if mask is None:
            self.b.do(f"store {held}, {at}, align {size}")
            return
        if self.has_mask_registers and split_type(type)[0] in ("i8", "i16", "i32"):
            mask = self._unknown_mask(mask)
        self.b.call(
            "void",
            f"llvm.masked.store.{mangled(type)}.p0",
            [held, at, Value("i32", str(size)), mask],
        )

    def _unknown_mask(self, mask: Value) -> Value:
        """A mask of which LLVM cannot know the lanes.

        LLVM 22 narrows values as it stores them, and where it knows that one lane is on it stores
        that one as wide as it was before (reduceMaskedStoreToScalarStore of its
        X86ISelLowering.cpp): over what lies behind.
        """
        b, (_, lanes) = self.b, split_type(mask.type)
        full = max(16, 1 << (lanes - 1).bit_length())
        if full > lanes:
            mask = b.shuffle(
                mask, literal(mask.type, 0), [*range(lanes), *[lanes] * (full - lanes)]
            )
        bits = b.convert("bitcast", mask, f"i{full}")
        hidden = b.op(bits.type, f'call {bits.type} asm "", "=k,0"({bits})')
        found = b.convert("bitcast", hidden, mask.type)
        if full > lanes:
            found = b.shuffle(found, Value(found.type, "poison"), range(lanes))
        return found
