"""Functions as text of a C-like language: the statements.

:class:`CLikePrinter` walks a function and asks a :class:`~.c_like_dialect.Dialect` for whatever
differs between C, CUDA C++ and OpenCL C. Buffers are one-dimensional by now
(:mod:`tilewright.lower.backend.flatten`). Expressions are in :mod:`.c_like_expr`, vectors in
:mod:`.c_like_vector`, stores in :mod:`.c_like_store`.

An unrolled loop stays a loop with a pragma, or is written out under the pragma
``unroll_explicit``. On a GPU the compiler is also asked to unroll loops whose variable indexes an
array of the thread's own: registers have no addresses, so such an array stays in registers only
if every index is a constant in the end.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from tilewright.codegen.c_like_dialect import Dialect, Launch
from tilewright.codegen.c_like_instruction import InstructionPrinter
from tilewright.codegen.c_like_text import code
from tilewright.codegen.early_loads import early_loads
from tilewright.codegen.mbarriers import queues, slots, warps
from tilewright.codegen.producers import axis_of, block_of, consumed, lane_of, produced
from tilewright.ir import expr as E
from tilewright.ir import ops
from tilewright.ir import stmt as S
from tilewright.ir.buffer import Buffer, warp_copies
from tilewright.ir.errors import TargetError
from tilewright.ir.expr import Expr, Var
from tilewright.ir.func import Func
from tilewright.ir.stmt import ForKind, Stmt
from tilewright.ir.visit import Steps, distinct, indexes, run, statements, stores, uses, walk
from tilewright.lower.analysis.clusters import blocks_of_cluster, cluster_of
from tilewright.lower.analysis.steps import steps
from tilewright.lower.async_.split_barriers import block_threads
from tilewright.lower.context import bind_extents
from tilewright.lower.substitution import put
from tilewright.target.boxes import TensorMap
from tilewright.target.queues import TILES

#: Loops that index registers are written out up to this many stores.
REGISTER_UNROLL = 2048


@dataclass(frozen=True)
class Printed:
    """A function as text: its symbol, and on a GPU the bytes of dynamic shared memory, the tensor
    maps that it takes behind its parameters, and the bytes that it is to ask for, no fewer, where
    as many SMs share its launch as it was written for."""

    symbol: str
    text: str
    dynamic_shared: int = 0
    maps: tuple[TensorMap, ...] = ()
    asked: int = 0


@dataclass(frozen=True)
class _SharedSpace:
    """Memory that threads share: buffers, their elements and how many of each there are; where each
    begins, and the bytes of all, of a block."""

    found: tuple[tuple[Buffer, int, int], ...]
    offsets: tuple[int, ...]
    total: int


class CLikePrinter(InstructionPrinter):
    """Prints one function; make a new one for the next. ``alone`` says that it is the only one of
    its module."""

    def __init__(self, dialect: Dialect, warp_size: int = 32, alone: bool = False) -> None:
        super().__init__(dialect)
        self.warp_size, self.alone = warp_size, alone
        self._explicit = False
        self._dynamic_shared = 0

    def more_parameters(self, func: Func) -> list[str]:
        """What a function takes beside its operands."""
        return []

    def function(self, func: Func, symbol: str) -> Printed:
        """``func`` under the name ``symbol``."""
        d = self.dialect
        self.names.fresh(symbol)
        written = written_buffers(func)
        params = []
        bind_extents(self.analyzer, func.params)
        for p in func.params:
            name = self.names.fresh(p.name)
            if isinstance(p, Buffer):
                self.buffers[p] = name
                params.append(d.parameter(p, name, p in written))
            else:
                self.variables[p] = code(name)
                params.append(f"{d.type_name(p.dtype)} {name}")
        maps = self.begin_instructions(func)
        params += [d.map_parameter(name) for name in self.maps] + self.more_parameters(func)
        block = block_shape(func)
        space = self._shared_space(func, block)
        groups = [x.instruction.group for x in walk(func.body) if isinstance(x, S.Instr)]
        # Products of warpgroups take as many registers as their schedule meant them to.
        grid = grid_size(func) if max(groups, default=1) <= self.warp_size else None
        cluster = cluster_of(func.body) if self.maps else 1
        together = max(cluster, blocks_of_cluster(func))
        divided = block if func.producer and d.kind == "cuda" else None
        launch = Launch(block_of(divided) if divided else block, grid, space.total, together)
        self.line(f"{d.signature(symbol, params, launch)} {{")
        self.indent = 1
        if not self.maps:
            self._begin(func)
        uniform = bool(block and block[0] % self.warp_size == 0) and max(groups, default=1) > 1
        for axis in func.launch:
            self.analyzer.bind(axis.var, ops.const(0), axis.extent)
            if uses(func.body, {axis.var}):
                name = self.names.fresh(axis.var.name)
                text = d.axis(axis.tag, uniform)
                if divided and axis.tag.startswith("threadIdx"):
                    text = axis_of(axis.tag, divided)
                self.line(f"{d.variable(axis.var.dtype, name)} = {text};")
                self.variables[axis.var] = code(name)
        self._shared(func, space)
        if self.maps:
            whole = block_threads(func) is not None
            used = queues(func)
            for queue in used:
                name, arriving = self.name_of(self.barriers[queue]), _arriving(func, queue)
                count, known = slots(func, queue), self.maps if queue == used[0] else ()
                for line in d.begin_loads(queue, name, count, arriving, whole, known, cluster):
                    self.line(line)
        # What lies in the block's memory does not wait for other kernels.
        if divided:
            self._divided(func, math.prod(divided), cluster)
        else:
            self.stmt((self._follow(func, cluster) if self.maps else func).body)
        for line in d.end_loads() if cluster > 1 else ():
            self.line(line)
        self.indent = 0
        self.line("}")
        shared = self._dynamic_shared
        asked = shared
        if maps or self.alone:
            asked += d.shared_asked(launch, bool(maps)) - space.total
        return Printed(symbol, "\n".join(self.lines) + "\n", shared, maps, asked)

    def _follow(self, func: Func, cluster: int) -> Func:
        """Add the loads that need not wait for other kernels, and the wait; the function without
        them."""
        if cluster == 1:
            func = self._early(func)
        self._begin(func)
        return func

    def _early(self, func: Func) -> Func:
        early = early_loads(func)
        if not early.found:
            return func
        for line in self.dialect.begin_early():
            self.line(line)
        now = 0
        for group, load in early.found:
            if group != now:
                self.line(f"{TILES}.turn_to({group});")
            self.stmt(load)
            now = group
        if now:
            self.line(f"{TILES}.turn_to(0);")
        left = (k for k in func.constants if func.params[k] in early.left)
        return replace(func, body=early.body, constants=tuple(left))

    def _divided(self, func: Func, threads: int, cluster: int) -> None:
        """The body, where some warps are not those of the program: the producer's part of it, if
        there are boxes to copy, and that of the first ``threads``."""
        d = self.dialect
        with d.consumers(threads):
            if not self.maps:
                self._block(f"if ({d.is_consumer(threads)})", func.body)
                self.line("}")
                return
            self.line(f"if ({d.is_consumer(threads)}) {{")
            self.indent += 1
            self._divide(func, producer=False)
            self.names.push()
            self._begin(func)
            self.stmt(consumed(func))
            self.names.pop()
            self.indent -= 1
        self.line("} else {")
        self.indent += 1
        self._divide(func, producer=True)
        self.names.push()
        for axis in func.launch:
            if axis.tag.startswith("threadIdx"):
                name = self.names.fresh(axis.var.name)
                index = lane_of(axis.tag)
                self.line(f"{d.variable(axis.var.dtype, name)} = {index};")
                self.variables[axis.var] = code(name)
        self.stmt(produced(self._follow(func, cluster)))
        self.names.pop()
        self.indent -= 1
        self.line("}")

    def _divide(self, func: Func, producer: bool) -> None:
        for queue in queues(func):
            self.line(self.dialect.divide_loads(queue, producer))

    def _begin(self, func: Func) -> None:
        known: dict[str, int] = {}
        for k in func.constants:
            buffer = func.params[k]
            if isinstance(buffer, Buffer) and isinstance(buffer.size, E.IntImm):
                known[self.name_of(buffer)] = buffer.size.value * buffer.dtype.bytes
        for line in self.dialect.begin(known):
            self.line(line)

    # Memory

    def _shared_space(self, func: Func, block: tuple[int, int, int] | None) -> _SharedSpace:
        """The memory that the threads of a block, or of a warp, share."""
        found: list[tuple[Buffer, int, int]] = []
        for s in walk(func.body):
            if isinstance(s, S.Allocate) and self._is_shared(s.buffer):
                copies = 1
                if s.buffer.scope == "warp":
                    if block is None:
                        raise TargetError(
                            f"buffer {s.buffer.name!r} of scope 'warp' needs constant numbers of "
                            "threads"
                        )
                    copies = warp_copies(block)
                found.append((s.buffer, constant_size(s.buffer), copies))
        if self.maps:
            for queue in queues(func):
                count = slots(func, queue) * (2 if _arriving(func, queue) else 1)
                found.append((self.barriers[queue], count, 1))
        total = 0
        offsets = []
        for buffer, size, copies in found:
            align = max(16, buffer.align)
            total = -(-total // align) * align
            offsets.append(total)
            total += -(-size * copies * buffer.dtype.bytes // 16) * 16
        return _SharedSpace(tuple(found), tuple(offsets), total)

    def _shared(self, func: Func, space: _SharedSpace) -> None:
        """Declare the memory that threads share."""
        d = self.dialect
        dynamic = 0 < d.static_shared_limit < space.total
        if dynamic:
            self._dynamic_shared = space.total
            align = max(16, *(buffer.align for buffer, _, _ in space.found))
            self.line(d.shared_pool(self.names.fresh("shared_memory"), align))
        for (buffer, size, copies), offset in zip(space.found, space.offsets, strict=True):
            whole = self.names.fresh(buffer.name if copies == 1 else f"{buffer.name}_all")
            pool = offset if dynamic else None
            self.line(d.shared_array(buffer, whole, size * copies, pool))
            self.buffers[buffer] = whole
            if copies > 1:
                mine = self.names.fresh(buffer.name)
                self.line(d.warp_part(buffer, mine, whole, size, func))
                self.buffers[buffer] = mine

    def _is_shared(self, buffer: Buffer) -> bool:
        if not self.dialect.is_gpu:
            return False
        return buffer.scope in ("cluster", "shared", "warp")

    def _allocate(self, s: S.Allocate) -> Steps:
        if not self._is_shared(s.buffer):
            if s.buffer.scope == "global" and self.dialect.is_gpu:
                raise TargetError(
                    f"buffer {s.buffer.name!r} in global memory is allocated inside a kernel: it "
                    "has to be a workspace of the module"
                )
            name = self.names.fresh(s.buffer.name)
            self.buffers[s.buffer] = name
            self.line(self.dialect.local_array(s.buffer, name, constant_size(s.buffer)))
        yield self._steps(s.body)

    # Statements

    def stmt(self, s: Stmt) -> None:
        """Add the lines of a statement."""
        run(self._steps(s))

    def _steps(self, s: Stmt) -> Steps:
        self.hoisted = dict(self.vectors)
        match s:
            case S.Store():
                self.store(s)
            case S.For():
                self._for(s)
            case S.Seq(stmts):
                for x in stmts:
                    yield self._steps(x)
            case S.If(condition, then, orelse):
                self._if(condition, then, orelse)
            case S.Allocate():
                yield self._allocate(s)
            case S.Let(var, value, body):
                yield self._let_stmt(var, value, body)
            case S.Remark(body=body):
                if isinstance(s, S.Produce):
                    self.line(f"// {s.stage}")
                yield self._steps(body)
            case S.Evaluate(E.Call(_, "prefetch", (E.Load(buffer, (index,)),))):
                if buffer.scope == "global":
                    at = self.dialect.pointer(self.name_of(buffer), self.expr(index))
                    self.line(f"{self.dialect.prefetch(buffer, at)};")
            case S.Evaluate(value):
                self.line(f"{self.expr(value)};")
            case S.Sync(split=True) if self.maps:
                self.line(self.dialect.free_copies())
            case S.Sync(scope):
                for text in self.dialect.barrier(scope):
                    self.line(text)
            case S.Queue(queue, action, pending):
                self.queue(queue, action, pending)
            case S.Instr():
                self.instruction(s)
            case _:
                raise TargetError(f"{type(s).__name__} has to be lowered before code is generated")

    def _block(self, head: str, body: Stmt) -> None:
        """``head {`` and the lines of ``body``, without the closing brace."""
        self.line(f"{head} {{")
        self.indent += 1
        self.names.push()
        self.stmt(body)
        self.names.pop()
        self.indent -= 1

    def _if(self, condition: Expr, then: Stmt, orelse: Stmt | None) -> None:
        head = f"if ({self.condition(condition)})"
        with self.analyzer.assume(condition):
            self._block(head, then)
        if orelse is not None:
            with self.analyzer.assume(ops.logical_not(condition)):
                self._block("} else", orelse)
        self.line("}")

    def _let_stmt(self, var: Var, value: Expr, body: Stmt) -> Steps:
        if var.dtype.lanes > 1:
            self.prepare(value)
            if value not in self.hoisted:
                self.hold(value, var.name)
            self.vectors[var] = self.hoisted[value]
        else:
            self.declare(var, self.expr(value))
            if var.dtype.is_int:
                self.analyzer.define(var, value)
        yield self._steps(body)

    def _for(self, s: S.For) -> None:
        if s.kind in (ForKind.THREAD, ForKind.VTHREAD):
            raise TargetError(
                f"the {s.kind.value} loop over {s.var.name!r} has to become a launch axis before "
                "code is generated"
            )
        before = self._explicit
        self._explicit = bool(s.pragma(S.Pragma.UNROLL_EXPLICIT, before))
        extent = s.extent.value if isinstance(s.extent, E.IntImm) else None
        if extent == 1 and not _rewrites(s.body, s.min):
            self.stmt(put(s.body, {s.var: s.min}))
        elif extent is None or extent > 0:
            unroll = self._unrolls(s, extent)
            if unroll and self._explicit and extent and not _rewrites(s.body, s.min):
                for i in range(extent):
                    value = self.analyzer.simplify(s.min + ops.const(i, s.var.dtype))
                    self.stmt(put(s.body, {s.var: value}))
            else:
                self._loop(s, unroll)
        self._explicit = before

    def _unrolls(self, s: S.For, extent: int | None) -> bool:
        if s.kind is ForKind.UNROLLED:
            return True
        if extent is None or s.kind is not ForKind.SERIAL or not self.dialect.is_gpu:
            return False
        return extent * steps(s.body) <= REGISTER_UNROLL and indexes(s, "local")

    def _loop(self, s: S.For, unroll: bool) -> None:
        # Of a loop that issues products in the background, what would be left over is written out
        # beside it, with the sums in other registers: then each product waits for the one before.
        around = self.dialect.unroll() if unroll else self.dialect.keep() if _issues(s) else ()
        first, end = self.expr(s.min), self.expr(self.analyzer.simplify(s.min + s.extent))
        if _rewrites(s.body, s.min + s.extent):  # C reads it before every iteration
            end = self.temporary("end", s.var.dtype, end)
        for text in around:
            self.line(text)
        self.names.push()
        name = self.names.fresh(s.var.name)
        self.variables[s.var] = code(name)
        type_name = self.dialect.type_name(s.var.dtype)
        with self.analyzer.scope():
            self.analyzer.bind(s.var, s.min, s.extent)
            head = f"for ({type_name} {name} = {first}; {name} < {end.at(11)}; ++{name})"
            before = self.written_out
            self.written_out = before | {s.var} if unroll else before
            self._block(head, s.body)
            self.written_out = before
        self.names.pop()
        self.line("}")


def _rewrites(body: Stmt, e: Expr) -> bool:
    """Whether ``body`` writes to what ``e`` reads."""
    read = {x.buffer for x in distinct(e) if isinstance(x, E.Load)}
    return bool(read) and any(x.buffer in read for x in stores(body))


def _arriving(func: Func, queue: str) -> int:
    """Warps that arrive where copies that a queue fills are freed."""
    return warps(func) if queue == TILES else 0


def constant_size(buffer: Buffer) -> int:
    """How many elements to allocate; raises :class:`TargetError` where that is not a constant."""
    size = buffer.size
    if not isinstance(size, E.IntImm):
        raise TargetError(
            f"buffer {buffer.name!r} in {buffer.scope} memory has the size {size}, which is not a "
            "constant: split its axes by constant factors, or keep it in global memory"
        )
    return max(size.value, 1)


def written_buffers(func: Func) -> set[Buffer]:
    """The buffers that ``func`` writes, or whose address it hands to somebody else."""
    found = {s.buffer for s in stores(func.body)}
    for node in distinct(func.body):
        if isinstance(node, E.Call) and node.name == "address_of":
            found.update(a.buffer for a in node.args if isinstance(a, E.Load))
    return found


def _issues(s: S.For) -> bool:
    """Whether a loop issues instructions of groups of threads that go on in the background, with
    nothing in registers but their results."""
    issued = (x.instruction for x in statements(s.body) if isinstance(x, S.Instr))
    return any(
        i.queue and i.group > 1 and not any(o.fragment for o in i.operands[1:]) for i in issued
    )


def block_shape(func: Func) -> tuple[int, int, int] | None:
    """Threads of a block along x, y and z, None where a number is not constant."""
    return _extents(func, "threadIdx")


def grid_size(func: Func) -> int | None:
    """Blocks of a launch, None where their number is not constant."""
    shape = _extents(func, "blockIdx")
    return None if shape is None else math.prod(shape)


def _extents(func: Func, axis: str) -> tuple[int, int, int] | None:
    shape = []
    for tag in (f"{axis}.x", f"{axis}.y", f"{axis}.z"):
        extent = func.extent(tag)
        if extent is not None and not isinstance(extent, E.IntImm):
            return None
        shape.append(1 if extent is None else extent.value)
    return shape[0], shape[1], shape[2]
