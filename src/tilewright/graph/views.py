"""Values that have no memory of their own: parts of others, or the same in another order.

A reshaped value is the memory of what it is made of. So is a ``transpose_view``, whose neighbours
are elsewhere in it, and a ``slice_view`` is a part of it. What a ``concatenate_view`` joins is
written where it lies in the whole: then none of it is copied. Kernels read and write views by their
strides.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from tilewright.graph.graph import Graph
from tilewright.graph.value import Node, Value
from tilewright.topi.problem import Problem

#: Functions that no kernel computes.
VIEWS = frozenset({"reshape", "slice_view", "transpose_view", "concatenate_view"})


class View(NamedTuple):
    """Where a value lies: in the memory of ``owner``, from element ``offset`` on, neighbours along
    each of its dimensions ``strides`` elements apart."""

    owner: Value
    offset: int
    strides: tuple[int, ...]


def views(graph: Graph) -> Mapping[Value, View]:
    """Of each value of a graph. Each part of a ``concatenate_view`` is one that :func:`holder`
    finds, and a part of no other."""
    found: dict[Value, View] = {}
    for value in reversed(graph.values):  # the whole before its parts
        if isinstance(value, Node) and value.operator == "concatenate_view":
            whole = found.setdefault(value, _own(value))
            for part, begin in parts(value, whole.strides):
                lies = holder(part, whole._replace(offset=whole.offset + begin))
                assert lies is not None, f"{part.name} is no part of {value.name}"
                found[lies[0]] = lies[1]
    for value in (*graph.inputs, *graph.values):  # nobody may read an input
        if value not in found:
            found[value] = _read(value, found) or _own(value)
    return found


def parts(whole: Node, strides: Sequence[int]) -> list[tuple[Value, int]]:
    """What a ``concatenate_view`` of such strides joins, and how many elements behind its first one
    each begins."""
    axis, begin, found = int(whole.attributes["axis"]) % whole.rank, 0, []
    for part in whole.inputs:
        found.append((part, begin * strides[axis]))
        begin += part.shape[axis]
    return found


def holder(part: Value, view: View) -> tuple[Value, View] | None:
    """What has to write a part, and where, so that the part is ``view``; None where it cannot."""
    while isinstance(part, Node) and part.operator == "reshape":
        strides = reshaped(part.shape, view.strides, part.inputs[0].shape)
        if strides is None:
            return None
        part, view = part.inputs[0], view._replace(strides=strides)
    return part, view


def _read(value: Value, found: Mapping[Value, View]) -> View | None:
    if not isinstance(value, Node) or value.operator not in VIEWS:
        return None
    source = found[value.inputs[0]]
    if value.operator == "transpose_view":
        axes = value.attributes["axes"]
        return source._replace(strides=tuple(source.strides[a] for a in axes))
    if value.operator == "slice_view":
        begin = sum(map(operator.mul, value.attributes["begin"], source.strides))
        return source._replace(offset=source.offset + begin)
    strides = reshaped(value.inputs[0].shape, source.strides, value.shape)
    assert strides is not None, f"{value.name} is no view of {value.inputs[0].name}"
    return source._replace(strides=strides)


def _own(value: Value) -> View:
    return View(value, 0, dense(value.shape))


def dense(shape: Sequence[int]) -> tuple[int, ...]:
    """The strides of a tensor whose elements lie one behind the other."""
    return tuple(math.prod(shape[d + 1 :]) for d in range(len(shape)))


def is_dense(shape: Sequence[int], strides: Sequence[int]) -> bool:
    """Whether strides are those, as far as they count."""
    each = zip(shape, strides, dense(shape), strict=True)
    return all(e == 1 or a == b for e, a, b in each)


def reshaped(
    shape: Sequence[int], strides: Sequence[int], to: Sequence[int]
) -> tuple[int, ...] | None:
    """The strides of a tensor of as many elements in another shape, without a move of any; None
    where there are none.

    >>> reshaped((1, 4, 6, 8), (960, 240, 40, 1), (24, 8))
    (40, 1)
    >>> reshaped((24, 8), (40, 1), (4, 6, 2, 4))
    (240, 40, 4, 1)
    >>> reshaped((24, 8), (40, 1), (192,)) is None
    True
    """
    runs: list[tuple[int, int]] = []  # of elements a constant distance apart, outermost first
    for extent, stride in zip(shape, strides, strict=True):
        if extent == 1:
            continue
        if runs and runs[-1][1] == extent * stride:
            runs[-1] = runs[-1][0] * extent, stride
        else:
            runs.append((extent, stride))
    made: list[int] = []
    left = 1
    for extent in reversed(to):
        if left == 1 and runs and extent > 1:
            left, apart = runs.pop()
        if extent == 1:
            made.append(made[-1] if made else 1)
        elif left % extent:
            return None
        else:
            made.append(apart)
            left, apart = left // extent, apart * extent
    return tuple(reversed(made))


def problem_of(node: Node, found: Mapping[Value, View]) -> Problem:
    """The work of a node on values that lie so."""
    problem = node.problem
    tensors = [*problem.inputs().items(), ("result", problem.result)]
    made = []
    for (name, type), value in zip(tensors, (*node.inputs, node), strict=True):
        strides = found[value].strides
        if not is_dense(value.shape, strides):
            lies = reshaped(value.shape, strides, type.shape)
            assert lies is not None, f"{name} of {node.name}"
            made.append(f"{name}_{'x'.join(map(str, lies))}")
    return problem.replace(strides=tuple(made)) if made else problem
