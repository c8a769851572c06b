"""ONNX models of a convolution, written without the onnx package, and what runs them.

The file format is protobuf; only the few message fields that a convolution needs are written
(onnx.proto3: ModelProto, GraphProto, NodeProto, AttributeProto, ValueInfoProto, TensorProto).
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import Any

from tilewright.topi.epilogue import Step
from tilewright.topi.operators.conv import Conv
from tilewright.topi.operators.convolution import Convolution

_ONE_FLOAT, _INT, _INTS = 1, 2, 7
#: TensorProto.DataType.
_TYPES = {"float32": 1, "uint8": 2, "int8": 3, "int32": 6}

#: Versions of the format and of the operators: the first that have HardSwish.
_IR_VERSION, _OPSET = 8, 14


class Unsupported(Exception):
    """A problem that the models here cannot say; the message says what of it."""


def _varint(value: int) -> bytes:
    out = bytearray()
    while True:
        low, value = value & 0x7F, value >> 7
        out.append(low | (0x80 if value else 0))
        if not value:
            return bytes(out)


def _int(field: int, value: int) -> bytes:
    return _varint(field << 3) + _varint(value)


def _bytes(field: int, value: bytes | str) -> bytes:
    data = value.encode() if isinstance(value, str) else value
    return _varint(field << 3 | 2) + _varint(len(data)) + data


def _value(name: str, shape: Sequence[int], dtype: str = "float32") -> bytes:
    dims = b"".join(_bytes(1, _int(1, extent)) for extent in shape)
    tensor = _int(1, _TYPES[dtype]) + _bytes(2, dims)
    return _bytes(1, name) + _bytes(2, _bytes(1, tensor))


def _tensor(name: str, values: Any) -> bytes:
    dims = b"".join(_int(1, extent) for extent in values.shape)
    kind = _int(2, _TYPES[str(values.dtype)])
    return dims + kind + _bytes(8, name) + _bytes(9, values.tobytes())


def _ints(name: str, values: Sequence[int]) -> bytes:
    items = b"".join(_int(8, v) for v in values)
    return _bytes(5, _bytes(1, name) + items + _int(20, _INTS))


def _one(name: str, value: int) -> bytes:
    return _bytes(5, _bytes(1, name) + _int(3, value) + _int(20, _INT))


def _float(name: str, value: float) -> bytes:
    bits = _varint(2 << 3 | 5) + struct.pack("<f", value)
    return _bytes(5, _bytes(1, name) + bits + _int(20, _ONE_FLOAT))


def _node(
    kind: str, inputs: Sequence[str], output: str, attributes: bytes = b"", domain: str = ""
) -> bytes:
    named = b"".join(_bytes(1, name) for name in inputs)
    named += _bytes(2, output) + _bytes(4, kind) + attributes
    return _bytes(1, named + (_bytes(7, domain) if domain else b""))


def model(problem: Convolution, constants: Mapping[str, Any]) -> bytes:
    """``y = steps(Conv(x, filter))``, channels first, float32; ConvTranspose for "dgrad".

    ``constants`` are what the problem reads beside the image and a residual, float32, by the names
    of :meth:`tilewright.topi.problem.Problem.inputs`. Raises :class:`Unsupported` for gradients by
    the filter, other types and steps that are no operator of ONNX's.
    """
    p = problem
    if p.pass_ == "wgrad" or p.dtype != "float32":
        raise Unsupported(f"a model for {p.pass_} in {p.dtype} would not be one convolution")
    shape = [p.batch, p.channels, *p.image_extents]
    out = [p.batch, p.out_channels, *p.out_extents]
    if p.pass_ == "dgrad":
        shape, out = out, shape
    tensors, inputs = {"filter": _weight(p, constants)}, {"x": shape}
    steps = list(p.epilogue)
    reads = ["x", "filter"]
    if steps and steps[0].name == "bias":
        steps.pop(0)
        reads.append("bias")
        tensors["bias"] = constants["bias"]
    names = [*(f"v{k}" for k in range(len(steps))), "y"]
    kind = "Conv" if p.pass_ == "forward" else "ConvTranspose"
    nodes = _node(kind, reads, names[0], _attributes(p))
    for k, step in enumerate(steps):
        nodes += _step(step, names[k], names[k + 1], constants, tensors)
        if step.name == "residual":
            inputs["residual"] = out
    graph = nodes + _bytes(2, "convolution")
    graph += b"".join(_bytes(5, _tensor(name, values)) for name, values in tensors.items())
    graph += b"".join(_bytes(11, _value(name, dims)) for name, dims in inputs.items())
    graph += _bytes(12, _value("y", out))
    return _int(1, _IR_VERSION) + _bytes(7, graph) + _bytes(8, _bytes(1, "") + _int(2, _OPSET))


def _attributes(p: Convolution) -> bytes:
    kernel, stride, dilation = (x[-p.rank :] for x in (p.kernel, p.stride, p.dilation))
    half = len(p.padding) // 2
    low, high = p.padding[half - p.rank : half], p.padding[-p.rank :]
    found = _ints("kernel_shape", kernel) + _ints("pads", [*low, *high])
    found += _ints("strides", stride) + _ints("dilations", dilation)
    if p.pass_ == "dgrad":
        found += _ints(
            "output_padding",
            [
                image + a + b - (k - 1) * d - 1 - (out - 1) * s
                for image, out, a, b, k, s, d in zip(
                    p.image_extents, p.out_extents, low, high, kernel, stride, dilation, strict=True
                )
            ],
        )
    return found + _one("group", p.groups)


def _weight(p: Convolution, constants: Mapping[str, Any]) -> Any:
    own = p.channels // p.groups
    return constants["filter"].reshape(p.out_channels, own, *p.kernel[-p.rank :])


def quantized_model(problem: Convolution, constants: Mapping[str, Any], last: bool) -> bytes:
    """``y = QLinearConv(x, filter)``, channels first, or ``last``, for which ONNX Runtime has an
    operator of its own, the one that it runs within networks; ``constants`` as in :func:`model`.

    The epilogue ends in "dequantize+quantize", with a bias before or without one, and a "relu"
    between them where results saturate at zero. Raises :class:`Unsupported` for others.
    """
    import numpy as np

    p, steps = problem, list(problem.epilogue)
    bias = bool(steps and steps[0].name == "bias")
    names = [step.name for step in steps[bias:]]
    low = np.iinfo(p.dtype).min if p.is_quantized else 0
    if names not in (["dequantize", "quantize"], ["dequantize", "relu", "quantize"]) or (
        "relu" in names and steps[-1].values[1] != low
    ):
        raise Unsupported(f"QLinearConv has no steps {'+'.join(map(str, steps))}")
    scale, zero = steps[-1].values
    tensors = {
        "x_scale": np.array(1, np.float32), "x_zero": np.array(0, p.dtype),
        "filter": _weight(p, constants).astype(np.int8),
        "scales": constants["sum_scale"].astype(np.float32),
        "zeros": np.zeros(p.out_channels, np.int8),
        "y_scale": np.array(scale, np.float32), "y_zero": np.array(zero, p.dtype),
    }  # fmt: skip
    if bias:
        tensors["bias"] = constants["bias"].astype(np.int32)
    extents = [p.image_extents, p.out_extents]
    shapes = [
        [p.batch, *e, c] if last else [p.batch, c, *e]
        for e, c in zip(extents, (p.channels, p.out_channels), strict=True)
    ]
    attributes = _attributes(p) + (_one("channels_last", 1) if last else b"")
    node = _node("QLinearConv", ["x", *tensors], "y", attributes, "com.microsoft" if last else "")
    graph = node + _bytes(2, "convolution")
    graph += b"".join(_bytes(5, _tensor(name, values)) for name, values in tensors.items())
    graph += _bytes(11, _value("x", shapes[0], p.dtype))
    graph += _bytes(12, _value("y", shapes[1], p.dtype))
    sets = _bytes(8, _bytes(1, "") + _int(2, _OPSET))
    sets += _bytes(8, _bytes(1, "com.microsoft") + _int(2, 1))
    return _int(1, _IR_VERSION) + _bytes(7, graph) + sets


def _step(
    step: Step, x: str, y: str, constants: Mapping[str, Any], tensors: dict[str, Any]
) -> bytes:
    """The nodes of one step from ``x`` to ``y``; constants that it needs are put into tensors."""
    import numpy as np

    def constant(name: str, values: Any) -> str:
        tensors[name] = np.asarray(values, np.float32)
        return name

    def a_channel(name: str) -> str:
        values = constants[name]
        dims = next(iter(tensors.values())).ndim - 2
        return constant(name, values.reshape(-1, *[1] * dims))

    match step.name:
        case "relu":
            return _node("Relu", [x], y)
        case "relu6" | "clamp":
            low, high = step.values or (0.0, 6.0)
            bounds = [constant(f"{y}_low", low), constant(f"{y}_high", high)]
            return _node("Clip", [x, *bounds], y)
        case "leaky_relu":
            return _node("LeakyRelu", [x], y, _float("alpha", step.values[0]))
        case "hsigmoid":
            return _node("HardSigmoid", [x], y, _float("alpha", 1 / 6) + _float("beta", 0.5))
        case "hswish":
            return _node("HardSwish", [x], y)
        case "silu":
            return _node("Sigmoid", [x], f"{y}_s") + _node("Mul", [x, f"{y}_s"], y)
        case "residual":
            return _node("Add", [x, "residual"], y)
        case "bias":
            return _node("Add", [x, a_channel("bias")], y)
        case "batch_norm" | "wide_batch_norm":
            names = ("gamma", "beta", "mean", "variance")
            reads = [x, *(constant(name, constants[name]) for name in names)]
            return _node("BatchNormalization", reads, y, _float("epsilon", step.values[0]))
        case "scale_shift":
            scaled = _node("Mul", [x, a_channel("scale")], f"{y}_m")
            return scaled + _node("Add", [f"{y}_m", a_channel("shift")], y)
    raise Unsupported(f"ONNX has no operator for the step {step}")


def session(
    problem: Convolution, constants: Mapping[str, Any], threads: int, last: bool = False
) -> Any:
    """An ONNX Runtime session for :func:`model` on the CPU, or for :func:`quantized_model`, which
    alone has channels ``last``."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
    options.log_severity_level = 3  # it warns of devices that it does not find
    if last and not problem.is_quantized:
        raise Unsupported("ONNX has channels first")
    text = (
        quantized_model(problem, constants, last)
        if problem.is_quantized
        else model(problem, constants)
    )
    return onnxruntime.InferenceSession(text, options, providers=["CPUExecutionProvider"])


def depthwise_session(shape: Sequence[int], weight: Any, k: int, stride: int, threads: int) -> Any:
    """:func:`session` for k x k filters (C * multiplier, 1, k, k) and a padding of ``k // 2``."""
    problem = Conv.parse(shape, weight.shape, stride=stride, padding=k // 2)
    return session(problem, {"filter": weight}, threads)
