"""PyTorch's own kernels as an algorithm: cuDNN's, oneDNN's, whatever the user's PyTorch takes.

It is there once the program has imported PyTorch, and is chosen only where it was measured to be
the fastest.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tilewright.ir.errors import TargetError
from tilewright.runtime.array import view
from tilewright.target import Target
from tilewright.topi.problem import Problem

#: Seconds that measuring on a CPU takes, about.
_SPAN = 0.1
_CALLS = 20  # in a CUDA graph


def _torch() -> Any:
    return sys.modules.get("torch")


@dataclass(frozen=True)
class PyTorch:
    """PyTorch's own operators; nothing promises that they give the same bits again."""

    name: str = "pytorch"
    reproducible: bool = False
    vendor: bool = True

    @property
    def version(self) -> str:
        torch = _torch()
        if torch is None:
            return ""
        cudnn = torch.backends.cudnn.version() if torch.backends.cudnn.is_available() else ""
        return f"{torch.__version__} {cudnn}".strip()

    def can(self, problem: Problem, target: Target) -> str:
        torch = _torch()
        if torch is None:
            return "PyTorch is not imported"
        if target.kind not in ("llvm", "cuda"):
            return f"PyTorch does not run on {target.kind}"
        if target.kind == "cuda" and not torch.cuda.is_available():
            return "this PyTorch has no CUDA device"
        if problem.is_8bit or problem.torch_function(torch) is None:
            return f"PyTorch has no operator {problem.operator} in {problem.dtype}"
        return ""

    def candidates(self, problem: Problem, target: Target) -> Sequence[Any]:
        return [()]

    def build(self, problem: Problem, config: Any, target: Target) -> Call:
        return Call(problem)

    def workspace(self, problem: Problem, config: Any, target: Target) -> int:
        return 0  # it asks PyTorch's allocator, and does not say for how much

    def to_values(self, config: Any) -> dict[str, Any]:
        return {}

    def parse(self, values: Mapping[str, Any]) -> Any:
        return ()


class Call:
    """A problem as a call of PyTorch's."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem

    def __call__(self, *args: Any) -> None:
        """Takes what has ``__dlpack__``: NumPy arrays, tensors."""
        tensors = [_torch().from_dlpack(a) for a in args]
        found = self._bound(tensors[:-1])()
        order = self.problem.permutation("result")
        tensors[-1].copy_(found if order is None else found.permute(order))

    def _bound(self, tensors: Sequence[Any]) -> Callable[[], Any]:
        """The call on inputs that lie as the problem's."""
        p = self.problem
        plain = []
        for name, x in zip(p.inputs(), tensors, strict=True):
            order = p.permutation(name)
            back = None if order is None else [order.index(k) for k in range(len(order))]
            plain.append(x if back is None else x.permute(back))
        call = p.torch_function(_torch())
        assert call is not None
        return lambda: call(*plain)

    def seconds(self, arrays: Sequence[Any]) -> float:
        """The median, on tensors of its own like ``arrays``.

        Raises :class:`TargetError` where PyTorch refuses the problem.
        """
        torch = _torch()
        types = [getattr(torch, name) for name in self.problem.dtypes().values()]
        device = view(arrays[0]).device
        try:
            with torch.no_grad():
                shapes = [view(a).shape for a in arrays[:-1]]
                random = torch.Generator(device).manual_seed(0)  # the program's stays as it is
                tensors = [
                    torch.randn(s, device=device, generator=random).to(dtype)
                    for s, dtype in zip(shapes, types, strict=True)
                ]
                run = self._bound(tensors)
                run()
                return _on_gpu(torch, run) if tensors[0].is_cuda else _on_cpu(run)
        except RuntimeError as error:
            raise TargetError(f"PyTorch: {error}") from None


def _on_cpu(run: Callable[[], Any]) -> float:
    times: list[float] = []
    begin = time.perf_counter()
    while len(times) < 5 or time.perf_counter() - begin < _SPAN:
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def _on_gpu(torch: Any, run: Callable[[], Any]) -> float:
    """By the GPU's clock, in replays of a CUDA graph, as our own kernels are measured."""
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        for _ in range(3):
            run()
    side.synchronize()
    graph = torch.cuda.CUDAGraph()
    # What other threads do meanwhile, allocating for instance, is no business of the capture.
    with torch.cuda.graph(graph, capture_error_mode="thread_local"):
        for _ in range(_CALLS):
            run()
    graph.replay()
    times: list[float] = []
    for _ in range(7):
        events = [torch.cuda.Event(enable_timing=True) for _ in range(2)]
        events[0].record()
        graph.replay()
        events[1].record()
        torch.cuda.synchronize()
        times.append(events[0].elapsed_time(events[1]) * 1e-3 / _CALLS)
    return statistics.median(times)
