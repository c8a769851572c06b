"""What runs models in the processes of ``tilewright serve``; see :mod:`tilewright.tune.worker`."""

from __future__ import annotations

import functools
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tilewright.tune.worker import REQUESTS, serve

if TYPE_CHECKING:
    from tilewright.graph.model import Model

#: Models of a connection that are kept, each with its weights.
_KEPT = 2


def main() -> None:
    """Answer requests until there are none."""
    serve({**REQUESTS, "model": model, "infer": infer})


def model(path: str) -> dict[str, Any]:
    """Read a model, which shows whether it can be read here."""
    _loaded(path)
    return {"error": 0}


def infer(
    path: str, data: str, folder: str, inputs: dict[str, list[Any]], iterations: int, warmup: int,
    steps: bool,
) -> dict[str, Any]:  # fmt: skip
    """Run a model that was saved, with the kernels that ``data`` has, as
    :meth:`~tilewright.graph.remote.RemoteModel.measure` says, on inputs by name, each a file in
    ``folder``, a shape and a type; outputs go to files there."""
    import numpy as np

    from tilewright.ir.dtype import dtype
    from tilewright.runtime.narrow_floats import storage_type

    begin = time.perf_counter()
    loaded = _with_kernels(path, data)
    given = {}
    for name, (file, shape, kind) in inputs.items():
        read = np.frombuffer(Path(folder, file).read_bytes(), storage_type(dtype(kind)))
        given[name] = read.reshape(shape)
    executor = loaded.compile(given)
    prepared = time.perf_counter() - begin
    for k, array in enumerate(loaded.run(given).values()):
        Path(folder, f"out{k}").write_bytes(np.ascontiguousarray(array).tobytes())
    for _ in range(warmup if iterations else 0):
        loaded.run(given)
    seconds = []
    for _ in range(iterations):
        begin = time.perf_counter()
        loaded.run(given)
        seconds.append(time.perf_counter() - begin)
    each: list[list[float]] = []
    for _ in range(iterations if steps else 0):
        each.append([])
        executor.run(given, each[-1])
    compiled = sum(name not in loaded.brought for name in executor.names)
    return {
        "error": 0, "seconds": seconds, "steps": each, "prepared": prepared, "compiled": compiled,
    }  # fmt: skip


@functools.lru_cache(maxsize=_KEPT)
def _with_kernels(path: str, data: str) -> Model:
    from tilewright.graph.saved import load_kernels

    model = _loaded(path)
    load_kernels(model, Path(data))
    return model


@functools.lru_cache(maxsize=_KEPT)
def _loaded(path: str) -> Model:
    from tilewright.graph.load import load

    found: Model = load(path)
    return found
