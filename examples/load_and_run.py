"""Article 002's session with MegEngine's load_and_run, by the same options: a network in integers
of 8 bits, its layouts chosen, its kernels searched, its times printed.

    load_and_run resnet.mdl --input "data:{1,3,64,64}" --enable-nchw32 --fast-run --iter 10
    python examples/load_and_run.py --iter 10 [--cuda] [--profile] [--fast-run-seconds 300]

The network is written first, as tools that quantise write one in ONNX: two blocks of three
convolutions each, with what they add, behind a stem.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from tilewright.cli.main import main as tilewright

#: Scales of images, and of weights.
_STEP, _WEIGHT = 0.05, 0.01


class Network:
    """A network in the form of quantised layers between QuantizeLinear and DequantizeLinear."""

    def __init__(self, seed: int = 0) -> None:
        self.nodes: list[Any] = []
        self.known: dict[str, Any] = {}
        self._random = np.random.default_rng(seed)
        self._step = self._constant(np.float32(_STEP))
        self._zero = self._constant(np.int8(0))

    def _constant(self, array: Any) -> str:
        name = f"c{len(self.known)}"
        self.known[name] = numpy_helper.from_array(np.asarray(array), name)
        return name

    def add(self, kind: str, *inputs: str, **attributes: Any) -> str:
        """A node; the name of its output."""
        name = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, list(inputs), [name], **attributes))
        return name

    def rounded(self, x: str) -> str:
        """``x`` in steps of 8 bits."""
        q = self.add("QuantizeLinear", x, self._step, self._zero)
        return self.add("DequantizeLinear", q, self._step, self._zero)

    def layer(self, x: str, channels: tuple[int, int], taps: int, stride: int = 1) -> str:
        """A convolution with bias of ``channels`` of the image and of the result."""
        given, made = channels
        q = self._random.integers(-127, 128, (made, given, taps, taps)).astype("int8")
        depth = given * taps * taps
        scale = np.float32(_WEIGHT / np.sqrt(depth))
        weights = [self._constant(a) for a in (q, scale, np.int8(0))]
        w = self.add("DequantizeLinear", *weights)
        bias = self._constant(self._random.standard_normal(made).astype("float32"))
        pads = [taps // 2] * 4
        return self.add("Conv", x, w, bias, pads=pads, strides=[stride, stride])

    def block(self, x: str, given: int, made: int) -> str:
        """A block of a residual network, of three convolutions."""
        y = x
        for channels, taps in (((given, made // 4), 1), ((made // 4, made // 4), 3)):
            y = self.rounded(self.add("Relu", self.layer(y, channels, taps)))
        y = self.rounded(self.layer(y, (made // 4, made), 1))
        beside = x if given == made else self.rounded(self.layer(x, (given, made), 1))
        return self.rounded(self.add("Relu", self.add("Add", y, beside)))

    def model(self) -> bytes:
        """The file."""
        x = self.rounded("data")
        x = self.rounded(self.add("Relu", self.layer(x, (3, 64), 7, 2)))
        x = self.block(self.block(x, 64, 256), 256, 256)
        y = self.add("GlobalAveragePool", x)
        types = [("data", ["N", 3, "H", "W"]), (y, ["N", 256, 1, 1])]
        given, made = (helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in types)
        graph = helper.make_graph(self.nodes, "resnet", [given], [made], list(self.known.values()))
        imports = [helper.make_opsetid("", 17)]
        found = helper.make_model(graph, ir_version=8, opset_imports=imports)
        onnx.checker.check_model(found)
        data: bytes = found.SerializeToString()
        return data


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the network, and run it by load_and_run's options; the exit status."""
    more = sys.argv[1:] if arguments is None else list(arguments)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "resnet.onnx")
        path.write_bytes(Network().model())
        given = ["--input", "data:{1,3,64,64}", "--enable-nchw32", "--fast-run"]
        return tilewright(["run", str(path), *given, *more])


if __name__ == "__main__":
    sys.exit(main())
