"""The reference interpreter with shuffles: the threads of a block go through them together."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from tests.support.interpreter import Env, Interpreter, Threads

from tilewright.ir import Func
from tilewright.ir import expr as E
from tilewright.ir import stmt as S
from tilewright.ir.visit import exprs, rewrite_exprs


class Lockstep(Interpreter):
    """Runs ``shuffle_xor`` in the values of definitions; a lane that nobody has is an error."""

    def __init__(self, block: dict[str, int]) -> None:
        super().__init__()
        self.block = block
        self.rounds: dict[tuple[E.Expr, int], dict[int, Any]] = {}
        self.round: dict[tuple[E.Expr, int], int] = {}

    def run(self, s: S.Stmt, env: Env, threads: Threads) -> Iterator[None]:
        if isinstance(s, S.Let):
            calls = [e for e in exprs(s.value) if isinstance(e, E.Call) and "shuffle" in e.name]
            env = dict(env)
            known: dict[E.Expr, E.Expr] = {}
            for call in calls:
                thread = self.number(threads)
                turn = self.round.get((call, thread), 0)
                self.round[call, thread] = turn + 1
                exchange = self.rounds.setdefault((call, turn), {})
                exchange[thread] = self.value(call.args[0], env, threads)
                yield
                other = thread ^ call.args[1].value
                assert other // 32 == thread // 32, "a shuffle leaves the warp"
                moved = E.Var.make("moved", call.dtype)
                env[moved] = exchange[other]
                known[call] = moved
            if known:
                value = rewrite_exprs(s.value, known.get)
                env[s.var] = self.value(value, env, threads)
                yield from self.run(s.body, env, threads)
                return
        yield from super().run(s, env, threads)

    def number(self, threads: Threads) -> int:
        """The thread's number in its block."""
        found, stride = 0, 1
        for tag in ("threadIdx.x", "threadIdx.y", "threadIdx.z"):
            if tag in threads:
                found += threads[tag][1] * stride
                stride *= self.block[tag]
        return found


def run_kernel(func: Func, arrays: dict[str, np.ndarray[Any, Any]]) -> dict[str, Any]:
    """``func`` with constant extents on ``arrays`` by name, block by block; arrays afterwards."""
    found = {name: np.array(array) for name, array in arrays.items()}
    blocks = [axis for axis in func.launch if axis.tag.startswith("blockIdx")]
    for place in np.ndindex(*(int(axis.extent) for axis in blocks)):
        machine = Lockstep({axis.tag: int(axis.extent) for axis in func.launch})
        env: Env = {axis.var: int(i) for axis, i in zip(blocks, place, strict=True)}
        for b in func.params:
            machine.allocate(b, env, {})
            machine.memory[b] = {
                i: found[b.name][i].item() for i in np.ndindex(found[b.name].shape)
            }
        body = func.body
        for axis in reversed(func.launch):
            if axis not in blocks:
                zero = E.IntImm(axis.var.dtype, 0)
                body = S.For(axis.var, zero, axis.extent, S.ForKind.THREAD, body, axis.tag)
        for _ in machine.run(body, env, {}):
            pass
        for b in func.params:
            for at, value in machine.memory[b].items():
                found[b.name][at] = value
    return found
