"""Graphs before and after a pass, which compute the same."""

from __future__ import annotations

from typing import Any

import numpy as np

from tilewright.graph import Constant, Graph
from tilewright.graph.check import check
from tilewright.graph.executor import Executor
from tilewright.graph.passes.own_outputs import own_outputs
from tilewright.target import Target


def known(*shape: int, dtype: str = "float16") -> Constant:
    """Weights by their shape."""
    rng = np.random.default_rng(sum(shape))
    return Constant((rng.standard_normal(shape) / 4).astype(dtype))


def same(before: Graph, after: Graph) -> None:
    """That both compute the same of the same."""
    rng, target = np.random.default_rng(1), Target.parse("llvm")
    given: dict[str, Any] = {
        x.name: rng.standard_normal(x.shape).astype(x.dtype) for x in before.inputs
    }
    wanted = Executor(own_outputs(before), target).run(given)
    found = Executor(own_outputs(check(after)), target).run(given)
    for name, y in wanted.items():
        difference = np.linalg.norm(found[name].astype("float64") - y)
        assert difference <= 2e-3 * np.linalg.norm(y.astype("float64"))
