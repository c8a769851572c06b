"""What a graph makes of numbers alone is made on the device that reads it."""

from __future__ import annotations

import contextlib
from typing import Any

import torch
from torch import fx
from torch._subclasses.fake_tensor import unset_fake_temporarily


def made_where_read(module: fx.GraphModule) -> None:
    """Move to a device what is made on the CPU without one of the graph's inputs, and is read on
    that device alone: position embeddings, masks, tables of numbers.

    Each call would copy it there and wait, and a CUDA graph can capture no such copy. Random
    numbers stay, which are others on another device.
    """
    found = dict.fromkeys(n for n in module.graph.nodes if _is_made(n))
    for device in {d for n in found for d in _devices_of_users(n) if d.type != "cpu"}:
        moved = dict(found)
        while strays := [n for n in moved if not _may_move(n, moved, device)]:
            for n in strays:
                del moved[n]
        for n in moved:
            _move(module, n, device)
            del found[n]
    module.recompile()


def _is_made(node: fx.Node) -> bool:
    """Whether a node makes one tensor on the CPU, and is neither an input nor random."""
    value = node.meta.get("val")
    if node.op == "get_attr":
        value = getattr(node.graph.owning_module, str(node.target), None)
    elif node.op != "call_function" or not _is_pure(node.target):
        return False
    return isinstance(value, torch.Tensor) and value.device.type == "cpu"


def _is_pure(target: Any) -> bool:
    return (
        isinstance(target, torch._ops.OpOverload)
        and torch.Tag.nondeterministic_seeded not in target.tags
        and not target._schema.is_mutable
    )


def _devices_of_users(node: fx.Node) -> list[torch.device]:
    return [device for user in node.users if (device := _device(user)) is not None]


def _device(node: fx.Node) -> torch.device | None:
    """Of what an operator makes."""
    value = node.meta.get("val")
    is_tensor = node.op == "call_function" and isinstance(value, torch.Tensor)
    return value.device if is_tensor else None


def _may_move(node: fx.Node, moved: dict[fx.Node, None], device: torch.device) -> bool:
    """Whether all tensors that a node reads are moved, too, and whatever reads it is moved or on
    the device."""
    tensors = [x for x in node.all_input_nodes if isinstance(x.meta.get("val"), torch.Tensor)]
    return all(x in moved for x in tensors) and all(
        user in moved or _device(user) == device for user in node.users
    )


def _move(module: fx.GraphModule, node: fx.Node, device: torch.device) -> None:
    if node.op == "get_attr":
        with unset_fake_temporarily():  # its data, where the graph is compiled without any
            made = getattr(module, str(node.target)).to(device)
        setattr(module, str(node.target), made)
        if isinstance(value := node.meta.get("val"), torch.Tensor):
            node.meta["val"] = _on(value, device)
        return
    if any(a.name == "device" for a in node.target._schema.arguments):
        node.kwargs = {**node.kwargs, "device": device, "pin_memory": False}
    node.meta["val"] = _on(node.meta["val"], device)


def _on(value: Any, device: torch.device) -> Any:
    """A tensor without data as it would be on a device."""
    mode = getattr(value, "fake_mode", contextlib.nullcontext())
    with mode:
        return torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device=device)
