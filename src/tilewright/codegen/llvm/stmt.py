"""Statements as LLVM IR: loops, branches, scratch memory, threads."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, field

from tilewright.codegen.llvm import instruction, interleaved, parallel, streams
from tilewright.codegen.llvm.builder import Builder, Value, constant, opaque
from tilewright.codegen.llvm.conditions import uniform
from tilewright.codegen.llvm.memory import Memory
from tilewright.codegen.llvm.sums import I64, Start
from tilewright.codegen.llvm.types import Types
from tilewright.ir import expr as E
from tilewright.ir import stmt as S
from tilewright.ir.buffer import Buffer
from tilewright.ir.errors import TargetError
from tilewright.ir.expr import Expr, Var
from tilewright.ir.stmt import ForKind, Stmt
from tilewright.ir.visit import Steps, contents, exprs, run, statements
from tilewright.lower.analysis.steps import steps

#: How many bytes of a function's arrays lie on the stack, where LLVM may turn them into registers.
STACK_BYTES = 64 * 1024
#: Arrays of at most this many bytes, say sums, have as much room again for themselves.
SMALL_BYTES = 8 * 1024
#: A loop is written out up to this many stores; beyond, a few turns of it.
UNROLL_STEPS = 4096
#: A loop is long that has this many stores an iteration.
LONG_STEPS = 64
_SPARE_BYTES = 64
_PTR = "ptr"


@dataclass
class Frame:
    """The function being written: its arrays, and whether it may fail.

    ``scratch`` is the size of the one block that holds its large arrays, ``stack`` that of the
    small ones together, both in bytes.
    """

    scratch: int = 0
    stack: int = 0
    arrays: dict[Buffer, Value] = field(default_factory=dict)
    fails: bool = False
    parallel: bool = False
    parts: list[str] = field(default_factory=list)  # where each array lies in it


class Statements(Memory):
    """Writes functions.

    Parameters
    ----------
    threads : how many threads PARALLEL loops use; 0 asks the pool, 1 makes them plain loops.
    features : what the processor has, in LLVM's names.
    """

    def __init__(
        self, b: Builder, types: Types, threads: int = 0, features: frozenset[str] = frozenset()
    ) -> None:
        super().__init__(b, types)
        self.threads, self.features = threads, features
        masks = "avx512vl" in features
        self.has_mask_registers = "avx512bw" in features
        self.masks_are_vectors = not masks and not features.isdisjoint({"avx", "avx2"})
        self.frame = Frame()
        self.reasons = False  # whether facts about variables are worth collecting
        self.sources: list[str] = []  # modules of instructions, to be linked in
        self._auto_unroll = 0
        self.bodies = 0  # of parallel loops, so far

    # Functions

    def function(self, head: str, body: Callable[[], None], parallel: bool = False) -> None:
        """The function that ``head`` declares; it returns an i32, 0 where all went well."""
        b = self.b
        outer, self.frame = self.frame, Frame(parallel=parallel)
        start, self.start = self.start, None
        capacity, self.capacity = self.capacity, {}
        state = b.begin()
        with self.apart():
            body()
        b.do("store i32 0, ptr %status")
        b.jump("exit")
        frame = self.frame
        b.prologue.insert(0, "  %status = alloca i32")
        after = "  br label %start"
        if frame.scratch:
            self._declare_memory()
            b.prologue.append(f"  %scratch = call ptr @tw_alloc(i64 {frame.scratch})")
            b.prologue.append("  %none = icmp eq ptr %scratch, null")
            after = "  br i1 %none, label %fail, label %start"
            b.prologue.extend(f"  {line}" for line in frame.parts)
        if frame.scratch or frame.fails:
            b.start("fail")
            b.do("store i32 1, ptr %status")
            b.jump("exit")
        b.start("exit")
        if frame.scratch:
            b.do("call void @tw_free(ptr %scratch)")
        b.do("%result = load i32, ptr %status")
        b.do("ret i32 %result")
        b.end(head, state, after)
        self.frame, self.capacity, self.start = outer, capacity, start

    def _declare_memory(self) -> None:
        self.b.declare("noalias ptr", "tw_alloc", [I64], external=True)
        self.b.declare("void", "tw_free", [_PTR], external=True)

    def fail_if(self, condition: Value) -> None:
        """Leave the function with status 1."""
        go = self.b.label("go")
        self.frame.fails = True
        self.b.branch(condition, "fail", go)
        self.b.start(go)

    # Statements

    def stmt(self, s: Stmt) -> None:
        """The instructions of a statement."""
        run(self._steps(s))

    def _steps(self, s: Stmt) -> Steps:
        match s:
            case S.Store(buffer, indices, value, predicate):
                if isinstance(predicate, E.Broadcast):
                    self._if(predicate.value, S.Store(buffer, indices, value), None)
                else:
                    self.store(buffer, indices, value, predicate)
            case S.For():
                self._for(s)
            case S.Seq(stmts):
                for x in stmts:
                    yield self._steps(x)
            case S.If(condition, then, orelse):
                self._if(condition, then, orelse)
            case S.Let(var, value, body):
                self.let(var, value)
                yield self._steps(body)
            case S.Allocate(buffer, body):
                yield self._allocate(buffer, body)
            case S.Remark(body=body):
                yield self._steps(body)
            case S.Evaluate(value):
                self._evaluate(value)
            case S.Instr():
                if not instruction.write(self, s):
                    self.stmt(s.body)
                self.forget_loads()
            case _:
                raise TargetError(
                    f"a {type(s).__name__} has no meaning on a CPU: it belongs to the threads of a "
                    "GPU's block"
                )

    def _evaluate(self, value: Expr) -> None:
        match value:
            case E.IntImm():
                pass
            case E.Call(_, "prefetch", (E.Load(buffer, indices, _),)):
                # A processor leaves out what it cannot fetch, and behind the end is what is next.
                offset = self.offset(buffer, tuple(map(_unclipped, indices)))
                kind = self.types.memory(buffer.dtype)
                at = self.element(kind, self.pointer(buffer), offset, there=False)
                how = [Value("i32", text) for text in ("0", "3", "1")]
                self.b.call("void", "llvm.prefetch.p0", [at, *how])
            case _:
                self.expr(value)

    def _if(self, condition: Expr, then: Stmt, orelse: Stmt | None) -> None:
        b = self.b
        held = self.expr(condition)
        known = uniform(held)
        if known is not None:
            chosen = then if known else orelse
            if chosen is not None:
                self.stmt(chosen)
            return
        yes, no, done = b.label("then"), b.label("else"), b.label("end")
        b.branch(held, yes, no if orelse is not None else done)
        for label, part, fact in ((yes, then, condition), (no, orelse, None)):
            if part is None:
                continue
            b.start(label)
            facts = (
                self.analyzer.assume(fact) if fact is not None and self.reasons else nullcontext()
            )
            with self.region(), facts:
                self.stmt(part)
            b.jump(done)
        b.start(done)

    # Memory

    def _allocate(self, buffer: Buffer, body: Stmt) -> Steps:
        b, element = self.b, self.types.memory(buffer.dtype)
        size = self.index(buffer.size)
        count = constant(size)
        if count is not None:
            known = self.frame.arrays.get(buffer)
            if known is None:  # else from another turn of an unrolled loop, or a copy of one
                known = self.frame.arrays[buffer] = self._array(buffer, max(1, count), element)
            self.pointers[buffer] = known
            yield self._steps(body)
            return
        self._declare_memory()
        nbytes_value = self.arithmetic("mul", size, Value(I64, str(buffer.dtype.bytes)))
        pointer = b.call(_PTR, "tw_alloc", [nbytes_value], external=True)
        self.fail_if(b.compare("icmp eq", pointer, Value(_PTR, "null")))
        self.pointers[buffer] = pointer
        yield self._steps(body)
        b.call("void", "tw_free", [pointer], external=True)

    def _array(self, buffer: Buffer, count: int, element: str) -> Value:
        """Memory of constant size: on the stack as long as there is not much of it."""
        nbytes = count * buffer.dtype.bytes
        capacity = STACK_BYTES * 2 if nbytes <= SMALL_BYTES else STACK_BYTES
        if self.frame.stack + nbytes > capacity:
            return self._part_of_scratch(nbytes)
        self.frame.stack += nbytes
        # room for a vector that begins inside and ends outside
        self.capacity[buffer] = count + _SPARE_BYTES // buffer.dtype.bytes
        return self.b.early(f"alloca [{self.capacity[buffer]} x {element}], align 64")

    def _part_of_scratch(self, nbytes: int) -> Value:
        """A part of the block that the function takes at its start and gives back at its end."""
        name = self.b.name()
        self.frame.parts.append(
            f"{name} = getelementptr i8, ptr %scratch, i64 {self.frame.scratch}"
        )
        self.frame.scratch += -(-nbytes // 64) * 64
        return Value(_PTR, name)

    # Loops

    def _for(self, s: S.For) -> None:
        if s.kind in (ForKind.THREAD, ForKind.VTHREAD):
            raise TargetError(
                f"the loop over {s.var.name!r} is bound to {s.tag}, which a CPU does not have: use "
                "parallel, or build for a GPU or for sim"
            )
        before = self._auto_unroll
        self._auto_unroll = int(s.pragma(S.Pragma.AUTO_UNROLL_MAX_STEP, before))
        if s.pragma(S.Pragma.STREAM_STORES, False):
            streams.write(self, s, lambda: self._turns(s))
        else:
            self._turns(s)
        self._auto_unroll = before

    def _turns(self, s: S.For) -> None:
        extent = constant(self.index(s.extent))
        if extent is None or extent > 0:
            # Ends that are known only as this loop is written out say little, at some cost.
            if self.reasons and (extent is None or isinstance(s.extent, E.IntImm)):
                with self.analyzer.scope():
                    self.analyzer.bind(s.var, s.min, s.extent)
                    self._loop(s, extent)
            else:
                self._loop(s, extent)

    def _loop(self, s: S.For, extent: int | None) -> None:
        if extent == 1:
            self.variables[s.var] = self.index(s.min)
            self.binds(s.var)
            self.stmt(s.body)
        elif extent is not None and interleaved.write(self, s, extent):
            pass
        elif extent is not None and self._unrolls(s, extent):
            first = self.index(s.min)
            for k in range(extent):
                with self.turn(s.var):
                    self.variables[s.var] = self.arithmetic("add", first, Value(I64, str(k)))
                    self.stmt(s.body)
        elif s.kind is ForKind.PARALLEL and self.threads != 1 and not self.frame.parallel:
            parallel.write(self, s)
        else:
            self._serial(s)

    def _unrolls(self, s: S.For, extent: int) -> bool:
        if s.kind is ForKind.UNROLLED:
            return extent * steps(s.body) <= UNROLL_STEPS
        return s.kind is ForKind.SERIAL and extent * steps(s.body) <= self._auto_unroll

    def _serial(self, s: S.For) -> None:
        first = self.index(s.min)
        end = self.arithmetic("add", first, self.index(s.extent))
        length = steps(s.body)
        turns = max(1, min(16, UNROLL_STEPS // max(1, length)))
        rolled = s.pragma(S.Pragma.AUTO_UNROLL_MAX_STEP, 0) == 1 or in_tiles(s.body)
        unroll = turns if s.kind is ForKind.UNROLLED else 0 if rolled else 1
        write = self._long_body if length >= LONG_STEPS else self.task
        self.counted(s.var, first, end, lambda: write(s), unroll)

    def _long_body(self, s: S.For) -> None:
        """The body of a loop whose indices are sums from its start on; see :class:`Start`."""
        around, self.start = self.start, Start(self.variables[s.var].text)
        at = len(self.b.lines)
        self.b.lines.append("")
        self.task(s)
        self.b.lines[at] = "\n".join(self.start.lines)
        self.start = around

    def task(self, s: S.For) -> None:
        """The body of a loop; what serves all of it is found first: what a parallel loop's number
        is divided into, and the masks of its vectors."""
        inside = list(dict.fromkeys(exprs(s.body)))
        # Their variables may have values of another turn of a loop around, which is written out.
        later = {x.var for x in statements(s.body) if isinstance(x, (S.For, S.Let))}
        later |= {e.var for e in inside if isinstance(e, E.LetExpr)}

        def known(e: Expr) -> bool:
            free = contents(e)[0]
            return not self.partial(e) and later.isdisjoint(free) and free <= self.variables.keys()

        for e in inside:
            match e:
                case E.FloorDiv() | E.FloorMod() if s.kind is ForKind.PARALLEL:
                    if e.dtype.lanes == 1 and known(e):
                        self._divided(e)
                case E.Load(_, _, Expr() as predicate) if known(predicate):
                    self.expr(predicate)
        self.stmt(s.body)

    def _divided(self, e: Expr) -> None:
        """A part of a parallel loop's number, as a number of its own: LLVM would write a remainder
        as a difference, and each address as a sum of more."""
        found = self.index(e)
        if constant(found) is None:
            ends = self.analyzer.bounds(e)
            self.keep("index", e, self.b.op(I64, opaque(found.text, ends.lo, ends.hi)))

    def counted(
        self, var: Var, first: Value, end: Value, body: Callable[[], None], unroll: int = 1
    ) -> None:
        """``body`` for ``var`` from ``first`` to before ``end``, tested at the end of each turn, or
        of as many as ``unroll`` says; of 1, LLVM may test less often, and of 0 it may not."""
        b = self.b
        inside, done = b.label("loop"), b.label("end")
        before = b.block
        low, high = constant(first), constant(end)
        if low is not None and high is not None and low < high:
            b.jump(inside)
        else:
            b.branch(b.compare("icmp slt", first, end), inside, done)
        self.forget_loads()
        b.start(inside)
        index = b.name()
        at = len(b.lines)
        b.lines.append("")  # the phi, once the last block of the body is known
        with self.region():
            self.variables[var] = Value(I64, index)
            body()
        following = b.binary("add nsw", Value(I64, index), Value(I64, "1"))
        again = b.compare("icmp slt", following, end)
        b.lines[at] = (
            f"  {index} = phi i64 [ {first.text}, %{before} ], [ {following.text}, %{b.block} ]"
        )
        b.branch(again, inside, done, self._loop_note(unroll))
        b.start(done)
        self.forget_loads()

    def _loop_note(self, unroll: int) -> str:
        if unroll == 1:
            return ""
        what = f'count", i32 {unroll}' if unroll else 'disable"'
        hint = self.b.note(f'!{{!"llvm.loop.unroll.{what}}}')
        return f", !llvm.loop {self.b.note(f'distinct !{{SELF, {hint}}}')}"


def wants_facts(body: Stmt) -> bool:
    """Whether knowing the ranges of variables makes better code: there are divisions."""
    for e in exprs(body):
        if isinstance(e, (E.FloorDiv, E.FloorMod)) and not (
            isinstance(e.b, E.IntImm) and e.b.value > 0 and e.b.value & (e.b.value - 1) == 0
        ):
            return True
    return False


def in_tiles(body: Stmt) -> bool:
    """Whether instructions in it use tile registers: where loops that LLVM has unrolled in parts
    meet, it would copy these by way of memory."""
    return any(
        isinstance(s, S.Instr) and "amx-tile" in getattr(s.instruction, "features", ())
        for s in statements(body)
    )


def _unclipped(index: Expr) -> Expr:
    """An index that need not be one of an array."""
    while isinstance(index, E.Min | E.Max) and isinstance(index.b, E.IntImm):
        index = index.a
    return index
