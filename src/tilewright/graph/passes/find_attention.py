"""Attention that exporters write as two products and a softmax, of heads where they lie."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from tilewright.graph.builder import build, cast, reshape
from tilewright.graph.graph import Graph
from tilewright.graph.value import Constant, Node, Value
from tilewright.ir.errors import ProblemError
from tilewright.target import Target
from tilewright.topi.operators.attention import Attention

_SWAPPED = (0, 2, 1, 3)
#: Rows of which a CPU multiplies sooner than it turns keys for them.
_FEW = 8
_FLOATS = ("float16", "bfloat16", "float32")


def takes(p: Attention, target: Target) -> bool:
    """Whether a target has a kernel for attention as a whole that is worth it: of others, two
    products and a softmax are faster."""
    if target.kind == "cuda":
        from tilewright.runtime.cuda import resolve_arch

        target = target.with_arch(resolve_arch(target))
    elif target.kind == "llvm" and p.rows < _FEW:
        return False
    from tilewright.topi.templates import templates  # all of them: few models ask

    # Those that are for any program compute stage after stage.
    return any(t.declares is not None for t in templates(p, target))


def find_attention(target: Target, dtype: str = "") -> Callable[[Graph], Graph]:
    """A pass: a product, its softmax and the product with that as one node, where the target has a
    kernel for it, in ``dtype`` if that is given.

    >>> from tilewright.graph.value import Input
    >>> q, k, v = (Input(name, (6, 9, 8), "float32") for name in "qkv")
    >>> scores = Node("multiply", (Node("gemm", (q, k), {"transpose_b": True}), 0.25))
    >>> y = Node("gemm", (Node("softmax", (scores,), {"axis": 2}), v))
    >>> print(find_attention(Target.parse("llvm"))(Graph("g", (q, k, v), {"y": y})))
    g(q: float32[6x9x8], k: float32[6x9x8], v: float32[6x9x8]):
      %0 = reshape(q, newshape=(1, 6, 9, 8))  # float32[1x6x9x8]
      %1 = reshape(k, newshape=(1, 6, 9, 8))  # float32[1x6x9x8]
      %2 = reshape(v, newshape=(1, 6, 9, 8))  # float32[1x6x9x8]
      %3 = attention(%0, %1, %2, scale='0.25')  # float32[1x6x9x8]
      y = reshape(%3, newshape=(6, 9, 8))  # float32[6x9x8]

    Queries, keys and values that were transposed to heads, or are three of one tensor, are read
    where they lie, and the result is transposed in their place. Before all passes that move what
    lies between the products. Where all scores of a row are minus infinity the result is 0, not
    NaN.
    """

    def change(node: Node, uses: Mapping[Value, int]) -> Value | None:
        if node.operator == "gemm":
            return _found(node, uses, target, dtype)
        return _laid(node) if node.operator == "attention" else None

    def run(graph: Graph) -> Graph:
        return graph.exchange(change)

    run.__name__ = "find_attention"
    return run


class _Matrices(NamedTuple):
    """Matrices of all heads, which ``x`` has one behind the other, each transposed or not, and a
    number that they are multiplied with."""

    x: Value
    turned: bool
    factor: float = 1.0


def _found(node: Node, uses: Mapping[Value, int], target: Target, dtype: str) -> Value | None:
    """The attention that a product ends; None where it ends none."""
    weights, values = node.inputs[:2]
    soft = _through(weights, uses, ("reshape", "cast", "identity"))
    plain = not node.attributes.get("epilogue") and not node.attributes.get("transpose_a")
    if not isinstance(soft, Node) or soft.operator != "softmax" or uses.get(soft, 1) > 1:
        return None
    if not plain or node.dtype not in _FLOATS:
        return None
    rank = soft.rank
    if soft.attributes["axis"] % rank != rank - 1 or not 2 <= rank <= 4:
        return None
    scores = _scores(soft.inputs[0], uses)
    if scores is None or scores.product.dtype != node.dtype:
        return None
    product = scores.product
    left, right = product.inputs[:2]
    first = _matrices(left, bool(product.attributes.get("transpose_a")))
    second = _matrices(right, not product.attributes.get("transpose_b"))
    third = _matrices(values, bool(node.attributes.get("transpose_b")), scaled=False)
    heads = (1,) * (4 - rank) + soft.shape[:-2]
    (*_, rows, keys), (width,) = soft.shape, node.shape[-1:]
    if weights.shape[-2:] != (rows, keys) or product.shape[-2:] != (rows, keys):
        return None
    depth = left.shape[-2 if product.attributes.get("transpose_a") else -1]
    q, k, v = (
        _whole(m, (*heads, *shape))
        for m, shape in ((first, (rows, depth)), (second, (keys, depth)), (third, (keys, width)))
    )
    scale = scores.factor * first.factor * second.factor
    mask = _mask(scores.masks, q.shape[0])
    if mask is None and scores.masks:
        return None
    given = [q, k, v, *([] if mask is None else [cast(mask, node.dtype)])]
    # Exporters round the root of the depth to float32.
    usual = math.isclose(scale, 1 / math.sqrt(depth), rel_tol=1e-6)
    attributes = {} if usual else {"scale": repr(scale)}
    try:
        p = Attention.of_shapes(
            *(x.shape for x in given), **{"dtype": dtype or node.dtype, **attributes}
        )
    except ProblemError:  # a mask of another form
        return None
    if not takes(p, target):
        return None
    made = Node("attention", tuple(given), attributes, node.name)
    return reshape(_laid(made), node.shape)


class _Scores(NamedTuple):
    """Products of queries and keys, what they are multiplied with, and what is added to that, each
    with the shape in which it is."""

    product: Node
    factor: float
    masks: tuple[tuple[Value, tuple[int, ...]], ...]


def _scores(x: Value, uses: Mapping[Value, int]) -> _Scores | None:
    """What a softmax is of, from the end to the product; None where that is something else."""
    factor = 1.0
    masks: list[tuple[Value, tuple[int, ...]]] = []
    while isinstance(x, Node) and uses.get(x, 1) == 1:
        scaled = _scaled(x)
        if x.operator == "gemm":
            return None if x.attributes.get("epilogue") else _Scores(x, factor, tuple(masks))
        if scaled is not None:
            x, factor = scaled[0], factor * scaled[1]
        elif x.operator in ("reshape", "identity") or (
            x.operator == "cast" and x.dtype in _FLOATS and x.inputs[0].dtype in _FLOATS
        ):
            (x,) = x.inputs
        elif x.operator == "add" and factor == 1 and len(x.inputs) == 2:
            a, b = x.inputs
            inner, mask = (a, b) if _scores(a, uses) is not None else (b, a)
            if inner.shape != x.shape:
                return None
            masks.append((mask, x.shape))
            x = inner
        else:
            return None
    return None


def _mask(masks: Sequence[tuple[Value, tuple[int, ...]]], batch: int) -> Value | None:
    """The sum of masks in four dimensions; None where there is none, or one has another form. Of a
    batch that is counted by two dimensions it may be the same along the first."""
    total: Value | None = None
    for mask, shape in masks:
        whole = (1,) * (len(shape) - mask.rank) + mask.shape
        if len(shape) == 5 and whole[0] == 1 and shape[0] * shape[1] == batch:
            whole = whole[1:]
        elif len(shape) > 4:
            return None
        mask = reshape(mask, (1,) * (4 - len(whole)) + whole)
        total = mask if total is None else build("add", total, mask)
    return total


def _scaled(x: Node) -> tuple[Value, float] | None:
    """A value and the number that it is multiplied with, or divided by."""
    if x.operator not in ("multiply", "divide"):
        return None
    a, b = x.operands
    if x.operator == "multiply" and not isinstance(a, Value):
        a, b = b, a
    if not isinstance(a, Value) or a.shape != x.shape:
        return None
    number = b.array.item() if isinstance(b, Constant) and math.prod(b.shape) == 1 else b
    if not isinstance(number, (int, float)) or not math.isfinite(number) or not number:
        return None
    return a, float(number) if x.operator == "multiply" else 1 / number


def _matrices(x: Value, turned: bool, scaled: bool = True) -> _Matrices:
    """Where matrices lie before they were scaled, reshaped and transposed."""
    factor = 1.0
    while isinstance(x, Node):
        found = _scaled(x) if scaled else None
        axes = x.attributes.get("axes", ())
        last = (*range(x.rank - 2), x.rank - 1, x.rank - 2)
        if found is not None:
            x, factor = found[0], factor * found[1]
        elif x.operator == "reshape" and (not turned or x.shape[-2:] == x.inputs[0].shape[-2:]):
            (x,) = x.inputs
        elif x.operator == "transpose" and axes == last:
            (x,), turned = x.inputs, not turned
        elif x.operator == "transpose" and turned and x.rank > 2:
            x = build("transpose", *x.inputs, axes=tuple(axes[a] for a in last))
            turned = False
            break
        else:
            break
    return _Matrices(x, turned, factor)


def _whole(m: _Matrices, shape: tuple[int, ...]) -> Value:
    """Matrices in a shape of four dimensions."""
    if not m.turned:
        return reshape(m.x, shape)
    *heads, rows, columns = shape
    return build("transpose", reshape(m.x, (*heads, columns, rows)), axes=(0, 1, 3, 2))


def _through(x: Value, uses: Mapping[Value, int], operators: Sequence[str]) -> Value:
    """What a value is made of by these operators, which nothing else reads."""
    while isinstance(x, Node) and x.operator in operators and uses.get(x, 1) == 1:
        (x,) = x.inputs
    return x


def _laid(node: Node) -> Value:
    """Attention of tensors in heads, of these where they lie."""
    if node.attributes.get("layout", "BHSD") != "BHSD":
        return node
    (q, k, v), rest = node.inputs[:3], node.inputs[3:]
    parts = [_third(x) for x in (q, k, v)]
    sources = {part[0] for part in parts if part is not None}
    if len(sources) == 1 and [part and part[1] for part in parts] == [0, 1, 2]:
        given, layout = [next(iter(sources))], "BS3HD"
    else:
        given, layout = [y for x in (q, k, v) if (y := _rows_first(x)) is not None], "BSHD"
        if len(given) < 3:
            return node
    attributes = {**node.attributes, "layout": layout}
    made = Node("attention", (*given, *rest), attributes, node.name)
    return build("transpose", made, axes=_SWAPPED)


def _rows_first(x: Value) -> Value | None:
    """(B, S, H, D) of what was transposed to (B, H, S, D); None of others. Of one head, or one
    row, both lie alike."""
    if isinstance(x, Node) and x.operator == "transpose" and x.attributes["axes"] == _SWAPPED:
        return x.inputs[0]
    if 1 in x.shape[1:3]:
        return reshape(x, tuple(x.shape[a] for a in _SWAPPED))
    third = _third(x)
    if third is None:
        return None
    source, place = third
    batch, rows, _, heads, depth = source.shape
    part = build(
        "strided_slice", source, begin=(0, 0, place, 0, 0), strides=(1,) * 5,
        shape=(batch, rows, 1, heads, depth),
    )  # fmt: skip
    return reshape(part, (batch, rows, heads, depth))


def _third(x: Value) -> tuple[Value, int] | None:
    """The tensor (B, S, 3, H, D) of queries, keys and values that ``x``, (B, H, S, D), is a part
    of, and which; None where it is none."""
    shape = x.shape
    if isinstance(x, Node) and x.operator == "reshape":
        (x,) = x.inputs
    if not isinstance(x, Node) or x.operator not in ("strided_slice", "take"):
        return None
    stack = x.inputs[0]
    if not isinstance(stack, Node) or stack.operator != "transpose":
        return None
    if stack.attributes["axes"] != (2, 0, 3, 1, 4) or stack.shape != (3, *shape):
        return None
    if x.operator == "strided_slice":
        begin, rest = x.attributes["begin"][0], x.attributes["begin"][1:]
        if x.shape != (1, *shape) or any(rest):
            return None
        return stack.inputs[0], begin
    place = x.inputs[1]
    single = isinstance(place, Constant) and not place.rank and x.attributes.get("axis") == 0
    if not single or not isinstance(place, Constant):
        return None
    return stack.inputs[0], int(place.array) % 3
