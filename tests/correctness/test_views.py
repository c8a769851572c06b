"""Values that are parts of others, or lie in another order, are read and written where they are."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.support.models import Network, by_onnxruntime, relative

import tilewright
from tilewright.graph import Constant, Graph, Input, Node
from tilewright.graph.check import check
from tilewright.graph.executor import Executor
from tilewright.graph.passes.join_parts import join_parts, own_parts
from tilewright.graph.passes.own_outputs import own_outputs
from tilewright.graph.pipeline import optimized
from tilewright.graph.views import dense, problem_of, reshaped, views
from tilewright.select.algorithm import Scheduled
from tilewright.target import Target
from tilewright.topi import Conv, Conv3d
from tilewright.topi.problem import Problem
from tilewright.topi.templates import candidates

pytestmark = pytest.mark.usefixtures("plain_code")
CPU = Target.parse("llvm")


def run(graph: Graph, **inputs: Any) -> dict[str, Any]:
    return Executor(check(graph), CPU).run(inputs)


def operators(graph: Graph) -> list[str]:
    return [n.operator for n in graph.nodes]


def dense_block(image: int = 16) -> Network:
    """Layers that read what all before them made, normalised, as DenseNet's, and a pool."""
    n = Network(image, 5)
    parts = [n.conv("x", 32, 3, 2)]
    for _ in range(3):
        x = n.concat(*parts) if len(parts) > 1 else parts[0]
        scale, shift = (n.weights(n.channels[x], 1, 1) for _ in range(2))
        y = n.act(n.add("Add", n.add("Mul", x, scale), shift), "Relu")
        parts.append(n.conv(n.conv(y, 24, 1), 16, 3))
    x = n.add("MaxPool", n.concat(*parts), kernel_shape=[3, 3], strides=[2, 2])
    n.head(x)
    return n


def fire(image: int = 16) -> Network:
    """Two windows of one input side by side, as SqueezeNet's; images beside results of them."""
    n = Network(image, 6)
    x = n.conv("x", 16, 3, 2)
    for _ in range(2):
        squeezed = n.conv(x, 16, 1)
        x = n.concat(n.conv(squeezed, 32, 1), n.conv(squeezed, 16, 3))
    n.head(n.concat(x, n.conv(x, 16, 1), x))
    return n


@pytest.mark.needs_onnx
@pytest.mark.needs_onnxruntime
@pytest.mark.parametrize(("network", "copied"), [(dense_block, 0), (fire, 1)])
def test_a_network_joins_its_branches_without_a_copy(network, copied):
    data = network().model()
    x = np.random.default_rng(7).standard_normal((1, 3, 16, 16)).astype("float32")
    model = tilewright.load(data, target="llvm")
    (wanted,) = by_onnxruntime(data, {"x": x})
    assert relative(model(x), wanted) < 1e-5
    found = [str(s.node.problem) for s in model.compile({"x": x}).steps]
    assert sum("concatenate" in text for text in found) == copied  # of what is joined twice


@pytest.mark.needs_onnx
def test_batches_are_joined_where_strides_tell_images_apart():
    x = np.random.default_rng(8).standard_normal((3, 3, 16, 16)).astype("float32")
    model = tilewright.load(dense_block().model("n"), target="llvm")
    each = [model(x[k : k + 1]) for k in range(3)]
    assert relative(model(x), np.concatenate(each)) < 1e-6


def parts_of(*others: Node | Input | Constant) -> Graph:
    """A whole of two kernels' results and ``others``."""
    x = Input("x", (6, 20), "float32")
    given = (Node("exp", (x,)), *others, Node("abs", (x,)))
    whole = Node("concatenate_view", given, {"axis": 1})
    inputs = (x, *(o for o in others if isinstance(o, Input)))
    return Graph("g", inputs, {"y": Node("relu", (whole,))})


def test_parts_that_no_kernel_writes_are_copied():
    z = Input("z", (6, 20), "float32")
    numbers = np.arange(120, dtype="float32").reshape(6, 20)
    graph = own_parts(parts_of(z, Constant(-numbers)))
    assert operators(graph).count("identity") == 2
    given = {"x": numbers / 100 - 0.5, "z": 1 - numbers}
    wanted = np.hstack([np.exp(given["x"]), given["z"], -numbers, np.abs(given["x"])])
    np.testing.assert_allclose(run(graph, **given)["y"], np.maximum(wanted, 0), rtol=1e-6)


def test_a_part_of_two_wholes_or_an_output_is_copied():
    x = Input("x", (6, 20), "float32")
    a, b = Node("exp", (x,)), Node("abs", (x,))
    first = Node("concatenate_view", (a, b), {"axis": 1})
    second = Node("concatenate_view", (b, first, b), {"axis": 1})
    graph = own_parts(Graph("g", (x,), {"y": Node("relu", (second,)), "a": a}))
    # `a` is an output, and `b` is joined three times.
    assert operators(graph).count("identity") == 3
    v = np.random.default_rng(0).standard_normal((6, 20)).astype("float32")
    found = run(graph, x=v)
    e, f = np.exp(v), np.abs(v)
    np.testing.assert_allclose(found["y"], np.hstack([f, e, f, f]), rtol=1e-6)
    np.testing.assert_allclose(found["a"], e, rtol=1e-6)


def test_a_part_that_is_read_in_a_shape_without_strides_is_copied():
    x = Input("x", (6, 20), "float32")
    a, b = Node("exp", (x,)), Node("abs", (x,))
    flat = Node("relu", (Node("reshape", (a,), {"newshape": (120,)}),))
    rows = Node("relu", (Node("reshape", (b,), {"newshape": (2, 3, 20)}),))
    whole = Node("relu", (Node("concatenate_view", (a, b), {"axis": 1}),))
    graph = own_parts(Graph("g", (x,), {"y": whole, "flat": flat, "rows": rows}))
    assert operators(graph).count("identity") == 1
    v = np.random.default_rng(0).standard_normal((6, 20)).astype("float32")
    found = run(graph, x=v)
    np.testing.assert_allclose(found["flat"], np.exp(v).reshape(-1), rtol=1e-6)
    np.testing.assert_allclose(found["rows"], np.abs(v).reshape(2, 3, 20), rtol=1e-6)
    np.testing.assert_allclose(found["y"], np.hstack([np.exp(v), np.abs(v)]), rtol=1e-6)


def test_an_output_is_joined_where_it_is_and_what_is_short_is_not():
    x = Input("x", (6, 8), "float32")
    v = np.random.default_rng(0).standard_normal((6, 8)).astype("float32")
    for axis, operator in ((1, "concatenate"), (0, "concatenate_view")):
        given = Node("exp", (x,)), Node("abs", (x,))
        whole = Node("concatenate", given, {"axis": axis})
        graph = own_parts(join_parts(Graph("g", (x,), {"y": whole})))
        assert operators(graph) == ["exp", "abs", operator]
        wanted = np.concatenate([np.exp(v), np.abs(v)], axis)
        np.testing.assert_allclose(run(graph, x=v)["y"], wanted, rtol=1e-6)


def test_a_whole_takes_the_memory_of_its_parts_and_no_more():
    x = Input("x", (64, 32), "float32")
    parts = (Node("exp", (x,)), Node("abs", (x,)))
    made = {}
    for operator in ("concatenate", "concatenate_view"):
        whole = Node(operator, parts, {"axis": 1})
        graph = Graph("g", (x,), {"y": Node("max", (whole,), {"axis": (1,)})})
        made[operator] = Executor(graph, CPU).plan.nbytes
    whole = 64 * 64 * 4
    assert made == {"concatenate": 2 * whole, "concatenate_view": whole}


def test_views_are_places_in_what_they_are_views_of():
    x = Input("x", (4, 6, 8), "float32")
    a = Node("reshape", (Node("exp", (x,)),), {"newshape": (24, 8)})
    b = Node("reshape", (Node("abs", (x,)),), {"newshape": (24, 8)})
    inner = Node("concatenate_view", (a, b), {"axis": 1})
    c = Node("relu", (Node("reshape", (x,), {"newshape": (24, 8)}),))
    outer = Node("concatenate_view", (c, inner), {"axis": 1})
    turned = Node("transpose_view", (outer,), {"axes": (1, 0)})
    found = views(own_outputs(Graph("g", (x,), {"y": Node("relu", (turned,))})))
    assert found[outer] == (outer, 0, (24, 1))
    assert found[inner] == (outer, 8, (24, 1))
    assert found[b] == (outer, 16, (24, 1))
    assert found[b.inputs[0]] == (outer, 16, (144, 24, 1))
    assert found[turned] == (outer, 0, (1, 24))


@pytest.mark.parametrize("seed", range(200))
def test_strides_of_another_shape_are_those_that_numpy_has(seed):
    random = np.random.default_rng(seed)
    shape = tuple(random.integers(1, 5, random.integers(1, 5)))
    whole = np.arange(10**5)
    gaps = random.integers(0, 2, len(shape)) * random.integers(1, 5, len(shape))
    strides, step = [], 1
    for extent, gap in zip(shape[::-1], gaps, strict=True):
        strides.insert(0, int(step))
        step = step * extent + gap
    axes = random.permutation(len(shape)) if random.random() < 0.3 else np.arange(len(shape))
    shape, strides = ([x[a] for a in axes] for x in (shape, strides))
    view = np.lib.stride_tricks.as_strided(whole, shape, [8 * s for s in strides])
    factors = [f for e in shape for f in ([2, 2] if e == 4 else [e])]
    cuts = sorted(random.integers(0, len(factors) + 1, random.integers(0, 4)))
    to = [int(np.prod(x)) for x in np.split(np.array(factors, int), cuts)]
    found = reshaped(shape, strides, to)
    if found is None:
        copied = view.reshape(to)
        assert not np.shares_memory(copied, whole)
    else:
        there = np.lib.stride_tricks.as_strided(whole, to, [8 * s for s in found])
        np.testing.assert_array_equal(there, view.reshape(to))


@pytest.mark.parametrize("target", ["llvm", "sim"])
@pytest.mark.parametrize(
    ("name", "more", "strides"),
    [
        ("conv2d", {"multiplier": 24, "groups": 1, "epilogue": ("bias", "residual")},
         ("data_1120x112x16x1", "residual_4000x400x40x1", "result_4000x400x40x1")),
        ("conv2d", {"channels": 3, "multiplier": 20, "groups": 1, "stride": 2},
         ("data_189x7x1x63",)),
        ("depthwise_conv2d", {}, ("result_2400x240x24x1",)),
    ],
)  # fmt: skip
def test_kernels_read_and_write_tensors_with_gaps_that_stay_as_they_were(
    name, more, strides, target
):
    given = {
        "operator": name, "batch": 2, "channels": 16, "height": 9, "width": 7, "kernel_h": 3,
        "kernel_w": 3, "padding": (1, 1, 1, 1), "layout": "NHWC",
    }  # fmt: skip
    p = Conv(**{**given, **more}, strides=strides)
    plain = p.replace(strides=())
    random, machine = np.random.default_rng(2), Target.parse(target)
    dense_inputs = {
        n: random.standard_normal(t.shape).astype("float32") for n, t in p.inputs().items()
    }
    wanted = None
    for template, config in list(candidates(plain, machine))[:3]:
        if wanted is None:
            wanted = np.full(p.result.shape, np.nan, "float32")
            kernel = Scheduled(template).kernel(plain, config, machine)
            kernel(*dense_inputs.values(), wanted)
        arrays = {n: _with_gaps(x, p.strides_of().get(n)) for n, x in dense_inputs.items()}
        y = _with_gaps(np.full_like(wanted, np.nan), p.strides_of().get("result"))
        Scheduled(template).kernel(p, config, machine)(*arrays.values(), y)
        assert relative(y, wanted) < 1e-6
        if y.base is not None:
            written = np.prod(y.shape)
            assert np.isfinite(y.base).sum() == written


def _with_gaps(x: np.ndarray[Any, Any], strides: tuple[int, ...] | None) -> np.ndarray[Any, Any]:
    """The same elements at other places of a larger array, which is not a number elsewhere."""
    if strides is None:
        return x
    size = 1 + sum((e - 1) * s for e, s in zip(x.shape, strides, strict=True))
    whole = np.full(size, np.nan, x.dtype)
    made = np.ndarray(x.shape, x.dtype, whole, 0, [x.itemsize * s for s in strides])
    made[...] = x
    return made


STEM = {"operator": "conv2d", "batch": 2, "groups": 1, "layout": "NHWC", "epilogue": ("bias",)}


@pytest.mark.parametrize("target", ["llvm", "llvm -arch=baseline"])
@pytest.mark.parametrize("p", [
    Conv(**STEM, channels=3, height=13, width=17, multiplier=20, kernel_h=3, kernel_w=5,
         padding=(1, 0, 2, 1), stride=(2, 1), dilation=(1, 2)),
    Conv(**STEM, channels=4, height=11, width=9, multiplier=33, kernel_h=7, kernel_w=7,
         padding=(3, 3, 3, 3), stride=2),
    Conv(**{**STEM, "operator": "conv1d", "layout": "NWC"}, channels=3, width=37, multiplier=24,
         kernel_w=5, padding=(2, 2), stride=2),
    Conv3d.parse("2x3x6x7x9", "20x3x3x3x3", 1, padding=1, stride=(1, 2, 1), layout="NDHWC"),
], ids=str)  # fmt: skip
def test_images_in_planes_are_read_with_channels_last_as_they_lie(p, target):
    random, machine = np.random.default_rng(2), Target.parse(target)
    dense_image, *others = (
        random.standard_normal(t.shape).astype("float32") for t in p.inputs().values()
    )
    image = np.moveaxis(np.ascontiguousarray(np.moveaxis(dense_image, -1, 1)), 1, -1)
    numbers = "x".join(str(s // 4) for s in image.strides)
    template, config = next(candidates(p, machine))
    found = []
    for problem, given in ((p, dense_image), (p.replace(strides=(f"data_{numbers}",)), image)):
        found.append(np.full(p.result.shape, np.nan, "float32"))
        Scheduled(template).kernel(problem, config, machine)(given, *others, found[-1])
    assert relative(found[1], found[0]) < 1e-6


def test_strides_are_a_part_of_a_problem():
    plain = Conv(
        batch=1, channels=8, width=9, height=9, kernel_w=3, kernel_h=3, layout="NHWC",
        operator="conv2d", groups=1, multiplier=8,
    )  # fmt: skip
    p = plain.replace(strides=("result_1000x100x10x1", "data_2000x200x10x1"))
    assert p.strides_of() == {"data": (2000, 200, 10, 1), "result": (1000, 100, 10, 1)}
    assert Problem.from_json(p.to_json()) == p
    assert p.key != plain.key
    assert "strides" not in plain.to_json()
    assert dense(plain.result.shape) == (392, 56, 8, 1)


@pytest.mark.needs_onnx
def test_the_first_convolution_of_a_network_reads_images_as_they_lie():
    model = tilewright.load(fire().model(), target="llvm")
    x = np.zeros((1, 3, 16, 16), "float32")
    assert "transpose_view" in operators(optimized(model.graph({"x": x}), target=CPU))
    found = [str(s.node.problem) for s in model.compile({"x": x}).steps]
    assert not any("transpose(" in text for text in found)


def test_a_sum_with_a_part_of_a_whole_has_a_kernel():
    """The residual lies in the whole, where records of plain convolutions are looked for, too."""
    x = Input("x", (2, 5, 7, 16), "float32")
    random = np.random.default_rng(3)
    w = random.standard_normal((16, 3, 3, 16)).astype("float32")
    a, b = Node("exp", (x,)), Node("abs", (x,))
    whole = Node("concatenate_view", (a, b), {"axis": 3})
    given = {"layout": "NHWC", "groups": 1, "padding": 1}
    plain = Node("conv2d", (x, Constant(w, "w")), given)
    conv = Node("conv2d", (x, Constant(w, "w"), a), {**given, "epilogue": ("residual",)})
    graph = own_parts(Graph("g", (x,), {"y": Node("negative", (whole,)), "z": conv, "p": plain}))
    assert problem_of(conv, views(graph)).strides == ("residual_1120x224x32x1",)
    v = random.standard_normal((2, 5, 7, 16)).astype("float32")
    found = run(graph, x=v)
    assert relative(found["z"], found["p"] + np.exp(v)) < 1e-6


@pytest.mark.parametrize("axis", [1, 2, 3])
def test_functions_of_elements_write_and_read_parts_where_they_lie(axis):
    """Over as few dimensions as gaps leave: none of it is copied."""
    x = Input("x", (2, 3, 5, 16), "float32")
    a, b = Node("exp", (x,)), Node("abs", (x,))
    whole = Node("concatenate", (a, b), {"axis": axis})
    given = {"axis": (axis,), "keepdims": True}
    least, e = Node("negative", (Node("max", (a,), given),)), Node("negative", (a,))
    results = {"y": Node("max", (whole,), given), "a": least, "e": e}
    graph = optimized(Graph("g", (x,), results), target=CPU)
    assert "concatenate_view" in operators(graph)
    assert "identity" not in operators(graph)
    assert max(n.rank for n in graph.nodes if n.operator == "exp") == 2
    v = np.random.default_rng(0).standard_normal((2, 3, 5, 16)).astype("float32")
    found, exp = run(graph, x=v), np.exp(v)
    wanted = np.concatenate([exp, np.abs(v)], axis).max(axis, keepdims=True)
    np.testing.assert_allclose(found["y"], wanted, rtol=1e-6)
    np.testing.assert_allclose(found["a"], -exp.max(axis, keepdims=True), rtol=1e-6)
    np.testing.assert_allclose(found["e"], -exp, rtol=1e-6)
