"""Models give what ONNX Runtime gives, for every shape that they are called with."""

from __future__ import annotations

import random
import threading

import numpy as np
import pytest
from tests.support.models import NETWORKS, by_onnxruntime, node, onnx_model, relative, resnet, write

import tilewright
from tilewright.graph import Graph, Input, ModelError, Node
from tilewright.graph.check import check
from tilewright.graph.memory import Lifetime, most_alive, plan
from tilewright.graph.signature import check_apart
from tilewright.runtime import array
from tilewright.runtime.array import view

pytestmark = pytest.mark.needs_onnx


@pytest.fixture
def image():
    return np.random.default_rng(5).standard_normal((1, 3, 32, 32)).astype("float32")


@pytest.mark.needs_onnxruntime
@pytest.mark.usefixtures("plain_code")
@pytest.mark.parametrize("name", NETWORKS)
def test_a_network_gives_what_onnxruntime_gives(name, image):
    data = NETWORKS[name]().model()
    (wanted,) = by_onnxruntime(data, {"x": image})
    assert relative(tilewright.load(data)(image), wanted) < 1e-5


@pytest.mark.usefixtures("plain_code")
@pytest.mark.parametrize(("name", "dtype"), [("resnet", "bfloat16"), ("squeeze_excite", "float16")])
def test_products_in_a_type_that_is_chosen_are_close_to_those_in_float32(name, dtype, image):
    data = NETWORKS[name]().model()
    model = tilewright.load(data, dtype=dtype)
    found = model(image)
    assert found.dtype == "float32"
    assert (
        relative(found, tilewright.load(data)(image)) < {"float16": 1e-2, "bfloat16": 6e-2}[dtype]
    )
    products = [s.node for s in model.compile({"x": image}).steps if s.node.operator == "conv2d"]
    assert {n.dtype for n in products} == {dtype}


def test_convolutions_of_3x3_may_be_in_fewer_products(image):
    data = resnet().model()
    model = tilewright.load(data, precision="winograd")
    assert relative(model(image), tilewright.load(data)(image)) < 1e-5
    found = [s.node.problem for s in model.compile({"x": image}).steps]
    allowed = [p for p in found if p.precision == "winograd"]
    assert allowed
    assert {p.kernel for p in allowed} == {(3, 3)}
    assert {p.stride for p in allowed} == {(1, 1)}


def test_a_model_is_loaded_from_a_file_and_called_by_name_or_in_order(tmp_path):
    data = onnx_model([node("Add", "a b"), node("Mul", "a b", "z")],
                      {"a": [2, 3], "b": [2, 3]}, ("y", "z"))  # fmt: skip
    model = tilewright.load(write(tmp_path, data), target="llvm")
    a, b = np.ones((2, 3), "float32"), np.full((2, 3), 2, "float32")
    found = model.run({"b": b, "a": a})
    assert list(found) == ["y", "z"]
    assert (found["y"] == 3).all()
    assert (found["z"] == 2).all()
    assert all((x == found[n]).all() for n, x in zip("yz", model(a, b), strict=True))
    assert repr(model) == "<Model g(a: float32[2x3]; b: float32[2x3]) -> y, z for llvm>"


@pytest.mark.needs_onnxruntime
def test_a_model_in_memory_is_loaded_as_its_file_is():
    import onnx

    data = onnx_model([node("Add", "x x")], {"x": [3]})
    x = np.ones(3, "float32")
    assert (tilewright.load(onnx.load_from_string(data))(x) == 2).all()


def test_dimensions_that_are_open_are_compiled_for_when_they_are_met(image):
    data = resnet().model(batch="N")
    model = tilewright.load(data)
    for batch in (1, 3, 1):
        x = np.concatenate([image] * batch)
        (wanted,) = by_onnxruntime(data, {"x": x})
        assert relative(model(x), wanted) < 1e-5
    assert len(model._compiled) == 2


def test_shapes_that_are_computed_are_folded():
    nodes = [
        node("Shape", "x", "s"),
        node("Slice", "s zero one", "first"),
        node("Concat", "first rest", "shape", axis=0),
        node("Reshape", "x shape"),
    ]
    constants = {n: np.array([v], "int64") for n, v in (("zero", 0), ("one", 1), ("rest", -1))}
    model = tilewright.load(onnx_model(nodes, {"x": ["N", 2, 3]}, constants=constants))
    x = np.arange(24, dtype="float32").reshape(4, 2, 3)
    assert (model(x) == x.reshape(4, 6)).all()
    assert [n.operator for n in model.graph({"x": x}).nodes] == ["reshape"]


def test_an_input_that_decides_a_shape_is_read_when_the_model_runs():
    from onnx import TensorProto, helper

    graph = helper.make_graph(
        [node("Reshape", "x shape")],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [6]),
         helper.make_tensor_value_info("shape", TensorProto.INT64, [2])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
    )  # fmt: skip
    data = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    model = tilewright.load(data.SerializeToString())
    x = np.arange(6, dtype="float32")
    for shape in ((2, 3), (3, 2), (2, 3)):
        assert model(x, np.array(shape)).shape == shape


def test_outputs_may_be_inputs_constants_and_one_another():
    nodes = [
        node("Identity", "x", "a"),
        node("Relu", "x", "b"),
        node("Flatten", "b", "c"),
        node("Identity", "w", "d"),
    ]
    w = np.arange(3, dtype="float32")
    data = onnx_model(nodes, {"x": [2, 2, 2]}, ("a", "b", "c", "d"), {"w": w})
    model = tilewright.load(data)
    x = np.linspace(-1, 1, 8, dtype="float32").reshape(2, 2, 2)
    first = model.run({"x": x})
    assert (first["a"] == x).all()
    assert (first["b"].reshape(2, 4) == first["c"]).all()
    first["d"][:] = 7
    assert (model.run({"x": x})["d"] == w).all()
    assert not np.shares_memory(first["a"], x)


def test_an_input_may_be_read_by_nobody():
    model = onnx_model([node("Relu", "x")], {"unread": [2, 3], "x": [4]}, ("y",))
    given = {"unread": np.zeros((2, 3), "float32"), "x": np.float32([-1, 0, 2, 3])}
    assert (tilewright.load(model).run(given)["y"] == [0, 0, 2, 3]).all()


def test_weights_may_be_nodes_and_lie_in_files_beside_the_model(tmp_path):
    import onnx
    from onnx import numpy_helper

    w = np.random.default_rng(0).standard_normal((4, 3)).astype("float32")
    inside = onnx_model(
        [node("Constant", "", "w", value=numpy_helper.from_array(w)), node("MatMul", "x w")],
        {"x": [2, 4]},
    )
    beside = onnx_model([node("MatMul", "x w")], {"x": [2, 4]}, constants={"w": w})
    onnx.save_model(
        onnx.load_from_string(beside), str(tmp_path / "m.onnx"), save_as_external_data=True,
        location="weights.bin", size_threshold=0,
    )  # fmt: skip
    x = np.ones((2, 4), "float32")
    assert relative(tilewright.load(inside)(x), x @ w) < 1e-6
    assert relative(tilewright.load(tmp_path / "m.onnx")(x), x @ w) < 1e-6


def test_operators_that_onnx_makes_of_others_are_inlined():
    nodes = [node("CenterCropPad", "x size", axes=[1])]
    data = onnx_model(nodes, {"x": [2, 5]}, constants={"size": np.array([3])}, opset=18)
    x = np.arange(10, dtype="float32").reshape(2, 5)
    assert (tilewright.load(data)(x) == x[:, 1:4]).all()


def test_many_threads_may_run_one_model(image):
    model = tilewright.load(resnet().model())
    images = [image * k for k in range(1, 9)]
    wanted = [model(x) for x in images]
    found: dict[int, list[np.ndarray]] = {k: [] for k in range(8)}

    def run(k: int) -> None:
        for _ in range(5):
            found[k].append(model(images[k]))

    threads = [threading.Thread(target=run, args=(k,)) for k in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert all((y == wanted[k]).all() for k, ys in found.items() for y in ys)


def test_clones_share_weights_and_have_memory_of_their_own():
    model = tilewright.load(resnet(16).model(batch="N"))
    clones = [model, *(model.clone() for _ in range(7))]
    images = {n: np.random.default_rng(n).random((n, 3, 16, 16)).astype("float32") for n in (1, 2)}
    wanted = {n: model(x) for n, x in images.items()}
    wrong: list[int] = []

    def run(k: int) -> None:
        rng = random.Random(k)
        for _ in range(40):
            n = rng.choice((1, 2))
            if (clones[k](images[n]) != wanted[n]).any():
                wrong.append(k)

    threads = [threading.Thread(target=run, args=(k,)) for k in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong
    executors = [m.compile({"x": images[1]}) for m in clones]
    assert len(set(executors)) == 8
    assert len({id(e.constants) for e in executors}) == 1
    # Each was called by one thread at a time, and keeps memory for that.
    assert [len(e._free) for e in executors] == [1] * 8
    assert clones[1].compile({"x": images[1]}) is executors[1]


@pytest.mark.parametrize("target", [
    "sim", pytest.param("opencl", marks=pytest.mark.needs_opencl),
    pytest.param("cuda", marks=pytest.mark.needs_cuda),
])  # fmt: skip
def test_other_targets_give_the_same(target):
    nodes = [
        node("Conv", "x w b", "c", pads=[1] * 4),
        node("Relu", "c", "r"),
        node("MaxPool", "r", "p", kernel_shape=[2, 2], strides=[2, 2]),
        node("Flatten", "p", "f"),
        node("Softmax", "f"),
    ]
    rng = np.random.default_rng(0)
    constants = {"w": rng.standard_normal((4, 2, 3, 3)).astype("float32"),
                 "b": rng.standard_normal(4).astype("float32")}  # fmt: skip
    data = onnx_model(nodes, {"x": [1, 2, 6, 6]}, constants=constants)
    x = rng.standard_normal((1, 2, 6, 6)).astype("float32")
    assert relative(tilewright.load(data, target=target)(x), tilewright.load(data)(x)) < 1e-5


@pytest.mark.needs_onnx
@pytest.mark.needs_opencl
def test_reductions_to_a_single_number_run_with_opencl():
    nodes = [
        node("ReduceSum", "x", "s", keepdims=0),
        node("ReduceMax", "x", "m", keepdims=0),
        node("Div", "s m"),
    ]
    x = np.arange(15, dtype="float32").reshape(3, 5)
    found = tilewright.load(onnx_model(nodes, {"x": [3, 5]}), target="opencl")(x)
    assert found.shape == ()
    assert found == np.float32(7.5)


@pytest.mark.parametrize("target", [
    pytest.param("opencl", marks=pytest.mark.needs_opencl),
    pytest.param("cuda", marks=pytest.mark.needs_cuda),
])  # fmt: skip
def test_arrays_of_a_device_stay_there(target):
    constants = {"b": np.arange(4, dtype="float32").reshape(1, 4)}
    data = onnx_model([node("Add", "x b", "t"), node("Exp", "t")], {"x": [3, 4]}, ["y"], constants)
    model = tilewright.load(data, target=target)
    x = np.random.default_rng(0).standard_normal((3, 4)).astype("float32")
    there = array(x, model.device)
    assert str(there.device) == model.device
    wanted = np.exp(x + constants["b"])
    for call in (
        lambda y: model.run({"x": there}, {"y": y}),
        lambda y: model.bind({"x": there}, {"y": y})(),
    ):
        y = array(np.full((3, 4), np.nan, "float32"), model.device)
        call(y)
        np.testing.assert_allclose(y.numpy(), wanted, rtol=1e-5)
    np.testing.assert_allclose(model.run({"x": x})["y"], wanted, rtol=1e-5)


@pytest.mark.needs_onnx
@pytest.mark.parametrize("rows", [0, 2])
def test_what_has_no_elements_inside_of_a_model_is_computed_with(rows):
    nodes = [
        node("Slice", "x begin end", "a"),  # of two rows none
        node("MatMul", "a w", "b"),
        node("Concat", "b b", "c", axis=1),
        node("ReduceMax", "c", "most", axes=[0], keepdims=0),
        node("Transpose", "a", "t", perm=[1, 0]),
        node("MatMul", "t b", "none"),
        node("Concat", "x a", "y", axis=0),
        node("Expand", "a shape", "expanded"),
        node("Tile", "w repeats", "tiled"),
        node("Pad", "a pads five", "padded"),
    ]
    known = {"begin": np.array([2]), "end": np.array([9]), "w": np.ones((3, 4), "float32")}
    known |= {"shape": np.array([2, 0, 3]), "repeats": np.array([0, 3])}
    known |= {"pads": np.array([1, 0, 1, 0]), "five": np.float32(5)}
    outputs = ["most", "none", "y", "expanded", "tiled", "padded"]
    model = tilewright.load(onnx_model(nodes, {"x": ["N", 3]}, outputs, known))
    x = np.ones((rows, 3), "float32")
    found = model.run({"x": x})
    np.testing.assert_array_equal(found["most"], np.full(8, -np.inf, "float32"))
    np.testing.assert_array_equal(found["none"], np.zeros((3, 4), "float32"))
    np.testing.assert_array_equal(found["y"], x)
    assert [found[n].shape for n in ("expanded", "tiled")] == [(2, 0, 3), (0, 12)]
    np.testing.assert_array_equal(found["padded"], np.full((2, 3), 5, "float32"))


@pytest.mark.needs_torch
def test_tensors_of_the_host_are_read_and_written_in_place():
    import torch

    model = tilewright.load(onnx_model([node("Add", "x x")], {"x": ["N", 3]}))
    x, y = torch.arange(6.0).reshape(2, 3), torch.zeros(2, 3)
    assert model.run({"x": x}, {"y": y})["y"] is y
    assert torch.equal(y, 2 * x)
    call = model.bind({"x": x}, {"y": y})
    x += 1
    call()
    assert torch.equal(y, 2 * x)
    with pytest.raises(ModelError, match="bind needs dense arrays: x"):
        model.bind({"x": torch.zeros(3, 2).T}, {"y": y})
    with pytest.raises(ModelError, match="output y lies on the memory of x"):
        model.bind({"x": y}, {"y": y})
    check_apart({"x": view(y)}, {"y": view(y[1:1])})  # which has no elements
    model.run({"x": x}, {"y": x})
    assert torch.equal(x, y)
    with pytest.raises(ModelError, match="x is .*, and is to be float32"):
        model(x.bfloat16())


@pytest.mark.needs_torch
def test_a_tensor_of_bfloat16_is_read_by_its_bits():
    import torch
    from onnx import TensorProto, helper

    infos = (helper.make_tensor_value_info(n, TensorProto.BFLOAT16, [2, 3]) for n in "xy")
    graph = helper.make_graph([node("Add", "x x")], "g", *([info] for info in infos))
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    x, y = torch.randn(2, 3).bfloat16(), torch.zeros(2, 3).bfloat16()
    tilewright.load(made).run({"x": x}, {"y": y})
    assert torch.equal(y, x + x)


def test_memory_is_shared_by_what_is_not_needed_at_one_time():
    lives = [Lifetime(k, k + 1, 1000 - 10 * k) for k in range(20)]
    found = plan(lives)
    for j, a in enumerate(lives):
        for k, b in enumerate(lives[:j]):
            if a.overlaps(b):
                low, high = sorted((j, k), key=found.offsets.__getitem__)
                assert found.offsets[low] + lives[low].space <= found.offsets[high]
    assert found.nbytes == most_alive(lives)


def test_calls_of_all_sizes_take_turns_in_one_block_of_memory(image):
    nodes = [
        node("Conv", "x w", "a", pads=[1] * 4), node("Exp", "a", "b"), node("Softmax", "b", "c"),
        node("Add", "c b"),
    ]  # fmt: skip
    w = np.ones((4, 3, 3, 3), "float32")
    data = onnx_model(nodes, {"x": ["N", 3, "H", "W"]}, constants={"w": w})
    model = tilewright.load(data, target="llvm -threads=1")
    sizes = [image[..., :n, :n] * 0.01 for n in (20, 32, 9, 32)]
    found = [model(x) for x in sizes]
    for x, y in zip(sizes, found, strict=True):
        (wanted,) = by_onnxruntime(data, {"x": x})
        assert relative(y, wanted) < 1e-5
    plans = [e.plan.nbytes for e in model._compiled.values()]
    (block,) = model._arenas._free
    assert len(plans) == 3
    assert 0 < max(plans) == block.nbytes
    assert len(model.clone()._arenas._free) == 0


def test_graphs_are_checked():
    x = Input("x", (2, 3), "float32")
    y = Node("relu", (x,))
    with pytest.raises(tilewright.graph.ModelError, match="none of its inputs"):
        check(Graph("g", (), {"y": y}))
    with pytest.raises(tilewright.graph.ModelError, match="has no output"):
        check(Graph("g", (x,), {}))
    with pytest.raises(tilewright.graph.ModelError, match="several inputs of one name"):
        check(Graph("g", (x, Input("x", (1,), "float32")), {"y": y}))
    assert check(Graph("g", (x,), {"y": y})).nodes == (y,)


def test_a_deep_graph_is_no_deep_recursion():
    data = onnx_model(
        [node("Relu", "x", "v0"), *(node("Neg", f"v{k}", f"v{k + 1}") for k in range(3000))],
        {"x": [4]}, ("v3000",),
    )  # fmt: skip
    graph = tilewright.load(data).graph({"x": np.ones(4, "float32")})
    assert len(check(graph).nodes) == 3001
    assert str(graph).count("negative") == 3000


@pytest.mark.parametrize("target", ["llvm", "sim"])
def test_outputs_may_lie_where_inputs_do(target):
    model = tilewright.load(
        onnx_model([node("Transpose", "x", perm=[1, 0])], {"x": [16, 16]}), target=target
    )
    x = np.random.default_rng(0).standard_normal((16, 16)).astype("float32")
    wanted, whole = x.T.copy(), np.concatenate([x, np.zeros_like(x)])
    assert (model.run({"x": x}, {"y": x})["y"] == wanted).all()
    assert (x == wanted).all()
    places = whole[8:24]  # a part of it
    assert (model.run({"x": whole[:16]}, {"y": places})["y"] == wanted).all()
