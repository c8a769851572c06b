"""Models with QuantizeLinear and DequantizeLinear, and what they compute in float64."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from tests.support.models import node, onnx_model

Array = np.ndarray[Any, Any]


@dataclass
class QdqModel:
    """A model that is written layer by layer, in the form that tools of ONNX Runtime write."""

    seed: int = 0
    dtype: str = "uint8"
    nodes: list[Any] = field(default_factory=list)
    constants: dict[str, Array] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.random = np.random.default_rng(self.seed)

    def constant(self, array: Any) -> str:
        """An initializer; its name."""
        name = f"c{len(self.constants)}"
        self.constants[name] = np.asarray(array)
        return name

    def add(self, kind: str, *inputs: str, **attributes: Any) -> str:
        """A node; the name of its output."""
        name = f"v{len(self.nodes)}"
        self.nodes.append(node(kind, " ".join(inputs), name, **attributes))
        return name

    def parameters(self, scale: float, zero: int, dtype: str = "") -> tuple[str, str]:
        """A scale and a zero point of all elements."""
        kind = dtype or self.dtype
        return self.constant(np.float32(scale)), self.constant(np.array(zero, kind))

    def quantize(self, x: str, scale: float, zero: int, dtype: str = "") -> str:
        """Integers."""
        return self.add("QuantizeLinear", x, *self.parameters(scale, zero, dtype))

    def rounded(self, x: str, scale: float, zero: int, dtype: str = "") -> str:
        """What is quantised, as floats."""
        numbers = self.parameters(scale, zero, dtype)
        return self.add("DequantizeLinear", self.add("QuantizeLinear", x, *numbers), *numbers)

    def weights(self, *shape: int, axis: int = 0, each: bool = True, zero: int = 0) -> str:
        """Weights in int8, or where they have a zero point in uint8, with a scale for each channel
        or one for all."""
        low, kind = (-127, "int8") if not zero else (0, "uint8")
        w = self.random.integers(low, low + 255, shape).astype(kind)
        count = shape[axis] if each else 1
        scale = self.random.uniform(0.002, 0.01, count).astype("float32")
        zeros = np.full(count, zero, kind)
        if not each:
            return self.add("DequantizeLinear", *map(self.constant, (w, scale[0], zeros[0])))
        return self.add("DequantizeLinear", *map(self.constant, (w, scale, zeros)), axis=axis)

    def model(self, shape: tuple[int, ...]) -> bytes:
        """The whole, of an input x of this shape and the last output."""
        last = self.nodes[-1]
        last.output[0] = "y"
        return onnx_model(self.nodes, {"x": list(shape)}, constants=self.constants, opset=19)


def in_float64(data: bytes, x: Array) -> Array:
    """What a model says, each operator in float64 by ONNX's reference."""
    import onnx
    from onnx.reference import ReferenceEvaluator

    proto = onnx.load_from_string(data)
    for imported in proto.opset_import:  # the first that the reference has them of
        imported.version = max(imported.version, 19) if not imported.domain else imported.version
    for tensor in proto.graph.initializer:
        if tensor.data_type == onnx.TensorProto.FLOAT:
            wide = onnx.numpy_helper.to_array(tensor).astype("float64")
            tensor.CopyFrom(onnx.numpy_helper.from_array(wide, tensor.name))
    (found,) = ReferenceEvaluator(proto).run(None, {"x": x.astype("float64")})
    return np.asarray(found)


def quantized_by_onnxruntime(
    data: bytes, samples: list[Array], dtype: str, folder: Any
) -> tuple[bytes, list[Array]]:
    """A model after ONNX Runtime's tool, and what ONNX Runtime computes of it."""
    import onnx
    import onnxruntime
    from onnxruntime import quantization

    class Samples(quantization.CalibrationDataReader):  # type: ignore[misc]
        def __init__(self) -> None:
            self.rest = [{"x": x} for x in samples]

        def get_next(self) -> Any:
            return self.rest.pop() if self.rest else None

    plain, made = folder / "plain.onnx", folder / "made.onnx"
    onnx.save(onnx.load_from_string(data), plain)
    quantization.shape_inference.quant_pre_process(plain, plain)
    kind = {"int8": quantization.QuantType.QInt8, "uint8": quantization.QuantType.QUInt8}[dtype]
    quantization.quantize_static(plain, made, Samples(), per_channel=True, activation_type=kind)
    session = onnxruntime.InferenceSession(made, providers=["CPUExecutionProvider"])
    return made.read_bytes(), [session.run(None, {"x": x})[0] for x in samples]
