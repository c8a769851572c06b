"""How programs of rows read their arguments."""

from __future__ import annotations

import functools
import math

from tilewright.arith import Analyzer
from tilewright.te import ComputeOp
from tilewright.topi.pieces.counts import declared
from tilewright.topi.pieces.reads import computed, loads
from tilewright.topi.pieces.sums import reduces
from tilewright.topi.problem import Problem


@functools.lru_cache(512)
def lies_along(p: Problem) -> bool:
    """Whether a program of rows reads the largest of its arguments along them, of whatever rows."""
    d = declared(p)
    waiting = [op for op in computed(d.output) if reduces(op)]
    largest = max(math.prod(map(int, t.shape)) for t in d.inputs.values())
    seen = set(waiting)
    while waiting:
        op, az = waiting.pop(), Analyzer()
        axes = [*op.axis, *(op.reduce_axis if reduces(op) else ())]
        for axis in axes:
            if axis.dom is not None:
                az.bind(axis.var, axis.dom.min, axis.dom.extent)
        at = [x for x in loads(op) if x.indices]
        read = {x.buffer for x in at if az.simplify(x.indices[-1]) is axes[-1].var}
        for t in op.inputs:
            if t.buffer not in read:
                continue
            if not isinstance(t.op, ComputeOp):
                if math.prod(map(int, t.shape)) == largest:
                    return True
            elif t.op not in seen:
                seen.add(t.op)
                waiting.append(t.op)
    return False
