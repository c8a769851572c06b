"""Passes over graphs leave what a model computes; what is written in several operators is one."""

from __future__ import annotations

import numpy as np
import pytest
from tests.support.models import NETWORKS, node, onnx_model, relative

import tilewright
from tilewright.graph import Constant, Graph, Input, Node
from tilewright.graph.check import check
from tilewright.graph.executor import Executor
from tilewright.graph.passes.channels_last import channels_last
from tilewright.graph.passes.collapse_dims import collapse_dims
from tilewright.graph.passes.fold_epilogues import fold_epilogues
from tilewright.graph.passes.gate_weights import gate_weights
from tilewright.graph.passes.integer_products import integer_products
from tilewright.graph.passes.join_sums import join_sums
from tilewright.graph.passes.lift_slices import lift_slices
from tilewright.graph.passes.make_programs import make_programs
from tilewright.graph.passes.own_outputs import own_outputs
from tilewright.graph.passes.simplify import simplify
from tilewright.graph.passes.single_pixels import single_pixels
from tilewright.graph.passes.sink_reshapes import lift_reshapes, sink_thin_reshapes
from tilewright.graph.passes.turn_weights import turn_weights
from tilewright.graph.passes.windows_apart import windows_apart
from tilewright.graph.pipeline import AFTER_LAYOUT, PASSES, optimized
from tilewright.graph.rewrite import Rule, rewrite
from tilewright.target import Target

pytestmark = [pytest.mark.needs_onnx, pytest.mark.usefixtures("plain_code")]


def run(graph: Graph, **inputs):
    return Executor(graph, Target.parse("llvm")).run(inputs)


@pytest.mark.parametrize("name", NETWORKS)
def test_every_pass_leaves_a_graph_that_computes_the_same(name):
    model = tilewright.load(NETWORKS[name](16).model())
    x = np.random.default_rng(1).standard_normal((1, 3, 16, 16)).astype("float32")
    graph = model.graph({"x": x})
    wanted = run(own_outputs(graph), x=x)["y"]
    for change in PASSES:
        before, graph = graph, check(change(graph))
        if graph != before:
            assert relative(run(own_outputs(graph), x=x)["y"], wanted) < 1e-5, change.__name__


@pytest.mark.parametrize("kind", ["AveragePool", "MaxPool"])
def test_windows_of_one_element_are_no_kernels(kind):
    """As exporters write an adaptive pooling of images that have the size that is wanted."""
    x = np.random.default_rng(0).standard_normal((1, 2, 4, 4)).astype("float32")
    for more, apart in (
        ({"strides": [1, 1]}, False), ({"strides": [2, 2]}, True),
        ({"strides": [2, 2], "pads": [1, 1, 1, 1]}, True),
    ):  # fmt: skip
        pool = node(kind, "x", "p", kernel_shape=[1, 1], **more)
        data = onnx_model([pool, node("Relu", "p")], {"x": [1, 2, 4, 4]})
        graph = tilewright.load(data).graph({"x": x})
        left = [n.operator for n in simplify(graph).nodes]
        assert (left != ["relu"]) == apart
        (y,) = run(own_outputs(simplify(graph)), x=x).values()
        (wanted,) = run(own_outputs(graph), x=x).values()
        np.testing.assert_array_equal(y, wanted)


@pytest.mark.parametrize("name", ["squeeze_excite", "inception"])
def test_with_channels_last_a_graph_computes_the_same_and_turns_only_at_its_edges(name):
    model = tilewright.load(NETWORKS[name](16).model())
    x = np.random.default_rng(1).standard_normal((1, 3, 16, 16)).astype("float32")
    graph = model.graph({"x": x})
    wanted = run(own_outputs(graph), x=x)["y"]
    at = PASSES.index(make_programs)
    for change in PASSES[:at]:
        graph = change(graph)
    graph = check(channels_last(["float32"])(graph))
    turned = [n for n in graph.nodes if n.operator == "transpose"]
    assert [n.inputs[0].name for n in turned] == ["x"]
    for change in (*AFTER_LAYOUT, *PASSES[at:]):
        graph = check(change(graph))
    assert relative(run(graph, x=x)["y"], wanted) < 1e-5
    plain = optimized(model.graph({"x": x}))
    kernels, before = (
        [n.operator for n in g.nodes if n.operator != "reshape"] for g in (graph, plain)
    )
    assert len(kernels) == len(before) + 1  # the image is turned


#: Of what a hard swish is written out in.
LIMITED = [node("Add", "x three", "a"), node("Clip", "a zero six", "c")]


@pytest.mark.parametrize(("nodes", "kept"), [
    ([node("Sigmoid", "x", "s"), node("Mul", "s x")], "silu"),
    ([node("Neg", "x", "n"), node("Exp", "n", "e"), node("Add", "one e", "a"),
      node("Reciprocal", "a")], "sigmoid"),
    ([node("Neg", "x", "n"), node("Exp", "n", "e"), node("Add", "e one", "a"),
      node("Div", "one a")], "sigmoid"),
    ([node("Div", "x root", "d"), node("Erf", "d", "e"), node("Add", "e one", "a"),
      node("Mul", "x a", "m"), node("Mul", "m half")], "gelu"),
    ([node("HardSigmoid", "x", "h", alpha=1 / 6), node("Mul", "x h")], "hard_swish"),
    ([*LIMITED, node("Mul", "x c", "m"), node("Div", "m six")], "hard_swish"),
    ([*LIMITED, node("Div", "c six", "d"), node("Mul", "d x")], "hard_swish"),
    ([*LIMITED, node("Mul", "x c", "m"), node("Mul", "m sixth")], "hard_swish"),
    ([*LIMITED, node("Mul", "c sixth", "d"), node("Mul", "x d")], "hard_swish"),
    ([*LIMITED, node("Mul", "x c", "m"), node("Div", "m three")], "add clamp multiply divide"),
    ([*LIMITED, node("Mul", "x c", "m"), node("Div", "m sixth")], "add clamp multiply divide"),
    ([node("Clip", "x zero six")], "clamp"),
    ([node("Clip", "x zero six", "c"), node("Relu", "c", "r"), node("Relu", "r")], "clamp relu"),
    ([node("Transpose", "x", "t", perm=[1, 0]), node("Transpose", "t", perm=[1, 0])], ""),
    ([node("Mul", "x one", "m"), node("Add", "m zero")], ""),
    ([node("Add", "x one", "a"), node("Add", "half a")], "add"),
])  # fmt: skip
def test_what_exporters_write_in_several_operators_is_one(nodes, kept):
    numbers = {
        "root": 2**0.5,
        "one": 1,
        "half": 0.5,
        "zero": 0,
        "six": 6,
        "three": 3,
        "sixth": 1 / 6,
    }
    constants = {k: np.float32(v) for k, v in numbers.items()}
    model = tilewright.load(onnx_model(nodes, {"x": [4, 5]}, constants=constants))
    x = np.linspace(-4, 8, 20, dtype="float32").reshape(4, 5)
    graph = model.graph({"x": x})
    small = simplify(graph)
    found = [n.operator for n in small.nodes if n.operator != "transpose"]
    assert found == kept.split()
    assert relative(run(own_outputs(small), x=x)["y"], run(own_outputs(graph), x=x)["y"]) < 1e-6


def test_what_is_read_twice_is_not_rewritten():
    x = Input("x", (2, 3), "float32")
    s = Node("sigmoid", (x,))
    graph = Graph("g", (x,), {"y": Node("multiply", (x, s)), "s": s})
    same = rewrite(graph, [Rule("multiply(x, sigmoid(x))", "silu(x)")])
    assert [n.operator for n in same.nodes] == ["sigmoid", "multiply"]


def test_a_product_that_others_read_keeps_its_own_result():
    x = Input("x", (4, 4), "float32")
    g = Node("gemm", (x, x))
    graph = Graph("g", (x,), {"y": Node("relu", (g,)), "z": g})
    assert [n.operator for n in fold_epilogues(graph).nodes] == ["gemm", "relu"]


def test_a_step_that_an_epilogue_has_stands_behind_it():
    x = Input("x", (4, 4), "float32")
    y = Node("add", (Node("add", (Node("gemm", (x, x)), x)), Node("relu", (x,))))
    graph = fold_epilogues(Graph("g", (x,), {"y": y}))
    assert [n.operator for n in graph.nodes] == ["gemm", "relu", "add"]
    assert graph.nodes[0].attributes["epilogue"] == ("residual",)


def test_what_makes_a_product_larger_is_no_scale_of_it():
    """A product of one channel is added to numbers of many, and multiplied with them."""
    x, w = Input("x", (1, 3, 4, 4), "float32"), Constant(np.ones((1, 3, 1, 1), "float32"))
    many = Constant(np.arange(5, dtype="float32").reshape(5, 1, 1))
    y = Node("multiply", (Node("add", (Node("conv2d", (x, w)), many)), many))
    graph = optimized(Graph("g", (x,), {"y": y}))
    assert check(graph).outputs["y"].shape == (1, 5, 4, 4)
    value = np.random.default_rng(0).standard_normal((1, 3, 4, 4)).astype("float32")
    wanted = (value.sum(1, keepdims=True) + many.array) * many.array
    assert relative(run(graph, x=value)["y"], wanted) < 1e-5


def test_programs_do_not_take_what_another_kernel_reads_between():
    """A product reads what its result is multiplied with: one program of both would be a cycle."""
    x = Input("x", (4, 4), "float32")
    a = Node("exp", (x,))
    y = Node("multiply", (a, Node("gemm", (a, x))))
    graph = optimized(Graph("g", (x,), {"y": y}))
    assert sorted(n.operator for n in graph.nodes if n.operator != "reshape") == [
        "exp", "gemm", "multiply",
    ]  # fmt: skip
    value = np.random.default_rng(0).standard_normal((4, 4)).astype("float32")
    wanted = np.exp(value) * (np.exp(value) @ value)
    assert relative(run(graph, x=value)["y"], wanted) < 1e-5


def test_a_normalisation_is_one_kernel():
    nodes = [node("LayerNormalization", "x s b")]
    constants = {n: np.full(8, v, "float32") for n, v in (("s", 2), ("b", 1))}
    model = tilewright.load(onnx_model(nodes, {"x": [6, 8]}, constants=constants))
    x = np.random.default_rng(0).standard_normal((6, 8)).astype("float32")
    assert len(model.compile({"x": x}).steps) == 1
    centred = x - x.mean(1, keepdims=True)
    wanted = 2 * centred / np.sqrt((centred**2).mean(1, keepdims=True) + 1e-5) + 1
    assert relative(model(x), wanted) < 1e-5


def test_programs_of_no_dimensions_are_programs():
    x = Input("x", (3,), "float32")
    y = Node("add", (Node("sum", (x,), {"axis": (0,)}), 1.0))
    graph = make_programs(Graph("g", (x,), {"y": y}))
    assert check(graph).nodes[0].shape == ()
    assert run(own_outputs(graph), x=np.ones(3, "float32"))["y"] == 4


@pytest.mark.parametrize("size", [0.5, 1e-7])
def test_a_normalisation_in_float32_of_16_bits_is_in_the_weights_if_they_keep_their_digits(size):
    rng = np.random.default_rng(0)
    x = Input("x", (2, 8, 6, 6), "float16")
    w = Constant(rng.standard_normal((4, 8, 3, 3)).astype("float16"), "w")
    s, b = (Constant(rng.uniform(0.5, 1, (4, 1, 1)).astype("float32") * n) for n in (size, 1))
    wide = Node("cast", (Node("conv2d", (x, w)),), {"dtype": "float32"})
    found = Node("add", (Node("multiply", (wide, s)), b))
    graph = Graph("g", (x,), {"y": Node("cast", (found,), {"dtype": "float16"})})
    made = optimized(graph)
    kernels = [n.operator for n in made.nodes if n.operator != "reshape"]
    assert kernels == ["conv2d"] + ["program"] * (size < 0.1)
    given = {"x": rng.standard_normal(x.shape).astype("float16")}
    assert relative(run(made, **given)["y"], run(own_outputs(graph), **given)["y"]) < 2e-3


def test_what_scales_channels_behind_a_bias_is_a_step_of_the_epilogue():
    """As the factor before the residual sum of a ConvNeXt block, in whose shape there is more."""
    rng = np.random.default_rng(0)
    x, r = Input("x", (12, 8), "float32"), Input("r", (3, 4, 16), "float32")
    w = Constant(rng.standard_normal((8, 16)).astype("float32"), "w")
    b, s = (Constant(rng.standard_normal(16).astype("float32")) for _ in range(2))
    product = Node("gemm", (x, w, b), {"epilogue": ("bias",)})
    lines = Node("reshape", (product,), {"newshape": (3, 4, 16)})
    graph = Graph("g", (x, r), {"y": Node("add", (Node("multiply", (lines, s)), r))})
    made = graph
    for change in AFTER_LAYOUT:
        made = check(change(made))
    (kernel,) = (n for n in made.nodes if n.operator != "reshape")
    assert kernel.attributes["epilogue"] == ("bias", "scale_shift", "residual")
    given = {i.name: rng.standard_normal(i.shape).astype("float32") for i in (x, r)}
    wanted = run(own_outputs(graph), **given)["y"]
    assert relative(run(own_outputs(made), **given)["y"], wanted) < 1e-6


def test_images_are_resized_with_channels_last():
    rng = np.random.default_rng(0)
    x = Input("x", (2, 8, 5, 6), "float32")
    w = Constant(rng.standard_normal((8, 8, 1, 1)).astype("float32"))
    y = Node("conv2d", (x, w))
    for axis, extent in ((2, 5), (-1, 6)):
        at = Constant(rng.integers(0, extent, (9, 2)).astype("int32"))
        weights = Constant(rng.standard_normal((9, 2)).astype("float32"))
        y = Node("resample", (y, at, weights), {"axis": axis})
    graph = Graph("g", (x,), {"y": Node("conv2d", (y, w))})
    made = check(channels_last(["float32"])(graph))
    turned = [n.operator for n in made.nodes].count("transpose")
    assert turned == 2  # what comes in, and what goes out
    given = {"x": rng.standard_normal(x.shape).astype("float32")}
    assert relative(run(own_outputs(made), **given)["y"], run(graph, **given)["y"]) < 1e-6


@pytest.mark.parametrize(("groups", "planes"), [(1, False), (8, False), (8, True)])
def test_gradients_of_convolutions_are_the_same_with_channels_last(groups, planes):
    """A depthwise filter lies alike in every layout, and so does its gradient; what is sooner in
    planes reads turned copies, each made once."""
    rng = np.random.default_rng(0)
    x, dy = Input("x", (2, 8, 6, 6), "float32"), Input("dy", (2, 8, 6, 6), "float32")
    w = Input("w", (8, 8 // groups, 3, 3), "float32")
    values = {"groups": groups, "padding": 1}
    image = Node("conv2d", (x, Constant(np.eye(8, dtype="float32").reshape(8, 8, 1, 1), "one")))
    graph = Graph("g", (x, dy, w), {
        "dw": Node("conv2d", (image, dy), {**values, "pass_": "wgrad", "kernel": (3, 3)}),
        "dx": Node("conv2d", (dy, w), {**values, "pass_": "dgrad"}),
        "y": Node("relu", (Node("conv2d", (image, w), values),)),
    })  # fmt: skip
    given = {i.name: rng.standard_normal(i.shape).astype("float32") for i in (x, dy, w)}
    turned = check(channels_last(["float32"], lambda p: planes and p.is_depthwise)(graph))
    if planes:
        assert sum(n.operator == "transpose" for n in turned.nodes) == 4  # x, image, result, y
    made, wanted = run(own_outputs(turned), **given), run(own_outputs(graph), **given)
    for name in wanted:
        assert made[name].shape == wanted[name].shape
        assert relative(made[name], wanted[name]) < 1e-5


@pytest.mark.parametrize("size", [(4, 4), (2, 3)])
@pytest.mark.parametrize("last", [False, True])
def test_windows_that_do_not_overlap_are_pixels(size, last, monkeypatch):
    """Of an image in either layout, which is moved once."""
    monkeypatch.setattr("tilewright.graph.passes.windows_apart._MANY", 1)
    rng = np.random.default_rng(0)
    h, w = size
    x = Input("x", (2, 3 * h, 5 * w, 3) if last else (2, 3, 3 * h, 5 * w), "float32")
    image = Node("transpose", (x,), {"axes": (0, 3, 1, 2)}) if last else x
    filter = Constant(rng.standard_normal((8, 3, h, w)).astype("float32"), "w")
    bias = Constant(rng.standard_normal(8).astype("float32"), "b")
    values = {"stride": (h, w), "epilogue": ("bias",)}
    graph = Graph("g", (x,), {"y": Node("conv2d", (image, filter, bias), values)})
    made = check(windows_apart(channels_last(["float32"])(graph)))
    (kernel,) = (n for n in made.nodes if n.operator == "conv2d")
    assert kernel.inputs[0].shape == (2, 3, 5, 3 * h * w)
    moves = [n for n in made.nodes if n.operator == "transpose"]
    assert len(moves) == 2  # of the image, and of the result
    given = {"x": rng.standard_normal(x.shape).astype("float32")}
    wanted = run(own_outputs(graph), **given)["y"]
    assert relative(run(own_outputs(made), **given)["y"], wanted) < 1e-6


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize(("stride", "padding", "taps"), [
    (1, 1, (3, 3)), (1, (0, 1, 1, 0), (3, 2)), ((2, 1), 0, (1, 5)), (1, 3, (7, 7)),
])  # fmt: skip
def test_a_row_of_few_channels_is_channels(stride, padding, taps, last, monkeypatch):
    monkeypatch.setattr("tilewright.graph.passes.windows_apart._MANY", 1)
    rng = np.random.default_rng(0)
    x = Input("x", (2, 9, 11, 3) if last else (2, 3, 9, 11), "float32")
    image = Node("transpose", (x,), {"axes": (0, 3, 1, 2)}) if last else x
    filter = Constant(rng.standard_normal((8, 3, *taps)).astype("float32"), "w")
    bias = Constant(rng.standard_normal(8).astype("float32"), "b")
    values = {"stride": stride, "padding": padding, "epilogue": ("bias", "relu")}
    graph = Graph("g", (x,), {"y": Node("conv2d", (image, filter, bias), values)})
    made = check(windows_apart(channels_last(["float32"])(graph)))
    (kernel,) = (n for n in made.nodes if n.operator == "conv2d")
    assert kernel.inputs[0].shape[-1] == -(-3 * taps[1] // 4) * 4
    assert kernel.problem.kernel == (taps[0], 1)
    given = {"x": rng.standard_normal(x.shape).astype("float32")}
    wanted = run(own_outputs(graph), **given)["y"]
    assert relative(run(own_outputs(make_programs(made)), **given)["y"], wanted) < 1e-6


@pytest.mark.parametrize(("axes", "rank"), [
    ((0, 3, 1, 2), 3), ((3, 0, 1, 2), 2), ((0, 2, 1, 3), 4), ((2, 3, 0, 1), 2), ((0, 1, 2, 3), 1),
])  # fmt: skip
@pytest.mark.parametrize("one", [None, 0, 1, 2, 3])
def test_a_turn_is_of_few_dimensions(axes, rank, one):
    shape = [1 if d == one else e for d, e in enumerate((2, 3, 4, 5))]
    x = Input("x", tuple(shape), "float32")
    graph = Graph("g", (x,), {"y": Node("transpose", (x,), {"axes": axes})})
    made = check(collapse_dims(graph))
    assert max((n.rank for n in made.nodes if n.operator == "transpose"), default=0) <= rank
    given = {"x": np.random.default_rng(0).standard_normal(x.shape).astype("float32")}
    assert (run(own_outputs(made), **given)["y"] == given["x"].transpose(axes)).all()


@pytest.mark.parametrize("along", [False, True])
@pytest.mark.parametrize("axes", [(0, 3, 1, 2), (0, 2, 3, 1), (0, 1, 3, 2)])
def test_weights_are_turned_in_place_of_images(axes, along):
    rng = np.random.default_rng(0)
    x = Input("x", (2, 3, 4, 5), "float32")
    turned = Node("transpose", (x,), {"axes": axes})
    rows = Node("reshape", (turned,), {"newshape": (2, 60)})
    w = rng.standard_normal((7, 60) if along else (60, 7)).astype("float32")
    b = Constant(rng.standard_normal(7).astype("float32"))
    values = {"transpose_b": along, "epilogue": ("bias",)}
    graph = Graph("g", (x,), {"y": Node("gemm", (rows, Constant(w), b), values)})
    made = check(turn_weights(graph))
    assert {n.operator for n in made.nodes} == {"reshape", "gemm"}
    given = {"x": rng.standard_normal(x.shape).astype("float32")}
    wanted = run(own_outputs(graph), **given)["y"]
    assert relative(run(own_outputs(made), **given)["y"], wanted) < 1e-6


@pytest.mark.parametrize("along", [False, True])
@pytest.mark.parametrize(
    ("rows", "columns", "left"),
    [(9, 17, "conv2d"), (1, 17, "conv2d"), (9, 3, "gemm"), (3, 17, "gemm")],
)
def test_products_of_rows_by_known_weights_are_convolutions_of_single_pixels(
    along, rows, columns, left
):
    rng = np.random.default_rng(0)
    x, r = Input("x", (rows, 20), "float32"), Input("r", (rows, columns), "float32")
    w = rng.standard_normal((columns, 20) if along else (20, columns)).astype("float32")
    b = Constant(rng.standard_normal(columns).astype("float32"))
    values = {"transpose_b": along, "epilogue": ("bias", "residual", "relu")}
    graph = Graph("g", (x, r), {"y": Node("gemm", (x, Constant(w), b, r), values)})
    made = check(single_pixels(graph))
    (product,) = (n for n in made.nodes if n.operator != "reshape")
    assert product.operator == left
    if rows == 3:  # a few rows: the weights lie along the sum
        assert product.attributes["transpose_b"]
    given = {i.name: rng.standard_normal(i.shape).astype("float32") for i in (x, r)}
    wanted = np.maximum(given["x"] @ (w.T if along else w) + b.array + given["r"], 0)
    assert relative(run(own_outputs(made), **given)["y"], wanted) < 1e-6


@pytest.mark.parametrize(
    "change", [{"dilation": 2}, {"groups": 2}, {"channels": 8}, {"stride": 2}, {"batch": 1}]
)
def test_other_windows_stay(change):
    """Of many channels, in groups, with gaps, and few."""
    channels, groups = change.get("channels", 6), change.get("groups", 1)
    x = Input("x", (change.get("batch", 1 << 12), 9, 12, channels), "float16")
    filter = Constant(np.ones((6, 3, 3, channels // groups), "float16"), "w")
    values = {"layout": "NHWC", "dilation": change.get("dilation", 1), "groups": groups}
    values["stride"] = change.get("stride", 1)
    graph = Graph("g", (x,), {"y": Node("conv2d", (x, filter), values)})
    assert str(windows_apart(graph)) == str(graph)
    whole = {"layout": "NHWC"}
    x = Input("x", (1 << 12, 9, 12, 3), "float16")
    filter = Constant(np.ones((6, 3, 3, 3), "float16"), "w")
    graph = Graph("g", (x,), {"y": Node("conv2d", (x, filter), whole)})
    assert str(windows_apart(graph)) != str(graph)


@pytest.mark.parametrize("groups", [1, 2, 8])
def test_groups_of_channels_are_normalised_without_a_turn(groups):
    """Of long groups, columns are added first, in a kernel that blocks share."""
    shapes = {"x": (2, 8, 64, 64), "w": (8, 8, 1, 1), "s": (8,), "b": (8,)}
    rng = np.random.default_rng(3)
    given = {k: rng.standard_normal(e).astype("float32") for k, e in shapes.items()}
    model = tilewright.load(onnx_model(
        [node("Conv", "x w", "c"), node("GroupNormalization", "c s b", "n", num_groups=groups),
         node("Conv", "n w", "y")],
        {"x": shapes["x"]}, constants={k: v for k, v in given.items() if k != "x"}, opset=21,
    ))  # fmt: skip
    graph = model.graph({"x": given["x"]})
    wanted = run(own_outputs(graph), x=given["x"])["y"]
    after = check(optimized(graph, target=Target.parse("cuda -arch=sm_90a"), dtype="float16"))
    sums = [n for n in after.nodes if "sum" in f"{n.operator} {n.attributes}"]
    assert relative(run(after, x=given["x"])["y"], wanted) < 2e-3
    if groups == 1:
        turns = [n for n in after.nodes if "transpose" in f"{n.operator} {n.attributes}"]
        inner = [n for n in turns if graph.inputs[0] not in n.inputs and n.shape != wanted.shape]
        assert not inner
        assert {n.shape for n in sums} >= {(2, 1, 1, 8), (2, 1, 1, 1)}


@pytest.mark.parametrize("axis", [(1, 2), (0, 1, 2)])
def test_sums_of_columns_that_read_the_same_are_one(axis):
    """Of each image, or of all images."""
    x = Input("x", (2, 5, 6, 8), "float32")
    over = {"axis": axis, "keepdims": True}
    plain = Node("sum", (x,), over)
    squares = Node("sum", (Node("multiply", (x, x)),), over)
    graph = Graph("g", (x,), {"y": Node("subtract", (squares, Node("exp", (plain,))))})
    made = check(make_programs(join_sums(graph)))
    programs = [n for n in made.nodes if n.operator == "program"]
    assert [[c.function for c in n.attributes["body"]].count("sums") for n in programs] == [1, 0]
    given = {"x": np.random.default_rng(0).standard_normal(x.shape).astype("float32")}
    wanted = run(own_outputs(graph), **given)["y"]
    assert relative(run(own_outputs(made), **given)["y"], wanted) < 1e-6


def test_what_rows_are_normalised_by_is_not_computed_by_each_part_that_is_put_together():
    """Swin turns what it has normalised by some pixels."""
    x = Input("x", (2, 8, 64), "float32")
    mean = Node("sum", (x,), {"axis": (2,), "keepdims": True})
    rest = Node("subtract", (x, mean))
    parts = tuple(
        Node(
            "strided_slice",
            (rest,),
            {"begin": (0, b, 0), "strides": (1, 1, 1), "shape": (2, n, 64)},
        )
        for b, n in ((3, 5), (0, 3))
    )
    turned = Node("concatenate", parts, {"axis": 1})
    graph = make_programs(Graph("g", (x,), {"y": turned}))
    bodies = [str(n.attributes["body"]) for n in graph.nodes if n.operator == "program"]
    assert [("sum" in b, "concatenate" in b) for b in bodies] == [(True, False), (False, True)]


def test_sums_of_few_are_not_computed_again_for_every_element():
    x, few = Input("x", (2, 8, 8, 64), "float32"), Input("s", (2, 1, 1, 64), "float32")
    total = Node("sum", (few,), {"axis": (3,), "keepdims": True})
    graph = make_programs(Graph("g", (x, few), {"y": Node("multiply", (x, total))}))
    assert [n.operator for n in graph.nodes] == ["sum", "multiply"]


def test_columns_of_normalised_rows_are_summed_in_a_kernel_of_their_own():
    x = Input("x", (2, 49, 64), "float32")
    mean = Node("sum", (x,), {"axis": (2,), "keepdims": True})
    pooled = Node("sum", (Node("subtract", (x, mean)),), {"axis": (1,), "keepdims": True})
    graph = make_programs(Graph("g", (x,), {"y": pooled}))
    assert [n.operator for n in graph.nodes] == ["program", "sum"]


def test_elements_that_a_layout_left_before_dimensions_of_one_are_rows_again():
    """The response of ConvNeXt V2's channels, beside their mean."""
    x, s = Input("x", (2, 1, 1, 24), "float32"), Input("s", (24, 1, 1), "float32")
    pixel = Node("reshape", (x,), {"newshape": (2, 24, 1, 1)})
    root = Node("sqrt", (pixel,))
    mean = Node("sum", (root,), {"axis": (1,), "keepdims": True})
    part = Node("divide", (Node("divide", (root, mean)), 3.0))
    known = Node("reshape", (s,), {"newshape": (1, 24, 1, 1)})
    before = Graph("g", (x, s), {"y": Node("multiply", (part, known))})
    graph = check(sink_thin_reshapes(before))
    assert graph.outputs["y"].operator == "reshape"
    shapes = {n.shape for n in graph.nodes if n.operator != "reshape"}
    assert shapes == {(2, 1, 1, 24), (2, 1, 1, 1)}
    rng = np.random.default_rng(5)
    given = {"x": rng.random(x.shape, np.float32), "s": rng.random(s.shape, np.float32)}
    wanted = run(own_outputs(before), **given)["y"]
    np.testing.assert_allclose(run(own_outputs(graph), **given)["y"], wanted, rtol=1e-6)


def test_a_mean_is_normalised_by_one_program():
    """Of an image's channels, in another shape than the sum of its pixels has."""
    x = Input("x", (2, 7, 7, 32), "float32")
    total = Node("sum", (x,), {"axis": (1, 2), "keepdims": True})
    row = Node("reshape", (Node("divide", (total, 49)),), {"newshape": (2, 32)})
    mean = Node("divide", (Node("sum", (row,), {"axis": (1,), "keepdims": True}), 32))
    before = Graph("g", (x,), {"y": Node("subtract", (row, mean))})
    graph = check(make_programs(lift_reshapes(before)))
    assert [n.operator for n in graph.nodes] == ["sum", "reshape", "program"]
    given = {"x": np.random.default_rng(5).random(x.shape, np.float32)}
    wanted = run(own_outputs(before), **given)["y"]
    np.testing.assert_allclose(run(own_outputs(graph), **given)["y"], wanted, atol=1e-6)


def rows(length: int, several: bool = False, channels: bool = False) -> Graph:
    """A block of a transformer behind its attention, whose first row is classified."""
    rng = np.random.default_rng(0)
    w, v, table = (
        Constant(rng.standard_normal(shape).astype("float32"))
        for shape in ((8, 8), (8, 4), (1, length, 8))
    )
    x, h = Input("x", (2, length, 8), "float32"), Input("h", (2, length, 2, 4), "float32")
    flat = Node("reshape", (h,), {"newshape": (2 * length, 8)})
    y = Node("reshape", (Node("gemm", (flat, w)),), {"newshape": x.shape})
    flat = Node("reshape", (Node("relu", (y,)),), {"newshape": (2 * length, 8)})
    y = Node("reshape", (Node("gemm", (flat, w)),), {"newshape": x.shape})
    y = Node("add", (Node("add", (x, y)), table))
    y = Node("divide", (y, Node("sum", (y,), {"axis": (2,), "keepdims": True})))
    first = {"begin": (0, 0, 4), "strides": (1, 1, 1), "shape": (2, length, 4)}
    if not channels:
        first = {"begin": (0, length - 1, 0), "strides": (1, 1, 1), "shape": (2, 1, 8)}
    part = Node("strided_slice", (y,), first)
    outputs = {"y": part}
    if not channels:
        index = Constant(np.array(length - 1))
        outputs["y"] = Node("gemm", (Node("take", (y, index), {"axis": 1}), v))
    if several:
        outputs["z"] = y
    return Graph("g", (x, h), outputs)


def test_a_row_is_taken_before_what_is_computed_of_rows():
    graph = lift_slices(rows(5))
    assert all(n.shape[:2] in ((2, 1), (2, 8), (2, 4)) for n in check(graph).nodes)
    rng = np.random.default_rng(1)
    given = {v.name: rng.standard_normal(v.shape).astype("float32") for v in graph.inputs}
    wanted = run(own_outputs(rows(5)), **given)["y"]
    assert relative(run(own_outputs(graph), **given)["y"], wanted) < 1e-6


@pytest.mark.parametrize("more", [{"several": True}, {"channels": True}])
def test_rows_that_others_read_and_parts_of_them_stay_whole(more):
    graph = rows(5, **more)
    assert lift_slices(graph) is graph


def test_every_second_of_two_rows_of_products_is_taken_twice():
    x = Input("x", (2, 6, 8), "float32")
    y = Node("divide", (x, Node("sum", (x,), {"axis": (2,), "keepdims": True})))
    for count in (3, 1):
        part = {"begin": (0, 1, 0), "strides": (1, 2, 1), "shape": (2, count, 8)}
        y = Node("strided_slice", (y,), part)
        y = Node("divide", (y, Node("max", (y,), {"axis": (2,), "keepdims": True})))
    graph = Graph("g", (x,), {"y": y})
    lifted = check(lift_slices(graph))
    names = [n.operator for n in lifted.nodes]
    assert names == ["strided_slice"] * 2 + ["sum", "divide", "max", "divide", "max", "divide"]
    value = np.random.default_rng(1).uniform(1, 2, (2, 6, 8)).astype("float32")
    wanted = run(own_outputs(graph), x=value)["y"]
    assert relative(run(own_outputs(lifted), x=value)["y"], wanted) < 1e-6


def gated(size: int = 40, out: int = 8, wide: bool = False, count: int = 2, **more) -> Graph:
    """An image whose channels are scaled before a product of its pixels."""
    rng = np.random.default_rng(0)
    kind = more.pop("dtype", "float32")
    x, g = Input("x", (count, size, size, 16), kind), Input("g", (count, 1, 1, 16), kind)
    r = Input("r", (count, size, size, out), kind)
    w = Constant((rng.standard_normal((out, 1, 1, 16)) / 4).astype(kind), "w")
    image, factors = (Node("cast", (v,), {"dtype": "float32"}) if wide else v for v in (x, g))
    scaled = Node("multiply", (factors, image))
    if wide:
        scaled = Node("cast", (scaled,), {"dtype": kind})
    given = {"layout": "NHWC", "epilogue": ("bias", "residual", "relu"), **more}
    bias = Constant(rng.standard_normal(out).astype(kind))
    return Graph("g", (x, g, r), {"y": Node("conv2d", (scaled, w, bias, r), given)})


@pytest.mark.parametrize(
    ("dtype", "wide"), [("float32", False), ("float16", False), ("float16", True)]
)
@pytest.mark.parametrize("count", [1, 2])
def test_channels_of_a_large_image_are_scaled_in_the_weights(dtype, wide, count):
    graph = gated(dtype=dtype, wide=wide, count=count)
    made = check(gate_weights(graph))
    assert [n.operator for n in made.nodes].count("gemm") == 1
    assert all(n.operator == "reshape" for n in made.nodes if n.shape == (count, 40, 40, 8))
    assert [n.shape[1:] for n in made.nodes if n.operator == "multiply"] == [(8, 16)]
    rng = np.random.default_rng(1)
    given = {v.name: rng.standard_normal(v.shape).astype(dtype) for v in graph.inputs}
    wanted = run(own_outputs(graph), **given)["y"]
    found = run(own_outputs(made), **given)["y"]
    assert relative(found.astype("float64"), wanted) < {"float32": 1e-6, "float16": 1e-3}[dtype]


def test_channels_of_bytes_are_scaled_where_they_are():
    """Weights of 8 bits would be rounded to too few values."""
    x, g = Input("x", (2, 56, 56, 32), "int8"), Input("g", (2, 1, 1, 32), "float32")
    scaled = Node("multiply", (Node("cast", (x,), {"dtype": "float32"}), g))
    w = Constant(np.ones((16, 1, 1, 32), "int8"), "w")
    y = Node("conv2d", (Node("cast", (scaled,), {"dtype": "int8"}), w), {"layout": "NHWC"})
    graph = Graph("g", (x, g), {"y": y})
    assert [n.operator for n in gate_weights(graph).nodes] == [n.operator for n in graph.nodes]


@pytest.mark.parametrize("more", [{"size": 8}, {"out": 64}, {}])
def test_channels_of_other_images_are_scaled_where_they_are(more):
    graph = gated(**more)
    if not more:  # what is scaled is needed itself
        scaled = graph.outputs["y"].inputs[0]
        graph = Graph("g", graph.inputs, {**graph.outputs, "z": scaled})
    names = [n.operator for n in gate_weights(graph).nodes]
    assert names == [n.operator for n in graph.nodes]


@pytest.mark.parametrize("function", ["max", "min", "relu"])
def test_what_has_a_negative_scale_is_compared_as_what_it_stands_for(function: str) -> None:
    """Its integers are in the other order."""

    def last(scale: float) -> str:
        x = Input("x", (1, 4, 6, 6), "uint8")
        given = {} if function == "relu" else {"axis": (2, 3)}
        y = Node(function, (Node("dequantize", (x, scale, 128)),), given)
        (made,) = integer_products(Graph("g", (x,), {"y": y})).outputs.values()
        return made.operator

    assert (last(0.5), last(-0.5)) == ("dequantize", function)
