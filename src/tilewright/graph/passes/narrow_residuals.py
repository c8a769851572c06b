"""Residual sums in 16 bits behind products in 16 bits, whose kernels then compute them."""

from __future__ import annotations

import math

from tilewright.graph.builder import cast
from tilewright.graph.graph import Graph
from tilewright.graph.passes.narrow_types import TYPES, narrowed
from tilewright.graph.rewrite import PRODUCTS
from tilewright.graph.value import Constant, Node, Value

_WIDE = "float32"


def narrow_residuals(graph: Graph) -> Graph:
    """What is added to a product's result in float32 is read and added in the product's type.

    >>> from tilewright.graph.value import Input
    >>> a, w, r = (Input(n, (8, 8), "float16") for n in "awr")
    >>> y = Node("cast", (Node("gemm", (a, w)),), {"dtype": "float32"})
    >>> s = Node("add", (y, Node("cast", (r,), {"dtype": "float32"})))
    >>> g = Graph("g", (a, w, r), {"s": s, "t": Node("cast", (s,), {"dtype": "float16"})})
    >>> print(narrow_residuals(g))
    g(a: float16[8x8], w: float16[8x8], r: float16[8x8]):
      %0 = gemm(a, w)  # float16[8x8]
      t = add(%0, r)  # float16[8x8]
      s = cast(t, dtype='float32')  # float32[8x8]

    Behind layouts, where nothing is left between the two, and before epilogues, of which the sum
    is a step then: it is rounded once, as a product's result is, and one kernel less moves it. So
    it is with factors of channels between the two.
    """
    uses = dict(graph.uses)
    made_narrow: dict[tuple[Value, str], Value] = {}

    def narrow(x: Value, kind: str) -> Value:
        if isinstance(x, Node) and x.operator == "cast" and x.inputs[0].dtype == kind:
            return x.inputs[0]
        if (x, kind) not in made_narrow:
            found = narrowed(x, kind) if isinstance(x, Constant) else cast(x, kind)
            made_narrow[x, kind] = found
        return made_narrow[x, kind]

    def change(old: Node, now: Node) -> Value:
        made: Value = now
        if now.operator == "cast" and now.dtype in TYPES and now.inputs[0].dtype == _WIDE:
            made = narrow(now.inputs[0], now.dtype)
        elif now.operator in ("add", "multiply") and now.dtype == _WIDE and len(now.inputs) == 2:
            for x, other in (now.inputs, now.inputs[::-1]):
                product = _behind_cast(x, uses)
                fits = other.type == x.type if now.operator == "add" else _by_channel(x, other)
                if product is not None and fits:
                    given = (product, narrow(other, product.dtype))
                    total = Node(now.operator, given, {}, now.name)
                    made = cast(total, _WIDE)
                    break
        uses[made] = uses[old]
        return made

    return graph.map(change)


def _behind_cast(x: Value, uses: dict[Value, int]) -> Value | None:
    """The result in 16 bits that ``x`` alone reads, of a product that takes a residual sum."""
    if not isinstance(x, Node) or x.operator != "cast" or uses.get(x, 1) > 1:
        return None
    found = product = x.inputs[0]
    while isinstance(product, Node) and uses.get(product, 1) == 1:
        if product.operator in PRODUCTS:
            taken = product.dtype in TYPES and "residual" not in product.attributes.get(
                "epilogue", ()
            )
            return found if taken else None
        if product.operator != "reshape" and not (
            product.operator == "multiply" and _by_channel(*product.inputs)
        ):
            return None
        product = product.inputs[0]
    return None


def _by_channel(x: Value, *factors: Value) -> bool:
    """Whether there is one other operand, known numbers of the last dimension."""
    return len(factors) == 1 and all(
        isinstance(f, Constant) and f.shape[-1:] == x.shape[-1:] and math.prod(f.shape[:-1]) == 1
        for f in factors
    )
