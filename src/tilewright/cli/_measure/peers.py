"""The libraries to compare with, where they are installed: PyTorch in its ways, ONNX Runtime."""

from __future__ import annotations

import contextlib
import importlib
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import metadata
from typing import Any

from tilewright.cli._libraries import pip_install
from tilewright.cli._measure import torch_peer
from tilewright.cli._measure.machine import Machine
from tilewright.cli._measure.turns import Batch, of_calls, of_graph
from tilewright.ir.errors import ProblemError
from tilewright.topi.operators.convolution import Convolution
from tilewright.topi.problem import Problem

#: By name, what to import; in the order in which they are shown.
PEERS = {
    "PyTorch": "torch",
    "PyTorch channels_last": "torch",
    "torch.compile": "torch",
    "compile channels_last": "torch",
    "ONNX Runtime": "onnxruntime",
    "ONNX Runtime channels_last": "onnxruntime",
}

#: The one that takes images of integers with channels last.
_QUANTIZED = "ONNX Runtime channels_last"

#: Arrays by the names of :meth:`tilewright.topi.problem.Problem.inputs`, float32, channels first.
Arrays = Mapping[str, Any]


class Peers:
    """The libraries that are here, each with a batch for a problem.

    Parameters
    ----------
    wanted : of :data:`PEERS`.

    Attributes
    ----------
    names : those that can take part, in the order in which they are shown.
    hints : for those that are missing, a sentence each.
    """

    def __init__(self, machine: Machine, wanted: Sequence[str] = tuple(PEERS)) -> None:
        self.machine = machine
        self.hints: list[str] = []
        kinds = {"llvm": ("torch", "onnxruntime"), "cuda": ("torch",)}.get(machine.kind, ())
        modules = dict.fromkeys(m for name, m in PEERS.items() if name in wanted and m in kinds)
        here = {m for m in modules if self._finds(m)}
        self.names = [name for name, m in PEERS.items() if name in wanted and m in here]

    def batches(
        self, problem: Problem, arrays: Arrays, sets: int = 1, cuda_launches: int | None = None
    ) -> dict[str, Batch]:
        """A batch each library; one that cannot do the problem is left out, with a hint.

        On CUDA ``sets`` copies of the tensors take turns.
        """
        if any("compile" in name for name in self.names):
            import torch

            torch._dynamo.reset()  # its limit on compilations counts from problem to problem
        found = {}
        for name in self.names:
            first = next(iter(problem.inputs().values()))
            if len(first.shape) not in (4, 5) and name.endswith("channels_last"):
                continue  # PyTorch has that format for these only
            takes = name == _QUANTIZED or (name == "PyTorch" and torch_peer.has_integers(problem))
            if problem.is_quantized != takes and name != "ONNX Runtime":
                continue  # which has no others for integers
            if problem.is_float8:
                continue  # which none of them has
            try:
                found[name] = self._make(name)(name, problem, arrays, sets, cuda_launches)
            except ProblemError as error:  # of no problem of its kind
                self._hint(f"{name} is left out: {error}")
            except Exception as error:  # another library's failure is no reason to stop
                self._hint(f"{name} fails on {problem}: {_first_line(error)}")
        return found

    @contextlib.contextmanager
    def threads(self) -> Iterator[None]:
        """PyTorch uses the machine's number of threads inside."""
        torch = sys.modules.get("torch") if self.with_torch else None
        if torch is None:
            yield
            return
        before = torch.get_num_threads()
        torch.set_num_threads(self.machine.threads)
        try:
            yield
        finally:
            torch.set_num_threads(before)

    @property
    def with_torch(self) -> bool:
        """Whether PyTorch takes part."""
        return "torch" in self._modules

    @property
    def _modules(self) -> list[str]:
        return list(dict.fromkeys(PEERS[name] for name in self.names))

    def versions(self) -> dict[str, str]:
        """The versions of what took part, by distribution."""
        names = ["numpy", *(["llvmlite"] if self.machine.kind == "llvm" else []), *self._modules]
        found = {}
        for name in names:
            with contextlib.suppress(metadata.PackageNotFoundError):
                found[name] = metadata.version(name)
        if self.with_torch and self.machine.kind == "cuda":
            found["cudnn"] = str(sys.modules["torch"].backends.cudnn.version())
        return found

    def _finds(self, module: str) -> bool:
        name = {"torch": "PyTorch", "onnxruntime": "ONNX Runtime"}[module]
        try:
            library: Any = importlib.import_module(module)
        except ImportError as error:
            missing = isinstance(error, ModuleNotFoundError) and error.name == module
            reason = "is not installed" if missing else f"does not load ({_first_line(error)})"
            self._hint(f"{name} {reason}; to compare with it: {pip_install(module)}")
            return False
        except Exception as error:  # a broken library may raise anything
            self._hint(f"{name} does not load: {_first_line(error)}")
            return False
        if self.machine.kind == "cuda" and not library.cuda.is_available():
            self._hint(f"{name} {library.__version__} here has no CUDA, so it is left out")
            return False
        if self.machine.kind == "cuda":
            library.backends.cudnn.benchmark = True
            library.backends.cudnn.allow_tf32 = False
        return True

    def _hint(self, text: str) -> None:
        if text not in self.hints:
            self.hints.append(text)

    def _make(self, name: str) -> Callable[[str, Problem, Arrays, int, int | None], Batch]:
        return self._onnxruntime if name.startswith("ONNX Runtime") else self._torch

    def _torch(
        self, name: str, problem: Problem, arrays: Arrays, sets: int, launches: int | None
    ) -> Batch:
        import torch

        call = torch_peer.function(problem)
        if "compile" in name:
            call = torch.compile(call, fullgraph=True, dynamic=False)
        device = "cuda" if self.machine.kind == "cuda" else "cpu"
        last = name.endswith("channels_last")
        copies = [torch_peer.operands(problem, arrays, device, last) for _ in range(sets)]
        if device == "cuda":
            return of_graph(lambda i: call(*copies[i % sets]), sets, launches)
        (tensors,) = copies

        def once() -> None:
            with torch.no_grad():
                call(*tensors)

        with self.threads():
            once()
        return of_calls(once, self.machine.clock)

    def _onnxruntime(
        self, name: str, problem: Problem, arrays: Arrays, sets: int, launches: int | None
    ) -> Batch:
        from tilewright.cli._measure.onnx import session

        if not isinstance(problem, Convolution):
            raise ProblemError(f"there is no ONNX model for {problem.operator}")
        last = name == _QUANTIZED
        made = session(problem, arrays, self.machine.threads, last)
        binding = made.io_binding()
        image = next(iter(arrays.values())).astype(problem.dtype)
        image = image.transpose(0, *range(2, image.ndim), 1).copy() if last else image
        binding.bind_cpu_input("x", image)
        if "residual" in arrays:
            binding.bind_cpu_input("residual", arrays["residual"])
        binding.bind_output("y")
        return of_calls(lambda: made.run_with_iobinding(binding), self.machine.clock)


def _first_line(error: BaseException) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]
