"""Functions that a target has no form of become arithmetic that all have.

Those of TF32 (:mod:`~tilewright.ir.tf32`) are two instructions of integers in CUDA; elsewhere they
are computed in float64, so that simulated programs agree with a GPU bit for bit:

>>> from tilewright.lower.ir_builder import axes, buffer, func, loop, store
>>> from tilewright.ir.tf32 import round_tf32
>>> i, = axes("i")
>>> A, B = buffer("A", 4), buffer("B", 4)
>>> program = func(loop(i, 4, store(B[i], round_tf32(A[i]))))
>>> "round_tf32" in repr(expand_functions(program).body)
False

It stands behind tensorize, to which such a function is part of what an instruction declares.
"""

from __future__ import annotations

from dataclasses import replace

from tilewright.ir.expr import Call, Expr
from tilewright.ir.func import Func
from tilewright.ir.stmt import Instr, Stmt
from tilewright.ir.tf32 import TF32_FUNCTIONS, in_arithmetic
from tilewright.ir.visit import Rewriter, Steps


def expand_functions(func: Func) -> Func:
    """``func`` in the functions that its target has."""
    if func.target.kind == "cuda":
        return func
    return expanded(func)


def expanded(func: Func) -> Func:
    """``func`` in the functions that all targets have: what a simulator runs of one for CUDA."""
    return replace(func, body=_Expand().stmt(func.body))


class _Expand(Rewriter):
    def steps(self, s: Stmt) -> Steps:
        return s if isinstance(s, Instr) else (yield from super().steps(s))

    def expr(self, e: Expr) -> Expr:
        e = super().expr(e)
        match e:
            case Call(_, name, (x,)) if name in TF32_FUNCTIONS:
                return in_arithmetic(name, x)
        return e
