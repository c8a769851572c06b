"""Images lie with channels last, where kernels for convolutions are faster so."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

from tilewright.graph.builder import build, reshape
from tilewright.graph.graph import Graph
from tilewright.graph.value import Node, Operand, Value
from tilewright.target import Target
from tilewright.topi.cpu.candidates import features
from tilewright.topi.functions import FUNCTIONS
from tilewright.topi.operators.conv import Conv
from tilewright.topi.operators.conv_shapes import layouts
from tilewright.topi.operators.convolution import Convolution
from tilewright.topi.problem import QUANTIZED
from tilewright.topi.template import DEPTHWISE

_CONVOLUTIONS = frozenset({"conv1d", "conv2d", "conv3d", *DEPTHWISE})
_POOLING = frozenset({"avg_pool", "max_pool", "sum_pool"})
REDUCTIONS = frozenset({"max", "min", "prod", "sum"})


def types_last(target: Target) -> tuple[str, ...]:
    """The types in which convolutions of a target are faster with channels last: on Hopper, whose
    tensor cores read boxes of images (docs/decisions/0017-boxes.md), and on a CPU, where vectors
    are across channels and a constant filter is packed ahead, so that nothing is turned; so are
    rows of AMX's tiles."""
    if target.kind == "llvm":
        tiles = ("bfloat16",) * ("amx-bf16" in features(target))
        return ("float32", *tiles, *QUANTIZED)
    if target.kind != "cuda":
        return ()
    from tilewright.runtime.cuda import resolve_arch

    return ("float16", "bfloat16", *QUANTIZED) if resolve_arch(target) == "sm_90a" else ()


def channels_last(
    types: Sequence[str], in_planes: Callable[[Conv], bool] | None = None
) -> Callable[[Graph], Graph]:
    """A pass: convolutions of these types with channels last, and all that lies between them. Those
    of depthwise problems that are faster ``in_planes``, copies included, read and make such.

    >>> import numpy as np
    >>> from tilewright.graph.value import Constant, Input
    >>> x, w = Input("x", (2, 8, 6, 6), "float16"), Constant(np.ones((8, 8, 1, 1), "float16"), "w")
    >>> y = Node("add", (Node("relu", (Node("conv2d", (x, w)),)), x))
    >>> print(channels_last(["float16"])(Graph("g", (x,), {"y": Node("conv2d", (y, w))})))
    g(x: float16[2x8x6x6]):
      %0 = transpose(x, axes=(0, 2, 3, 1))  # float16[2x6x6x8]
      %1 = conv2d(%0, w: float16[8x1x1x8], layout='NHWC')  # float16[2x6x6x8]
      %2 = relu(%1)  # float16[2x6x6x8]
      %3 = add(%2, %0)  # float16[2x6x6x8]
      %4 = conv2d(%3, w: float16[8x1x1x8], layout='NHWC')  # float16[2x6x6x8]
      y = transpose(%4, axes=(0, 3, 1, 2))  # float16[2x8x6x6]

    Behind epilogues, which know channels by their first layout, and before programs. What is turned
    twice is not turned; where one dimension alone is long, a reshape does.
    """

    def run(graph: Graph) -> Graph:
        made = _Turning(types, in_planes)
        for value in graph.values:
            made.add(value)
        outputs = {name: made.first(x) for name, x in graph.outputs.items()}
        return Graph(graph.name, graph.inputs, outputs)

    run.__name__ = "channels_last"
    return run


class _Turning:
    """Each value as it lay, or with its second dimension last, or both where both are read."""

    def __init__(self, types: Sequence[str], in_planes: Callable[[Conv], bool] | None) -> None:
        self._types = types
        self._in_planes = None if in_planes is None else functools.cache(in_planes)
        self._first: dict[Value, Value] = {}
        self._last: dict[Value, Value] = {}
        self._copies: dict[Value, Value] = {}  # as they lay, for convolutions in planes alone

    def first(self, x: Value) -> Value:
        """A value as it lay."""
        if x not in self._first:
            self._first[x] = self._copy(x)
        return self._first[x]

    def _copy(self, x: Value) -> Value:
        """A value as it lay, which decides nothing for others that read it."""
        if x in self._first:
            return self._first[x]
        if x not in self._copies:
            self._copies[x] = _turned(self._last[x], (0, x.rank - 1, *range(1, x.rank - 1)))
        return self._copies[x]

    def last(self, x: Value) -> Value:
        """A value with its second dimension last."""
        if x not in self._last:
            self._last[x] = _turned(self._first[x], _to_last(x.rank))
        return self._last[x]

    def add(self, x: Value) -> None:
        """Make a value, in the layout that is better."""
        if not isinstance(x, Node):
            self._first[x] = x
            return
        found = self._total(x) if x.operator in REDUCTIONS else None
        if found is not None:
            self._first[x] = found
            return
        found = self._made(x)
        if found is not None and _is_own_filter(x):
            self._first[x] = found
        elif found is not None:
            self._last[x] = found
        elif x.operator == "transpose":
            self._transpose(x)
        elif x.operator == "reshape":
            self._reshape(x)
        else:
            given = tuple(self.first(v) if isinstance(v, Value) else v for v in x.operands)
            same = all(a is b for a, b in zip(given, x.operands, strict=True))
            self._first[x] = x if same else _like(x, given)

    def _made(self, x: Node) -> Value | None:
        """A node with channels last; None where it stays as it is."""
        if x.operator in _CONVOLUTIONS:
            return self._convolution(x)
        function = FUNCTIONS.get(x.operator)
        alike = [v for v in x.inputs if v.rank == x.rank]
        if x.rank < 3 or function is None:
            return None
        # Numbers of channels, as those that squeeze-and-excite scales by, lie either way: they
        # follow what they are of, and decide nothing for images.
        thin = function.kind == "broadcast" and _stays(x.shape, _to_last(x.rank))
        turned = [v for v in alike if self._lies_last(v)]
        if all(not thin and _stays(v.shape, _to_last(v.rank)) for v in turned):
            return None
        if function.kind == "broadcast":
            return build(
                x.operator, *(self._spread(v, x.rank) for v in x.operands), name=x.name,
                **x.attributes,
            )  # fmt: skip
        more: dict[str, Any] | None = None
        if x.operator in _POOLING:
            more = {"last": True}
        elif x.operator in REDUCTIONS and x.attributes.get("keepdims"):
            axis = x.attributes.get("axis")
            more = {"axis": axis if axis is None else _axes(axis, x.rank)}
        elif x.operator in ("softmax", "log_softmax", "concatenate", "resample"):
            (axis,) = _axes(x.attributes.get("axis", 0), x.rank)
            more = {"axis": axis}
        elif x.operator == "strided_slice":
            names = ("begin", "strides", "shape")
            more = {n: tuple(x.attributes[n][d] for d in _to_last(x.rank)) for n in names}
        elif x.operator == "constant_pad":
            more = {k: _in_order(x.attributes[k], _to_last(x.rank)) for k in ("before", "after")}
        if more is None:
            return None
        given = [self.last(v) if v.rank == x.rank else self.first(v) for v in x.inputs]
        return _like(x, given, **more)

    def _total(self, x: Node) -> Value | None:
        """A reduction that drops dimensions, of what lies with channels last; None where that
        moves those that stay past one another."""
        source, axis = x.inputs[0], x.attributes.get("axis")
        if x.attributes.get("keepdims") or axis is None or not self._lies_last(source):
            return None
        axes = _axes(axis, source.rank)
        kept = [d for k, d in enumerate(_to_last(source.rank)) if k not in axes]
        long = [d for d in kept if source.shape[d] > 1]
        if long != sorted(long):
            return None
        return reshape(_like(x, (self.last(source),), axis=axes, keepdims=True), x.shape)

    def _convolution(self, x: Node) -> Value | None:
        p = x.problem
        if p.dtype not in self._types or x.attributes.get("layout"):
            return None
        image, filter, *more = x.inputs
        assert isinstance(p, Convolution)
        layout = layouts(x.rank - 2)[1]
        if isinstance(p, Conv) and self._is_faster_in_planes(p.replace(layout=layout)):
            if not _is_own_filter(x) and not self._lies_last(image):
                return None
            found = _like(x, tuple(self._copy(v) for v in x.inputs))
            return found if _is_own_filter(x) else _turned(found, _to_last(x.rank))
        # Depthwise filters lie alike in every layout.
        same = p.OWN_FILTERS and p.pass_ == "forward" and p.groups == p.channels
        own = self.first(filter) if same else self.last(filter)
        given = [self.last(v) if v.rank == x.rank else self.first(v) for v in more]
        return _like(x, (self.last(image), own, *given), layout=layout)

    def _is_faster_in_planes(self, p: Conv) -> bool:
        return self._in_planes is not None and p.is_depthwise and self._in_planes(p)

    def _lies_last(self, x: Value) -> bool:
        return x in self._last and x not in self._first

    def _spread(self, x: Operand, rank: int) -> Operand:
        """An operand of what is done by elements, with channels last."""
        if not isinstance(x, Value):
            return x
        if x.rank == rank:
            return self.last(x)
        whole = reshape(self.first(x), (*(1,) * (rank - x.rank), *x.shape))
        return _turned(whole, _to_last(rank))

    def _reshape(self, x: Node) -> None:
        """One that makes a row of an image keeps channels where they are."""
        source = x.inputs[0]
        pixels = (*source.shape[:2], math.prod(source.shape[2:]))
        if source.rank > 2 and x.shape == pixels and self._lies_last(source):
            batch, channels, count = pixels
            self._last[x] = reshape(self.last(source), (batch, count, channels))
        else:
            self._first[x] = reshape(self.first(source), x.shape)

    def _transpose(self, x: Node) -> None:
        """One that turns as this pass does is none."""
        axes, source = tuple(x.attributes["axes"]), x.inputs[0]
        if self._lies_last(source):
            at = _to_last(x.rank)
            self._first[x] = _turned(self._last[source], tuple(at.index(a) for a in axes))
        elif x.rank > 2 and axes == (0, x.rank - 1, *range(1, x.rank - 1)):
            self._last[x] = self.first(source)
        else:
            self._first[x] = _like(x, (self.first(source),))


def _is_own_filter(x: Node) -> bool:
    """Whether it is the gradient by a depthwise filter, which lies alike in every layout."""
    p = x.problem
    return isinstance(p, Convolution) and p.pass_ == "wgrad" and p.OWN_FILTERS and p.is_depthwise


def _like(x: Node, operands: Sequence[Operand], **more: Any) -> Node:
    return Node(x.operator, tuple(operands), {**x.attributes, **more}, x.name)


def _to_last(rank: int) -> tuple[int, ...]:
    return (0, *range(2, rank), 1)


def _in_order(values: Sequence[Any], axes: Sequence[int]) -> tuple[Any, ...]:
    return tuple(values[a] for a in axes)


def _axes(axis: int | Sequence[int], rank: int) -> tuple[int, ...]:
    """Where dimensions are when the second is last."""
    given = (axis,) if isinstance(axis, int) else axis
    return tuple(sorted(_to_last(rank).index(a % rank) for a in given))


def _stays(shape: Sequence[int], axes: tuple[int, ...]) -> bool:
    """Whether no long dimension passes another one."""
    long = [a for a in axes if shape[a] > 1]
    return long == sorted(long)


def _turned(x: Value, axes: tuple[int, ...]) -> Value:
    """``x`` with its dimensions in another order: a reshape where no long one passes another."""
    if _stays(x.shape, axes):
        return reshape(x, tuple(x.shape[a] for a in axes))
    if isinstance(x, Node) and x.operator == "transpose":
        inner = x.attributes["axes"]
        return build("transpose", x.inputs[0], axes=tuple(inner[a] for a in axes))
    return build("transpose", x, name=x.name, axes=axes)
