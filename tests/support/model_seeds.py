"""Small models that together have most operators: what mutants of ONNX files are made from."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
from tests.support.models import NETWORKS, node, onnx_model

IMAGE = {"x": [1, 4, 6, 6]}


def _weights(*shape: int) -> np.ndarray[Any, Any]:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype("float32")


def _numbers(**values: Any) -> dict[str, np.ndarray[Any, Any]]:
    return {name: np.array(v, "int64") for name, v in values.items()}


def shapes() -> bytes:
    """Arithmetic of shapes."""
    nodes = [
        node("Shape", "x", "s"),
        node("Gather", "s one", "h"),
        node("Unsqueeze", "h axes", "u"),
        node("Concat", "u minus", "t", axis=0),
        node("Reshape", "x t", "r"),
        node("Transpose", "r", "p", perm=[1, 0]),
        node("Slice", "p begin end", "c"),
        node("Pad", "c pads", "d"),
        node("Expand", "d wide", "e"),
        node("Tile", "e twice", "f"),
        node("ConstantOfShape", "two", "z"),
        node("Range", "zero four one", "n"),
        node("Cast", "n", "m", to=1),
        node("Add", "f z", "a"),
        node("Squeeze", "a axes", "b"),
        node("Flatten", "b", "g", axis=1),
        node("Sum", "g m", "y"),
    ]
    constants = _numbers(
        one=1, axes=[0], minus=[-1], begin=[0, 0], end=[2, 4], pads=[0, 0, 0, 0], wide=[1, 2, 4],
        twice=[1, 1, 1], zero=0, four=4, two=[1, 1, 1],
    )  # fmt: skip
    return onnx_model(nodes, {"x": [1, 4, 3, 2]}, constants=constants)


def elements() -> bytes:
    """Arithmetic, comparisons and activations."""
    unary = "Abs Neg Exp Sigmoid Tanh Erf Softplus Floor HardSwish Mish LeakyRelu Elu Selu".split()
    nodes = [node(kind, f"v{k}", f"v{k + 1}") for k, kind in enumerate(unary)]
    nodes = [node("Clip", "x low high", "v0"), *nodes]
    nodes += [
        node("Greater", f"v{len(unary)} low", "g"),
        node("Not", "g", "n"),
        node("Where", "n x w", "p"),
        node("PRelu", "p w", "q"),
        node("Pow", "q square", "r"),
        node("Cast", "r", "i", to=7),
        node("Mod", "i seven", "m"),
        node("Cast", "m", "f", to=1),
        node("Max", "f x w", "y"),
    ]
    numbers = {"low": -1.0, "high": 3.0, "square": 2.0}
    constants = {name: np.float32(v) for name, v in numbers.items()}
    constants |= {"w": _weights(4, 1, 1), **_numbers(seven=7)}
    return onnx_model(nodes, {"x": ["N", 4, 3, 3]}, constants=constants, opset=20)


def reductions() -> bytes:
    """Sums, places of extrema, and what normalises."""
    nodes = [
        node("ReduceMean", "x", "a", axes=[3]),
        node("LayerNormalization", "x w", "b"),
        node("Add", "a b", "c"),
        node("Softmax", "c", "d", axis=1),
        node("ReduceL2", "d", "e", axes=[2], keepdims=1),
        node("CumSum", "e one", "f"),
        node("InstanceNormalization", "f v v", "g"),
        node("TopK", "g two", "h i", axis=1),
        node("ArgMax", "h", "j", axis=1),
        node("Cast", "j", "k", to=1),
        node("ReduceSum", "k axes", "l"),
        node("LpNormalization", "h", "m"),
        node("Mul", "l m", "y"),
    ]
    constants = {"w": _weights(6), "v": _weights(4), **_numbers(one=1, two=[2], axes=[2])}
    return onnx_model(nodes, dict(IMAGE), constants=constants)


def windows() -> bytes:
    """Convolutions and pooling of all kinds."""
    nodes = [
        node("Conv", "x w b", "c", pads=[1, 1, 1, 1], group=2, dilations=[1, 1]),
        node("BatchNormalization", "c b b b s", "n"),
        node("ConvTranspose", "n t", "u", strides=[2, 2], pads=[1, 0, 0, 1]),
        node("MaxPool", "u", "m", kernel_shape=[3, 3], strides=[2, 2], ceil_mode=1),
        node("AveragePool", "m", "a", kernel_shape=[2, 2], auto_pad="SAME_UPPER"),
        node("LpPool", "a", "l", kernel_shape=[2, 2], pads=[1, 1, 1, 1]),
        node("LRN", "l", "r", size=3),
        node("Resize", "r  scales", "z", mode="linear"),
        node("DepthToSpace", "z", "d", blocksize=2),
        node("SpaceToDepth", "d", "e", blocksize=2),
        node("GlobalMaxPool", "e", "y"),
    ]
    nodes[7].input[:] = ["r", "", "scales"]
    constants = {
        "w": _weights(4, 2, 3, 3), "b": _weights(4), "s": np.full(4, 2.0, "float32"),
        "t": _weights(4, 4, 3, 3), "scales": np.array([1, 1, 1.5, 2], "float32"),
    }  # fmt: skip
    return onnx_model(nodes, dict(IMAGE), constants=constants)


def indexing() -> bytes:
    """What reads and writes at places that are data."""
    nodes = [
        node("GatherElements", "x at", "a", axis=2),
        node("GatherND", "a nd", "b"),
        node("Gather", "x places", "c", axis=3),
        node("OneHot", "places depth values", "d"),
        node("MatMul", "c d", "e"),
        node("Trilu", "e", "f"),
        node("Split", "f parts", "g h", axis=1),
        node("Concat", "h g", "i", axis=1),
        node("NonZero", "places", "j"),
        node("Cast", "j", "k", to=1),
        node("ReduceMax", "b", "l", keepdims=0),
        node("ReduceMax", "k", "m", keepdims=0),
        node("Add", "l m", "o"),
        node("Add", "i o", "y"),
    ]
    constants = _numbers(
        at=np.arange(6).reshape(1, 1, 1, 6) % 6, nd=[[0, 0, 0], [0, 0, 0]], places=[0, 2, 5],
        depth=4, parts=[1, 3],
    ) | {"values": np.array([0, 1], "float32")}  # fmt: skip
    return onnx_model(nodes, dict(IMAGE), constants=constants)


def quantized() -> bytes:
    """Integers of 8 bits with scales."""
    nodes = [
        node("QuantizeLinear", "x s z", "a"),
        node("QLinearConv", "a s z w s n s z", "b"),
        node("DequantizeLinear", "b s z", "c"),
        node("DynamicQuantizeLinear", "c", "d e f"),
        node("ConvInteger", "d w f", "g"),
        node("Cast", "g", "h", to=1),
        node("Flatten", "h", "i"),
        node("Mul", "i e", "y"),
    ]
    constants = {
        "s": np.float32(0.1), "z": np.uint8(128), "n": np.int8(0),
        "w": np.random.default_rng(0).integers(-9, 9, (4, 4, 3, 3)).astype("int8"),
    }  # fmt: skip
    return onnx_model(nodes, dict(IMAGE), constants=constants)


def transformer() -> bytes:
    """Attention as exporters write it, Einsum, and what follows it."""
    nodes = [
        node("MatMul", "x w", "q"),
        node("Reshape", "q heads", "r"),
        node("Transpose", "r", "t", perm=[0, 2, 1, 3]),
        node("Transpose", "r", "k", perm=[0, 2, 3, 1]),
        node("MatMul", "t k", "s"),
        node("Softmax", "s", "p"),
        node("MatMul", "p t", "o"),
        node("Einsum", "o o", "e", equation="bhij,bhkj->bhik"),
        node("ReduceMean", "e", "f", axes=[1], keepdims=0),
        node("Squeeze", "x axes", "g"),
        node("Gemm", "g w", "h", transB=1, alpha=0.5),
        node("Tanh", "h", "i"),
        node("Add", "i x", "j"),
        node("MatMul", "f j", "y"),
    ]
    constants = {"w": _weights(8, 8), **_numbers(heads=[1, 5, 2, 4], axes=[0])}
    return onnx_model(nodes, {"x": [1, 5, 8]}, constants=constants)


def branches() -> bytes:
    """An If whose branches read what is outside of them, and a function of the model's own."""
    from onnx import TensorProto, helper, load_from_string

    def body(name: str, kind: str) -> Any:
        result = helper.make_tensor_value_info(f"{name}_y", TensorProto.FLOAT, None)
        return helper.make_graph([node(kind, "v w", f"{name}_y")], name, [], [result])

    nodes = [
        helper.make_node("Scaled", ["x"], ["v"], domain="own"),
        node("Shape", "x", "s"),
        node("Gather", "s zero", "n"),
        node("Equal", "n one", "c"),
        helper.make_node("If", ["c"], ["u"], then_branch=body("a", "Add"),
                         else_branch=body("b", "Mul")),
        node("Relu", "u", "y"),
    ]  # fmt: skip
    numbers = {"w": np.array([2.0], "float32"), **_numbers(zero=0, one=1)}
    proto = load_from_string(onnx_model(nodes, {"x": ["N", 4]}, constants=numbers))
    imports = [helper.make_opsetid("", 17)]
    inner = [node("Mul", "x x", "t"), node("Sqrt", "t", "y")]
    proto.functions.append(helper.make_function("own", "Scaled", ["x"], ["y"], inner, imports))
    proto.opset_import.append(helper.make_opsetid("own", 1))
    return bytes(proto.SerializeToString())


def recurrent() -> bytes:
    """A recurrent layer, a loop, and what reads and writes at places between."""
    from onnx import TensorProto, helper

    body = helper.make_graph(
        [node("Identity", "go", "on"), node("Add", "v z", "u"), node("Tanh", "u", "t")],
        "body",
        [helper.make_tensor_value_info(n, t, s) for n, t, s in (
            ("i", TensorProto.INT64, []), ("go", TensorProto.BOOL, []),
            ("v", TensorProto.FLOAT, None))],
        [helper.make_tensor_value_info(n, t, None) for n, t in (
            ("on", TensorProto.BOOL), ("u", TensorProto.FLOAT), ("t", TensorProto.FLOAT))],
    )  # fmt: skip
    nodes = [
        node("LSTM", "x w r b", "a h c", hidden_size=4),
        node("GRU", "x gw gr", "d e", hidden_size=4, linear_before_reset=1),
        node("Add", "h e", "s"),
        node("ScatterND", "s at new", "f"),
        node("ScatterElements", "f places new", "z", axis=1, reduction="add"),
        helper.make_node("Loop", ["three", "", "z"], ["l", "stack"], body=body),
        node("ReduceMean", "stack", "g", axes=[0], keepdims=0),
        node("Unsqueeze", "g first", "k"),
        node("GridSample", "k grid", "o", mode="bilinear"),
        node("Flatten", "o", "y"),
    ]
    constants = {
        "w": _weights(1, 16, 3), "r": _weights(1, 16, 4), "b": _weights(1, 32),
        "gw": _weights(1, 12, 3), "gr": _weights(1, 12, 4), "new": _weights(1, 2, 4),
        "grid": _weights(1, 2, 3, 2),
        **_numbers(at=[[0]], places=np.zeros((1, 2, 4)), three=3, first=[0]),
    }  # fmt: skip
    return onnx_model(nodes, {"x": [2, 2, 3]}, constants=constants)


def signals() -> bytes:
    """Transforms, regions, and what data decides."""
    nodes = [
        node("HannWindow", "eight", "h"),
        node("Reshape", "x line", "s"),
        node("STFT", "s three h", "f", onesided=1),
        node("DFT", "f six four", "g", inverse=1),
        node("ReduceSum", "g", "t", keepdims=0),
        node("Det", "x", "d"),
        node("CumProd", "d zero", "c"),
        node("ReverseSequence", "x lengths", "r", time_axis=2, batch_axis=1),
        node("Col2Im", "col size block", "i", strides=[1, 2]),
        node("DeformConv", "x w far", "v", offset_group=2, pads=[1, 1, 1, 1]),
        node("RoiAlign", "r rois which", "a", output_height=2, output_width=2),
        node("ReduceMax", "a", "m", keepdims=0),
        node("TensorScatter", "x new at", "u"),
        node("DequantizeLinear", "q scale", "k", axis=0, block_size=2),
        node("Cast", "k", "o", to=18, saturate=0),
        node("Cast", "o", "p", to=1),
        node("Compress", "p where", "z", axis=0),
        node("Unique", "lengths", "n"),
        node("Cast", "n", "b", to=1),
        node("NonMaxSuppression", "boxes scores eight", "j"),
        node("Cast", "j", "l", to=1),
        node("ReduceSum", "l", "e", keepdims=0),
        node("ReduceSum", "z", "zz", keepdims=0),
        node("ReduceSum", "b", "bb", keepdims=0),
        node("ReduceSum", "v", "vv", keepdims=0),
        node("ReduceSum", "u", "uu", keepdims=0),
        node("ReduceSum", "c", "cc", keepdims=0),
        node("Sum", "e zz bb vv uu cc m t", "y"),
    ]
    import ml_dtypes

    constants = {
        "w": _weights(2, 4, 3, 3), "far": _weights(1, 36, 6, 6) / 4, "col": _weights(1, 4, 3),
        "rois": np.array([[0, 0, 4, 5], [1, 2, 3, 3]], "float32"), "scale": _weights(2, 3),
        "q": np.arange(12).reshape(4, 3).astype(ml_dtypes.uint4),
        "where": np.array([True, False, True]), "boxes": abs(_weights(1, 5, 4)),
        "scores": _weights(1, 1, 5), "new": _weights(1, 4, 2, 6),
        **_numbers(eight=8, line=[1, 144, 1], three=3, six=6, four=1, zero=0, which=[0, 0],
                   lengths=[0, 2, 6, 3], size=[2, 7], block=[2, 2], at=[1]),
    }  # fmt: skip
    return onnx_model(nodes, dict(IMAGE), constants=constants, opset=26)


def external() -> bytes:
    """Weights in files beside the model (``tests/support/model_mutants.py`` writes them)."""
    from onnx import TensorProto, load_from_string

    nodes = [node("Conv", "x w b", "c"), node("Flatten", "c", "f"), node("MatMul", "f m", "y")]
    constants = {"w": _weights(4, 4, 3, 3), "b": _weights(4), "m": _weights(64, 3)}
    proto = load_from_string(onnx_model(nodes, dict(IMAGE), constants=constants))
    at = 0
    for tensor in proto.graph.initializer:
        length = len(tensor.raw_data)
        for key, value in (("location", "w.bin"), ("offset", at), ("length", length)):
            entry = tensor.external_data.add()
            entry.key, entry.value = key, str(value)
        tensor.raw_data, tensor.data_location = b"", TensorProto.EXTERNAL
        at += length
    return bytes(proto.SerializeToString())


#: How to make each, by name.
SEEDS: dict[str, Callable[[], bytes]] = {
    f.__name__: f
    for f in (shapes, elements, reductions, windows, indexing, quantized, transformer, branches,
              recurrent, signals, external)
} | {name: lambda f=f: f(16).model() for name, f in NETWORKS.items()}  # fmt: skip


@functools.cache
def seeds() -> dict[str, bytes]:
    """All of them, as files."""
    return {name: make() for name, make in SEEDS.items()}
