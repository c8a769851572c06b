"""Loops and scans of ONNX are unrolled, and Einsum is made of products of matrices."""

from __future__ import annotations

import numpy as np
import pytest
from tests.support.models import node, onnx_model

import tilewright
from tilewright.graph import ModelError

pytestmark = [pytest.mark.needs_onnx, pytest.mark.usefixtures("plain_code")]


def graph(nodes, inputs, outputs):
    from onnx import TensorProto, helper

    kinds = {"i": TensorProto.INT64, "c": TensorProto.BOOL, "k": TensorProto.BOOL}
    return helper.make_graph(
        nodes, "body",
        [helper.make_tensor_value_info(n, kinds.get(n, TensorProto.FLOAT), None) for n in inputs],
        [helper.make_tensor_value_info(n, kinds.get(n, TensorProto.FLOAT), None) for n in outputs],
    )  # fmt: skip


def test_a_loop_carries_values_and_stacks_what_each_iteration_gives():
    from onnx import helper

    body = graph(
        [node("Add", "v one", "w"), node("Less", "i two", "k"), node("Mul", "w w", "s")],
        ["i", "c", "v"], ["k", "w", "s"],
    )  # fmt: skip
    nodes = [helper.make_node("Loop", ["count", "", "x"], ["last", "y"], body=body)]
    constants = {"one": np.float32(1), "two": np.array(2, "int64"), "count": np.array(9, "int64")}
    model = tilewright.load(onnx_model(nodes, {"x": [2, 3]}, ["last", "y"], constants=constants))
    x = np.arange(6, dtype="float32").reshape(2, 3)
    last, y = model(x)
    assert (last == x + 3).all()
    assert (y == np.stack([(x + k) ** 2 for k in (1, 2, 3)])).all()


def test_the_count_of_a_loop_may_be_an_input():
    from onnx import TensorProto, helper, load_from_string

    body = graph([node("Identity", "c", "k"), node("Add", "v v", "w")], "icv", "kw")
    nodes = [helper.make_node("Loop", ["count", "", "x"], ["y"], body=body)]
    proto = load_from_string(onnx_model(nodes, {"x": [2]}))
    proto.graph.input.append(helper.make_tensor_value_info("count", TensorProto.INT64, []))
    model = tilewright.load(proto.SerializeToString())
    for count in (0, 1, 5):
        given = {"x": np.ones(2, "float32"), "count": np.array(count)}
        assert (model.run(given)["y"] == 2**count).all()


@pytest.mark.parametrize("reverse", [0, 1])
def test_a_scan_goes_over_rows_in_either_direction(reverse):
    from onnx import helper

    body = graph([node("Add", "v r", "w"), node("Identity", "w", "s")], "vr", "ws")
    nodes = [
        helper.make_node(
            "Scan", ["zero", "x"], ["last", "y"], body=body, num_scan_inputs=1,
            scan_input_directions=[reverse], scan_input_axes=[1], scan_output_axes=[1],
        )
    ]  # fmt: skip
    model = tilewright.load(
        onnx_model(nodes, {"x": [2, 4]}, ["last", "y"], {"zero": np.zeros(2, "float32")})
    )
    x = np.arange(8, dtype="float32").reshape(2, 4)
    last, y = model(x)
    rows = x[:, ::-1] if reverse else x
    assert (last == x.sum(1)).all()
    assert (y == rows.cumsum(1)).all()


@pytest.mark.parametrize(
    ("equation", "shapes"),
    [
        ("bhij,bhkj->bhik", [(1, 2, 3, 4), (1, 2, 5, 4)]),
        ("ij->ji", [(2, 3)]),
        ("i,i", [(3,), (3,)]),
        ("...ii->...i", [(2, 3, 3)]),
        ("i,j,k->ijk", [(2,), (3,), (4,)]),
        ("...ij,...jk->...ik", [(2, 1, 3, 4), (5, 4, 2)]),
        ("ij,jk,kl->il", [(2, 3), (3, 4), (4, 5)]),
        ("bij,bik->jk", [(2, 3, 4), (2, 3, 2)]),
    ],
)
def test_einsum_gives_what_numpy_gives(equation, shapes):
    rng = np.random.default_rng(0)
    given = {f"x{k}": rng.integers(-4, 5, s).astype("float32") for k, s in enumerate(shapes)}
    data = onnx_model(
        [node("Einsum", " ".join(given), equation=equation)],
        {name: x.shape for name, x in given.items()},
    )
    found = tilewright.load(data).run(given)["y"]
    assert np.array_equal(found, np.einsum(equation, *given.values()))


@pytest.mark.parametrize(
    ("equation", "match"),
    [
        ("ij,jk->ik", "is of 2 operands, not 1"),
        ("ijk->i", "does not fit tensors of"),
        ("ij->ii", "is no equation of letters"),
        ("ij->k", "is no equation of letters"),
        ("ii->i", "i is of 2 and of 3 elements"),
    ],
)
def test_equations_that_mean_nothing_are_refused(equation, match):
    data = onnx_model([node("Einsum", "x", equation=equation)], {"x": [2, 3]})
    with pytest.raises(ModelError, match=match):
        tilewright.load(data)(np.ones((2, 3), "float32"))


@pytest.mark.needs_onnxruntime
def test_recurrent_layers_scatters_and_samples_give_what_onnxruntime_gives():
    from tests.support.model_seeds import seeds
    from tests.support.models import by_onnxruntime, relative

    x = np.random.default_rng(0).standard_normal((2, 2, 3)).astype("float32")
    data = seeds()["recurrent"]
    assert relative(tilewright.load(data)(x), by_onnxruntime(data, {"x": x})[0]) < 1e-5
