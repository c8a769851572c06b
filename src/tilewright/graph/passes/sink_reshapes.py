"""Reshapes go behind what is done element by element, so that nothing stands between a product and
its epilogue."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence, Set
from typing import TypeGuard

from tilewright.graph.builder import build, reshape
from tilewright.graph.graph import Graph
from tilewright.graph.passes.channels_last import REDUCTIONS
from tilewright.graph.passes.make_programs import is_thin, sums_rows
from tilewright.graph.passes.own_outputs import owner
from tilewright.graph.value import Constant, Node, Operand, Value
from tilewright.graph.views import VIEWS
from tilewright.topi.functions import FUNCTIONS


def sink_reshapes(graph: Graph) -> Graph:
    """Compute in the shape before it was changed, and change that of the result.

    >>> from tilewright.graph.value import Input
    >>> a, r = Input("a", (6, 8), "float32"), Input("r", (2, 3, 8), "float32")
    >>> y = Node("add", (Node("reshape", (a,), {"newshape": (2, 3, 8)}), r))
    >>> print(sink_reshapes(Graph("g", (a, r), {"y": Node("relu", (y,))})))
    g(a: float32[6x8], r: float32[2x3x8]):
      %0 = reshape(r, newshape=(6, 8))  # float32[6x8]
      %1 = add(a, %0)  # float32[6x8]
      %2 = relu(%1)  # float32[6x8]
      y = reshape(%2, newshape=(2, 3, 8))  # float32[2x3x8]

    Before epilogues. A reshape costs nothing: it is the same memory.
    """
    return _all(graph, lambda node: node.operator in FUNCTIONS)


def sink_reshapes_of_sums(graph: Graph) -> Graph:
    """:func:`sink_reshapes` for residual sums, and factors that are known, alone: other functions
    stay beside what reads them, in its shape, so that one program has both."""

    def sinks(node: Node) -> bool:
        known = any(isinstance(x, Constant) for x in node.operands)
        return node.operator == "add" or (node.operator == "multiply" and known)

    return _all(graph, sinks)


def sink_moves(graph: Graph) -> Graph:
    """:func:`sink_reshapes` behind what moves elements into fewer dimensions: one program has both.

    >>> from tilewright.graph.value import Input
    >>> x = Input("x", (8, 8, 2, 2, 3), "float32")
    >>> y = Node("transpose", (x,), {"axes": (0, 2, 1, 3, 4)})
    >>> y = Node("relu", (Node("reshape", (y,), {"newshape": (16, 16, 3)}),))
    >>> print(sink_moves(Graph("g", (x,), {"y": y})))
    g(x: float32[8x8x2x2x3]):
      %0 = transpose(x, axes=(0, 2, 1, 3, 4))  # float32[8x2x8x2x3]
      %1 = relu(%0)  # float32[8x2x8x2x3]
      y = reshape(%1, newshape=(16, 16, 3))  # float32[16x16x3]
    """
    moved: set[Value] = set()

    def found(node: Node, uses: Mapping[Value, int]) -> Value | None:
        made = _sunk(node, uses, lambda x: _is_moved(x, moved))
        if made is not None:
            moved.add(made)
        return made

    return graph.exchange(found)


def _is_moved(x: Node, moved: Set[Value]) -> bool:
    """Whether it has what was moved in fewer dimensions than those that it was moved in."""
    if x.operator != "reshape" or x in moved:
        return x in moved
    source = x.inputs[0]
    return isinstance(source, Node) and source.operator == "transpose" and source.rank > x.rank


def sink_thin_reshapes(graph: Graph) -> Graph:
    """Reduce the dimension that has the elements, not one that stands before others of one element,
    which a change of layout may leave: rows have a schedule, columns of one element have none.

    >>> from tilewright.graph.value import Input
    >>> x = Input("x", (4, 1, 1, 64), "float32")
    >>> y = Node("reshape", (x,), {"newshape": (4, 64, 1, 1)})
    >>> y = Node("sum", (y,), {"axis": (1,), "keepdims": True})
    >>> print(sink_thin_reshapes(Graph("g", (x,), {"y": y})))
    g(x: float32[4x1x1x64]):
      y = sum(x, axis=(3,), keepdims=True)  # float32[4x1x1x1]
    """
    return graph.map(lambda _, node: _reduced(node) or _in_rows(node) or node)


def lift_reshapes(graph: Graph) -> Graph:
    """Change the shape of what is computed element by element before it, where other functions read
    the result: then one program has all of them.

    >>> from tilewright.graph.value import Input
    >>> x = Input("x", (4, 1, 1, 64), "float32")
    >>> y = Node("reshape", (Node("divide", (x, 49)),), {"newshape": (4, 64)})
    >>> s = Node("sum", (y,), {"axis": (1,), "keepdims": True})
    >>> print(lift_reshapes(Graph("g", (x,), {"y": Node("subtract", (y, s))})))
    g(x: float32[4x1x1x64]):
      %0 = reshape(x, newshape=(4, 64))  # float32[4x64]
      %1 = divide(%0, 49)  # float32[4x64]
      %2 = sum(%1, axis=(1,), keepdims=True)  # float32[4x1]
      y = subtract(%1, %2)  # float32[4x64]

    Before programs, which begin behind a sum of columns, as the mean of an image is. Reshapes move
    as far as what is stored or not at all, but for sums of rows those that add or drop dimensions
    of one element, which programs take in. Where one cannot move up, what is done to its one
    operand moves before it.
    """
    uses = dict(graph.uses)
    summed = {n.inputs[0] for n in graph.nodes if sums_rows(n)}
    functions = (n for n in graph.nodes if n.operator in FUNCTIONS and n.operator not in VIEWS)
    read = {x for n in functions for x in n.inputs}

    def change(old: Node, now: Node) -> Value:
        lifts = now.operator == "reshape" and (
            (is_thin(now) and old in summed) or (old in read and _moves(now.inputs[0], uses))
        )
        made = _lifted(now, uses) if lifts else _before_reshape(now, uses) or now
        uses[made] = uses[old]
        return made

    return graph.map(change)


def _moves(x: Value, uses: Mapping[Value, int]) -> bool:
    """Whether all functions of elements up to what is stored may have another shape."""
    if not _by_elements(x) or uses.get(x, 1) > 1:
        return True
    return all(o.shape == x.shape and _moves(o, uses) for o in x.inputs)


def _lifted(node: Value, uses: Mapping[Value, int]) -> Value:
    """A reshape before the functions of elements that it reads."""
    if not isinstance(node, Node) or node.operator != "reshape":
        return node
    x = node.inputs[0]
    if not _by_elements(x) or (uses.get(x, 1) > 1 and x.operator != "cast"):
        return node  # a cast costs nothing where a program takes it in
    if any(o.shape != x.shape for o in x.inputs):
        return node
    given = [
        _lifted(_shaped(o, node.shape), uses) if isinstance(o, Value) else o for o in x.operands
    ]
    return build(x.operator, *given, name=x.name, **x.attributes)


def _shaped(x: Value, shape: tuple[int, ...]) -> Value:
    """A value in another shape, which it may have had itself before a cast."""
    source = owner(x)
    if isinstance(source, Node) and source.operator == "cast":
        before = owner(source.inputs[0])
        if before.shape == shape != source.shape:
            return Node("cast", (before,), source.attributes, source.name)
    return source if source.shape == shape else Node("reshape", (source,), {"newshape": shape})


def _before_reshape(node: Node, uses: Mapping[Value, int]) -> Value | None:
    """A function of one operand, which is another one's result in another shape, in its shape."""
    if not _by_elements(node) or len(node.inputs) != 1:
        return None
    (x,) = node.inputs
    source = owner(x)
    alone = uses.get(x, 1) == uses.get(source, 1) == 1 and not is_thin(x)
    if x is source or not alone or not _by_elements(source):
        return None
    given = [source if isinstance(o, Value) else o for o in node.operands]
    return reshape(build(node.operator, *given, name=node.name, **node.attributes), node.shape)


def _by_elements(x: Value) -> TypeGuard[Node]:
    if not isinstance(x, Node) or x.operator not in FUNCTIONS or not x.inputs:
        return False
    return FUNCTIONS[x.operator].kind == "broadcast"


def _in_rows(node: Node) -> Value | None:
    """A function of elements, which lie along the last dimension before a thin reshape."""
    function = FUNCTIONS.get(node.operator)
    if function is None or function.kind != "broadcast" or not node.rank or node.shape[-1] != 1:
        return None
    thin = [x for x in node.inputs if is_thin(x) and x.shape == node.shape]
    sources = [x.inputs[0].shape for x in thin if x.inputs[0].shape[-1:] > (1,)]
    if not sources:
        return None
    shape = sources[0]
    if any(x.rank != node.rank and math.prod(x.shape) != 1 for x in node.inputs):
        return None
    given = [_moved(x, node.shape, shape) if isinstance(x, Value) else x for x in node.operands]
    found = build(node.operator, *given, name=node.name, **node.attributes)
    return reshape(found, node.shape)


def _moved(x: Value, before: Sequence[int], after: Sequence[int]) -> Value:
    """An operand of a result of ``before``, for one of ``after``, a thin reshape of the other."""
    if x.rank != len(before):  # one element
        return reshape(x, (1,) * len(after))
    extents = iter([e for e, full in zip(x.shape, before, strict=True) if full != 1])
    return reshape(x, tuple(1 if e == 1 else next(extents) for e in after))


def _reduced(node: Node) -> Value | None:
    """A reduction of what a thin reshape reads."""
    axes = node.attributes.get("axis")
    if node.operator not in REDUCTIONS or axes is None or not is_thin(node.inputs[0]):
        return None
    x = node.inputs[0]
    assert isinstance(x, Node)
    (source,) = x.inputs
    given = {a % x.rank for a in ((axes,) if isinstance(axes, int) else axes)}
    if x.rank - 1 in given and x.shape[-1] > 1:
        return None  # rows already, and what else is computed of them stays beside their sum
    here = (d for d, e in enumerate(x.shape) if e != 1)
    places = (d for d, e in enumerate(source.shape) if e != 1)
    moved = [there for d, there in zip(here, places, strict=True) if d in given]
    if not moved:
        return None
    found = build(node.operator, source, name=node.name, axis=tuple(moved), keepdims=True)
    return reshape(found, node.shape)


def _all(graph: Graph, sinks: Callable[[Node], bool]) -> Graph:
    return graph.exchange(lambda node, uses: _sunk(node, uses) if sinks(node) else None)


def _sunk(
    node: Node, uses: Mapping[Value, int], takes: Callable[[Node], bool] = lambda x: True
) -> Value | None:
    """The function of what a reshape reads, one that it ``takes``."""
    function = FUNCTIONS.get(node.operator)
    if function is None or function.kind != "broadcast":
        return None
    for x in node.inputs:
        if not isinstance(x, Node) or x.operator != "reshape" or x.shape != node.shape:
            continue
        if not takes(x):
            continue
        source = x.inputs[0]
        others = [o for o in node.inputs if o is not x]
        if uses.get(x, 1) > 1:
            continue
        given = [o if o is not x else source for o in node.operands]
        if all(o.shape == x.shape for o in others):
            given = [_as(o, source.shape) if o is not source else o for o in given]
        elif _along_last(source, x, others):
            given = [_row(o) if isinstance(o, Constant) else o for o in given]
        else:
            continue
        found = build(node.operator, *given, name=node.name, **node.attributes)
        return reshape(found, node.shape)
    return None


def _as(x: Operand, shape: tuple[int, ...]) -> Operand:
    return reshape(x, shape) if isinstance(x, Value) else x


def _along_last(source: Value, x: Value, others: Sequence[Value]) -> bool:
    """Whether others are known and the same for all but the last dimension, which stays."""
    return (
        source.rank > 0
        and x.rank > 0
        and source.shape[-1] == x.shape[-1]
        and all(
            isinstance(o, Constant)
            and math.prod(o.shape[:-1]) == 1
            and math.prod(o.shape) in (1, x.shape[-1])
            for o in others
        )
    )


def _row(x: Constant) -> Value:
    """What is the same for all dimensions but the last, without these."""
    return reshape(x, x.shape[-1:]) if x.rank > 1 else x
