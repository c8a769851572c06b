"""What exporters write in several operators, and what changes nothing."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from tilewright.graph.builder import build
from tilewright.graph.graph import Graph
from tilewright.graph.rewrite import Match, Rule, rewrite
from tilewright.graph.value import Constant, Node, Value


def simplify(graph: Graph) -> Graph:
    """Identities and activations by their names.

    >>> from tilewright.graph.value import Input, Node
    >>> x = Input("x", (4,), "float32")
    >>> y = Node("minimum", (Node("maximum", (Node("multiply", (x, 1.0)), 0.0)), 6.0))
    >>> print(simplify(Graph("g", (x,), {"y": y})))
    g(x: float32[4]):
      y = clamp(x, low=0.0, high=6.0)  # float32[4]

    First, so that the passes behind it need to know one form of everything.
    """
    return rewrite(graph, RULES)


def _known(*names: str) -> Any:
    """That these variables are known: numbers or constants."""

    def where(m: Match) -> Mapping[str, Any] | None:
        return {} if all(isinstance(m[n], (int, float, Constant)) for n in names) else None

    return where


def _sum(m: Match) -> Mapping[str, Any] | None:
    return _joined(m, "add")


def _product(m: Match) -> Mapping[str, Any] | None:
    return _joined(m, "multiply")


def _joined(m: Match, operator: str) -> Mapping[str, Any] | None:
    """Of two known operands the one that does what both do, of floats."""
    a, b = m["a"], m["b"]
    if isinstance(a, Value) and isinstance(b, Value):
        made: Any = build(operator, a, b)
    elif isinstance(a, Value) or isinstance(b, Value):
        made = build(operator, *((a, b) if isinstance(a, Value) else (b, a)))
    else:
        made = a + b if operator == "add" else a * b
    if isinstance(made, Value) and not isinstance(made, Constant):
        return None
    if not _is_float(m):
        return None
    return {"c": made} if _known("a", "b")(m) is not None else None


def _is_float(m: Match) -> bool:
    x = m["x"]
    return isinstance(x, Value) and x.dtype in ("float32", "float64", "float16", "bfloat16")


def _bounds(m: Match) -> Mapping[str, Any] | None:
    low, high = m["a"], m["b"]
    if not (isinstance(low, (int, float)) and isinstance(high, (int, float)) and low <= high):
        return None
    return {"a": float(low), "b": float(high)} if _is_float(m) else None


def _above_zero(m: Match) -> Mapping[str, Any] | None:
    b = m["b"]
    return {"b": float(b)} if isinstance(b, (int, float)) and b >= 0 and _is_float(m) else None


def _same_type(m: Match) -> Mapping[str, Any] | None:
    return {} if isinstance(m["x"], Value) and not isinstance(m["x"], Constant) else None


def _close(**wanted: float) -> Any:
    def where(m: Match) -> Mapping[str, Any] | None:
        for name, value in wanted.items():
            x = m[name]
            if not isinstance(x, (int, float)) or not math.isclose(x, value, rel_tol=1e-3):
                return None
        return {}

    return where


def _hard(m: Match) -> Mapping[str, Any] | None:
    a = m.nodes["hard_sigmoid"].attributes
    near = math.isclose(a.get("alpha", 0.2), 1 / 6, rel_tol=1e-5) and a.get("beta", 0.5) == 0.5
    return {} if near else None


def _written_out(m: Match) -> Mapping[str, Any] | None:
    """Where ``clamp(x + 3, 0, 6)`` is divided by 6, or multiplied by a sixth of 1."""
    limits, outer = m.nodes["clamp"].attributes, m["b"]
    if not isinstance(m["a"], (int, float)) or not isinstance(outer, (int, float)):
        return None
    by = 6 if "divide" in m.nodes else 1 / 6
    near = m["a"] == 3 and math.isclose(outer, by, rel_tol=1e-5)
    return {} if near and (limits["low"], limits["high"]) == (0, 6) and _is_float(m) else None


def _axes(m: Match) -> Mapping[str, Any] | None:
    outer = m.root
    (inner,) = outer.inputs
    assert isinstance(inner, Node)
    axes = inner.attributes["axes"]
    return {"axes": tuple(axes[a] for a in outer.attributes["axes"])}


def _in_place(m: Match) -> Mapping[str, Any] | None:
    """The shape after a transposition that leaves all elements where they are."""
    x = m["x"]
    axes = m.root.attributes["axes"]
    long = [a for a in axes if x.shape[a] != 1]
    return {"shape": tuple(x.shape[a] for a in axes)} if long == sorted(long) else None


def _shape(m: Match) -> Mapping[str, Any] | None:
    return {"shape": m.root.shape}


def _same_shape(m: Match) -> Mapping[str, Any] | None:
    return {} if m["x"].shape == m.root.shape else None


def _of_one(m: Match) -> Mapping[str, Any] | None:
    """Windows of an element, with nothing between them or beside them."""
    given = m.root.attributes
    own = set(given["size"]) == {1} and not any(given["padding"])
    return {} if own and m["x"].shape == m.root.shape else None


_ROOT = math.sqrt(0.5)
RULES = (
    Rule("add(x, 0)", "x", _same_type),
    Rule("subtract(x, 0)", "x", _same_type),
    Rule("multiply(x, 1)", "x", _same_type),
    Rule("divide(x, 1)", "x", _same_type),
    Rule("identity(x)", "x"),
    Rule("avg_pool(x)", "x", _of_one),
    Rule("max_pool(x)", "x", _of_one),
    Rule("relu(relu(x))", "relu(x)"),
    Rule("add(add(x, a), b)", "add(x, c)", _sum),
    Rule("multiply(multiply(x, a), b)", "multiply(x, c)", _product),
    Rule("minimum(maximum(x, a), b)", "clamp(x, low=a, high=b)", _bounds),
    Rule("minimum(relu(x), b)", "clamp(x, low=0.0, high=b)", _above_zero),
    Rule("maximum(minimum(x, b), a)", "clamp(x, low=a, high=b)", _bounds),
    Rule("maximum(x, 0)", "relu(x)", lambda m: {} if _is_float(m) else None),
    Rule("reciprocal(add(exp(negative(x)), 1))", "sigmoid(x)"),
    Rule("divide(1, add(exp(negative(x)), 1))", "sigmoid(x)"),
    Rule("multiply(x, sigmoid(x))", "silu(x)"),
    Rule("multiply(x, hard_sigmoid(x))", "hard_swish(x)", _hard),
    Rule("divide(multiply(x, clamp(add(x, a))), b)", "hard_swish(x)", _written_out),
    Rule("multiply(multiply(x, clamp(add(x, a))), b)", "hard_swish(x)", _written_out),
    Rule("multiply(x, divide(clamp(add(x, a)), b))", "hard_swish(x)", _written_out),
    Rule("multiply(x, multiply(clamp(add(x, a)), b))", "hard_swish(x)", _written_out),
    Rule("multiply(x, tanh(softplus(x)))", "mish(x)"),
    Rule("multiply(multiply(x, add(erf(divide(x, a)), 1)), 0.5)", "gelu(x)", _close(a=2**0.5)),
    Rule("multiply(multiply(x, add(erf(multiply(x, a)), 1)), 0.5)", "gelu(x)", _close(a=_ROOT)),
    Rule("multiply(multiply(x, 0.5), add(erf(divide(x, a)), 1))", "gelu(x)", _close(a=2**0.5)),
    Rule("multiply(multiply(x, 0.5), add(erf(multiply(x, a)), 1))", "gelu(x)", _close(a=_ROOT)),
    Rule("multiply(x, multiply(add(erf(divide(x, a)), 1), 0.5))", "gelu(x)", _close(a=2**0.5)),
    Rule("transpose(transpose(x))", "transpose(x, axes=axes)", _axes),
    Rule("transpose(x)", "reshape(x, newshape=shape)", _in_place),
    Rule("reshape(reshape(x))", "reshape(x, newshape=shape)", _shape),
    Rule("reshape(x)", "x", _same_shape),
)
