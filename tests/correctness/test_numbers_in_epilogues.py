"""Numbers that models add and multiply by behind products are steps of these products."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.support.models import relative

from tilewright.graph import Constant, Graph, Input, Node
from tilewright.graph.executor import Executor
from tilewright.graph.passes.fold_epilogues import fold_epilogues
from tilewright.graph.passes.own_outputs import own_outputs
from tilewright.graph.passes.simplify import simplify
from tilewright.target import Target

RNG = np.random.default_rng(0)
X = RNG.standard_normal((2, 4, 6, 6)).astype("float32")
W = RNG.standard_normal((8, 4, 3, 3)).astype("float32")
B = RNG.standard_normal((8, 1, 1)).astype("float32")


def layer(*after: tuple[str, Any], dtype: str = "float32", bias: bool = True) -> Graph:
    """A convolution, and functions behind it with numbers or constants for a second operand."""
    x, w = Input("x", X.shape, dtype), Constant(W.astype(dtype), "w")
    y = Node("conv2d", (x, w))
    for function, other in (("add", B), *after) if bias else after:
        if isinstance(other, np.ndarray):
            other = Constant(other.astype(dtype))
        y = Node(function, (y,) if other is None else (y, other))
    return Graph("g", (x,), {"y": y})


def folded(graph: Graph) -> tuple[str, ...]:
    """The steps of the one product that is left, which computes what the graph did."""
    now = fold_epilogues(simplify(graph))
    (y,) = now.outputs.values()
    assert isinstance(y, Node)
    assert len(now.nodes) == 1
    found, wanted = (
        Executor(own_outputs(g), Target.parse("llvm")).run({"x": X.astype(g.inputs[0].dtype)})["y"]
        for g in (now, graph)
    )
    assert relative(found, wanted) < (1e-6 if y.dtype == "float32" else 1e-12)
    return y.attributes["epilogue"]


@pytest.mark.parametrize(("after", "steps"), [
    ([("add", 0.5)], ("bias",)),
    ([("add", B), ("add", -2.5)], ("bias",)),
    ([("add", 0.5), ("hard_swish", None), ("multiply", 0.25), ("add", 3.0)],
     ("bias", "hswish", "scale_shift")),
    ([("relu", None), ("multiply", B), ("add", B)], ("bias", "relu", "scale_shift")),
    ([("relu", None), ("multiply", -2)], ("bias", "relu", "scale_shift")),
])  # fmt: skip
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_numbers_are_those_of_all_channels(
    after: list[tuple[str, Any]], steps: tuple[str, ...], dtype: str
) -> None:
    assert folded(layer(*after, dtype=dtype)) == steps


def test_a_number_is_a_bias_where_there_is_none() -> None:
    assert folded(layer(("add", 1.5), ("relu", None), bias=False)) == ("bias", "relu")


def test_what_is_no_constant_is_added_by_itself() -> None:
    """A bias that a call gives is not known ahead."""
    graph, b = layer(("relu", None), ("multiply", 2.0)), Input("b", (8, 1, 1), "float32")
    (y,) = graph.outputs.values()
    graph = Graph("g", (*graph.inputs, b), {"y": Node("add", (y, b))})
    now = fold_epilogues(graph)
    (y,) = now.outputs.values()
    b_now = RNG.standard_normal((8, 1, 1)).astype("float32")
    found, wanted = (
        Executor(own_outputs(g), Target.parse("llvm")).run({"x": X, "b": b_now})["y"]
        for g in (now, graph)
    )
    assert relative(found, wanted) < 1e-6
