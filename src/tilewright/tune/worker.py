"""What runs in the processes that build and measure; see :mod:`.process`.

Each request is a dictionary with "do"; ``main`` answers it by the function of that name below.
"""

from __future__ import annotations

import contextlib
import faulthandler
import functools
import importlib
import importlib.util
import json
import os
import runpy
import signal
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from tilewright.ir.errors import TilewrightError
from tilewright.ir.func import Module
from tilewright.tune.measure import MeasureErrorNo as Error

if TYPE_CHECKING:
    from tilewright.runtime.kernel import Kernel

#: A variable of the environment that is set in these processes: no tuning begins in them.
LOADING = "__tilewright_worker__"


class LoadedEnough(BaseException):
    """Ends the loading of a user's script at the point where it begins to tune."""


def main() -> None:
    """Answer requests until there are none."""
    serve(REQUESTS)


def serve(known: Mapping[str, Callable[..., dict[str, Any]]]) -> None:
    """Answer requests by the functions of these names until there are none."""
    requests, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # prints do not disturb the answers
    faulthandler.enable()
    os.environ[LOADING] = "1"
    while True:
        head = requests.read(8)
        if len(head) < 8:
            return
        request = json.loads(requests.read(int.from_bytes(head, "little")))
        _alarm(request.pop("alarm"))
        answer = json.dumps(_answer(known, request)).encode()
        _alarm(0)
        _send(answers, answer)


def _alarm(seconds: float) -> None:
    """Let the system end this process, should it hang when nobody is left to end it."""
    if hasattr(signal, "setitimer"):
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.setitimer(signal.ITIMER_REAL, seconds)


def _send(answers: BinaryIO, data: bytes) -> None:
    try:
        answers.write(len(data).to_bytes(8, "little") + data)
        answers.flush()
    except BrokenPipeError:
        sys.exit(0)


def _answer(
    known: Mapping[str, Callable[..., dict[str, Any]]], request: dict[str, Any]
) -> dict[str, Any]:
    begin = time.perf_counter()
    try:
        found = known[request.pop("do")](**request)
    except Exception as error:  # whatever a user's template raises
        found = _failed(Error.UNKNOWN_ERROR, error)
    return {"seconds": time.perf_counter() - begin, **found}


def _failed(kind: Error, error: BaseException | str) -> dict[str, Any]:
    text = error if isinstance(error, str) else f"{type(error).__name__}: {error}"
    return {"error": int(kind), "reason": text[:2000]}


def load(name: str, module: str, path: str, argv: list[str]) -> dict[str, Any]:
    """Make a template known: its module is imported, or its script run up to its tuning."""
    from tilewright.tune.template import find_template

    if module == "__main__":
        sys.argv = argv
        with contextlib.suppress(LoadedEnough, SystemExit):
            runpy.run_path(path, run_name=LOADING)
    else:
        try:
            importlib.import_module(module)
        except ImportError:
            spec = importlib.util.spec_from_file_location(module, path)
            if spec is None or spec.loader is None:
                raise
            sys.modules[module] = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(sys.modules[module])
    find_template(name)
    return {}


def nothing() -> dict[str, Any]:
    """For a process that needs no template."""
    return {}


def build(
    task: dict[str, Any],
    config: dict[str, Any],
    path: str,
    verify: bool,
    module: str | None = None,
) -> dict[str, Any]:
    """Compile a candidate into ``path``; ``module`` is its program where it is lowered already."""
    from tilewright.lower.pipeline import lower
    from tilewright.runtime.build import build as compile_module
    from tilewright.runtime.serialize import from_json
    from tilewright.tune.config import ConfigEntity
    from tilewright.tune.loop_features import loop_features
    from tilewright.tune.task import Task
    from tilewright.verify import verify as prove

    work = Task.from_json(task)
    try:
        if module is not None:
            lowered: Module = from_json(module)
        else:
            s, args = work.instantiate(ConfigEntity.from_json_dict(config))
            lowered = lower(s, args, work.target)
        if verify:
            for func in lowered.funcs:
                prove(func)
    except Exception as error:
        return _failed(Error.INSTANTIATION_ERROR, error)
    features = loop_features(lowered)
    try:
        kernel = compile_module(lowered, work.target)
        kernel.save(path)
    except Exception as error:
        return {**_failed(Error.COMPILE_DEVICE, error), "features": features}
    return {"error": 0, "features": features}


def prepare(
    task: dict[str, Any], config: dict[str, Any], path: str, seed: int, naive: str | None = None
) -> dict[str, Any]:
    """Write random inputs of a task and its right outputs to ``path``."""
    from tilewright.tune.config import ConfigEntity
    from tilewright.tune.data import make_data, make_data_of_module
    from tilewright.tune.task import Task

    if naive is not None:
        make_data_of_module(naive, Path(path), seed)
    else:
        make_data(Task.from_json(task), ConfigEntity.from_json_dict(config), Path(path), seed)
    return {"error": 0}


def device(target: str) -> dict[str, Any]:
    """The device of a target, with the target's architecture; it answers, or this raises."""
    from tilewright.tune.machine import machine

    return {"error": 0, **machine(target)}


def run(path: str, data: str, number: int, repeat: int, min_repeat_ms: float) -> dict[str, Any]:
    """Check a compiled candidate on data, and time it."""
    from tilewright.runtime.save import load as load_kernel
    from tilewright.tune.data import WrongAnswer, check_and_time

    try:
        kernel = load_kernel(path)
        costs = check_and_time(kernel, Path(data), number, repeat, min_repeat_ms)
    except WrongAnswer as error:
        return _failed(Error.WRONG_ANSWER, str(error))
    except (TilewrightError, RuntimeError, MemoryError, OSError, ValueError) as error:
        return {**_failed(Error.RUNTIME_DEVICE, error), "poisoned": True}
    return {"error": 0, "costs": costs}


def signature(path: str) -> dict[str, Any]:
    """What a compiled kernel takes, and writes."""
    kernel = _loaded(path)
    return {
        "error": 0, "name": kernel.name, "params": [p.name for p in kernel.signature.params],
        "written": sorted(kernel.signature.written),
    }  # fmt: skip


def call(path: str, folder: str, arrays: list[Any], repeat: int, number: int) -> dict[str, Any]:
    """Run a compiled kernel once, or measure it with a ``repeat``, on numbers, and on arrays of
    some shapes and types, whose contents are files in ``folder``."""
    import numpy as np

    from tilewright.ir.dtype import dtype
    from tilewright.runtime.narrow_floats import storage_type

    kernel, args = _loaded(path), list(arrays)
    files = {k: Path(folder, f"array{k}") for k, x in enumerate(arrays) if not isinstance(x, int)}
    for k, file in files.items():
        shape, kind = arrays[k]
        args[k] = made = np.zeros(shape, storage_type(dtype(kind)))
        made.reshape(-1).view(np.uint8)[:] = np.frombuffer(file.read_bytes(), np.uint8)
    found: dict[str, Any] = {"error": 0}
    if repeat:
        timing = kernel.time(*args, repeat=repeat, number=number)
        found |= {"costs": list(timing.times), "number": timing.number}
    else:
        kernel(*args)
    for k in kernel.signature.written & files.keys():
        files[k].write_bytes(args[k].tobytes())
    return found


@functools.lru_cache(maxsize=16)
def _loaded(path: str) -> Kernel:
    from tilewright.runtime.save import load as load_kernel

    return load_kernel(path)


#: What is answered, by the "do" of a request.
REQUESTS: dict[str, Callable[..., dict[str, Any]]] = {
    "load": load, "nothing": nothing, "build": build, "prepare": prepare, "device": device,
    "run": run, "signature": signature, "call": call,
}  # fmt: skip
