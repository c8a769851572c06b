"""Models for tests: small ones of one node, and networks like those that people run, with seeded
weights, at small sizes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np


def onnx_model(
    nodes: Sequence[Any],
    inputs: dict[str, Any],
    outputs: Sequence[str] = ("y",),
    constants: dict[str, np.ndarray[Any, Any]] | None = None,
    opset: int = 17,
) -> bytes:
    """A model of nodes that ``helper.make_node`` made; inputs are float32 by their shapes."""
    from onnx import TensorProto, helper, numpy_helper

    graph = helper.make_graph(
        list(nodes),
        "g",
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in inputs.items()],
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, None) for n in outputs],
        [numpy_helper.from_array(v, n) for n, v in (constants or {}).items()],
    )
    imports = [helper.make_opsetid("", opset)]
    made = helper.make_model(graph, opset_imports=imports, ir_version=8)
    return bytes(made.SerializeToString())


def node(kind: str, inputs: str, outputs: str = "y", **attributes: Any) -> Any:
    """A node; names are separated by spaces."""
    from onnx import helper

    return helper.make_node(kind, inputs.split(), outputs.split(), **attributes)


class Network:
    """A model that is written layer by layer; weights are drawn by a seed."""

    def __init__(self, image: int, seed: int = 0) -> None:
        self.random = np.random.default_rng(seed)
        self.nodes: list[Any] = []
        self.constants: dict[str, np.ndarray[Any, Any]] = {}
        self.channels = {"x": 3}
        self.image = image

    def add(self, kind: str, *inputs: str, **attributes: Any) -> str:
        """A node; the name of its output."""
        name = f"v{len(self.nodes)}"
        self.nodes.append(node(kind, " ".join(inputs), name, **attributes))
        self.channels[name] = self.channels[inputs[0]]
        return name

    def constant(self, array: Any) -> str:
        """An initializer; its name."""
        name = f"w{len(self.constants)}"
        self.constants[name] = np.asarray(array)
        return name

    def weights(self, *shape: int, scale: float = 1.0) -> str:
        """Normal numbers."""
        return self.constant((self.random.standard_normal(shape) * scale).astype("float32"))

    def conv(
        self, x: str, out: int, size: int = 3, stride: int = 1, groups: int = 1, norm: bool = True,
        act: str = "Relu",
    ) -> str:  # fmt: skip
        """A convolution that keeps sizes but for the stride, batch normalisation, activation."""
        own = self.channels[x] // groups
        w = self.weights(out, own, size, size, scale=(2 / (own * size**2)) ** 0.5)
        pad = [size // 2] * 4
        more = () if norm else (self.weights(out, scale=0.1),)
        y = self.add("Conv", x, w, *more, pads=pad, strides=[stride] * 2, group=groups)
        self.channels[y] = out
        if norm:
            draw = self.random.uniform
            parts = [draw(0.5, 1.5, out), draw(-0.2, 0.2, out), draw(-0.2, 0.2, out),
                     draw(0.5, 1.5, out)]  # fmt: skip
            given = [self.constant(p.astype("float32")) for p in parts]
            y = self.add("BatchNormalization", y, *given)
        return self.act(y, act)

    def act(self, x: str, kind: str) -> str:
        """An activation by its name; ReLU6 as exporters write it."""
        if kind == "Relu6":
            bounds = [self.constant(np.float32(v)) for v in (0, 6)]
            return self.add("Clip", x, *bounds)
        if kind == "Silu":
            return self.add("Mul", x, self.add("Sigmoid", x))
        return self.add(kind, x) if kind else x

    def squeeze_excite(self, x: str, few: int) -> str:
        """Channels scaled by what a small network makes of their means."""
        mean = self.add("GlobalAveragePool", x)
        inner = self.conv(mean, few, 1, norm=False)
        scale = self.conv(inner, self.channels[x], 1, norm=False, act="HardSigmoid")
        return self.add("Mul", x, scale)

    def concat(self, *parts: str) -> str:
        """Channels one behind the other."""
        name = self.add("Concat", *parts, axis=1)
        self.channels[name] = sum(self.channels[p] for p in parts)
        return name

    def head(self, x: str, classes: int = 10) -> None:
        """Means of channels, and a linear layer."""
        flat = self.add("Flatten", self.add("GlobalAveragePool", x))
        w = self.weights(classes, self.channels[x], scale=0.1)
        b = self.weights(classes)
        self.nodes.append(node("Gemm", f"{flat} {w} {b}", transB=1))

    def model(self, batch: Any = 1) -> bytes:
        """The whole as an ONNX model."""
        return onnx_model(
            self.nodes, {"x": [batch, 3, self.image, self.image]}, constants=self.constants
        )


def resnet(image: int = 32) -> Network:
    """ResNet-18's blocks, narrow."""
    n = Network(image)
    x = n.conv("x", 16, 7, 2)
    x = n.add("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
    for out, stride in ((16, 1), (32, 2)):
        short = x if stride == 1 else n.conv(x, out, 1, stride, act="")
        y = n.conv(n.conv(x, out, 3, stride), out, 3, act="")
        x = n.act(n.add("Add", y, short), "Relu")
    n.head(x)
    return n


def mobilenet(image: int = 32) -> Network:
    """MobileNetV2's inverted residuals, narrow."""
    n = Network(image, 1)
    x = n.conv("x", 8, 3, 2, act="Relu6")
    for out, stride, expand in ((8, 1, 2), (16, 2, 4), (16, 1, 4)):
        wide = n.channels[x] * expand
        y = n.conv(n.conv(x, wide, 1, act="Relu6"), wide, 3, stride, groups=wide, act="Relu6")
        y = n.conv(y, out, 1, act="")
        x = n.add("Add", x, y) if stride == 1 and out == n.channels[x] else y
    n.head(n.conv(x, 32, 1, act="Relu6"))
    return n


def squeeze_excite(image: int = 32) -> Network:
    """EfficientNet's blocks: SiLU, and channels scaled."""
    n = Network(image, 2)
    x = n.conv("x", 8, 3, 2, act="Silu")
    for stride in (1, 2):
        y = n.conv(x, 24, 1, act="Silu")
        y = n.squeeze_excite(n.conv(y, 24, 5, stride, groups=24, act="Silu"), 6)
        y = n.conv(y, 8, 1, act="")
        x = n.add("Add", x, y) if stride == 1 else y
    n.head(x)
    return n


def inception(image: int = 32) -> Network:
    """Branches that share an input, of windows of several shapes, and an average that is padded."""
    n = Network(image, 3)
    x = n.conv("x", 8, 3, 2)
    for _ in range(2):
        pooled = n.add("AveragePool", x, kernel_shape=[3, 3], pads=[1] * 4, count_include_pad=1)
        x = n.concat(
            n.conv(x, 8, 1), n.conv(n.conv(x, 6, 1), 8, 5), n.conv(n.conv(x, 8, 1), 12, 3),
            n.conv(pooled, 4, 1),
        )  # fmt: skip
    x = n.add("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], ceil_mode=1)
    n.head(x)
    return n


NETWORKS = {f.__name__: f for f in (resnet, mobilenet, squeeze_excite, inception)}


def by_onnxruntime(model: bytes, inputs: dict[str, Any]) -> list[np.ndarray[Any, Any]]:
    """What ONNX Runtime gives."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    return list(session.run(None, inputs))


def relative(found: Any, wanted: Any) -> float:
    """The largest difference over the largest number that is wanted."""
    return float(np.abs(found - wanted).max() / np.abs(wanted).max())


def write(folder: Path, model: bytes, name: str = "m.onnx") -> Path:
    """A file of a model."""
    path = folder / name
    path.write_bytes(model)
    return path
