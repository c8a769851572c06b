"""The forward and the backward graph of training steps, replayed where that is right.

What they hand on lies in the same places in each step, in memory that both share: some hundred
launches and allocations are one call, behind which the host is free. A step that finds these places
in use, or parameters elsewhere, is launched as the first ones are.
"""

from __future__ import annotations

import functools
import itertools
import threading
import weakref
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any

import torch
from torch import fx
from torch.multiprocessing.reductions import StorageWeakRef

from tilewright.torch import joint as joined
from tilewright.torch import recording
from tilewright.torch.recording import Recording, Run, addresses, same_memory

#: Steps alike that are launched before one is recorded, and how often one is recorded at most.
_BEFORE, _TIMES = 2, 4
#: Whose operators do the same in each call, and nothing beside.
_KNOWN = ("aten", "prims", "tilewright")
#: Operators for which the host waits.
_AWAITED = {torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape}

_STEPS = "tilewright.steps"
_calls = itertools.count(1)
_all: weakref.WeakSet[Steps] = weakref.WeakSet()


class Steps:
    """What the forward and the backward graph of one model share; ``returned`` are the results of
    the forward graph that are not for the backward graph.

    A forward pass is replayed where what the one before has stored is read, or dropped. The results
    of both passes are copied: they are the caller's. ``reason`` says why no step is recorded.
    """

    def __init__(self, returned: int) -> None:
        self._returned, self.reason = returned, ""
        self._static: list[int] = []
        self._others: list[int] = []
        self._device = torch.device("cpu")
        self._lock = threading.RLock()
        #: What was seen, in how many steps one after the other, and from which call on.
        self._seen: Any = None
        self._steps, self._since, self._last = 0, 0, 0
        self._times = 0
        self._release()

    def _release(self) -> None:
        """Drop what is recorded."""
        self._key: Any = None
        self._passes: list[Recording] = []  # forward, then backward
        self._record: recording.Record | None = None
        #: What a forward pass stores, as it was recorded, until the backward pass is; and a name
        #: for what the last one has stored, which lives as long as something may read it.
        self._stored: list[torch.Tensor] = []
        self._token: StorageWeakRef | None = None
        self._token_at, self._token_in = -1, -1
        self._is_read = True
        self._stream: Any = None

    def __deepcopy__(self, memo: Any) -> Steps:
        return self

    def forward(self, graph: fx.GraphModule, static: Collection[fx.Node]) -> Callable[[Run], Run]:
        """What makes of what runs the forward graph what replays it, too; ``static`` are parameters
        and buffers."""
        inputs = [n for n in graph.graph.nodes if n.op == "placeholder"]
        self._static = [k for k, n in enumerate(inputs) if n in static]
        self._others = [k for k, n in enumerate(inputs) if n not in static]
        self._device = device_of(graph)
        self.reason = self.reason or obstacle(graph, static)
        return functools.partial(self._boxed, self._forward)

    def backward(self, graph: fx.GraphModule, static: Collection[fx.Node]) -> Callable[[Run], Run]:
        """The same of the backward graph."""
        self.reason = self.reason or obstacle(graph, ())
        self._results = len(graph.graph.output_node().args[0])
        return functools.partial(self._boxed, self._backward)

    def _boxed(self, call: Callable[[Run, list[Any]], Any], run: Run) -> Run:
        if self.reason or recording.recorder(self._device) is None:
            return run

        return recording.as_boxed(lambda given: call(run, given))

    def _forward(self, run: Run, given: list[Any]) -> Any:
        results = None
        if self._lock.acquire(blocking=False):  # or another thread is here
            try:
                results = self._replay_forward(run, given)
            finally:
                self._lock.release()
        return run(given) if results is None else results

    def _replay_forward(self, run: Run, given: list[Any]) -> list[Any] | None:
        self._last = next(_calls)
        if self._is_stored() or not may_replay(self._device):
            return None
        if self.reason:  # the backward graph could not be recorded
            self._release()
            return None
        key = [
            (x.shape, x.stride()) if isinstance(x := given[k], torch.Tensor) else x
            for k in self._others
        ]
        if not self._passes or self._key != key or not self._passes[0].reads(given):
            if not self._is_due((key, addresses(given, self._static))):
                return None
            self._record_forward(run, given)
            if not self._passes:
                return None
            self._key = key
        self._seen = None
        self._follow()
        results = self._passes[0](given)
        given.clear()
        first = self._token_at
        results[first] = same_memory(results[first])
        self._token = StorageWeakRef(results[first].untyped_storage())
        self._is_read = False
        return results

    def _is_due(self, found: Any) -> bool:
        """Whether steps like this one are to be recorded now."""
        if found != self._seen:
            self._seen, self._steps, self._since = found, 0, self._last
        return self._steps >= _BEFORE and self._times < _TIMES

    def _record_forward(self, run: Run, given: list[Any]) -> None:
        self._release()
        for other in list(_all):  # what has not run since has memory that is of use now
            if other._last < self._since and other._lock.acquire(blocking=False):
                if not other._is_stored():
                    other._release()
                other._lock.release()
        self._times += 1
        self._record = recording.recorder(self._device)
        made = self._try(run, given, self._static, self._returned)
        if made is None:
            return
        mine = [
            k for k, x in enumerate(made.results)
            if k >= self._returned and isinstance(x, torch.Tensor) and k not in made.passed
        ]  # fmt: skip
        self._stored = [made.results[k] for k in mine]
        for k in mine:
            made.results[k] = same_memory(made.results[k])
        if not mine:
            self.reason = "nothing is stored for the backward pass"
            return
        self._token_at = mine[0]
        self._passes = [made]
        _all.add(self)

    def _backward(self, run: Run, given: list[Any]) -> Any:
        with self._lock:
            is_of_last = self._is_of_last(given)
            token = given[self._token_in] if is_of_last else None
            results = self._replay_backward(run, given, is_of_last)
        if results is None:
            results = run(given)
        del token  # what is stored is read until here
        return results

    def _replay_backward(self, run: Run, given: list[Any], is_of_last: bool) -> list[Any] | None:
        keeps = torch._C._autograd._get_current_graph_task_keep_graph()
        if not is_of_last:
            self._steps += not keeps
            return None
        if self._is_read:
            raise RuntimeError(
                "Trying to backward through the graph a second time: what was stored for it is "
                "gone. Specify retain_graph=True in the first call"
            )
        self._follow()
        if keeps or not may_replay(self._device):
            return None
        if len(self._passes) < 2 and self._stored:
            self._record_backward(run, given)
        if len(self._passes) < 2 or not self._passes[1].reads(given):
            return None
        results = self._passes[1](given)
        given.clear()
        self._is_read = True
        return results

    def _is_of_last(self, given: list[Any]) -> bool:
        """Whether this is the backward pass of the last forward pass that was replayed."""
        if self._token is None:
            return False
        if self._token_in < 0:
            found = (k for k, x in enumerate(given) if self._is_token(x))
            self._token_in = next(found, -1)
        return self._token_in >= 0 and self._is_token(given[self._token_in])

    def _is_token(self, x: Any) -> bool:
        assert self._token is not None
        return isinstance(x, torch.Tensor) and x.untyped_storage()._cdata == self._token.cdata

    def _record_backward(self, run: Run, given: list[Any]) -> None:
        """Record it on what the forward pass was recorded to store, the memory of which is then
        free for others once it is read."""
        read = {_lies(x): x for x in self._stored}
        self._stored = []
        parameters = set(self._passes[0].addresses)
        own, stored = [], list[Any]()
        for k, x in enumerate(given):
            found = read.get(_lies(x)) if isinstance(x, torch.Tensor) else None
            if found is not None or (isinstance(x, torch.Tensor) and x.data_ptr() in parameters):
                own.append(k)
                stored.append(x if found is None else found)
        read.clear()
        found = None
        made = self._try(run, given, own, self._results, stored)
        if made is not None:
            self._passes.append(made)

    def _try(
        self, run: Run, given: list[Any], own: Sequence[int], returned: int,
        stored: list[Any] | None = None,
    ) -> Recording | None:  # fmt: skip
        assert self._record is not None
        try:
            return Recording(self._record, run, given, own, returned, stored)
        except Exception as error:  # memory that is short, or whatever cannot be recorded
            self.reason = f"{type(error).__name__}: {error}"
            return None

    def _is_stored(self) -> bool:
        """Whether something may read what the last forward pass that was replayed has stored."""
        return self._token is not None and not self._is_read and not self._token.expired()

    def _follow(self) -> None:
        """Wait for the stream of the pass before, which uses the same memory."""
        self._stream = recording.follow(self._device, self._stream)


def cut(joint: fx.GraphModule, inputs: Any, **kwargs: Any) -> tuple[fx.GraphModule, fx.GraphModule]:
    """As :func:`tilewright.torch.joint.cut` does, so that both may be :func:`replayed`."""
    forward, backward = joined.cut(joint, inputs, **kwargs)
    steps = Steps(kwargs["num_fwd_outputs"])
    forward.meta[_STEPS], backward.meta[_STEPS] = steps.forward, steps.backward
    return forward, backward


def replayed(
    graph: fx.GraphModule, static: Collection[fx.Node] | None
) -> tuple[Callable[[Run], Run], Steps | None]:
    """What makes of what runs a graph of a training step what replays it where that is right, and
    the steps that it is of; nothing where ``static`` is None."""
    found = graph.meta.get(_STEPS)
    if found is None or static is None:
        return lambda run: run, None
    return found(graph, static), found.__self__


def device_of(graph: fx.GraphModule) -> torch.device:
    """Where the first of its tensors is; the CPU, where there are none."""
    tensors = (t for n in graph.graph.nodes for t in _tensors(n))
    return next((t.device for t in tensors), torch.device("cpu"))


def may_replay(device: torch.device) -> bool:
    """Whether nothing watches or records what runs now."""
    if torch._C._autograd._top_saved_tensors_default_hooks(True) is not None:
        return False
    if device.type != "cuda":
        return True
    here = torch.cuda.current_device() == device.index
    return here and not torch.cuda.is_current_stream_capturing()


def obstacle(graph: fx.GraphModule, static: Collection[fx.Node]) -> str:
    """Why a graph is not recorded, whose inputs ``static`` lie where they lie; nothing where it
    may be."""
    devices = {t.device for n in graph.graph.nodes for t in _tensors(n)}
    if len(devices) > 1:
        return f"tensors are on {', '.join(sorted(map(str, devices)))}"
    for node in graph.graph.nodes:
        target = node.target
        if node.op != "call_function" or getattr(target, "__module__", "") == "_operator":
            continue
        if not isinstance(target, torch._ops.OpOverload) or target.namespace not in _KNOWN:
            return f"{target} may do more than compute"
        if _AWAITED.intersection(target.tags):
            return f"the host waits for {target}"
    for node, owner in _changes(graph):
        if owner not in static:
            return f"{node.target} changes {owner}"
    return ""


def _changes(graph: fx.GraphModule) -> Iterator[tuple[fx.Node, fx.Node]]:
    """The nodes that change inputs, with these."""
    for node in graph.graph.nodes:
        schema = getattr(node.target, "_schema", None)
        for place, argument in enumerate(schema.arguments if schema else ()):
            if argument.alias_info is None or not argument.alias_info.is_write:
                continue
            own = node.args[place] if place < len(node.args) else node.kwargs.get(argument.name)
            for x in own if isinstance(own, (list, tuple)) else [own]:
                *_, owner = joined.owners(x) if isinstance(x, fx.Node) else [node]
                if owner.op == "placeholder":
                    yield node, owner


def _tensors(node: fx.Node) -> list[torch.Tensor]:
    value = node.meta.get("val")
    found = value if isinstance(value, (list, tuple)) else [value]
    return [t for t in found if isinstance(t, torch.Tensor)]


def _lies(x: torch.Tensor) -> Any:
    return x.data_ptr(), x.shape, x.stride(), x.dtype
