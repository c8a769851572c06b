"""Whole models: what they compute as a graph, passes over it, and running it.

``load`` reads a model; ``Model`` runs it. A graph has values for nodes, each made by an operator of
:mod:`tilewright.topi`; :mod:`.pipeline` is the list of passes; each node that is left is a problem,
for which :mod:`tilewright.select` has a kernel.
"""

from typing import TYPE_CHECKING

from tilewright.graph.load import load
from tilewright.lazy import loading

if TYPE_CHECKING:
    from tilewright.graph.errors import ModelError
    from tilewright.graph.graph import Graph
    from tilewright.graph.model import Model
    from tilewright.graph.value import Constant, Input, Node, Value

#: Loaded when they are first used: ``load`` opens a GPU before it loads what a model is.
_HOMES = {
    "Constant": "value", "Graph": "graph", "Input": "value", "Model": "model",
    "ModelError": "errors", "Node": "value", "Value": "value",
}  # fmt: skip
__getattr__ = loading(__name__, {name: f"{__name__}.{home}" for name, home in _HOMES.items()})

__all__ = ["Constant", "Graph", "Input", "Model", "ModelError", "Node", "Value", "load"]


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
