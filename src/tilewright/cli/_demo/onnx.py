"""A one-node ONNX model, written without the onnx package, and a session that runs it.

The file format is protobuf; only the few message fields that a convolution needs are written
(onnx.proto3: ModelProto, GraphProto, NodeProto, AttributeProto, ValueInfoProto, TensorProto).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

_FLOAT, _INT, _INTS = 1, 2, 7

#: Versions of the format and of the operators that every ONNX Runtime of today reads.
_IR_VERSION, _OPSET = 8, 13


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


def _value(name: str, shape: Sequence[int]) -> bytes:
    dims = b"".join(_bytes(1, _int(1, extent)) for extent in shape)
    tensor = _int(1, _FLOAT) + _bytes(2, dims)
    return _bytes(1, name) + _bytes(2, _bytes(1, tensor))


def _ints(name: str, values: Sequence[int]) -> bytes:
    items = b"".join(_int(8, v) for v in values)
    return _bytes(5, _bytes(1, name) + items + _int(20, _INTS))


def depthwise_model(shape: Sequence[int], weight: Any, k: int, stride: int) -> bytes:
    """``y = Conv(x, weight)`` with one group a channel and padding k // 2.

    ``shape`` is that of ``x``, (N, C, H, W); ``weight`` a float32 array (C * M, 1, k, k).
    """
    n, c, h, w = shape
    pad = k // 2
    out = [n, weight.shape[0], (h + 2 * pad - k) // stride + 1, (w + 2 * pad - k) // stride + 1]
    node = _bytes(1, "x") + _bytes(1, "w") + _bytes(2, "y") + _bytes(4, "Conv")
    node += _ints("kernel_shape", [k, k]) + _ints("pads", [pad] * 4)
    node += _ints("strides", [stride, stride])
    node += _bytes(5, _bytes(1, "group") + _int(3, c) + _int(20, _INT))
    tensor = b"".join(_int(1, extent) for extent in weight.shape) + _int(2, _FLOAT)
    tensor += _bytes(8, "w") + _bytes(9, weight.tobytes())
    graph = _bytes(1, node) + _bytes(2, "depthwise") + _bytes(5, tensor)
    graph += _bytes(11, _value("x", shape)) + _bytes(12, _value("y", out))
    return _int(1, _IR_VERSION) + _bytes(7, graph) + _bytes(8, _bytes(1, "") + _int(2, _OPSET))


def depthwise_session(shape: Sequence[int], weight: Any, k: int, stride: int, threads: int) -> Any:
    """An ONNX Runtime session for :func:`depthwise_model` on the CPU."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
    options.log_severity_level = 3  # it warns of devices that it does not find
    model = depthwise_model(shape, weight, k, stride)
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
