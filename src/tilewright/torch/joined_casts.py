"""Casts of many parameters, or of their gradients, are one call."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx

from tilewright.graph.fx.layout import is_dense, memory_order
from tilewright.runtime.torch_memory import allocator

#: Casts from which on one call is sooner than a kernel for each.
_FEW = 8


def join_casts(module: fx.GraphModule, static: Sequence[fx.Node]) -> int:
    """Cast what a training graph on a GPU reads, and what it returns, from one type to another by
    one call of PyTorch's for all such tensors; says how many those are.

    Under autocast these are the weights and their gradients: a kernel of ours would be launched,
    and built, for each of them.
    """
    count = 0
    groups: dict[Any, list[fx.Node]] = {}
    for node in module.graph.find_nodes(op="call_function", target=torch.ops.aten._to_copy.default):
        if _is_cast(node):
            x, made = node.args[0].meta["val"], node.meta["val"]
            first = made.itemsize < x.itemsize and node.args[0] in static
            if first or all(user.op == "output" for user in node.users):
                groups.setdefault((first, x.dtype, made.dtype, x.device), []).append(node)
    for (first, *_), nodes in groups.items():
        if len(nodes) >= _FEW:
            _join(module.graph, nodes, first)
            count += len(nodes)
    module.recompile()
    return count


def _is_cast(node: fx.Node) -> bool:
    """Whether a node makes a tensor of another type that lies as the one it reads."""
    x, made = node.args[0].meta.get("val"), node.meta.get("val")
    plain = set(node.kwargs) <= {"dtype", "layout", "device"}
    if not plain or not all(isinstance(t, torch.Tensor) for t in (x, made)):
        return False
    known = all(isinstance(e, int) for e in (*x.shape, *x.stride()))
    return (
        known
        and x.device == made.device
        and x.is_cuda
        and x.dtype.is_floating_point
        and x.stride() == made.stride()
        and is_dense(x.shape, x.stride(), memory_order(x.shape, x.stride()))
    )


def _join(graph: fx.Graph, nodes: Sequence[fx.Node], first: bool) -> None:
    values = [n.meta["val"] for n in nodes]
    anywhere = (n for n in graph.nodes if n.op != "placeholder")
    with graph.inserting_before(next(anywhere) if first else graph.output_node()):
        whole = graph.call_function(casts([v.dtype for v in values]), ([n.args[0] for n in nodes],))
        whole.meta["val"] = tuple(values)
        parts = [graph.call_function(operator.getitem, (whole, k)) for k in range(len(nodes))]
    for node, part in zip(nodes, parts, strict=True):
        part.meta["val"] = node.meta["val"]
        node.replace_all_uses_with(part)
        graph.erase_node(node)


def casts(
    types: Sequence[torch.dtype],
) -> Callable[[Sequence[torch.Tensor]], list[torch.Tensor]]:
    """A function that casts dense tensors to these types. They lie in each call as in the first."""
    makes: list[Callable[[], torch.Tensor]] = []

    def cast_all(given: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        if not makes:  # at once, as other threads may be here, too
            makes[:] = [
                allocator(torch, tuple(x.shape), x.stride(), dtype, x.device)
                for x, dtype in zip(given, types, strict=True)
            ]
        made = [make() for make in makes]
        torch._foreach_copy_(made, list(given))
        return made

    return cast_all
