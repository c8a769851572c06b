"""Programs put together by hand for the CPU, run on poisoned outputs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from tests.support.kernels import buffer, loop, store

from tilewright.ir import Buffer, Func, Module
from tilewright.ir import expr as E
from tilewright.ir.expr import Expr, Var
from tilewright.ir.ops import as_index
from tilewright.ir.stmt import Stmt
from tilewright.runtime import Kernel, build
from tilewright.target import Target


def kernel(
    params: Sequence[Buffer | Var], body: Stmt, target: str = "llvm", name: str = "test"
) -> Kernel:
    """A kernel of one function."""
    func = Func(name, tuple(params), body)
    return build(Module(name, tuple(params), (func,)), Target.parse(target))


def poisoned(shape: Any, type: Any = np.float32) -> np.ndarray:
    """An array in which every element that is not written shows."""
    made = np.empty(shape, type)
    made.view(np.uint8).reshape(-1)[...] = 0xA5
    return made


def ramp(base: Expr | int, lanes: int, stride: Expr | int = 1) -> Expr:
    return E.Ramp(as_index(base), as_index(stride), lanes)


def elementwise(
    f: Callable[..., Expr],
    *inputs: np.ndarray,
    types: Sequence[str],
    result: str,
    lanes: int = 1,
    target: str = "llvm",
) -> np.ndarray:
    """``f`` of every element, computed ``lanes`` at a time by a compiled loop.

    bfloat16 is passed as its bits.
    """
    n = inputs[0].size
    assert n % lanes == 0
    given = [buffer(f"in{k}", (n,), type=t) for k, t in enumerate(types)]
    out = buffer("out", (n,), type=result)

    def body(i: Var) -> Stmt:
        at = (ramp(i * lanes, lanes) if lanes > 1 else i,)
        return store(out, at, f(*(E.Load(b, at, None) for b in given)))

    run = kernel([*given, out], loop("i", n // lanes, body), target)
    found = poisoned(n, np.uint16 if result == "bfloat16" else np.dtype(result))
    run(*inputs, found)
    return found
