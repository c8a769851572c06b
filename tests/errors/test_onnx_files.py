"""ONNX files with mistakes that fuzzing found, or that somebody may make on purpose: each is
refused in words, and takes no more memory than a model of its size needs."""

from __future__ import annotations

import os

import numpy as np
import pytest
from tests.support.models import node, onnx_model, write

import tilewright
from tilewright.graph import ModelError

pytestmark = pytest.mark.needs_onnx

X = np.ones((2, 3), "float32")


def refused(match, nodes, **more):
    with pytest.raises(ModelError, match=match):
        tilewright.load(onnx_model(nodes, {"x": [2, 3]}, **more))(X)


def changed(nodes, change, **more):
    import onnx

    proto = onnx.load_from_string(onnx_model(nodes, {"x": [2, 3]}, **more))
    change(proto)
    return proto.SerializeToString()


@pytest.mark.parametrize(
    ("match", "nodes"),
    [
        ("Relu y: it has no attribute 'slope': it has none", [node("Relu", "x", slope=1.0)]),
        ("axis is of the type float, and is to be int", [node("Concat", "x x", axis=1.0)]),
        ("Concat y: its attribute axis is missing", [node("Concat", "x x")]),
        ("Relu y: it has 2 operands, and is to have 1", [node("Relu", "x x")]),
        ("Relu y: it has 2 results, and is to have 1", [node("Relu", "x", "y z")]),
        ("Sum y: it has 0 operands, and is to have at least 1", [node("Sum", "")]),
        ("Relu y: y is made twice", [node("Abs", "x"), node("Relu", "x")]),
        ("LpPool y: its operand 0 is of bool, which it does not take",
         [node("Cast", "x", "b", to=9), node("LpPool", "b", kernel_shape=[1])]),
        ("Add y: its operand 1 is of int64, and others are of float32",
         [node("Cast", "x", "b", to=7), node("Add", "x b")]),
    ],
)  # fmt: skip
def test_a_node_that_does_not_fit_its_operator_says_what_is_wrong(match, nodes):
    refused(match, nodes)


def test_an_attribute_twice_and_one_that_is_a_parameter():
    def twice(proto):
        proto.graph.node[0].attribute.add().CopyFrom(proto.graph.node[0].attribute[0])

    def parameter(proto):
        proto.graph.node[0].attribute[0].ref_attr_name = "a"

    for change, match in ((twice, "an attribute twice"), (parameter, "parameter of a function")):
        with pytest.raises(ModelError, match=match):
            tilewright.load(changed([node("Softmax", "x", axis=1)], change))(X)


def test_operator_sets_that_nobody_knows():
    refused("of opset 99: onnx here knows up to", [node("Relu", "x")], opset=99)
    refused("of opset -1, in which Relu mean", [node("Relu", "x")], opset=-1)
    refused("HardSwish y: there is no such operator in opset 13", [node("HardSwish", "x")],
            opset=13)  # fmt: skip


def test_several_inputs_or_outputs_of_one_name():
    for which in ("input", "output"):

        def twice(proto, which=which):
            values = getattr(proto.graph, which)
            values.add().CopyFrom(values[0])

        with pytest.raises(ModelError, match=f"several {which}s are called"):
            tilewright.load(changed([node("Relu", "x")], twice))


def test_texts_that_are_no_text():
    data = onnx_model([node("Relu", "x", domain="ai.onnx")], {"x": [2, 3]})
    with pytest.raises(ModelError, match="it has names that are no text"):
        tilewright.load(data.replace(b"ai.onnx", b"ai.onn\xff"))


# -- data beside the model -----------------------------------------------------------------------


def external(location, dims=(2, 3), **entries):
    from onnx import TensorProto

    def change(proto):
        (t,) = proto.graph.initializer
        t.ClearField("raw_data")
        t.dims[:] = dims
        t.data_location = TensorProto.EXTERNAL
        for key, value in {"location": location, **entries}.items():
            t.external_data.add(key=key, value=str(value))

    return changed([node("Add", "x w")], change, constants={"w": X})


@pytest.fixture
def place(tmp_path):
    (tmp_path / "w.bin").write_bytes(np.arange(9, dtype="float32").tobytes())
    (tmp_path / "loop").symlink_to("loop")
    os.mkfifo(tmp_path / "pipe")
    with open(tmp_path / "sparse", "wb") as file:
        file.truncate(1 << 42)
    return tmp_path


def test_data_beside_a_model_is_read_from_where_it_is_said_to_be(place):
    for entries, first in (({}, 0), ({"offset": 12}, 3), ({"offset": 4, "length": 24}, 1)):
        model = tilewright.load(write(place, external("w.bin", **entries)))
        wanted = 1 + np.arange(first, first + 6, dtype="float32").reshape(2, 3)
        assert (model(X) == wanted).all()


@pytest.mark.parametrize(
    ("match", "entries"),
    [
        ("has 36 bytes, not 24 from 16 on", {"location": "w.bin", "offset": 16}),
        ("has 36 bytes, not 24 from -4 on", {"location": "w.bin", "offset": -4}),
        ("8 bytes for .2, 3. elements of 32 bits", {"location": "w.bin", "length": 8}),
        ("has 36 bytes, not", {"location": "w.bin", "dims": (1 << 40, 3)}),
        ("its shape is", {"location": "w.bin", "dims": (-2, 3)}),
        ("invalid literal", {"location": "w.bin", "offset": "one"}),
        ("there is no such file", {"location": "pipe"}),
        ("there is no such file", {"location": "loop"}),
        ("there is no such file", {"location": "."}),
        ("which is no path", {"location": "w\0.bin"}),
    ],
)
def test_data_that_is_not_there_is_not_read(place, match, entries):
    with pytest.raises(ModelError, match=match):
        tilewright.load(write(place, external(**entries)))


# -- memory and time ----------------------------------------------------------------------------


def test_what_does_not_fit_into_memory_is_said_in_words(place, monkeypatch):
    from tilewright.graph import state

    def full(nbytes):
        raise MemoryError("Unable to allocate")

    monkeypatch.setattr(state, "aligned", full)
    refused("g with .* bytes of intermediate values needs more memory than there is",
            [node("Softmax", "x", "a"), node("Relu", "a")])  # fmt: skip


def test_constants_of_a_few_bytes_do_not_fill_memory():
    wide = np.array([1 << 4, 1 << 16], "int64")
    nodes = [node("ConstantOfShape", "wide", "c0")]
    nodes += [node("Exp", f"c{k}", f"c{k + 1}") for k in range(30)]
    model = tilewright.load(
        onnx_model([*nodes, node("ReduceSum", "c30", "s"), node("Add", "x s")], {"x": [2, 3]},
                   constants={"wide": wide})
    )  # fmt: skip
    with pytest.raises(ModelError, match="constants that are made of others take more memory"):
        from tilewright.graph.onnx import convert

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(convert, "MOST_MADE", 1 << 23)
            model.graph({"x": X})


def loop(body, count):
    from onnx import TensorProto, helper

    inputs = [("i", TensorProto.INT64), ("c", TensorProto.BOOL), ("v", TensorProto.FLOAT)]
    graph = helper.make_graph(
        body, "body",
        [helper.make_tensor_value_info(n, t, None) for n, t in inputs],
        [helper.make_tensor_value_info("k", TensorProto.BOOL, None),
         helper.make_tensor_value_info("w", TensorProto.FLOAT, None)],
    )  # fmt: skip
    nodes = [helper.make_node("Loop", [count, "", "x"], ["y"], body=graph)]
    return onnx_model(nodes, {"x": [2, 3]}, constants={"many": np.array(1 << 40, "int64")})


def test_a_loop_that_makes_too_many_nodes_is_refused(monkeypatch):
    from tilewright.graph.onnx import convert

    monkeypatch.setattr(convert, "MOST", 50)
    body = [node("Identity", "c", "k"), node("Abs", "v", "w")]
    with pytest.raises(ModelError, match="loops make more than 50 nodes"):
        tilewright.load(loop(body, "many"))(X)
    with pytest.raises(ModelError, match="it never ends"):
        tilewright.load(loop(body, ""))(X)
