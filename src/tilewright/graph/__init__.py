"""Whole models: what they compute as a graph, passes over it, and running it.

``load`` reads a model; ``Model`` runs it. A graph has values for nodes, each made by an operator of
:mod:`tilewright.topi`; :mod:`.pipeline` is the list of passes; each node that is left is a problem,
for which :mod:`tilewright.select` has a kernel.
"""

from tilewright.graph.errors import ModelError
from tilewright.graph.graph import Graph
from tilewright.graph.load import load
from tilewright.graph.model import Model
from tilewright.graph.value import Constant, Input, Node, Value

__all__ = ["Constant", "Graph", "Input", "Model", "ModelError", "Node", "Value", "load"]
