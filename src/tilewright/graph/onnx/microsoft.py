"""The quantised operators of ONNX Runtime's own domain, which its quantiser writes, as ONNX's: each
dequantises its operands, computes, and quantises.

Source: ONNX Runtime's ContribOperators.md.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

DOMAIN = "com.microsoft"
#: What each computes, and where its operands and the scale of its result stand; a scale and a zero
#: point follow each operand.
_MEANS: dict[str, tuple[str, tuple[int, ...], int]] = {
    "QGemm": ("Gemm", (0, 3), 7),
    "QLinearAdd": ("Add", (0, 3), 6),
    "QLinearAveragePool": ("AveragePool", (0,), 3),
    "QLinearConcat": ("Concat", (), 0),
    "QLinearGlobalAveragePool": ("GlobalAveragePool", (0,), 3),
    "QLinearLeakyRelu": ("LeakyRelu", (0,), 3),
    "QLinearMul": ("Mul", (0, 3), 6),
    "QLinearSigmoid": ("Sigmoid", (0,), 3),
    "QLinearSoftmax": ("Softmax", (0,), 3),
}
#: Attributes that ONNX's operators lack.
_OWN = ("channels_last", "opset")


def expanded(proto: Any) -> Any:
    """The model with ONNX's operators in the place of those that are known here; others stay, to be
    refused by their names."""
    own = {(f.domain, f.name) for f in proto.functions}
    known = {kind for kind in _MEANS if (DOMAIN, kind) not in own}
    if not any(n.domain == DOMAIN and n.op_type in known for n in proto.graph.node):
        return proto
    made = type(proto)()
    made.CopyFrom(proto)
    opset = next((o.version for o in proto.opset_import if o.domain in ("", "ai.onnx")), 1)
    del made.graph.node[:]
    for node in proto.graph.node:
        fits = node.domain == DOMAIN and node.op_type in known and _is_plain(node, opset)
        made.graph.node.extend(_expanded(node, opset) if fits else [node])
    return made


def _is_plain(node: Any, opset: int) -> bool:
    """Whether ONNX's operator is the same: softmax was another one before opset 13."""
    own = {a.name: a for a in node.attribute}
    if ("channels_last" in own and own["channels_last"].i) or len(node.output) != 1:
        return False
    if node.op_type == "QGemm" and "alpha" in own and own["alpha"].f != 1:
        return False  # the scale of the bias has it, too
    since = min(opset, own["opset"].i) if "opset" in own else opset
    return node.op_type != "QLinearSoftmax" or since >= 13


def _expanded(node: Any, opset: int) -> Iterator[Any]:
    from onnx import helper

    def along(axis: int) -> dict[str, int]:
        return {"axis": axis} if opset >= 13 else {}

    kind, places, result = _MEANS[node.op_type]
    (out,) = node.output
    given = [*node.input, *[""] * (9 - len(node.input))]
    if kind == "Concat":
        places = tuple(range(2, len(node.input), 3))
    attributes = {
        a.name: helper.get_attribute_value(a) for a in node.attribute if a.name not in _OWN
    }
    operands = []
    for k in places:
        # Weights may have a scale for each column of the product.
        axis = 0 if kind == "Gemm" and attributes.get("transB") else 1
        operands.append(f"{out}/operand{k}")
        one = given[k : k + 3] if given[k + 2] else given[k : k + 2]
        yield helper.make_node("DequantizeLinear", one, [operands[-1]], **along(axis))
    if kind == "Gemm" and given[6]:
        operands.append(f"{out}/bias")
        yield helper.make_node("Mul", [given[1], given[4]], [f"{out}/scale"])
        known = [given[6], f"{out}/scale"]
        yield helper.make_node("DequantizeLinear", known, [operands[-1]], **along(0))
    if not given[result]:  # a result in float
        yield helper.make_node(kind, operands, [out], node.name, **attributes)
        return
    yield helper.make_node(kind, operands, [f"{out}/real"], node.name, **attributes)
    scale = given[result : result + 2] if given[result + 1] else given[result : result + 1]
    yield helper.make_node("QuantizeLinear", [f"{out}/real", *scale], [out])
