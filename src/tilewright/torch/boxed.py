"""Graphs that take a list and empty it, so that what they read is free before they end."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import fx
from torch.fx.graph import CodeGen

from tilewright.torch.recording import as_boxed
from tilewright.torch.region import Region


class _Boxed(CodeGen):
    """Text of a function whose one argument is a list of what placeholders stand for."""

    def gen_fn_def(self, free_vars: list[str], *rest: Any, **more: Any) -> str:
        names = [v.partition(":")[0].partition("=")[0].strip() for v in free_vars if v != "self"]
        unpacked = "".join(f"\n    {name} = given[{k}]" for k, name in enumerate(names))
        return f"def forward(self, given):{unpacked}\n    given.clear()"


def boxed(module: fx.GraphModule) -> Callable[[list[Any]], Any]:
    """What runs a graph in AOTAutograd's convention for such functions. Regions receive lists, too,
    and drop what nothing behind them reads."""
    graph = module.graph
    for node in graph.find_nodes(op="call_module"):
        if isinstance(getattr(module, str(node.target)), Region):
            with graph.inserting_before(node):
                node.args = (graph.call_function(_listed, node.args),)
    graph.set_codegen(_Boxed())
    module.recompile()
    forward = module.forward

    def run(given: list[Any]) -> Any:
        return forward(given)

    return as_boxed(run)


def _listed(*given: Any) -> list[Any]:
    return list(given)
