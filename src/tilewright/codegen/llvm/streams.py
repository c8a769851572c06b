"""Streaming stores: a loop that writes past the caches, where its results begin on lines of them.

An ordinary store first reads the line that it writes to, which for a result larger than the caches
is traffic for nothing. A streaming one (``vmovntps``) does not, but its address must be a multiple
of the vector's size. Where arrays begin is known when the kernel is called, so the loop is written
twice, and the arrays' addresses choose.

A thread sees its own streaming stores in order. For others an ``sfence`` comes after a thread's
iterations, before it says that they are done.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from tilewright.codegen.llvm.builder import Value
from tilewright.codegen.llvm.memory import STREAMED_BYTES
from tilewright.codegen.llvm.sums import I64
from tilewright.ir import expr as E
from tilewright.ir import stmt as S
from tilewright.ir.buffer import Buffer
from tilewright.ir.visit import allocated, walk

if TYPE_CHECKING:
    from tilewright.codegen.llvm.stmt import Statements

#: Features by which a processor has streaming stores and their fence.
_FENCED = ("sse2", "avx2")


def results(loop: S.For) -> list[Buffer]:
    """What a loop writes in vectors and nothing else: not its own scratch, nor what it reads."""
    written: dict[Buffer, None] = {}
    others = set(allocated(loop.body))
    for node in walk(loop.body):
        if isinstance(node, S.Store) and any(i.dtype.lanes > 1 for i in node.indices):
            written[node.buffer] = None
        elif isinstance(node, (E.Load, S.Access)):
            others.add(node.buffer)
        elif isinstance(node, S.Instr):
            others.update(o.buffer for o in node.operands)
    return [buffer for buffer in written if buffer not in others]


def write(w: Statements, s: S.For, loop: Callable[[], None]) -> None:
    """What ``loop`` writes, with and without streaming stores; where a processor has none, once."""
    found = [] if w.streaming or w.features.isdisjoint(_FENCED) else results(s)
    if not found:
        loop()
        return
    b = w.b
    addresses = [b.convert("ptrtoint", w.pointer(buffer), I64) for buffer in found]
    bits = addresses[0]
    for address in addresses[1:]:
        bits = b.binary("or", bits, address)
    over = b.binary("and", bits, Value(I64, str(STREAMED_BYTES[-1] - 1)))
    yes, no, done = b.label("stream"), b.label("store"), b.label("end")
    b.branch(b.compare("icmp eq", over, Value(I64, "0")), yes, no)
    for label, buffers in ((yes, found), (no, [])):
        b.start(label)
        w.streaming = frozenset(buffers)
        with w.region():
            loop()
            fence(w)
        w.streaming = frozenset()
        b.jump(done)
    b.start(done)
    w.forget_loads()


def fence(w: Statements) -> None:
    """After it, whoever learns that this thread is done sees what it streamed."""
    if w.streaming:
        w.b.call("void", "llvm.x86.sse.sfence", [])
