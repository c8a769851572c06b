"""What holds of every graph; each pass must leave it so."""

from __future__ import annotations

from tilewright.graph.errors import ModelError
from tilewright.graph.graph import Graph
from tilewright.graph.value import Input, Node, text_of
from tilewright.ir.dtype import SCALARS


def check(graph: Graph) -> Graph:
    """The graph itself; raises :class:`ModelError` where

    - it has no output, or two inputs of one name,
    - a value is of a type that there is not, or of no elements,
    - it reads an input that is none of its own,
    - a node is not of the type that its operator makes of its operands.

    There are no cycles, since a node cannot point at one that is made later.
    """
    if not graph.outputs:
        raise ModelError(f"{graph.name} has no output")
    names = [x.name for x in graph.inputs]
    if len(set(names)) < len(names):
        raise ModelError(f"{graph.name} has several inputs of one name: {', '.join(names)}")
    for value in graph.values:
        if value.dtype not in SCALARS or any(type(e) is not int or e < 1 for e in value.shape):
            raise ModelError(f"{value.name or 'a value'} is of {text_of(value.type)}")
        if isinstance(value, Input) and value not in graph.inputs:
            raise ModelError(f"{graph.name} reads {value.name}, which is none of its inputs")
        if isinstance(value, Node):
            again = Node(value.operator, value.operands, value.attributes, value.name)
            if again.type != value.type:
                raise ModelError(f"{value.name}: {text_of(value.type)}, not {text_of(again.type)}")
    return graph
