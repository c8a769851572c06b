"""Models that cannot be run say why, in words, before anything is compiled."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest
from tests.support.models import node, onnx_model, write

import tilewright
from tilewright.graph import ModelError

pytestmark = pytest.mark.needs_onnx

X = np.ones((2, 3), "float32")


def refused(match: str, nodes, inputs=None, x=X, **more):
    with pytest.raises(ModelError, match=match):
        tilewright.load(onnx_model(nodes, inputs or {"x": [2, 3]}, **more))(x)


def test_operators_that_are_not_supported_are_named_all_at_once():
    nodes = [node("TfIdfVectorizer", "x", "a"), node("Multinomial", "x", "b"), node("Add", "a b")]
    refused("not supported: Multinomial, TfIdfVectorizer", nodes)


def test_a_type_for_products_that_there_is_not():
    data = onnx_model([node("Relu", "x")], {"x": [2, 3]})
    with pytest.raises(ModelError, match="there are float16, bfloat16, and by load int8, with"):
        tilewright.load(data, dtype="int4")


def test_a_precision_that_there_is_not():
    data = onnx_model([node("Relu", "x")], {"x": [2, 3]})
    with pytest.raises(ModelError, match="precision 'tf32': there is winograd"):
        tilewright.load(data, precision="tf32")


def test_operators_of_other_domains_are_named_with_them():
    refused("not supported: com.acme.Swish", [node("Swish", "x", domain="com.acme")])


def test_a_cycle_is_named():
    nodes = [node("Add", "x b", "a"), node("Relu", "a", "b"), node("Relu", "b")]
    refused("Add a reads b, which nothing before it makes: the nodes form a cycle", nodes)


def test_an_output_that_nothing_makes_is_named():
    refused("nothing makes the output z", [node("Relu", "x")], outputs=("y", "z"))


def test_shapes_that_do_not_fit_are_named_with_the_node():
    nodes = [node("Add", "x w")]
    refused("y: add of .*2x3.* do not fit", nodes, constants={"w": np.ones(2, "float32")})
    nodes = [node("MatMul", "x w")]
    refused("MatMul y: .*are not multiplied", nodes, constants={"w": np.ones((2, 4), "float32")})
    nodes = [node("Reshape", "x s")]
    refused("is not reshaped to", nodes, constants={"s": np.array([4, 2])})
    nodes = [node("Concat", "x w", axis=0)]
    refused("does not fit behind", nodes, constants={"w": np.ones((2, 4), "float32")})


def test_windows_that_do_not_fit_are_refused():
    nodes, x = [node("MaxPool", "x", kernel_shape=[5, 5])], np.ones((1, 1, 3, 3), "float32")
    refused("does not fit into", nodes, {"x": [1, 1, 3, 3]}, x)
    nodes = [node("Conv", "x w")]
    w = np.ones((2, 3, 1, 1), "float32")
    refused("a filter of", nodes, {"x": [1, 1, 3, 3]}, x, constants={"w": w})


def test_axes_that_there_are_not_are_refused():
    refused("axis 5 of a tensor with 2 dimensions", [node("Softmax", "x", axis=5)])


def test_malformed_attributes_are_refused():
    refused("Transpose y: .*axis|do not permute", [node("Transpose", "x", perm=[0, 0])])
    refused("Gather y", [node("Gather", "x")])


def test_huge_constants_are_refused_before_they_are_made():
    shape = np.array([1 << 20, 1 << 20])
    refused("too many elements", [node("ConstantOfShape", "s")], constants={"s": shape})


def test_inputs_are_checked():
    model = tilewright.load(onnx_model([node("Add", "x z")], {"x": ["N", 3], "z": ["N", 3]}))
    with pytest.raises(ModelError, match=r"some are missing: the model takes x: float32\[Nx3\]"):
        model.run({"x": X})
    with pytest.raises(ModelError, match="there is no input w"):
        model.run({"x": X, "z": X, "w": X})
    with pytest.raises(ModelError, match="given by their names, not by a Parameter: ..x., .z.."):
        model.run({model.inputs[0]: X, "z": X})
    with pytest.raises(ModelError, match="x is float64, and is to be float32"):
        model.run({"x": X.astype("float64"), "z": X})
    with pytest.raises(ModelError, match=r"of 1 dimensions, and .*, of 2: one of a batch is x\["):
        model.run({"x": X[0], "z": X})
    with pytest.raises(ModelError, match=r"x has the shape \(2, 4\)"):
        model.run({"x": np.ones((2, 4), "float32"), "z": X})
    with pytest.raises(ModelError, match=r"z has the shape \(1, 3\), .* where N = 2"):
        model.run({"x": X, "z": X[:1]})
    with pytest.raises(ModelError, match="1 inputs: the model takes"):
        model(X)
    with pytest.raises(ModelError, match='dictionary of them by name, {"x": ..., "z": ...}'):
        model.run(X)


@pytest.mark.parametrize(("given", "problem"), [
    ([X], 'the outputs are given as list: give a dictionary of arrays by name, {"y": ...}'),
    (np.zeros((2, 3), "float32"), "the outputs are given as ndarray"),
    ({"z": X}, "there is no output z: the model gives y"),
    ({"y": [[0.0] * 3] * 2}, "that can be written to, got a list"),
    ({"y": None}, "that can be written to, got a NoneType"),
    ({"y": np.zeros((2, 3))}, r"y is float32\[2x3\]: .* got float64\[2x3\]"),
    ({"y": np.zeros((2, 4), "float32")}, r"got float32\[2x4\]"),
    ({"y": np.zeros((3, 2), "float32").T}, "that is not dense"),
    ({"y": np.broadcast_to(np.float32(0), (2, 3))}, "that is not dense that is read-only"),
])  # fmt: skip
def test_outputs_are_checked(given, problem):
    model = tilewright.load(onnx_model([node("Add", "x x")], {"x": ["N", 3]}))
    for call in (model.run, model.bind):
        with pytest.raises(ModelError, match=problem):
            call({"x": X}, given)


@pytest.mark.parametrize("given", ["text", None, {"a": 1}, [[1.0], [1.0, 2.0]]])
def test_what_is_no_array_is_refused(given):
    model = tilewright.load(onnx_model([node("Add", "x x")], {"x": ["N", 3]}))
    with pytest.raises(ModelError, match=r"x is .*, and is to be float32|x: no array can be made"):
        model.run({"x": given})


def test_a_model_is_copied_but_not_pickled():
    model = tilewright.load(onnx_model([node("Add", "x x")], {"x": ["N", 3]}))
    assert (copy.deepcopy({"a": model})["a"](X) == 2 * X).all()
    assert (copy.copy(model)(X) == 2 * X).all()
    with pytest.raises(ModelError, match="load it in each process"):
        pickle.dumps(model)


def test_what_is_no_model_is_refused(tmp_path):
    with pytest.raises(ModelError, match="is no ONNX model"):
        tilewright.load(b"no model at all")
    with pytest.raises(ModelError, match="is no ONNX model"):
        tilewright.load(write(tmp_path, b""))
    with pytest.raises(ModelError, match="cannot be read: No such file"):
        tilewright.load(tmp_path / "none.onnx")
    with pytest.raises(ModelError, match="got a dict: models of PyTorch are compiled by"):
        tilewright.load({})
    with pytest.raises(ModelError, match="and no ONNX model, whose name ends in .onnx"):
        tilewright.load(__file__)
    with pytest.raises(ModelError, match="is a folder: name the file of a model in it"):
        tilewright.load(tmp_path)


@pytest.mark.parametrize("location", ["../secret.bin", "/etc/hostname"])
def test_data_outside_of_the_folder_of_the_model_is_not_read(tmp_path, location):
    import onnx

    folder = tmp_path / "model"
    folder.mkdir()
    (tmp_path / "secret.bin").write_bytes(b"\0" * 24)
    proto = onnx.load_from_string(
        onnx_model([node("Add", "x w")], {"x": [2, 3]}, constants={"w": X})
    )
    tensor = proto.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.data_location = onnx.TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value=location)
    path = write(folder, proto.SerializeToString())
    with pytest.raises(ModelError, match="lies outside of the model's folder"):
        tilewright.load(path)
    with pytest.raises(ModelError, match="load the model from its file"):
        tilewright.load(path.read_bytes())


def test_links_out_of_the_folder_are_not_followed(tmp_path):
    import onnx

    folder = tmp_path / "model"
    folder.mkdir()
    (tmp_path / "secret.bin").write_bytes(b"\0" * 24)
    (folder / "w.bin").symlink_to(tmp_path / "secret.bin")
    proto = onnx.load_from_string(
        onnx_model([node("Add", "x w")], {"x": [2, 3]}, constants={"w": X})
    )
    tensor = proto.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.data_location = onnx.TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value="w.bin")
    with pytest.raises(ModelError, match="lies outside of the model's folder"):
        tilewright.load(write(folder, proto.SerializeToString()))


def test_old_models_are_refused_only_for_what_has_changed():
    refused("of opset 6, in which Add mean", [node("Add", "x x")], opset=6)
    model = tilewright.load(onnx_model([node("Relu", "x")], {"x": [2, 3]}, opset=6))
    assert (model(X) == X).all()
