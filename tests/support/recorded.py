"""What records graphs on a CPU as CUDA graphs do on a GPU, for tests."""

from __future__ import annotations

from typing import Any


class Recorder:
    """Recordings lie in the same memory in each run, and what is stored for a backward pass is gone
    behind it. ``runs`` are the recordings that were replayed, in order: 0 and 1 of the first model,
    2 and 3 of the second."""

    def __init__(self, torch: Any) -> None:
        self.torch, self.runs = torch, list[int]()
        self._memory: list[list[Any]] = []
        self.fails: set[int] = set()

    def __call__(self, device: Any) -> Any:
        return self._record

    def _record(self, run: Any, given: list[Any]) -> Any:
        torch, number = self.torch, len(self._memory)
        self._memory.append([])
        if number in self.fails:
            raise torch.OutOfMemoryError("no memory")
        inputs = list(given)
        # The memory that is there now, whatever a parameter is given later.
        again = [x.detach() if isinstance(x, torch.Tensor) else x for x in inputs]
        tensors = [x for x in inputs if isinstance(x, torch.Tensor)]
        before = [x.detach().clone() for x in tensors]
        with torch.random.fork_rng(devices=[]):
            results = list(run(list(inputs)))
        for x, was in zip(tensors, before, strict=True):  # nothing runs while it is recorded
            x.data.copy_(was)
        lying = {x.untyped_storage()._cdata for x in tensors}
        of_inputs = [
            isinstance(x, torch.Tensor) and x.untyped_storage()._cdata in lying for x in results
        ]
        memory: dict[int, Any] = {}  # results that lie in one another do so in each run
        places = [
            _elsewhere(torch, x, memory) if isinstance(x, torch.Tensor) and not same else x
            for x, same in zip(results, of_inputs, strict=True)
        ]
        made = [
            x for x, same in zip(places, of_inputs, strict=True)
            if isinstance(x, torch.Tensor) and not same
        ]  # fmt: skip
        self._memory[number] = made
        stored = [x for x in inputs if any(x is y for old in self._memory[:-1] for y in old)]

        def replay() -> None:
            self.runs.append(number)
            counted = tuple(x for x in tensors if not x.is_inference())
            with torch.autograd._unsafe_preserve_version_counter(counted):
                found = run(list(again))
            for place, x, same in zip(places, found, of_inputs, strict=True):
                if isinstance(x, torch.Tensor) and not same:
                    place.data.copy_(x)
            for x in stored:
                x.data.zero_() if x.dtype.is_floating_point is False else x.data.fill_(float("nan"))

        for x in made:
            x.data.zero_()
        return places, replay


def _elsewhere(torch: Any, x: Any, memory: dict[int, Any]) -> Any:
    """A tensor in a copy of its memory, of which there is one."""
    storage = x.untyped_storage()
    copy = memory.setdefault(storage._cdata, storage.clone())
    made = torch.empty(0, dtype=x.dtype)
    return made.set_(copy, x.storage_offset(), x.shape, x.stride())
