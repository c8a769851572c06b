"""A graph on a GPU recorded once, as a CUDA graph, and replayed in each call on the same memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import torch

from tilewright.graph.fx.layout import is_dense, memory_order
from tilewright.runtime.torch_memory import allocator

#: What runs a graph on a list of what its placeholders stand for, and empties the list.
Run = Callable[[list[Any]], Any]
#: What records a run on a list, without running it: its results, and what runs it on the same
#: memory.
Record = Callable[[Run, list[Any]], tuple[Sequence[Any], Callable[[], None]]]


def recorder(device: torch.device) -> Record | None:
    """What records on a device, in memory that all its recordings share; None where nothing does,
    as on GPUs behind the first, which have no kernels of ours.

    One recording's results may lie where those before it have kept something that is dropped
    since: they are replayed in the order in which they were recorded.
    """
    if device.type != "cuda" or device.index or not _is_known():
        return None
    pool, stream = torch.cuda.graph_pool_handle(), torch.cuda.Stream(device)

    def record(run: Run, given: list[Any]) -> tuple[Sequence[Any], Callable[[], None]]:
        graph = torch.cuda.CUDAGraph()
        # Other threads, as those that load data, may use the GPU meanwhile. What fails leaves
        # another stream behind.
        with (
            torch.cuda.stream(torch.cuda.current_stream(device)),
            torch.cuda.graph(graph, pool=pool, stream=stream, capture_error_mode="thread_local"),
        ):
            results = run(given)
        return results, graph.replay

    return record


@cache
def _is_known() -> bool:
    """Whether PyTorch has the private parts that are used of it here and by :mod:`.steps`."""
    try:
        found = torch._C._construct_storage_from_data_pointer
        torch._C._autograd._top_saved_tensors_default_hooks(True)
        torch._C._autograd._get_current_graph_task_keep_graph()
    except (AttributeError, TypeError):
        return False
    return callable(found)


def follow(device: torch.device, before: Any) -> Any:
    """Let the current stream wait for another one, which used the same memory before it; the
    current one. Nothing on a CPU."""
    if device.type != "cuda":
        return None
    stream = torch.cuda.current_stream(device)
    if before is not None and stream != before:
        stream.wait_stream(before)
    return stream


def as_boxed(run: Run) -> Run:
    """``run``, which AOTAutograd is to give a list that it may empty."""
    run._boxed_call = True  # type: ignore[attr-defined]
    return run


class Recording:
    """A graph that was recorded.

    Parameters
    ----------
    given : what its placeholders stand for. What is at the places ``own`` it reads where it lies,
        in each call at the same addresses; other tensors are copied in each call.
    returned : how many of its results are copied in each call, so that they are the caller's. The
        others lie where the next call will write them again.
    stored : what it is recorded with in the place of what is ``own``, of the same addresses. The
        list is emptied, so that others may lie there once it is read.

    ``results`` are those that were recorded. Those that lie in inputs are ``passed``: of each place
    that of the input, and how it lies there where it is not the input itself. Raises
    :class:`RuntimeError` where elements of a result share memory.
    """

    def __init__(
        self, record: Record, run: Run, given: Sequence[Any], own: Sequence[int], returned: int,
        stored: list[Any] | None = None,
    ) -> None:  # fmt: skip
        self._own, others = tuple(own), set(range(len(given))).difference(own)
        self.addresses = addresses(given, own)
        self._copied = [k for k in sorted(others) if isinstance(given[k], torch.Tensor)]
        self._into = [like(given[k])() for k in self._copied]
        instead = dict(zip(self._copied, self._into, strict=True))
        instead.update(zip(own, stored or (), strict=stored is not None))
        taken = [instead.get(k, x) for k, x in enumerate(given)]
        instead.clear()
        inputs = {_memory(given[k]): k for k in own} if stored is None else {}
        if stored:
            stored.clear()
        made, self._replay = record(run, taken)
        self.results = list(made)
        tensors = {k: x for k, x in enumerate(self.results) if isinstance(x, torch.Tensor)}
        self.passed = {
            k: (place, None if x is given[place] else (x.shape, x.stride(), x.storage_offset()))
            for k, x in tensors.items()
            if (place := inputs.get(_memory(x), -1)) >= 0
        }
        kinds: dict[torch.dtype, list[int]] = {}
        for k, x in tensors.items():
            if k < returned and k not in self.passed:
                kinds.setdefault(x.dtype, []).append(k)
        self._returned = [
            (places, [self.results[k] for k in places], [like(self.results[k]) for k in places])
            for places in kinds.values()
        ]

    def __call__(self, given: Sequence[Any]) -> list[Any]:
        """The results of a call."""
        if self._into:
            torch._foreach_copy_(self._into, [given[k] for k in self._copied])
        self._replay()
        results = list(self.results)
        for k, (place, lies) in self.passed.items():  # with the version that the input has
            results[k] = given[place] if lies is None else given[place].as_strided(*lies)
        for places, sources, makes in self._returned:
            made = [make() for make in makes]
            torch._foreach_copy_(made, sources)
            for k, x in zip(places, made, strict=True):
                results[k] = x
        return results

    def reads(self, given: Sequence[Any]) -> bool:
        """Whether what it reads where it lies is there."""
        return addresses(given, self._own) == self.addresses

    def is_input(self, x: torch.Tensor) -> bool:
        """Whether a result lies in an input that is copied."""
        return any(_memory(x) == _memory(y) for y in self._into)


def addresses(given: Sequence[Any], places: Sequence[int]) -> list[int]:
    """Of some of the tensors."""
    return [given[k].data_ptr() for k in places]


def _memory(x: torch.Tensor) -> int:
    return x.untyped_storage()._cdata  # type: ignore[no-any-return]


def like(x: torch.Tensor) -> Callable[[], torch.Tensor]:
    """What makes tensors that lie as one does. Raises :class:`RuntimeError` where elements share
    memory."""
    if x.numel() and not is_dense(x.shape, x.stride(), memory_order(x.shape, x.stride())):
        raise RuntimeError(f"a tensor of {tuple(x.shape)} with strides {x.stride()} is not dense")
    return allocator(torch, tuple(x.shape), x.stride(), x.dtype, x.device)


def same_memory(x: torch.Tensor) -> torch.Tensor:
    """A tensor on the memory of another one, which it does not keep."""
    last = sum((n - 1) * s for n, s in zip(x.shape, x.stride(), strict=True))
    nbytes = (last + 1) * x.itemsize if x.numel() else 0
    storage = torch._C._construct_storage_from_data_pointer(x.data_ptr(), x.device, nbytes)
    made = torch.empty(0, dtype=x.dtype, device=x.device)
    return made.set_(storage, 0, x.shape, x.stride())
