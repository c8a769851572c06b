"""The graph of a forward and a backward pass together, and how it is cut in two."""

from __future__ import annotations

import operator
from collections.abc import Iterator
from typing import Any

import torch
from torch import fx

_aten = torch.ops.aten
#: Of ReLU.
_GRADIENT = _aten.threshold_backward.default
_SAME = (_aten.detach.default, _aten.alias.default)
#: What changes an input.
WRITE = _aten.copy_.default


def cut(
    joint: fx.GraphModule, inputs: Any, *, num_fwd_outputs: int, **kwargs: Any
) -> tuple[fx.GraphModule, fx.GraphModule]:
    """The forward and the backward graph: of what is cheap, what the backward pass needs is
    computed again there, not stored."""
    from torch._functorch.partitioners import min_cut_rematerialization_partition

    normalise_by_elements(joint)
    forward, backward = min_cut_rematerialization_partition(
        joint, inputs, num_fwd_outputs=num_fwd_outputs, **kwargs
    )
    _copy_what_changes(forward, num_fwd_outputs)
    return forward, backward


def _copy_what_changes(forward: fx.GraphModule, results: int) -> None:
    """Store a copy of an input that the graph changes, where the backward pass reads what was there
    before. All outputs behind the ``results`` are for that pass."""
    graph, output = forward.graph, forward.graph.output_node()
    changed = {n.args[0] for n in graph.find_nodes(op="call_function", target=WRITE)}
    outputs, first = list(output.args[0]), next(n for n in graph.nodes if n.op != "placeholder")
    for k, value in enumerate(outputs):
        if k >= results and isinstance(value, fx.Node) and not changed.isdisjoint(owners(value)):
            with graph.inserting_before(first if value.op == "placeholder" else value.next):
                outputs[k] = graph.call_function(_aten.clone.default, (value,))
            outputs[k].meta["val"] = _aten.clone.default(value.meta["val"])
    output.args = (tuple(outputs),)
    forward.recompile()


def owners(node: fx.Node) -> Iterator[fx.Node]:
    """A node, and that on whose memory it lies where it is a view, and so on."""
    yield node
    while node.op == "call_function" and getattr(node.target, "is_view", False):
        node = node.args[0]
        yield node


def normalise_by_elements(joint: fx.GraphModule) -> None:
    """Compute what a batch normalisation makes in training of its input and its statistics, so that
    it is cheap.

    The gradients read input and statistics, too. That of an activation behind the normalisation
    then reads nothing else, where a normalised image or a mask was stored for it; that of ReLU is
    by the sign of its input, which says as much as its result.
    """
    target = _aten._native_batch_norm_legit_functional.default
    for node in joint.graph.find_nodes(op="call_function", target=target):
        x, weight, bias, *_, training, _momentum, _eps = node.args
        image, (_, centre, *_) = x.meta["val"], node.meta["val"]
        wide = torch.float32 if image.dtype.itemsize < 4 else image.dtype
        # Statistics in 16 bits, as a CPU leaves them, are not what it has normalised by.
        if training and centre.dtype == wide:
            _replace(joint.graph, node, x, wide, weight, bias)
    for node in joint.graph.find_nodes(op="call_function", target=_GRADIENT):
        relu = node.args[1]
        while relu.target in _SAME:
            relu = relu.args[0]
        if relu.target is _aten.relu.default and "normalised" in relu.args[0].meta:
            node.update_arg(1, relu.args[0])
    joint.recompile()


def _replace(
    graph: fx.Graph, node: fx.Node, x: fx.Node, wide: torch.dtype, weight: Any, bias: Any
) -> None:
    place = node.next

    def call(target: Any, *args: Any, **kwargs: Any) -> fx.Node:
        with graph.inserting_before(place):
            made = graph.call_function(target, args, kwargs)
        values, named = fx.map_arg((args, kwargs), lambda n: n.meta["val"])
        made.meta["val"] = target(*values, **named)
        return made

    def whole(t: fx.Node) -> fx.Node:
        return call(_aten.view.default, t, [1, -1, *[1] * (x.meta["val"].ndim - 2)])

    before = {u: u.args[1] for u in node.users if u.target is operator.getitem}
    now = {k: call(operator.getitem, node, k) for k in (1, 2)}
    dtype = x.meta["val"].dtype
    found = x if dtype == wide else call(_aten._to_copy.default, x, dtype=wide)
    found = call(_aten.mul.Tensor, call(_aten.sub.Tensor, found, whole(now[1])), whole(now[2]))
    found = found if weight is None else call(_aten.mul.Tensor, found, whole(weight))
    found = found if bias is None else call(_aten.add.Tensor, found, whole(bias))
    now[0] = found if dtype == wide else call(_aten._to_copy.default, found, dtype=dtype)
    now[0].meta["normalised"] = True
    for user, k in before.items():
        if k in now:
            user.replace_all_uses_with(now[k])
            graph.erase_node(user)
