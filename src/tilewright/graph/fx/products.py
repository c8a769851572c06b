"""ATen's products of matrices, and attention."""

from __future__ import annotations

import math

import numpy as np

from tilewright.graph.builder import constant
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


def attention(n: Operation) -> tuple[Value | None, ...]:
    """``softmax(q k^T * scale + mask) v``; not what its gradient is computed from."""
    q, k, v = n["query"], n["key"], n["value"]
    if n["dropout_p"]:
        raise n.error("it drops elements at random")
    mask = n["attn_mask"] if n["attn_mask"] is not None else n["attn_bias"]
    scale = n["scale"] if n["scale"] is not None else 1 / math.sqrt(q.shape[-1])
    if k.shape[:-2] != q.shape[:-2]:
        raise n.error("its queries share keys")
    score = n("multiply", matmul(n, q, swapped(n, k, -1, -2)), float(scale))
    if n["is_causal"]:
        rows, columns = score.shape[-2:]
        over = np.triu(np.full((rows, columns), -np.inf, "float32"), 1)
        score = n("add", score, constant(over, score.dtype))
    if mask is not None:
        if mask.dtype == "bool":
            mask = n("where", mask, n.value(0.0), n.value(-math.inf))
        score = n("add", score, mask)
    return matmul(n, n("softmax", score, axis=score.rank - 1), v), None


CONVERTERS: dict[str, Converter] = {
    **dict.fromkeys(("mm", "bmm"), lambda n: matmul(n, n.x, n["mat2"])),
    "matmul": lambda n: matmul(n, n.x, n["other"]),
    "addmm": _add("mat1", "mat2"), "baddbmm": _add("batch1", "batch2"), "linear": _linear,
    "_scaled_dot_product_flash_attention_for_cpu": attention,
    "scaled_dot_product_attention": lambda n: attention(n)[:1],
}  # fmt: skip
