"""The two parts of a kernel whose boxes a producer copies: what that warp does, and the others.

Both run through the same loops. The producer waits for copies that are free and asks for boxes,
as the body of the kernel says it for the first thread; the others arrive where they have done with
a copy, wait for boxes, and do all the rest. Their barriers are of them alone.

The threads of a block lie along ``threadIdx.x``, the producer's behind those that the launch of the
program has, which numbers them as before.
"""

from __future__ import annotations

import math

from tilewright.codegen.mbarriers import NAMES
from tilewright.ir.errors import TargetError
from tilewright.ir.expr import Expr
from tilewright.ir.func import Func
from tilewright.ir.stmt import (
    Allocate,
    AllReduce,
    Evaluate,
    For,
    If,
    Instr,
    Let,
    Queue,
    Remark,
    Seq,
    Stmt,
    Store,
    Sync,
    seq,
    with_body,
)
from tilewright.ir.visit import loads, statements
from tilewright.lower.async_.split_barriers import WARP

_NOTHING = Seq(())


def block_of(block: tuple[int, int, int]) -> tuple[int, int, int]:
    """The threads of a block along each axis, with the producer's."""
    return math.prod(block) + WARP, 1, 1


def axis_of(tag: str, block: tuple[int, int, int]) -> str:
    """The index of a thread but the producer's along an axis of the program."""
    x, y, _ = block
    if tag == "threadIdx.x":
        return f"(int)threadIdx.x % {x}"
    inner = x if tag == "threadIdx.y" else x * y
    whole = f"(int)threadIdx.x / {inner}" + (f" % {y}" if tag == "threadIdx.y" else "")
    # Of whole warps it is the same for all threads of one, which the compiler does not see.
    return f"__shfl_sync(0xffffffffu, {whole}, 0)" if inner % WARP == 0 else f"({whole})"


def lane_of(tag: str) -> str:
    """The same for the producer's: they are as the first ones of the program."""
    return f"(int)threadIdx.x % {WARP}" if tag == "threadIdx.x" else "0"


def produced(func: Func) -> Stmt:
    """What a producer does of the body of ``func``.

    Raises :class:`TargetError` where it would depend on what is in memory.
    """
    made = _part(func.body, True)
    if any(next(loads(e), None) is not None for s in statements(made) for e in _decided(s)):
        raise TargetError(
            f"kernel {func.name}: which boxes it copies depends on what it reads; let the threads "
            "that use them copy them"
        )
    return made


def consumed(func: Func) -> Stmt:
    """What the others do of the body of ``func``."""
    return _part(func.body, False)


def _part(s: Stmt, producer: bool) -> Stmt:
    match s:
        case Store() | Evaluate() | AllReduce():
            return _NOTHING if producer else s
        case Instr(instruction):
            return s if (instruction.queue in NAMES) == producer else _NOTHING
        case Queue(queue, action):
            # A producer waits for no box: a copy is free when the others have waited for it.
            keeps = queue in NAMES and action not in ("proxy", "wait")
            return s if keeps or not producer else _NOTHING
        case Sync(_, _, split):
            return s if split or not producer else _NOTHING
        case Seq(stmts):
            return seq(*(x for x in (_part(x, producer) for x in stmts) if not _empty(x)))
        case If(condition, then, orelse):
            yes = _part(then, producer)
            no = _NOTHING if orelse is None else _part(orelse, producer)
            if _empty(yes) and _empty(no):
                return _NOTHING
            return If(condition, yes, None if _empty(no) else no)
        case Allocate(buffer, body) if producer and buffer.scope != "shared":
            return _part(body, producer)
        case For(body=body) | Let(_, _, body) | Allocate(_, body) | Remark(body=body):
            inner = _part(body, producer)
            return _NOTHING if _empty(inner) else with_body(s, inner)
    raise TargetError(f"{type(s).__name__} has to be lowered before code is generated")


def _decided(s: Stmt) -> tuple[Expr, ...]:
    """What decides which boxes a statement copies."""
    match s:
        case For(_, low, extent):
            return low, extent
        case If(condition):
            return (condition,)
        case Let(_, value):
            return (value,)
        case Instr(_, _, operands):
            return tuple(index for operand in operands for index in operand.indices)
    return ()


def _empty(s: Stmt) -> bool:
    return isinstance(s, Seq) and not s.stmts
