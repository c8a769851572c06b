"""Graphs of training steps as GPUs run them: sums that are joined, and what is computed again."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright.graph.check import check
from tilewright.graph.executor import Executor
from tilewright.graph.fx.normalization import CONVERTERS
from tilewright.graph.fx.operation import Operation
from tilewright.graph.graph import Graph
from tilewright.graph.passes.join_siblings import join_siblings
from tilewright.graph.passes.own_outputs import is_part, own_outputs, owner
from tilewright.graph.pipeline import optimized
from tilewright.graph.value import Input, Node
from tilewright.graph.views import VIEWS
from tilewright.target import Target

pytestmark = pytest.mark.usefixtures("plain_code")

GPU, CPU = Target.parse("cuda -arch=sm_90a"), Target.parse("llvm")
#: Of images with channels last.
SHAPE, AXES = (4, 9, 7, 24), (0, 1, 2)
COUNT = 4 * 9 * 7


def run(outputs: dict, **given: np.ndarray) -> tuple[dict[str, np.ndarray], Graph]:
    """What a graph of these outputs makes after the passes of a GPU, by a CPU's kernels."""
    inputs = tuple(outputs.pop("inputs"))
    graph = optimized(check(Graph("g", inputs, outputs)), target=GPU)
    return Executor(graph, CPU).run(given), graph


def close(found: np.ndarray, wanted: np.ndarray, tolerance: float) -> bool:
    error = np.linalg.norm(found.astype("float64") - wanted) / np.linalg.norm(wanted)
    return bool(error < tolerance)


def joined(graph: Graph) -> int:
    """How many kernels have several sums."""
    return sum("sums" in n.problem.key for n in graph.nodes if n.operator == "program")


def arrays(dtype: str, mean: float) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(3)
    return {
        "x": rng.normal(mean, 1, SHAPE).astype(dtype), "dy": rng.normal(0, 1, SHAPE).astype(dtype),
        "w": rng.normal(1, 0.3, 24).astype("float32"), "b": rng.normal(0, 1, 24).astype("float32"),
        "m": rng.normal(0, 1, 24).astype("float32"), "v": rng.random(24).astype("float32") + 0.5,
    }  # fmt: skip


def operation(name: str, dtype: str, **arguments: object) -> Operation:
    return Operation(f"aten.{name}.default", "n", arguments, dtype, None, "cuda")


def inputs_of(given: dict[str, np.ndarray]) -> dict[str, Input]:
    return {n: Input(n, a.shape, str(a.dtype)) for n, a in given.items()}


def turned(x: Input) -> Node:
    """Images whose channels lie last, as convolutions of a GPU leave them."""
    return Node("transpose", (x,), {"axes": (0, 3, 1, 2)})


@pytest.mark.parametrize(("dtype", "mean", "tolerance"), [
    ("float32", 0, 1e-5), ("float32", 300, 1e-3), ("float16", 3, 1e-3),
])  # fmt: skip
def test_a_batch_is_normalised_by_its_own_statistics(dtype, mean, tolerance):
    given = arrays(dtype, mean)
    i = inputs_of(given)
    n = operation(
        "_native_batch_norm_legit_functional", dtype, input=turned(i["x"]), weight=i["w"],
        bias=i["b"], running_mean=i["m"], running_var=i["v"], training=True, momentum=0.1, eps=1e-5,
    )  # fmt: skip
    names = ("y", "mean", "root", "new_mean", "new_variance")
    made = dict(zip(names, CONVERTERS["_native_batch_norm_legit_functional"](n), strict=True))
    found, graph = run(
        {"inputs": [i[k] for k in "xwbmv"], **made}, **{k: given[k] for k in "xwbmv"}
    )
    x = given["x"].astype("float64")
    centre, variance = x.mean(AXES), x.var(AXES)
    root = 1 / np.sqrt(variance + 1e-5)
    y = (x - centre) * root * given["w"] + given["b"]
    new = 0.9 * given["v"] + 0.1 * variance * COUNT / (COUNT - 1)
    wanted = dict(zip(names, (y, centre, root, 0.9 * given["m"] + 0.1 * centre, new), strict=True))
    found["y"] = found["y"].transpose(0, 2, 3, 1)
    for name in names:
        assert close(found[name], wanted[name], tolerance), name
    # Both sums of a channel are one kernel, which reads the images once.
    assert joined(graph) == 1


@pytest.mark.parametrize("train", [True, False])
@pytest.mark.parametrize(("dtype", "tolerance"), [("float32", 1e-5), ("float16", 2e-3)])
def test_gradients_of_a_normalisation(dtype, tolerance, train):
    given = arrays(dtype, 2)
    i = inputs_of(given)
    x, dy = given["x"].astype("float64"), given["dy"].astype("float64")
    centre = x.mean(AXES) if train else given["m"].astype("float64")
    root = 1 / np.sqrt((x.var(AXES) if train else given["v"]) + 1e-5)
    given |= {"c": centre.astype("float32"), "r": root.astype("float32")}
    i |= inputs_of({k: given[k] for k in "cr"})
    n = operation(
        "native_batch_norm_backward", dtype, grad_out=turned(i["dy"]), input=turned(i["x"]),
        weight=i["w"], running_mean=i["m"], running_var=i["v"], save_mean=i["c"],
        save_invstd=i["r"], train=train, eps=1e-5, output_mask=[True, True, True],
    )  # fmt: skip
    made = dict(zip(("dx", "dw", "db"), CONVERTERS["native_batch_norm_backward"](n), strict=True))
    used = ["dy", "x", "w", *("cr" if train else "mv")]
    found, graph = run({"inputs": [i[k] for k in used], **made}, **{k: given[k] for k in used})
    normal = (x - centre) * root
    dw, db = (dy * normal).sum(AXES), dy.sum(AXES)
    dx = dy - (db + normal * dw) / COUNT if train else dy
    wanted = {"dx": dx * root * given["w"], "dw": dw, "db": db}
    found["dx"] = found["dx"].transpose(0, 2, 3, 1)
    for name, value in wanted.items():
        assert close(found[name], value, tolerance), name
    assert joined(graph) == 1


def test_nothing_between_sums_and_what_they_are_of_is_stored():
    """A mask and a cast are computed by each of their readers: memory has what came and goes."""
    x, y = Input("x", (64, 32), "float16"), Input("y", (64, 32), "float16")
    masked = Node("where", (Node("greater", (x, 0.0)), y, 0.0))
    wide = Node("cast", (masked,), {"dtype": "float32"})
    total = Node("sum", (wide,), {"axis": (0,), "keepdims": True})
    out = Node("cast", (Node("subtract", (wide, total)),), {"dtype": "float16"})
    graph = optimized(Graph("g", (x, y), {"out": out}), target=GPU)
    assert [n.operator for n in graph.nodes] == ["program", "program"]
    assert {v for n in graph.nodes for v in n.inputs} >= {x, y}


def test_a_mask_of_what_its_readers_read_anyway_is_computed_by_each():
    """A mask takes half the memory of what it is of, which the kernels that mask by it read too."""
    x, y = Input("x", (64, 32), "float16"), Input("y", (64, 32), "float16")
    wide = Node("cast", (x,), {"dtype": "float32"})
    z = Node("add", (Node("multiply", (wide, 3.0)), 1.0))
    mask = Node("logical_or", (Node("less", (z, 0.0)), Node("greater", (z, 6.0))))
    masked = Node("where", (mask, 0.0, Node("cast", (y,), {"dtype": "float32"})))
    over = {"axis": (0,), "keepdims": True}
    a, b = (Node("sum", (v,), over) for v in (masked, Node("multiply", (masked, wide))))
    out = Node(
        "cast", (Node("subtract", (masked, Node("multiply", (a, b)))),), {"dtype": "float16"}
    )
    rng = np.random.default_rng(2)
    given = {k: rng.integers(-3, 4, (64, 32)).astype("float16") / 8 for k in "xy"}
    found, graph = run({"inputs": [x, y], "out": out}, **given)
    assert not [n for n in graph.nodes if n.dtype == "bool"]
    assert joined(graph) == 1
    image = given["x"].astype("float64")
    kept = np.where((image * 3 + 1 < 0) | (image * 3 + 1 > 6), 0, given["y"])
    assert close(found["out"], kept - kept.sum(0) * (kept * image).sum(0), 2e-3)


def test_a_gradient_of_images_is_one_program_between_rows():
    """Linear layers before and behind an activation see its images as rows."""
    dy, x = Input("dy", (64, 32), "float16"), Input("x", (64, 32), "float16")
    wide = {"dtype": "float32"}
    image = Node("reshape", (Node("cast", (x,), wide),), {"newshape": (4, 16, 32)})
    slope = Node("multiply", (image, Node("exp", (Node("multiply", (image, image)),))))
    rows = Node("reshape", (slope,), {"newshape": (64, 32)})
    out = Node("cast", (Node("multiply", (Node("cast", (dy,), wide), rows)),), {"dtype": "float16"})
    given = {k: np.random.default_rng(4).random((64, 32)).astype("float16") for k in ("dy", "x")}
    found, graph = run({"inputs": [dy, x], "out": out}, **given)
    assert not [n for n in graph.nodes if n.dtype == "float32"]
    a = given["x"].astype("float64")
    assert close(found["out"], given["dy"] * a * np.exp(a * a), 1e-3)


def test_what_is_normalised_by_a_mean_that_is_a_result_is_not_stored_in_float32():
    x = Input("x", (64, 32), "float16")
    wide = Node("cast", (x,), {"dtype": "float32"})
    over = {"axis": (1,), "keepdims": True}
    mean = Node("multiply", (Node("sum", (wide,), over), 1 / 32))
    rest = Node("subtract", (wide, mean))
    outputs = {
        "mean": mean, "square": Node("sum", (Node("multiply", (rest, rest)),), over),
        "out": Node("cast", (rest,), {"dtype": "float16"}),
    }  # fmt: skip
    values = np.random.default_rng(5).normal(1, 1, (64, 32)).astype("float16")
    found, graph = run({"inputs": [x], **outputs}, x=values)
    assert not [n for n in graph.nodes if n.dtype == "float32" and 32 in n.shape]
    a = values.astype("float64")
    assert close(found["square"][:, 0], ((a - a.mean(1, keepdims=True)) ** 2).sum(1), 1e-3)


def test_a_sum_that_waits_for_another_is_not_joined_with_it():
    x = Input("x", (64, 32), "float32")
    over = {"axis": (0,), "keepdims": True}
    first = Node("sum", (x,), over)
    second = Node("sum", (Node("multiply", (x, Node("subtract", (x, first)))),), over)
    out = {"a": Node("exp", (first,)), "b": Node("exp", (second,))}
    values = np.random.default_rng(0).normal(0, 1, (64, 32)).astype("float32")
    found, graph = run({"inputs": [x], **out}, x=values)
    assert not joined(graph)
    wide = values.astype("float64")
    assert close(found["b"], np.exp((wide * (wide - wide.sum(0))).sum(0)), 1e-3)


def test_groups_of_sums_do_not_wait_for_each_other():
    """Of two pairs that read the same, each with one that reads the other pair's."""
    x, y = Input("x", (64, 32), "float32"), Input("y", (64, 32), "float32")
    over = {"axis": (0,), "keepdims": True}
    a, c = (Node("sum", (v,), over) for v in (x, y))
    b = Node("sum", (Node("multiply", (x, Node("exp", (Node("multiply", (c, 1e-3)),)))),), over)
    d = Node("sum", (Node("multiply", (y, Node("exp", (Node("multiply", (a, 1e-3)),)))),), over)
    values = {k: np.random.default_rng(1).normal(0, 1, (64, 32)).astype("float32") for k in "xy"}
    outputs = {n: Node("abs", (v,)) for n, v in zip("abcd", (a, b, c, d), strict=True)}
    found, _ = run({"inputs": [x, y], **outputs}, **values)
    wide = values["x"].astype("float64")
    total = values["y"].astype("float64").sum(0)
    assert close(found["b"], abs((wide * np.exp(1e-3 * total)).sum(0)), 1e-4)


def test_numbers_that_are_equal_and_not_the_same_stay_apart():
    x = Input("x", (4,), "float32")
    out = {"a": Node("multiply", (x, 0.0)), "b": Node("multiply", (x, -0.0))}
    found, _ = run({"inputs": [x], **out}, x=np.ones(4, "float32"))
    assert not np.signbit(found["a"]).any()
    assert np.signbit(found["b"]).all()


def test_statistics_of_a_normalisation_are_one_kernel_of_which_others_read_parts():
    given = arrays("float16", 2)
    i = inputs_of(given)
    n = operation(
        "_native_batch_norm_legit_functional", "float16", input=turned(i["x"]), weight=i["w"],
        bias=i["b"], running_mean=i["m"], running_var=i["v"], training=True, momentum=0.1, eps=1e-5,
    )  # fmt: skip
    made = CONVERTERS["_native_batch_norm_legit_functional"](n)
    outputs = dict(zip("yabcd", made, strict=True))
    graph = optimized(
        check(Graph("g", tuple(i[k] for k in "xwbmv"), outputs)), target=GPU, parts="abcd"
    )
    assert sum(n.operator not in VIEWS for n in graph.nodes) == 3
    assert len({owner(graph.outputs[k]) for k in "abcd"}) == 1
    # Where outputs have memory of their own, they are copied from there.
    apart = own_outputs(graph)
    assert not any(map(is_part, apart.outputs.values()))
    found = Executor(apart, CPU).run({k: given[k] for k in "xwbmv"})
    wanted, _ = run(
        {"inputs": [i[k] for k in "xwbmv"], **outputs}, **{k: given[k] for k in "xwbmv"}
    )
    for name in outputs:
        assert close(found[name], wanted[name].astype("float64"), 1e-6), name


def test_vectors_that_wait_for_a_kernel_that_waits_for_one_of_them_stay_apart():
    x = Input("x", (1, 8), "float32")
    first = Node("exp", (x,))
    total = Node("max", (first,), {"axis": (1,), "keepdims": True})  # of all its elements
    outputs = {"a": first, "b": Node("multiply", (x, total))}
    values = np.random.default_rng(6).random((1, 8)).astype("float32")
    graph = join_siblings("ab")(Graph("g", (x,), outputs))
    assert not any(n.operator == "program" for n in graph.nodes)
    found = Executor(graph, CPU).run({"x": values})
    assert close(found["b"], values * np.exp(values).max(), 1e-6)
