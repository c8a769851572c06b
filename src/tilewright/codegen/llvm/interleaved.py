"""Loops that are written out and store vectors between one another: one vector of all of them.

The turns of such a loop store ``out[step * lane + turn]`` for all lanes, one turn for each of
``step`` neighbours: channels of pixels, of which vectors have one channel each. Lane by lane that
is as many stores as there are elements.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilewright.codegen.llvm.builder import Value, vector_type
from tilewright.codegen.llvm.sums import I64
from tilewright.ir import stmt as S
from tilewright.ir.visit import loads

if TYPE_CHECKING:
    from tilewright.codegen.llvm.stmt import Statements

#: Vectors that are put between one another, at most.
_MOST = 4


def write(w: Statements, s: S.For, turns: int) -> bool:
    """Write such a loop of ``turns``; False where it is none."""
    if s.kind not in (S.ForKind.SERIAL, S.ForKind.UNROLLED) or not 2 <= turns <= _MOST:
        return False
    match s.body:
        case S.Store(buffer, indices, value, None) if w.mask is None:
            lanes = value.dtype.lanes
        case _:
            return False
    if lanes == 1 or buffer in w.streaming or any(x.buffer is buffer for x in loads(value)):
        return False
    if not w.follows(buffer, indices, s.var, turns):
        return False
    b, first = w.b, w.index(s.min)
    type = vector_type(w.types.memory(buffer.dtype), lanes)
    held: list[Value] = []
    base: Value | None = None
    for k in range(turns):
        with w.turn(s.var):
            w.variables[s.var] = w.arithmetic("add", first, Value(I64, str(k)))
            held.append(w.to_memory(b.splat(w.expr(value), lanes), type))
            if base is None:
                form = w.lane_offsets(buffer, indices, lanes)
                assert not isinstance(form, Value)
                base = form[0]
    assert base is not None
    whole = b.join(held)
    order = [k * lanes + lane for lane in range(lanes) for k in range(turns)]
    found = b.shuffle(whole, Value(whole.type, "poison"), order)
    at = w.element(w.types.memory(buffer.dtype), w.pointer(buffer), base)
    b.do(f"store {found}, {at}, align {buffer.dtype.bytes}")
    w.forget_loads(buffer)
    return True
