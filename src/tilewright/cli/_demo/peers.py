"""What the demo compares with, where it is installed: PyTorch and ONNX Runtime."""

from __future__ import annotations

import contextlib
import importlib
import sys
from collections.abc import Callable, Iterator
from importlib import metadata
from typing import Any

from tilewright.cli._demo.layers import Layer
from tilewright.cli._demo.machine import Machine
from tilewright.cli._demo.timing import Batch, of_calls
from tilewright.cli._libraries import pip_install

_DISTRIBUTIONS = {"PyTorch": "torch", "ONNX Runtime": "onnxruntime"}

#: Launches in one captured CUDA graph.
_GRAPH = 20


class Peers:
    """The libraries that are here, each with a batch for a layer.

    Attributes
    ----------
    names : in the order in which they are shown.
    hints : for those that are missing, a sentence each.
    """

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.hints: list[str] = []
        self._makers: dict[str, Callable[[Layer, Any, Any], Batch]] = {}
        if machine.kind in ("llvm", "cuda"):
            self._find("PyTorch", "torch", self._torch if machine.kind == "llvm" else self._graph)
        if machine.kind == "llvm":
            self._find("ONNX Runtime", "onnxruntime", self._onnxruntime)

    @property
    def names(self) -> list[str]:
        return list(self._makers)

    def batches(self, layer: Layer, x: Any, w: Any) -> dict[str, Batch]:
        """A batch each library; one that cannot do the layer is left out, with a hint."""
        found = {}
        for name, make in self._makers.items():
            try:
                found[name] = make(layer, x, w)
            except Exception as error:  # another library's failure is no reason to stop
                self._hint(f"{name} fails on {layer.shape}: {_first_line(error)}")
        return found

    @contextlib.contextmanager
    def threads(self) -> Iterator[None]:
        """PyTorch uses the machine's number of threads inside."""
        torch = sys.modules.get("torch") if "PyTorch" in self._makers else None
        if torch is None:
            yield
            return
        before = torch.get_num_threads()
        torch.set_num_threads(self.machine.threads)
        try:
            yield
        finally:
            torch.set_num_threads(before)

    def versions(self) -> dict[str, str]:
        """The versions of what took part, by distribution."""
        names = ["numpy", *(["llvmlite"] if self.machine.kind == "llvm" else [])]
        names += [_DISTRIBUTIONS[name] for name in self.names]
        found = {}
        for name in names:
            with contextlib.suppress(metadata.PackageNotFoundError):
                found[name] = metadata.version(name)
        return found

    def _find(self, name: str, module: str, make: Callable[[Layer, Any, Any], Batch]) -> None:
        try:
            library: Any = importlib.import_module(module)
        except ImportError as error:
            missing = isinstance(error, ModuleNotFoundError) and error.name == module
            reason = "is not installed" if missing else f"does not load ({_first_line(error)})"
            self._hint(f"{name} {reason}; to compare with it: {pip_install(module)}")
            return
        except Exception as error:  # a broken library may raise anything
            self._hint(f"{name} does not load: {_first_line(error)}")
            return
        if self.machine.kind == "cuda" and not library.cuda.is_available():
            self._hint(f"{name} {library.__version__} here has no CUDA, so it is left out")
            return
        self._makers[name] = make

    def _hint(self, text: str) -> None:
        if text not in self.hints:
            self.hints.append(text)

    def _torch(self, layer: Layer, x: Any, w: Any) -> Batch:
        import torch

        data, weight = torch.from_numpy(x), torch.from_numpy(w)

        def call() -> None:
            with torch.inference_mode():
                torch.nn.functional.conv2d(
                    data, weight, None, layer.stride, layer.kernel // 2, 1, layer.channels
                )

        return of_calls(call)

    def _onnxruntime(self, layer: Layer, x: Any, w: Any) -> Batch:
        from tilewright.cli._demo.onnx import depthwise_session

        session = depthwise_session(x.shape, w, layer.kernel, layer.stride, self.machine.threads)
        binding = session.io_binding()
        binding.bind_cpu_input("x", x)
        binding.bind_output("y")
        return of_calls(lambda: session.run_with_iobinding(binding))

    def _graph(self, layer: Layer, x: Any, w: Any) -> Batch:
        """PyTorch on a GPU: replays of a CUDA graph, as Tilewright's kernels are timed."""
        import torch

        torch.backends.cudnn.benchmark = True
        torch.backends.cudnn.allow_tf32 = False
        data, weight = torch.from_numpy(x).cuda(), torch.from_numpy(w).cuda()

        def call() -> None:
            torch.nn.functional.conv2d(
                data, weight, None, layer.stride, layer.kernel // 2, 1, layer.channels
            )

        stream, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()
        with torch.inference_mode():
            with torch.cuda.stream(stream):
                for _ in range(3):
                    call()
            torch.cuda.synchronize()
            with torch.cuda.graph(graph, stream=stream):
                for _ in range(_GRAPH):
                    call()

        def batch(number: int) -> float:
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            replays = max(1, -(-number // _GRAPH))
            with torch.cuda.stream(stream):
                graph.replay()
                start.record(stream)
                for _ in range(replays):
                    graph.replay()
                end.record(stream)
            end.synchronize()
            return float(start.elapsed_time(end)) / 1e3 / (replays * _GRAPH)

        return batch


def _first_line(error: BaseException) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]
