"""Two products and a softmax become attention, and compute what they did."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright.graph import Constant, Graph, Input, Node
from tilewright.graph.check import check
from tilewright.graph.executor import Executor
from tilewright.graph.passes.own_outputs import own_outputs
from tilewright.graph.pipeline import optimized
from tilewright.graph.value import Value
from tilewright.target import Target

pytestmark = pytest.mark.usefixtures("plain_code")

B, H, S, D = 4, 2, 9, 8
LLVM = Target.parse("llvm")


def call(operator: str, *operands, **attributes) -> Node:
    return Node(operator, operands, attributes)


def reshape(x: Value, *shape: int) -> Node:
    return call("reshape", x, newshape=shape)


def heads(x: Value, *axes: int) -> Node:
    """(B, S, H * D) as heads, transposed."""
    return call("transpose", reshape(x, B, S, H, D), axes=axes)


def attention(q: Value, k: Value, v: Value, masks=(), turned: bool = True) -> Node:
    """Of (B, H, S, D), keys as (B, H, D, S) where not ``turned``, as exporters write it."""
    shape = (B * H, S, D) if turned else (B * H, D, S)
    scores = call("gemm", reshape(q, B * H, S, D), reshape(k, *shape), transpose_b=turned)
    x: Node = call("multiply", reshape(scores, B, H, S, S), 0.5)
    for mask in masks:
        x = call("add", x, mask)
    powers = reshape(call("softmax", x, axis=3), B * H, S, S)
    y = call("gemm", powers, reshape(v, B * H, S, D))
    back = call("transpose", reshape(y, B, H, S, D), axes=(0, 2, 1, 3))
    return reshape(back, B, S, H * D)


def inputs(count: int, width: int = H * D) -> list[Input]:
    return [Input(f"x{k}", (B, S, width), "float32") for k in range(count)]


def found(given, y: Value) -> list[Node]:
    """The nodes that are left, after it was seen that they compute the same."""
    graph = Graph("g", tuple(given), {"y": y})
    rng = np.random.default_rng(0)
    arrays = {x.name: rng.standard_normal(x.shape).astype("float32") for x in given}
    made = check(optimized(graph, target=LLVM))
    wanted = Executor(own_outputs(graph), LLVM).run(arrays)["y"]
    result = Executor(made, LLVM).run(arrays)["y"]
    assert np.linalg.norm(result - wanted) < 1e-5 * np.linalg.norm(wanted)
    return [n for n in made.nodes if n.operator != "reshape"]


def test_heads_are_read_where_layers_leave_them():
    x = inputs(3)
    (node,) = found(x, attention(*(heads(t, 0, 2, 1, 3) for t in x)))
    assert node.operator == "attention"
    assert node.attributes == {"scale": "0.5", "layout": "BSHD"}


def test_keys_may_be_transposed_at_once():
    x = inputs(3)
    q, v = (heads(t, 0, 2, 1, 3) for t in (x[0], x[2]))
    (node,) = found(x, attention(q, heads(x[1], 0, 2, 3, 1), v, turned=False))
    assert node.attributes["layout"] == "BSHD"


def test_both_factors_may_be_scaled():
    x = inputs(3)
    q, k, v = (heads(t, 0, 2, 1, 3) for t in x)
    (node,) = found(x, attention(call("multiply", q, 0.25), call("divide", k, 2.0), v))
    assert node.attributes["scale"] == "0.0625"


@pytest.mark.parametrize("how", ["strided_slice", "take"])
def test_three_of_one_tensor_are_read_there(how):
    (x,) = inputs(1, 3 * H * D)
    stack = call("transpose", reshape(x, B, S, 3, H, D), axes=(2, 0, 3, 1, 4))

    def part(k: int) -> Node:
        if how == "take":
            return call("take", stack, Constant(np.array(k)), axis=0)
        begin = (k, 0, 0, 0, 0)
        one = call("strided_slice", stack, begin=begin, strides=(1,) * 5, shape=(1, B, H, S, D))
        return reshape(one, B, H, S, D)

    (node,) = found([x], attention(*map(part, range(3))))
    assert node.attributes["layout"] == "BS3HD"
    first, *_ = found([x], attention(part(1), part(1), part(2)))
    assert first.attributes.get("layout", "BHSD") != "BS3HD"


def test_masks_are_added_and_may_be_of_windows():
    x = inputs(3)
    bias = Constant(np.random.default_rng(1).standard_normal((1, H, S, S)).astype("float32"))
    mask = np.zeros((2, 1, S, S), "float32")
    mask[1, :, :, 3:] = -np.inf
    windows = Constant(np.tile(mask, (B // 2, 1, 1, 1)))
    (node,) = found(x, attention(*(heads(t, 0, 2, 1, 3) for t in x), masks=[bias, windows]))
    assert node.inputs[3].shape == (B, H, S, S)


def test_windows_of_several_images_share_a_mask():
    x = inputs(3)
    q, k, v = (heads(t, 0, 2, 1, 3) for t in x)
    scores = call("gemm", reshape(q, B * H, S, D), reshape(k, B * H, S, D), transpose_b=True)
    mask = Constant(np.random.default_rng(1).standard_normal((1, 2, 1, S, S)).astype("float32"))
    masked = call("add", reshape(scores, B // 2, 2, H, S, S), mask)
    powers = call("softmax", reshape(masked, B, H, S, S), axis=3)
    y = call("gemm", reshape(powers, B * H, S, S), reshape(v, B * H, S, D))
    node, *_ = found(x, y)
    assert node.inputs[3].shape == (2, 1, S, S)


def test_scores_that_something_else_reads_stay():
    x = inputs(3)
    q, k, v = (reshape(heads(t, 0, 2, 1, 3), B * H, S, D) for t in x)
    scores = call("gemm", q, k, transpose_b=True)
    powers = call("softmax", scores, axis=2)
    whole = call("sum", scores, axis=(2,), keepdims=True)
    nodes = found(x, call("add", call("gemm", powers, v), whole))
    assert "attention" not in [n.operator for n in nodes]


def test_a_softmax_over_rows_is_none():
    x = inputs(3)
    q, k, v = (reshape(heads(t, 0, 2, 1, 3), B * H, S, D) for t in x)
    powers = call("softmax", call("gemm", q, k, transpose_b=True), axis=1)
    nodes = found(x, call("gemm", powers, v))
    assert "attention" not in [n.operator for n in nodes]


def test_a_sum_before_the_scale_is_no_mask():
    x = inputs(3)
    q, k, v = (reshape(heads(t, 0, 2, 1, 3), B * H, S, D) for t in x)
    scores = call("add", call("gemm", q, k, transpose_b=True), Constant(np.ones((S, S), "float32")))
    powers = call("softmax", call("multiply", scores, 0.5), axis=2)
    nodes = found(x, call("gemm", powers, v))
    assert "attention" not in [n.operator for n in nodes]


def test_products_that_no_kernel_takes_as_a_whole_stay():
    x = inputs(3)
    graph = Graph("g", tuple(x), {"y": attention(*(heads(t, 0, 2, 1, 3) for t in x))})
    made = optimized(graph, target=Target.parse("opencl"))
    assert [n.operator for n in made.nodes].count("gemm") == 2


def test_in_16_bits_tensor_cores_take_it():
    x, sim = inputs(3), Target.parse("sim")
    bias = Constant(np.random.default_rng(1).standard_normal((1, H, S, S)).astype("float32"))
    y = attention(*(heads(t, 0, 2, 1, 3) for t in x), masks=[bias])
    graph = Graph("g", tuple(x), {"y": y})
    made = check(optimized(graph, target=sim, dtype="float16"))
    (node,) = (n for n in made.nodes if n.operator == "attention")
    assert {v.dtype for v in node.inputs} == {"float16"}
    assert "attention" not in [n.operator for n in optimized(graph, target=sim).nodes]
    rng = np.random.default_rng(0)
    arrays = {v.name: rng.standard_normal(v.shape).astype("float32") for v in x}
    wanted = Executor(own_outputs(graph), LLVM).run(arrays)["y"]
    result = Executor(made, sim).run(arrays)["y"]
    assert result.dtype == np.float32
    assert np.linalg.norm(result - wanted) < 3e-3 * np.linalg.norm(wanted)
