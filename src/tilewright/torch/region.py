"""A part of a graph of PyTorch's as one of ours, compiled for each shape that it is called with."""

from __future__ import annotations

import math
import operator
import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import fx, nn

from tilewright.graph.batches import Batches
from tilewright.graph.check import check
from tilewright.graph.constants import Pool
from tilewright.graph.errors import ModelError
from tilewright.graph.executor import Executor
from tilewright.graph.fx.convert import convert, text_of_type
from tilewright.graph.fx.layout import inverse, is_dense, memory_order, permuted, strides_in
from tilewright.graph.graph import Graph
from tilewright.graph.passes.own_outputs import is_part, owner
from tilewright.graph.pipeline import optimized
from tilewright.graph.value import Constant, Input
from tilewright.graph.views import views
from tilewright.ir.dtype import dtype
from tilewright.ir.errors import TilewrightError
from tilewright.runtime.kernel import Kernel
from tilewright.runtime.narrow_floats import storage_type
from tilewright.runtime.torch_memory import allocator, parts
from tilewright.topi.problem import Problem
from tilewright.torch.calls import target_of
from tilewright.torch.frozen import Frozen, freezable
from tilewright.torch.kernels import Launch, launch_of

#: Sets of parameters that a region is compiled for, at most, and how often those of one may change.
_SETS, _CHANGES = 64, 4
#: Stretches of kernels of a training graph, behind each of which memory is freed.
_STRETCHES = 8


class Region(nn.Module):
    """What calls ``module``, a graph of operators that are supported, by kernels of ours.

    Parameters
    ----------
    static : which inputs are parameters and buffers.
    freeze : whether these are constants.
    shapes : how many shapes it is compiled for; further ones are computed by PyTorch.
    precision : what else is allowed, as for :func:`tilewright.graph.pipeline.passes`.
    shares : whether results may be parts of one block of memory, as small vectors of a training
        step are on a GPU.

    Whatever cannot be compiled is computed by PyTorch, and ``reason`` says why.
    """

    def __init__(
        self, module: fx.GraphModule, static: Sequence[bool], freeze: bool, shapes: int,
        precision: str = "", shares: bool = False,
    ) -> None:  # fmt: skip
        super().__init__()
        self.module, self.reason, self._shares = module, "", shares
        self._static = [k for k, s in enumerate(static) if s] if freeze else []
        self._shapes, self._seen, self._precision = shapes, set[Any](), precision
        inputs = [n for n in module.graph.nodes if n.op == "placeholder"]
        self._open = [k for k, n in enumerate(inputs) if _is_open(n.meta.get("val"))]
        self._batches, self._pool = Batches(_with_batch(inputs), first=False), Pool()
        self._compiled: dict[Any, _Compiled | None] = {}
        self._frozen: dict[Any, Frozen] = {}
        self._changes = 0
        self._lock = threading.RLock()

    def forward(self, *given: Any) -> Any:
        """What the module makes of these; of a list of them, which is emptied, where it ``shares``,
        so that they are free once they have been read."""
        if self._shares and len(given) == 1 and isinstance(given[0], list):
            (given,) = given
        static = [given[k] for k in self._static]
        own = tuple([t.data_ptr() for t in static])
        sizes = tuple([_size(given[k]) for k in self._open])
        found = self._compiled.get((own, sizes), self)
        frozen = self._frozen.get(own) if static else None
        if found is self or (static and (frozen is None or not frozen.holds(static))):
            return self._compile(given, static, own, sizes)(given)
        return self.module(*given) if found is None else found(given)

    def _compile(
        self, given: Sequence[Any], static: Sequence[torch.Tensor], own: Any, sizes: Any
    ) -> Callable[[Sequence[Any]], Any]:
        with self._lock:
            if static:
                stale = own in self._frozen and not self._frozen[own].holds(static)
                if stale:
                    self._compiled = {k: v for k, v in self._compiled.items() if k[0] != own}
                    self._changes += 1
                if (
                    self._changes > _CHANGES or len(self._frozen) >= _SETS or not freezable(static)
                ):  # read in each call from now on
                    self._static = []
                    self._frozen.clear()
                    self._compiled.clear()
                    return self.forward_all
                self._frozen[own] = Frozen(static)
            found = None
            if sizes in self._seen or len(self._seen) < self._shapes:
                self._seen.add(sizes)
                try:
                    found = _Compiled(
                        self.module, given, self._static, self._precision, self._batches,
                        self._pool, self._shares,
                    )  # fmt: skip
                except TilewrightError as error:
                    self.reason = str(error)
            else:
                self.reason = f"more than {self._shapes} shapes: the others are left to PyTorch"
            self._compiled[own, sizes] = found
            return found if found is not None else self.by_pytorch

    def forward_all(self, given: Sequence[Any]) -> Any:
        """:meth:`forward` of a sequence."""
        return self.forward(*given)

    def by_pytorch(self, given: Sequence[Any]) -> Any:
        """The same by PyTorch."""
        return self.module(*given)

    @property
    def freezes(self) -> bool:
        """Whether parameters are constants of what is compiled."""
        return bool(self._static)

    @property
    def compiled(self) -> list[Any]:
        """What computes it, for all shapes and sets of parameters."""
        return [c for c in self._compiled.values() if c is not None]

    @property
    def executors(self) -> list[Executor]:
        """Of all shapes."""
        return [c.executor for c in self._compiled.values() if c is not None and c.executor]


def _is_open(value: Any) -> bool:
    """Whether an input is a number, or has a dimension that is not known."""
    shape = getattr(value, "shape", None)
    return shape is None or any(not isinstance(e, int) for e in shape)


def _with_batch(inputs: Sequence[fx.Node]) -> tuple[str, ...]:
    """The inputs whose first dimension is not known, and the same for all of them; none where
    another one is the first in memory."""
    firsts = {}
    for node in inputs:
        value = node.meta.get("val")
        if isinstance(value, torch.Tensor) and value.ndim and not isinstance(value.shape[0], int):
            if _order(value)[0] == 0:
                firsts[node.name] = str(value.shape[0])
    first = next(iter(firsts.values()), None)
    return tuple(name for name, extent in firsts.items() if extent == first)


def _size(x: Any) -> Any:
    return tuple(x.shape) if isinstance(x, torch.Tensor) else x


class _Compiled:
    """A region for known shapes, and parameters."""

    def __init__(
        self, module: fx.GraphModule, given: Sequence[Any], static: Sequence[int],
        precision: str, batches: Batches, pool: Pool, shares: bool,
    ) -> None:  # fmt: skip
        known: dict[Any, Any] = {}
        inputs: list[Input] = []
        self._takes: list[tuple[int, tuple[int, ...]]] = []
        for k, node in enumerate(n for n in module.graph.nodes if n.op == "placeholder"):
            x = given[k]
            if not isinstance(x, torch.Tensor):
                known[node] = x
            elif k in static:
                known[node] = Constant(array_of(x), node.name)
            else:
                order = memory_order(x.shape, x.stride())
                shape = tuple(x.shape[d] for d in order)
                inputs.append(Input(node.name, shape, text_of_type(x.dtype)))
                known[node] = permuted(inputs[-1], inverse(order))
                self._takes.append(
                    (
                        k,
                        x.stride()
                        if is_dense(x.shape, x.stride(), order)
                        else strides_in(x.shape, order),
                    )
                )
        results = interpret(module, known)
        self._is_one = isinstance(results, fx.Node)
        nodes = [results] if self._is_one else results
        device = nodes[0].meta["val"].device
        orders = [_order(n.meta["val"]) for n in nodes]
        # As the graph had them, whose order frees memory soon: that of a region is another one.
        first = sorted(range(len(nodes)), key=lambda k: nodes[k].meta.get("place", 0))
        outputs = {str(k): permuted(known[nodes[k]], orders[k]) for k in first}
        target = target_of(device)
        graph = check(Graph("region", tuple(inputs), outputs))
        graph = optimized(
            graph, target=target, precision=precision, parts=tuple(outputs) if shares else None
        )
        fixed = {n: v for n, v in graph.outputs.items() if isinstance(owner(v), Constant)}
        self._fixed = {
            int(n): tensor_of(owner(v).array.reshape(v.shape), device)  # type: ignore[attr-defined]
            .permute(inverse(orders[int(n)]))
            for n, v in fixed.items()
        }  # fmt: skip
        shapes_of = [
            (tuple(known[n].shape), strides_in(known[n].shape, order))
            for n, order in zip(nodes, orders, strict=True)
        ]
        lies = views(graph)
        within = {n: lies[v] for n, v in graph.outputs.items() if is_part(v)}
        wholes = list(dict.fromkeys(view.owner for view in within.values()))
        self._wholes = [
            allocator(torch, (math.prod(x.shape),), (1,), getattr(torch, x.dtype), device)
            for x in wholes
        ]
        self._part_of = parts(torch)
        self._parts = [
            (int(n), wholes.index(view.owner), (*shapes_of[int(n)], view.offset))
            for n, view in within.items()
        ]
        rest = {n: v for n, v in graph.outputs.items() if n not in fixed and n not in within}
        self._makes = [
            allocator(torch, *shapes_of[k], getattr(torch, known[n].dtype), device)
            if str(k) in rest
            else None
            for k, n in enumerate(nodes)
        ]
        self.executor: Executor | None = None
        self._written: list[int] = []
        if rest or wholes:
            self._written += map(int, rest)
            rest |= {f"whole {k}": x for k, x in enumerate(wholes)}
            graph = Graph(graph.name, graph.inputs, rest)
            together = _join if device.type == "cuda" else None
            shapes = {x.name: x.shape for x in inputs}
            # Constants of a CPU lie in PyTorch's memory, to which others may write.
            shared = pool if device.type == "cuda" else None
            self.executor = Executor(
                graph, target, launcher=_launcher(device), join=together,
                images=batches.images(shapes), named=batches.names, pool=shared,
                stretches=_STRETCHES if shares else 1,
            )  # fmt: skip
        self._device = device

    def _empty(self, nbytes: int) -> torch.Tensor:
        return torch.empty(nbytes, dtype=torch.uint8, device=self._device)

    def __call__(self, given: Sequence[Any]) -> Any:
        taken = [_lying(given[k], strides) for k, strides in self._takes]
        if isinstance(given, list):  # what is in it is free once it has been read
            given.clear()
        made: list[Any] = [None if m is None else m() for m in self._makes]
        wholes = [make() for make in self._wholes]
        results = [*(made[k] for k in self._written), *wholes]
        if self.executor is not None and self._device.type == "cuda":
            # Memory of this stream, or of the graph that it captures.
            self.executor.launch_on(taken, results, self._empty)
        elif self.executor is not None:
            self.executor.launch([t.data_ptr() for t in taken], [t.data_ptr() for t in results])
        for k, known in self._fixed.items():
            made[k] = known.clone()
        for k, whole, lies in self._parts:
            made[k] = self._part_of(wholes[whole], *lies)
        return made[0] if self._is_one else tuple(made)


def _lying(x: torch.Tensor, strides: tuple[int, ...]) -> torch.Tensor:
    """A tensor with these strides: a copy of one with others."""
    if x.stride() == strides:
        return x
    return torch.empty_strided(x.shape, strides, dtype=x.dtype, device=x.device).copy_(x)


def interpret(module: fx.GraphModule, known: dict[Any, Any]) -> Any:
    """Add what all nodes make to what is known; the nodes, or the node, that are the result.
    Raises :class:`ModelError` for what is not supported."""
    for node in module.graph.nodes:
        if node.op == "output":
            return node.args[0]
        if node.op == "placeholder":
            continue
        if node.target is operator.getitem:
            source, k = node.args
            known[node] = known[source][k]
        else:
            made = convert(node, known)
            known[node] = made if isinstance(node.meta["val"], (list, tuple)) else made[0]
        if known[node] is None and node.users:
            raise ModelError(f"{node.format_node()} is not supported")
    raise ModelError("a graph without an output")


def hint(x: Any) -> Any:
    """A number, or of a symbol what it was when the graph was traced; raises
    :class:`NotImplementedError` where it depends on data."""
    if isinstance(x, (int, float)):
        return x
    if not x.node.has_hint():
        raise NotImplementedError("a shape that depends on data")
    return x.node.hint


def _order(meta: torch.Tensor) -> tuple[int, ...]:
    return memory_order([hint(e) for e in meta.shape], [hint(s) for s in meta.stride()])


def _launcher(device: torch.device) -> Callable[[Kernel, Problem, tuple[int, ...]], Launch]:
    ordinal = None if device.type == "cpu" else device.index or 0
    return lambda kernel, problem, counts: launch_of(kernel, problem.flops, counts, ordinal)


def _join(launches: Sequence[Launch], takes: Sequence[Sequence[int]], count: int) -> Launch | None:
    """One launch on a GPU for several."""
    from tilewright.runtime.cuda_quick import join

    return join(launches, takes, count, torch)


def array_of(x: torch.Tensor) -> np.ndarray[Any, Any]:
    """The memory of a tensor on a CPU as an array, or a copy of one elsewhere."""
    x = x.detach().cpu()
    made: np.ndarray[Any, Any]
    if x.dtype is torch.bfloat16:
        made = x.view(torch.int16).numpy().view(storage_type(dtype("bfloat16")))
    else:
        made = x.numpy()
    return made


def tensor_of(x: np.ndarray[Any, Any], device: torch.device) -> torch.Tensor:
    """A tensor with the elements of an array."""
    x = np.ascontiguousarray(x).reshape(x.shape)
    if x.dtype == storage_type(dtype("bfloat16")):
        return torch.from_numpy(x.view(np.int16)).view(torch.bfloat16).to(device)
    return torch.from_numpy(x).to(device)
