"""What starting a whole network costs: importing, loading, compiling, and the first call.

MobileNetV2 (torchvision's where it is installed, else that of `vision_models.py`) is exported by
`torch.onnx.export`; PyTorch has no part in what is timed. A process with an empty cache starts it
cold, a new one with what the first left starts it warm, and one more starts it from the file that
`Model.save` wrote, without a cache. Each step is given in seconds of the clock and of the
processor, the latter of all processes: compiling takes as many as there are cores.

    PYTHONPATH=src python benchmarks/graph_start.py [--target llvm] [--dtype float16] [--out FOLDER]
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import measure

_SIZE = 224


def export(path: Path) -> None:
    """MobileNetV2 with random weights, as an ONNX file of batch 1."""
    import torch
    from graph_networks import network

    model = network("mobilenet_v2")
    assert model is not None
    torch.onnx.export(
        model, (torch.zeros(1, 3, _SIZE, _SIZE),), str(path), dynamo=False, input_names=["x"]
    )


def start(path: str, target: str, dtype: str | None) -> list[dict[str, Any]]:
    """The seconds of each step in this process, which has imported nothing yet."""
    rows: list[dict[str, Any]] = []
    last = _used()

    def mark(step: str) -> None:
        nonlocal last
        now = _used()
        rows.append({"step": step, "seconds": now[0] - last[0], "processor": now[1] - last[1]})
        last = now

    def told(done: int, count: int) -> None:
        print(f"\r{done} of {count} kernels", end="" if done < count else "\n", file=sys.stderr)

    import numpy as np

    import tilewright

    mark("import")
    saved = not path.endswith(".onnx")
    model = tilewright.load(path) if saved else tilewright.load(path, target=target, dtype=dtype)
    mark("load")
    x = np.zeros((1, 3, _SIZE, _SIZE), "float32")
    model.compile({"x": x}, progress=told)
    mark("compile")
    model(x)
    mark("first call")
    model(x)
    mark("second call")
    if not saved:
        model.save(Path(path).with_suffix(".tilewright"))
    total = {name: sum(row[name] for row in rows[:-1]) for name in ("seconds", "processor")}
    return [*rows, {"step": "until the first result", **total}]


def _used() -> tuple[float, float]:
    """The clock, and the time of the processor that this process and its own have taken."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return time.perf_counter(), sum(r.ru_utime + r.ru_stime for r in used)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--target", default="llvm")
    parser.add_argument("--dtype", choices=["float16", "bfloat16"], help="of products")
    parser.add_argument("--out", help="a folder for the results")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print(json.dumps(start(options.one, options.target, options.dtype)))
        return
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "mobilenet_v2.onnx")
        export(path)
        more = ["--target", options.target]
        more += ["--dtype", options.dtype] if options.dtype else []
        saved, kept = path.with_suffix(".tilewright"), str(Path(folder, "cache"))
        for cache, file, where in (
            ("cold", path, kept),
            ("warm", path, kept),
            ("file", saved, "off"),
        ):
            done = subprocess.run(
                [sys.executable, __file__, "--one", str(file), *more],
                check=True,
                stdout=subprocess.PIPE,
                text=True,
                env={**measure.as_installed(), "TILEWRIGHT_CACHE": where},
            )
            found = json.loads(done.stdout.splitlines()[-1])
            rows += [{"cache": cache, **row} for row in found]
    print(measure.table(rows))
    if options.out:
        gpu = options.target.startswith("cuda")
        result = {"environment": measure.environment("torch", gpu=gpu), "rows": rows}
        print(measure.save("graph_start", result, options.out))


if __name__ == "__main__":
    main()
