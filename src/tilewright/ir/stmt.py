"""Statements: loops over stores, as immutable trees."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any

from tilewright.ir.buffer import Buffer
from tilewright.ir.expr import Expr, Reducer, Var


class ForKind(Enum):
    """How the iterations of a loop are carried out."""

    SERIAL = "serial"
    PARALLEL = "parallel"  # by the threads of a CPU
    VECTORIZED = "vectorized"  # as lanes of a vector
    UNROLLED = "unrolled"  # one after the other, written out by the code generator
    THREAD = "thread"  # by the threads of a GPU, along For.tag
    VTHREAD = "vthread"  # by virtual threads, interleaved in one thread


class Stmt:
    """An action."""

    __slots__ = ()

    def __repr__(self) -> str:
        from tilewright.ir.text import stmt_text  # it knows all nodes, so it imports them

        return stmt_text(self)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class For(Stmt):
    """``body`` for each ``var`` in ``min .. min + extent - 1``.

    ``tag`` names the hardware axis of a THREAD loop ("blockIdx.x" ... "threadIdx.z") and is
    "vthread" for a VTHREAD one. ``annotations`` are pragmas as (key, value) pairs.
    """

    var: Var
    min: Expr
    extent: Expr
    kind: ForKind
    body: Stmt
    tag: str = ""
    annotations: tuple[tuple[str, Any], ...] = ()


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


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Seq(Stmt):
    """One after the other; make it with :func:`seq`, which flattens."""

    stmts: tuple[Stmt, ...]


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Allocate(Stmt):
    """``body`` with ``buffer`` alive; its contents are undefined until they are written."""

    buffer: Buffer
    body: Stmt


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


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Attr(Stmt):
    """``body`` under a remark: ("produce", stage name), or a pragma."""

    key: str
    value: Any
    body: Stmt


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Sync(Stmt):
    """A barrier among the threads that share ``scope``: "shared" (a block) or "warp"."""

    scope: str


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
    """An operand of an instruction: the element at ``indices``, expressions of its axes."""

    buffer: Buffer
    indices: tuple[Expr, ...]


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
