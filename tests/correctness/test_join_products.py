"""Two layers of a network, and what normalises rows before them, become one, and compute what they
did."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright.graph import Constant, Graph, Input, Node
from tilewright.graph.check import check
from tilewright.graph.executor import Executor
from tilewright.graph.passes.join_products import join_products
from tilewright.graph.passes.own_outputs import own_outputs
from tilewright.graph.row_norms import row_norm
from tilewright.target import Target

HOPPER = Target.parse("cuda -arch=sm_90a")


def layers(turned=(True, False), more=(), first=("bias", "gelu"), dtype="float16"):
    """A graph of two layers, whose weights lie as they are ``turned``; ``more`` outputs."""
    rng = np.random.default_rng(0)

    def known(*shape):
        return Constant((rng.standard_normal(shape) * shape[-1] ** -0.5).astype(dtype))

    x = Input("x", (100, 64), dtype)
    b = known(128, 64) if turned[0] else known(64, 128)
    c = known(64, 128) if turned[1] else known(128, 64)
    given = [known(128)] if "bias" in first else []
    y = Node("gemm", (x, b, *given), {"transpose_b": turned[0], "epilogue": first})
    z = Node("gemm", (y, c, x), {"transpose_b": turned[1], "epilogue": ("residual",)})
    return Graph("g", (x,), {"z": z, **({"y": y} if more else {})})


@pytest.fixture
def cheap(monkeypatch):
    """One kernel is predicted to be faster than two."""
    monkeypatch.setattr("tilewright.graph.passes.join_products._SLOWER", 100.0)


@pytest.mark.usefixtures("cheap")
@pytest.mark.parametrize("turned", [(True, False), (False, False), (True, True)])
def test_two_layers_of_a_graph_become_one(turned):
    graph = layers(turned)
    made = check(own_outputs(join_products(HOPPER)(graph)))
    assert [n.operator for n in made.nodes] == ["mlp"]
    x = {"x": np.random.default_rng(1).standard_normal((100, 64)).astype("float16")}
    llvm = Target.parse("llvm")
    wanted = Executor(own_outputs(graph), llvm).run(x)["z"].astype("float64")
    found = Executor(made, llvm).run(x)["z"].astype("float64")
    assert np.linalg.norm(found - wanted) < 2e-3 * np.linalg.norm(wanted)


def normalised(x, scaled, wide):
    """Rows that are normalised, with factors and terms of columns before they are narrowed or
    behind."""
    w, again = (Node("cast", (x,), {"dtype": "float32"}) for _ in range(2))

    def mean(of):
        total = Node("sum", (of,), {"axis": (1,), "keepdims": True})
        return Node("divide", (total, x.shape[1]))

    more = Node("subtract", (w, mean(again)))
    same = Node("subtract", (w, mean(w))) if wide else more  # as PyTorch's graphs have it
    variance = Node("add", (mean(Node("multiply", (same, same))), 1e-5))
    y = Node("multiply", (more, Node("rsqrt", (variance,))))
    y = y if wide else Node("cast", (y,), {"dtype": x.dtype})
    if scaled:
        rng = np.random.default_rng(3)
        scale, shift = (Constant(rng.random(x.shape[1]).astype(y.dtype)) for _ in range(2))
        y = Node("add", (Node("multiply", (y, scale)), shift))
    return y if y.dtype == x.dtype else Node("cast", (y,), {"dtype": x.dtype})


@pytest.mark.usefixtures("cheap")
@pytest.mark.parametrize("scaled", [False, True])
@pytest.mark.parametrize("wide", [False, True])
@pytest.mark.parametrize("first", [("bias", "gelu"), ("relu",)])
def test_rows_are_normalised_in_the_same_kernel(scaled, wide, first):
    rng = np.random.default_rng(0)
    x = Input("x", (100, 64), "float16")
    b, c = (
        Constant((rng.standard_normal(shape) * shape[1] ** -0.5).astype("float16"))
        for shape in ((128, 64), (64, 128))
    )
    given = [Constant(rng.random(128).astype("float16"))] if "bias" in first else []
    rows = normalised(x, scaled, wide)
    y = Node("gemm", (rows, b, *given), {"transpose_b": True, "epilogue": first})
    z = Node("gemm", (y, c, x), {"transpose_b": True, "epilogue": ("residual",)})
    graph = Graph("g", (x,), {"z": z})
    made = check(own_outputs(join_products(HOPPER)(graph)))
    assert [(n.operator, n.attributes["norm"]) for n in made.nodes] == [("mlp", "1e-05")]
    arrays = {"x": (rng.standard_normal((100, 64)) * 3 + 1).astype("float16")}
    llvm = Target.parse("llvm")
    wanted = Executor(own_outputs(graph), llvm).run(arrays)["z"].astype("float64")
    found = Executor(made, llvm).run(arrays)["z"].astype("float64")
    assert np.linalg.norm(found - wanted) < 2e-3 * np.linalg.norm(wanted)


@pytest.mark.usefixtures("cheap")
def test_rows_that_others_read_are_normalised_apart():
    x = Input("x", (100, 64), "float16")
    rows = normalised(x, True, False)
    b, c = (Constant(np.ones(shape, "float16")) for shape in ((128, 64), (128, 64)))
    y = Node(
        "gemm",
        (Node("gemm", (rows, b), {"transpose_b": True}), c, rows),
        {"epilogue": ("residual",)},
    )
    made = join_products(HOPPER)(Graph("g", (x,), {"y": y}))
    (last,) = (n for n in made.nodes if n.operator == "mlp")
    assert "norm" not in last.attributes


def normalised_by(x, squared=None, dtype="float32"):
    """Rows that are normalised, their squares multiplied by another factor, then as a ``dtype``."""
    w = Node("cast", (x,), {"dtype": "float32"})

    def mean(of):
        total = Node("sum", (of,), {"axis": (1,), "keepdims": True})
        return Node("divide", (total, x.shape[1]))

    more = Node("subtract", (w, mean(w)))
    squares = Node("multiply", (more, more if squared is None else squared))
    root = Node("rsqrt", (Node("add", (mean(squares), 1e-5)),))
    y = Node("cast", (Node("multiply", (more, root)),), {"dtype": dtype})
    return Node("cast", (y,), {"dtype": x.dtype})


@pytest.mark.parametrize(
    ("how", "found"),
    [
        ({}, True),
        ({"dtype": "float64"}, True),
        ({"dtype": "int8"}, False),  # which rounds
        ({"dtype": "float8_e4m3fn"}, False),
        ({"dtype": "bfloat16"}, False),
        ({"squared": 3.0}, False),  # no squares
    ],
    ids=str,
)
def test_what_changes_numbers_is_no_normalisation(how, found):
    x = Input("x", (100, 64), "float16")
    assert (row_norm(normalised_by(x, **how), {}) is not None) == found


def test_normalised_rows_with_several_readers_stay():
    rows = normalised_by(Input("x", (100, 64), "float16"))
    (wide,) = rows.inputs
    (made,) = wide.inputs
    assert all(row_norm(rows, {node: 2}) is None for node in (rows, wide, made))


@pytest.mark.usefixtures("cheap")
@pytest.mark.parametrize(("scale", "joined"), [(2.0, True), (100.0, False)])
def test_factors_that_weights_have_no_room_for_stay_with_the_rows(scale, joined):
    x = Input("x", (100, 64), "float16")
    rows = Node("multiply", (normalised_by(x), Constant(np.full(64, scale, "float16"))))
    b, c = (Constant(np.full(shape, 1000.0, "float16")) for shape in ((128, 64), (128, 64)))
    y = Node("gemm", (rows, b), {"transpose_b": True})
    made = join_products(HOPPER)(Graph("g", (x,), {"y": Node("gemm", (y, c))}))
    assert ("norm" in made.nodes[-1].attributes) == joined


@pytest.mark.parametrize(("rows", "joined"), [(3136, False), (25088, True), (200704, True)])
def test_two_kernels_are_left_where_one_has_too_few_rows(rows, joined):
    x = Input("x", (rows, 96), "float16")
    b, c = (Constant(np.ones((384, 96), "float16")) for _ in range(2))
    y = Node("gemm", (x, b), {"transpose_b": True, "epilogue": ("gelu",)})
    made = join_products(HOPPER)(Graph("g", (x,), {"y": Node("gemm", (y, c))}))
    assert (made.nodes[-1].operator == "mlp") == joined


@pytest.mark.parametrize(
    ("rows", "hidden", "joined"), [(1, 20, True), (8, 20, True), (64, 20, True), (1, 500, False)]
)
def test_few_weights_are_multiplied_by_few_rows_in_one_kernel(rows, hidden, joined):
    """As in squeeze-and-excite."""
    x = Input("x", (rows, 480), "float16")
    b, c = (Constant(np.ones(shape, "float16")) for shape in ((hidden, 480), (480, hidden)))
    y = Node("gemm", (x, b), {"transpose_b": True, "epilogue": ("silu",)})
    graph = Graph("g", (x,), {"y": Node("gemm", (y, c), {"transpose_b": True})})
    assert (join_products(HOPPER)(graph).nodes[-1].operator == "mlp") == joined


@pytest.mark.usefixtures("cheap")
@pytest.mark.parametrize(
    ("graph", "target"),
    [
        (layers(more=("y",)), HOPPER),  # what is hidden is read by others too
        (layers(dtype="float32"), HOPPER),
        (layers(), Target.parse("cuda -arch=sm_80")),
        (layers(), Target.parse("llvm")),
    ],
)
def test_others_stay_apart(graph, target):
    made = join_products(target)(graph)
    assert [n.operator for n in made.nodes] == ["gemm", "gemm"]
