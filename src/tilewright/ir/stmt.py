"""Statements: loops over stores, as immutable trees."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum, StrEnum
from typing import Any

from tilewright.ir.buffer import Buffer
from tilewright.ir.expr import Expr, Reducer, Var
from tilewright.ir.itervar import IterVar


class ForKind(Enum):
    """How the iterations of a loop are carried out."""

    SERIAL = "serial"
    PARALLEL = "parallel"  # by the threads of a CPU
    VECTORIZED = "vectorized"  # as lanes of a vector
    UNROLLED = "unrolled"  # one after the other, written out by the code generator
    THREAD = "thread"  # by the threads of a GPU, along For.tag
    VTHREAD = "vthread"  # by virtual threads, interleaved in one thread


class Pragma(StrEnum):
    """What a schedule may ask for a loop, by the name under which it does."""

    AUTO_UNROLL_MAX_STEP = "auto_unroll_max_step"  # unroll loops of that many steps in it
    UNROLL_EXPLICIT = "unroll_explicit"  # write unrolled loops out
    TRIM = "trim"  # False: keep the loop where its guard does not hold
    PARTITION = "partition"  # False: keep interior and boundary in one loop; True: divide it
    STREAM_STORES = "stream_stores"  # store past the caches
    DESCENDING = "descending"  # let what is bound to it begin with the last iteration
    IMPORT_LLVM = "import_llvm"  # LLVM IR whose functions the program may call


class Stmt:
    """An action."""

    __slots__ = ()

    def __repr__(self) -> str:
        from tilewright.ir.text import stmt_text  # it knows all nodes, so it imports them

        return stmt_text(self)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class For(Stmt):
    """``body`` for each ``var`` in ``min .. min + extent - 1``, of which there is none where
    ``extent`` is 0 or less.

    ``tag`` names the hardware axis of a THREAD loop ("blockIdx.x" ... "threadIdx.z") and is
    "vthread" for a VTHREAD one. ``pipelines`` is the axis of a schedule that the loop stands for
    where pipelines inside go on across its iterations.
    """

    var: Var
    min: Expr
    extent: Expr
    kind: ForKind
    body: Stmt
    tag: str = ""
    annotations: tuple[tuple[Pragma, Any], ...] = ()
    pipelines: IterVar | None = None

    @property
    def loop_var(self) -> Var:
        """``var``, under TVM's name."""
        return self.var

    def pragma(self, key: Pragma, default: Any) -> Any:
        """The value of a pragma of this loop."""
        return next((value for name, value in self.annotations if name == key), default)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Store(Stmt):
    """``buffer[indices] = value``; lanes where ``predicate`` is false are left alone."""

    buffer: Buffer
    indices: tuple[Expr, ...]
    value: Expr
    predicate: Expr | None = None


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class If(Stmt):
    """``then`` where ``condition`` holds, else ``orelse``."""

    condition: Expr
    then: Stmt
    orelse: Stmt | None = None

    @property
    def then_case(self) -> Stmt:
        """``then``, under TVM's name."""
        return self.then

    @property
    def else_case(self) -> Stmt | None:
        """``orelse``, under TVM's name."""
        return self.orelse


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Seq(Stmt):
    """One after the other; make it with :func:`seq`, which flattens."""

    stmts: tuple[Stmt, ...]

    @property
    def seq(self) -> tuple[Stmt, ...]:
        """``stmts``, under TVM's name."""
        return self.stmts

    def __getitem__(self, position: int) -> Stmt:
        return self.stmts[position]


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Allocate(Stmt):
    """``body`` with ``buffer`` alive; its contents are undefined until they are written."""

    buffer: Buffer
    body: Stmt

    @property
    def extents(self) -> tuple[Expr, ...]:
        """The shape of the buffer, under TVM's name."""
        return self.buffer.shape

    @property
    def dtype(self) -> str:
        """The type of its elements."""
        return self.buffer.dtype


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Let(Stmt):
    """``body`` with ``var`` standing for ``value``, which is evaluated once."""

    var: Var
    value: Expr
    body: Stmt


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Evaluate(Stmt):
    """An expression for its effect: a call."""

    value: Expr


class Remark(Stmt):
    """``body``, and something about it that later passes or proofs need: it does the same."""

    __slots__ = ()
    body: Stmt


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Produce(Remark):
    """``body`` computes the stage of that name."""

    stage: str
    body: Stmt


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Tensorize(Remark):
    """The nest ``body`` is to become ``instruction``, a
    :class:`tilewright.target.instruction.Instruction`; ``where`` is the line that asks for it."""

    instruction: Any
    where: str
    body: Stmt


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Begins(Remark):
    """At ``body`` another array begins in the memory of ``buffer``, which is undefined then."""

    buffer: Buffer
    body: Stmt


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class FillAhead(Remark):
    """``body`` fills ``buffer``, to be done ahead, into one of ``stages`` copies in turn.

    ``over`` is None, or the axis across whose iterations the pipeline goes on; with ``producer``,
    a warp of its own copies what the kernel copies by boxes.
    """

    buffer: Buffer
    stages: int
    over: IterVar | None
    body: Stmt
    producer: bool = False


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Iteration(Remark):
    """``body`` is one iteration of a pipeline: it uses some copies, and has others filled."""

    body: Stmt


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Committed(Remark):
    """``body`` issues instructions of ``queue`` whose groups end, and are awaited, as the pipeline
    around says."""

    queue: str
    body: Stmt


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Sync(Stmt):
    """A barrier among the threads that share ``scope``: "cluster" (of blocks), "shared" (a block)
    or "warp".

    ``frees`` are copies of a pipeline's buffers that are filled behind it: nothing that goes on
    there uses them. A ``split`` one keeps nothing else apart: threads arrive, and only who fills
    the copies waits.
    """

    scope: str
    frees: tuple[Buffer, ...] = ()
    split: bool = False


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Queue(Stmt):
    """What a thread does about the asynchronous instructions of the queue ``queue``.

    ``action`` is "fence": those to come see the registers as they are now; "proxy": behind the next
    barrier they see what was stored in shared memory; "commit": those since the last commit form a
    group; or "wait": until at most ``pending`` of the groups are still under way, the youngest.
    """

    queue: str
    action: str
    pending: int = 0


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class AllReduce(Stmt):
    """Combine one tuple of values a thread over ``axes``, thread axes of the block.

    Every thread of the block reaches it. After it, in each thread that has index 0 along
    ``axes``, ``buffers[i][indices]`` holds component i of the result (``everywhere``: in all of
    them). Threads where ``condition`` does not hold contribute the identity.
    """

    reducer: Reducer
    buffers: tuple[Buffer, ...]
    indices: tuple[Expr, ...]
    source: tuple[Expr, ...]
    condition: Expr
    axes: tuple[Var, ...]
    everywhere: bool = True


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Access:
    """An operand of an instruction: the element at ``indices``, expressions of its axes. Of one
    that windows slide over, ``window`` is where, as :mod:`tilewright.target.windows` says.

    Code generation leaves more to the instruction. Of memory whose rows are swizzled within
    ``swizzle`` bytes, the index is the offset without the swizzle. Of a tensor of which boxes are
    copied, ``box`` is the number of the tensor map, and the indices are where the box begins.
    """

    buffer: Buffer
    indices: tuple[Expr, ...]
    swizzle: int = 0
    box: int | None = None
    window: tuple[Expr, ...] = ()


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Instr(Stmt):
    """A declared instruction in place of the loops of ``body``, which say what it does.

    ``instruction`` is a :class:`tilewright.target.instruction.Instruction`; ``axes`` are the loop
    variables of ``body`` in the order of the declaration, and ``operands`` its operands in the
    order of the declaration, the outputs first. Analyses and sim read ``body``; code generation
    asks ``instruction`` to write itself for ``operands``.
    """

    instruction: Any
    axes: tuple[Var, ...]
    operands: tuple[Access, ...]
    body: Stmt


def seq(*stmts: Stmt | None) -> Stmt:
    """The statements one after the other, without None and without nesting."""
    flat: list[Stmt] = []
    for stmt in stmts:
        if isinstance(stmt, Seq):
            flat.extend(stmt.stmts)
        elif stmt is not None:
            flat.append(stmt)
    return flat[0] if len(flat) == 1 else Seq(tuple(flat))


def with_body(s: For | Allocate | Let | Remark, body: Stmt) -> Stmt:
    """``s`` with ``body`` in it."""
    node: Any = s  # every remark is a data class
    made: Stmt = replace(node, body=body)
    return made


def let(values: Sequence[tuple[Var, Expr]], body: Stmt) -> Stmt:
    """``body`` with variables standing for values, each of which may use those before it."""
    for var, value in reversed(values):
        body = Let(var, value, body)
    return body
