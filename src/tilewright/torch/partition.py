"""What of a graph of PyTorch's is computed here, and what stays with PyTorch."""

from __future__ import annotations

import math
import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import fx
from torch.fx.passes.infra.partitioner import CapabilityBasedPartitioner, Partition
from torch.fx.passes.operator_support import OperatorSupportBase

from tilewright.graph.fx.convert import convert, text_of_type
from tilewright.graph.value import Input
from tilewright.ir.errors import TilewrightError
from tilewright.torch.joined_casts import join_casts
from tilewright.torch.joint import WRITE, owners
from tilewright.torch.region import Region, hint
from tilewright.torch.replayed_calls import ReplayedCalls
from tilewright.torch.steps import Steps
from tilewright.torch.table import text_table

#: Operators that are no work: a region of them alone is not worth a kernel.
_VIEWS = frozenset(
    "as_strided view _unsafe_view reshape permute expand unsqueeze squeeze t transpose slice "
    "select split split_with_sizes unbind alias detach full zeros ones scalar_tensor arange".split()
)
#: Those that PyTorch does without a copy and that leave no element out.
_ALIASES = frozenset(
    "view _unsafe_view permute expand unsqueeze squeeze t transpose split split_with_sizes unbind "
    "alias detach".split()
)
#: By operator, the result of which PyTorch's kernels on a GPU are sooner: places of maxima.
_LATE = {"aten::max_pool2d_with_indices": 1}


@dataclass
class Taken:
    """What was found of one graph.

    Attributes
    ----------
    taken : how often each operator was taken.
    left : those that stay with PyTorch, with the reason.
    regions : what computes the operators that were taken.
    steps : of training, where they may be replayed.
    calls : of inference, where they may be.
    """

    taken: dict[str, int] = field(default_factory=dict)
    left: dict[tuple[str, str], int] = field(default_factory=dict)
    regions: list[Region] = field(default_factory=list)
    steps: Steps | None = None
    calls: ReplayedCalls | None = None

    def __str__(self) -> str:
        """A table of operators."""
        rows = [(name, str(count), "taken") for name, count in sorted(self.taken.items())]
        rows += [
            (name, str(count), f"left to PyTorch: {why}")
            for (name, why), count in sorted(self.left.items())
        ]
        count = sum(self.taken.values())
        whole = count + sum(self.left.values())
        regions = f"{len(self.regions)} region{'s' * (len(self.regions) != 1)}"
        reasons = sorted({r.reason for r in self.regions if r.reason})
        return "\n".join([
            text_table(("operator", "calls", "result"), rows),
            f"{count} of {whole} operators taken, in {regions}",
            *(f"a region is computed by PyTorch: {why}" for why in reasons),
            *(f"steps are not replayed: {s.reason}" for s in (self.steps,) if s and s.reason),
            *(f"calls are not replayed: {c.reason}" for c in (self.calls,) if c and c.reason),
        ])  # fmt: skip


class _Support(OperatorSupportBase):
    """Finds out by converting a node, with inputs of its operands' types."""

    def __init__(self, module: fx.GraphModule) -> None:
        self.reasons: dict[fx.Node, str] = {}
        tensors = [t for n in module.graph.nodes for t in _tensors(n)]
        devices = {t.device for t in tensors}
        # A graph on a GPU may have numbers on the CPU beside.
        self.device = next((d for d in devices if d.type != "cpu"), torch.device("cpu"))
        self.of_memory = _of_memory(module)

    def is_node_supported(self, submodules: Mapping[str, Any], node: fx.Node) -> bool:
        if node.op != "call_function":
            return False
        if node.target is operator.getitem:
            source = node.args[0]
            return isinstance(source, fx.Node) and self.is_node_supported(submodules, source)
        if node in self.of_memory:
            self.reasons[node] = "it is a part of what lies in memory"
        if node not in self.reasons:
            self.reasons[node] = self._elsewhere(node) or obstacle(node)
        return not self.reasons[node]

    def _elsewhere(self, node: fx.Node) -> str:
        """Why a node is not computed on this device; nothing where it is."""
        if self.device.type == "cpu" or self.device == torch.device("cuda", 0):
            others = {t.device for n in (node, *node.all_input_nodes) for t in _tensors(n)}
            others -= {self.device}
            return f"it is on {', '.join(sorted(map(str, others)))}, too" if others else ""
        return f"it is on {self.device}"


def _of_memory(module: fx.GraphModule) -> set[fx.Node]:
    """What reads memory beyond a view, or from elsewhere than its first element on, and such views,
    which are to lie there."""
    found = set[fx.Node]()
    for target in (torch.ops.aten.as_strided.default, torch.ops.aten.as_strided_scatter.default):
        for node in module.graph.find_nodes(op="call_function", target=target):
            x = node.args[0]
            last = len(node.target._schema.arguments) - 1
            given = node.args[last] if len(node.args) > last else node.kwargs.get("storage_offset")
            *views, source = owners(x)
            lies, count = x.meta["val"].storage_offset(), x.meta["val"].numel()
            if given not in (None, lies) or count != source.meta["val"].numel():
                found |= {node, *views}
    return found


def _tensors(node: fx.Node) -> list[torch.Tensor]:
    value = node.meta.get("val")
    found = value if isinstance(value, (list, tuple)) else [value]
    return [t for t in found if isinstance(t, torch.Tensor)]


def obstacle(node: fx.Node) -> str:
    """Why a node is not supported; nothing where it is."""
    if node.target is WRITE:
        return "it changes an input"
    value = node.meta.get("val")
    several = isinstance(value, (list, tuple))
    results = list(value) if several else [value]
    if not any(isinstance(v, torch.Tensor) for v in results):
        return "it makes no tensor"
    try:
        shapes = [tuple(map(hint, getattr(v, "shape", ()))) for v in results]
        known = {x: _operand(x) for x in node.all_input_nodes}
        made = convert(node, known)
    except (TilewrightError, NotImplementedError) as error:
        return str(error)
    used = {u.args[1] for u in node.users if u.target is operator.getitem} if several else {0}
    on_gpu = any(t.device.type == "cuda" for t in _tensors(node))
    if on_gpu and _LATE.get(node.target._schema.name) in used:
        return "PyTorch has both of its results sooner"
    for k in used:
        found = made[k] if k < len(made) else None
        wanted = results[k]
        if found is None:
            return f"its result {k} is not supported"
        shape = shapes[k]
        if (found.shape, found.dtype) != (shape, text_of_type(wanted.dtype)):
            return f"it makes {found.type}, not {shape}, {wanted.dtype}"
        if not math.prod(shape):
            return "a tensor without elements"
    return ""


def _operand(node: fx.Node) -> Any:
    value = node.meta.get("val")
    if isinstance(value, torch.Tensor):
        if value.is_sparse or value.layout is not torch.strided:
            raise NotImplementedError("a tensor that is not strided")
        shape = tuple(hint(e) for e in value.shape)
        if not math.prod(shape):
            raise NotImplementedError("a tensor without elements")
        return Input(node.name, shape, text_of_type(value.dtype))
    if isinstance(value, (int, float, bool)) or hasattr(value, "node"):
        return hint(value)
    raise NotImplementedError("an operand that is neither a tensor nor a number")


def partition(
    module: fx.GraphModule,
    static: Sequence[fx.Node],
    freeze: bool,
    shapes: int,
    precision: str = "",
    shares: bool = False,
) -> tuple[fx.GraphModule, Taken]:
    """A graph with regions in the place of what is supported, and what was found.

    ``static`` are the inputs that are parameters and buffers, of which those that the graph changes
    are no constants; the rest is as for :class:`Region`. With ``shares``, many casts are one call.
    """
    taken = Taken()
    if shares and (count := join_casts(module, static)):
        taken.left["aten._to_copy.default", "PyTorch casts all of them by one call"] = count
    counters = _counters(module)
    writes = module.graph.find_nodes(op="call_function", target=WRITE)
    changed = {n.args[0] for n in writes}.union(*counters.values())
    support = _Support(module)
    partitioner = CapabilityBasedPartitioner(module, support, allows_single_node_partition=True)
    parts = [p for p in partitioner.propose_partitions() if _is_work(list(p.nodes))]
    _leave_views(module, parts)
    inside = {n for p in parts for n in p.nodes}
    for node in module.graph.nodes:
        if node.op in ("placeholder", "output", "get_attr"):
            continue
        if node.target in (operator.getitem, WRITE) or not hasattr(node.target, "_schema"):
            continue
        name = str(node.target)
        if node in inside:
            taken.taken[name] = taken.taken.get(name, 0) + 1
        else:
            key = name, support.reasons.get(node) or "moves no data"
            taken.left[key] = taken.left.get(key, 0) + 1
    for place, node in enumerate(module.graph.nodes):
        node.meta["place"] = place
    names = {n.name for n in static if n not in changed}
    fused = partitioner.fuse_partitions(parts, prefix="region_")
    for node in list(fused.graph.nodes):
        if node.op == "call_module" and str(node.target).startswith("region_"):
            is_static = [
                isinstance(x, fx.Node) and x.op == "placeholder" and x.name in names
                for x in node.args
            ]
            inner = getattr(fused, str(node.target))
            region = Region(inner, is_static, freeze, shapes, precision, shares)
            taken.regions.append(region)
            setattr(fused, str(node.target), region)
    _write_last(fused, counters)
    fused.recompile()
    return fused, taken


def _counters(module: fx.GraphModule) -> dict[int, list[fx.Node]]:
    """Inputs that a graph adds a number to and nothing else, by this number, as the batches that
    normalisations count; without the nodes that do it."""
    found: dict[int, list[fx.Node]] = {}
    for node in module.graph.find_nodes(op="call_function", target=WRITE):
        to, value = node.args[:2]
        if (
            not node.users and to.op == "placeholder" and list(value.users) == [node]
            and value.target is torch.ops.aten.add.Tensor and not value.kwargs
            and value.args[0] is to and type(value.args[1]) is int
        ):  # fmt: skip
            found.setdefault(value.args[1], []).append(to)
            module.graph.erase_node(node)
            module.graph.erase_node(value)
    return found


def _write_last(module: fx.GraphModule, counters: Mapping[int, list[fx.Node]]) -> None:
    """Write what a graph changes of its inputs at its end, behind all that reads them, by one call
    for each type: the statistics of a network's normalisations are some hundred tensors."""
    groups: dict[Any, list[fx.Node]] = {}
    for node in module.graph.find_nodes(op="call_function", target=WRITE):
        to, value = (n.meta["val"] for n in node.args[:2])
        if not node.users and to.shape == value.shape:
            groups.setdefault((to.dtype, value.dtype, to.device, value.device), []).append(node)
    with module.graph.inserting_before(module.graph.output_node()):
        for number, inputs in counters.items():
            module.graph.call_function(torch.ops.aten._foreach_add_.Scalar, (inputs, number))
        for nodes in groups.values():
            lists = tuple([n.args[k] for n in nodes] for k in (0, 1))
            module.graph.call_function(torch.ops.aten._foreach_copy_.default, lists)
    for node in (n for nodes in groups.values() for n in nodes):
        module.graph.erase_node(node)


def _leave_views(module: fx.GraphModule, parts: Sequence[Partition]) -> None:
    """Take out of parts what ends them and only PyTorch reads, where it is a view there and would
    be a copy here: queries, keys and values are three of one result."""
    part_of = {n: p for p in parts for n in p.nodes}
    for node in reversed(module.graph.nodes):
        found = part_of.get(node)
        if found is None or node.target is operator.getitem or _name(node) not in _ALIASES:
            continue
        # Results of one operator stay together: no region has a list of them for a result.
        several = [u for u in node.users if u.target is operator.getitem]
        if part_of.keys().isdisjoint(r for x in several or [node] for r in x.users):
            for x in (*several, node):
                found.remove_node(x)
                del part_of[x]


def _is_work(nodes: Sequence[fx.Node]) -> bool:
    return any(n.target is not operator.getitem and _name(n) not in _VIEWS for n in nodes)


def _name(node: fx.Node) -> str:
    schema = getattr(node.target, "_schema", None)
    return "" if schema is None else str(schema.name).partition("::")[2]
