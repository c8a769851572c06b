"""ATen's products of matrices."""

from __future__ import annotations

from tilewright.graph.fx.operation import Converter, Operation
from tilewright.graph.fx.shapes import swapped
from tilewright.graph.onnx.products import matmul
from tilewright.graph.value import Value


def _add(first: str, second: str) -> Converter:
    """A product, and what is added to it."""

    def convert(n: Operation) -> Value:
        found = matmul(n, n[first], n[second])
        alpha, beta = n["alpha"], n["beta"]
        found = found if alpha in (None, 1) else n("multiply", found, alpha)
        if beta == 0:
            return found
        return n("add", found, n.x if beta in (None, 1) else n("multiply", n.x, beta))

    return convert


def _linear(n: Operation) -> Value:
    found = matmul(n, n["input"], swapped(n, n["weight"], 0, 1))
    return found if n["bias"] is None else n("add", found, n["bias"])


CONVERTERS: dict[str, Converter] = {
    **dict.fromkeys(("mm", "bmm"), lambda n: matmul(n, n.x, n["mat2"])),
    "matmul": lambda n: matmul(n, n.x, n["other"]),
    "addmm": _add("mat1", "mat2"), "baddbmm": _add("batch1", "batch2"), "linear": _linear,
}  # fmt: skip
