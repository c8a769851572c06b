"""Reductions across the threads of a block, as shuffles within warps and shared memory beyond.

The lanes of a warp that differ in whole bits of a reduced axis combine by butterflies: after
``shuffle_xor`` with 1, 2, 4... every one of them holds the result. What several warps hold meets
in shared memory, where it is read back by every warp and combined by butterflies again, or, where
the groups of threads are narrower than a warp, read one by one. Without shuffles, or beyond 32
partial results, pairs combine in shared memory, half as many each time.

>>> from tilewright.lower.ir_builder import axes, buffer, func, loop
>>> from tilewright.ir.expr import Reducer
>>> from tilewright.ir.ops import const
>>> from tilewright.lower.loops.split_kernels import split_kernels
>>> i, t, x, y = *axes("i t"), *axes("x y", "float32")
>>> A, B = buffer("A", 8, 4), buffer("B", 8)
>>> sum = Reducer("sum", (x,), (y,), (x + y,), (const(0.0),))
>>> total = AllReduce(sum, (B,), (i,), (A[i, t],), const(True), (t,), False)
>>> nest = loop(i, 8, loop(t, 4, total, tag="threadIdx.x"), tag="blockIdx.x")
>>> kernel = split_kernels(func(nest, target="sim")).funcs[0]
>>> print(lower_allreduce(kernel).body)
sum: T.float32 = A[blockIdx_x, threadIdx_x]
sum_1: T.float32 = sum + T.shuffle_xor(sum, 2)
sum_2: T.float32 = sum_1 + T.shuffle_xor(sum_1, 1)
if threadIdx_x == 0:
    B[blockIdx_x] = sum_2

It stands before memory planning and barrier insertion: its buffers are planned like any others.
The barriers between its own steps are here; those before its buffers are used again are not.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from tilewright.ir.buffer import Buffer
from tilewright.ir.errors import LoweringError
from tilewright.ir.expr import BOOL, Call, Expr, IntImm, Load, Reducer, Var, load
from tilewright.ir.func import Func, LaunchAxis
from tilewright.ir.ops import (
    add,
    as_condition,
    cast,
    const,
    floordiv,
    floormod,
    if_then_else,
    is_const,
    logical_and,
    mul,
)
from tilewright.ir.stmt import Allocate, AllReduce, If, Let, Stmt, Store, Sync, seq
from tilewright.ir.visit import Rewriter, Steps, apply_reducer, statements

#: As many partial results a group of threads narrower than a warp reads one by one.
_SERIAL = 32


def lower_allreduce(func: Func) -> Func:
    """``func``, a kernel, without :class:`AllReduce`.

    Raises :class:`LoweringError` where a reduction is over an axis that is no thread of the
    kernel, or the extents of the block are not constant.
    """
    if not any(isinstance(s, AllReduce) for s in statements(func.body)):
        return func
    warp = func.target.limits.warp_size
    return replace(func, body=_Lowering(func.launch, warp).stmt(func.body))


class _Lowering(Rewriter):
    def __init__(self, launch: Sequence[LaunchAxis], warp: int) -> None:
        self.launch, self.warp = launch, warp

    def steps(self, s: Stmt) -> Steps:
        if isinstance(s, AllReduce):
            return _Reduction(s, _arrange(self.launch, s, self.warp), self.warp).lowered()
        return (yield from super().steps(s))


@dataclass(frozen=True)
class _Arrangement:
    """How the threads of a block take part in a reduction."""

    masks: tuple[int, ...]  # lanes that differ in these bits are reduced together, in a warp
    leader: Expr  # holds in the first of those lanes
    partial: Expr  # which of the partial results this thread's warp holds
    partials: int
    group: Expr  # which of the results this thread takes part in
    groups: int
    thread: Expr  # the thread's number in the block

    @property
    def lanes(self) -> int:
        """How many lanes one partial result comes from."""
        return 1 << len(self.masks)


def _arrange(launch: Sequence[LaunchAxis], r: AllReduce, warp: int) -> _Arrangement:
    threads = {axis.tag: axis for axis in launch if axis.tag.startswith("threadIdx")}
    known = {axis.var for axis in threads.values()}
    for axis in r.axes:
        if axis not in known:
            raise LoweringError(
                f"the reduction into {r.buffers[0].name!r} is over {axis.name!r}, which is no "
                "thread of the block: bind the axis to threadIdx.x, threadIdx.y or threadIdx.z"
            )
    masks: list[int] = []
    leader: list[Expr] = []
    partial, group, thread = const(0), const(0), const(0)
    partials = groups = stride = 1
    for tag in ("threadIdx.x", "threadIdx.y", "threadIdx.z"):
        if tag not in threads:
            continue
        var, extent = threads[tag].var, _constant(threads[tag])
        thread = add(thread, mul(var, stride))
        if var in r.axes:
            if extent == 0:
                raise LoweringError(
                    f"the reduction into {r.buffers[0].name!r} has no threads along {tag}, whose "
                    "axis is empty whatever it depends on, so that none would store its result: "
                    "leave the axis unbound"
                )
            bits = 0
            # Bit b of the index is a bit of the lane if what lies below it and all that lies
            # above it are whole powers of two.
            while (
                stride & (stride - 1) == 0 and extent % (2 << bits) == 0 and stride << bits < warp
            ):
                masks.append(stride << bits)
                bits += 1
            if bits:
                leader.append(floormod(var, 1 << bits).equal(0))
            partial = add(partial, mul(floordiv(var, 1 << bits), partials))
            partials *= extent >> bits
        else:
            group = add(group, mul(var, groups))
            groups *= extent
        stride *= extent
    first = logical_and(*leader)
    return _Arrangement(tuple(masks), first, partial, partials, group, groups, thread)


def _constant(axis: LaunchAxis) -> int:
    if not isinstance(axis.extent, IntImm):
        raise LoweringError(
            f"a reduction across threads needs a block of constant extents, but that of {axis.tag} "
            f"is {axis.extent}: split the axis by a constant factor and bind the inner one"
        )
    return axis.extent.value


class _Reduction:
    """The statements of one reduction, put down one after the other."""

    def __init__(self, r: AllReduce, threads: _Arrangement, warp: int) -> None:
        self.r, self.threads, self.warp = r, threads, warp
        self.steps: list[Stmt | tuple[Var, Expr]] = []
        self.shared: tuple[Buffer, ...] = ()
        self.names = 0

    def lowered(self) -> Stmt:
        r = self.r
        values: tuple[Expr, ...] = r.source
        if not is_const(r.condition, 1):
            values = tuple(
                if_then_else(r.condition, s, i)
                for s, i in zip(values, r.reducer.identity, strict=True)
            )
        values = self.butterflies(self.named(values), self.threads.masks)
        only_first = not r.everywhere or any(b.scope != "local" for b in r.buffers)
        if self.threads.partials > 1:
            values = self.across_warps(values, only_first)
        else:
            self.keep(values, only_first)
        made = _assembled(self.steps)
        for buffer in self.shared:
            made = Allocate(buffer, made)
        return made

    def across_warps(self, values: tuple[Expr, ...], only_first: bool) -> tuple[Expr, ...]:
        t = self.threads
        if t.lanes == self.warp and t.partials <= self.warp:
            at = self.to_shared(values, lambda p: (t.group, p), (t.groups, t.partials))
            width = 1 << (t.partials - 1).bit_length()
            lane = floormod(t.thread, width)
            read: tuple[Expr, ...] = at(lane)
            if width > t.partials:
                read = tuple(
                    if_then_else(lane < t.partials, v, i)
                    for v, i in zip(read, self.r.reducer.identity, strict=True)
                )
            masks = tuple(1 << k for k in range(width.bit_length() - 1))
            values = self.butterflies(self.named(read), masks)
            self.keep(values, only_first)
            return values
        at = self.to_shared(values, lambda p: (p, t.group), (t.partials, t.groups))
        if t.partials > _SERIAL:
            self.tree(at)
            rest = 1
        else:
            rest = t.partials
        outer, self.steps = self.steps, []
        values = self.named(at(const(0)))
        for p in range(1, rest):
            values = self.named(self.combined(values, at(const(p))))
        self.keep(values, only_first=False)
        inner = _assembled(self.steps)
        self.steps = outer
        self.steps.append(If(self.first(), inner) if only_first else inner)
        return values

    def to_shared(
        self,
        values: tuple[Expr, ...],
        place: Callable[[Expr], tuple[Expr, Expr]],
        shape: tuple[int, int],
    ) -> Callable[[Expr], tuple[Load, ...]]:
        """Put the partial results into shared memory; how to read those of a number."""
        size = (const(shape[0]), const(shape[1]))
        self.shared = tuple(
            Buffer(f"{b.name}_partial", size, v.dtype, "shared")
            for b, v in zip(self.r.buffers, values, strict=True)
        )
        index = place(self.threads.partial)
        put = seq(*(Store(b, index, v) for b, v in zip(self.shared, values, strict=True)))
        leader = self.threads.leader
        self.steps += [put if is_const(leader, 1) else If(leader, put), Sync("shared")]
        return lambda p: tuple(load(b, place(p)) for b in self.shared)

    def tree(self, at: Callable[[Expr], tuple[Load, ...]]) -> None:
        """Combine pairs of partial results in shared memory until one is left, the first."""
        t = self.threads
        count = t.partials
        while count > 1:
            half = (count + 1) // 2
            here, there = at(t.partial), at(add(t.partial, half))
            outer, self.steps = self.steps, []
            values = self.named(self.combined(self.named(here), self.named(there)))
            self.steps += [
                Store(old.buffer, old.indices, v) for old, v in zip(here, values, strict=True)
            ]
            inner = _assembled(self.steps)
            self.steps = outer
            busy = logical_and(t.partial < count - half, t.leader)
            self.steps += [If(busy, inner), Sync("shared")]
            count = half

    def butterflies(self, values: tuple[Expr, ...], masks: Sequence[int]) -> tuple[Expr, ...]:
        for mask in reversed(masks):
            other = tuple(_shuffled(v, mask) for v in values)
            if len(other) > 1:  # each is used by several components of the result
                other = self.named(other)
            values = self.named(self.combined(values, other))
        return values

    def combined(self, a: tuple[Expr, ...], b: tuple[Expr, ...]) -> tuple[Expr, ...]:
        return apply_reducer(self.r.reducer, a, b)

    def named(self, values: tuple[Expr, ...]) -> tuple[Expr, ...]:
        """The values as variables, so that each is computed once, and before the next step."""
        found: list[Expr] = []
        for value in values:
            suffix = f"_{self.names}" if self.names else ""
            var = Var.of(_name(self.r.reducer) + suffix, value)
            self.names += 1
            self.steps.append((var, value))
            found.append(var)
        return tuple(found)

    def keep(self, values: tuple[Expr, ...], only_first: bool) -> None:
        """The result goes where it belongs; memory that threads share is written by one."""
        made = seq(
            *(Store(b, self.r.indices, v) for b, v in zip(self.r.buffers, values, strict=True))
        )
        self.steps.append(If(self.first(), made) if only_first else made)

    def first(self) -> Expr:
        return logical_and(*(as_condition(axis.equal(0)) for axis in self.r.axes))


def _name(reducer: Reducer) -> str:
    return reducer.name if reducer.name.isidentifier() else "reduced"


def _shuffled(value: Expr, mask: int) -> Expr:
    """The value that the lane with ``mask`` flipped in its number holds."""
    t = value.dtype
    if t == BOOL or (t.is_int and t.bits < 32):  # shuffles move words
        moved = Call(const(0).dtype, "shuffle_xor", (cast("int32", value), const(mask)))
        return cast(t, moved)
    return Call(t, "shuffle_xor", (value, const(mask)))


def _assembled(steps: Sequence[Stmt | tuple[Var, Expr]]) -> Stmt:
    """The steps in order, each definition around all that follows it."""
    rest: list[Stmt] = []
    for step in reversed(steps):
        if isinstance(step, Stmt):
            rest.insert(0, step)
        else:
            rest = [Let(*step, seq(*rest))]
    return seq(*rest)
