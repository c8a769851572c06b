"""What kernels of a graph do for any batch.

A graph has shapes that are known. Where its batch is one of several that a model is called with,
kernels are built for any: of each node it is looked up which first extents count images, and the
kernel takes that count when it is launched. Tiles are chosen for an expected number of images, so
that calls with about as many share all kernels.

Nothing is assumed of what an extent means. A kernel for any count is, at the count of this call,
that of the very problem of the node; an extent that is a multiple of the images by chance gives a
kernel that no other batch asks for.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from tilewright.graph.graph import Graph
from tilewright.graph.signature import Parameter
from tilewright.graph.value import Node, Value
from tilewright.graph.views import problem_of, views
from tilewright.ir.errors import ProblemError
from tilewright.topi.batch import Batch, expected_of
from tilewright.topi.problem import Problem


class Work(NamedTuple):
    """A ``problem``, and where its kernel is to be for any batch: the ``expected`` problem and its
    batch, and the ``counts`` that a launch is given."""

    problem: Problem
    expected: tuple[Problem, Batch] | None = None
    counts: tuple[int, ...] = ()


@dataclass
class Batches:
    """The batches of a model, the first extent of the inputs ``names``. Kernels are for any; but
    those of the ``first`` one are its own where nothing says that there will be others, as many
    models are called with no other: ``own`` has it, by the shapes without it."""

    names: tuple[str, ...] = ()
    first: bool = True
    own: dict[Hashable, int] = field(default_factory=dict)

    def images(self, shapes: Mapping[str, tuple[int, ...]]) -> int:
        """How many images kernels for any batch are for; 0 where they are for these shapes."""
        if not self.names:
            return 0
        images = shapes[self.names[0]][0]
        if not self.first:
            return images
        rest = tuple(e[1:] if name in self.names else e for name, e in shapes.items())
        return images if self.own.setdefault(rest, images) != images else 0


def batch_of(inputs: Sequence[Parameter]) -> tuple[str, ...]:
    """The inputs whose first extent a call decides, and is the same for all of them."""
    firsts = {p.name: p.shape[0] for p in inputs if p.shape and isinstance(p.shape[0], str)}
    first = next(iter(firsts.values()), None)
    return tuple(name for name, extent in firsts.items() if extent == first)


def works_of(
    graph: Graph, nodes: Sequence[Node], images: int = 0, named: Collection[str] = ()
) -> list[Work]:
    """The work of each node on values that lie as the graph has them, for any batch where there are
    ``images``, which the inputs that are ``named`` have first."""
    lies = views(graph)
    problems = [problem_of(n, lies) for n in nodes]
    if images < 2:  # of one image dimensions are left out that others have
        return [Work(p) for p in problems]
    known: set[Value] = {x for x in graph.inputs if x.name in named}
    for node in graph.nodes:
        if not known.isdisjoint(node.inputs):
            known.add(node)
    return [_work(n, p, images, known) for n, p in zip(nodes, problems, strict=True)]


def _work(node: Node, p: Problem, images: int, known: set[Value]) -> Work:
    among = [name for name, x in zip(p.inputs(), node.inputs, strict=True) if x in known]
    batch = p.batch_of(images, among)
    if batch is None:
        return Work(p)
    count = batch.count // images * expected_of(images)
    try:
        found, expected = p.at(batch, count), Batch(count, batch.inputs)
        if batch.count > found.most_of(expected):  # launches are given counts as they are
            return Work(p)
    except ProblemError:  # it says elsewhere how large something is, or that is so by chance
        return Work(p)
    return Work(p, (found, expected), (batch.count,))
