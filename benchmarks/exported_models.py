"""Models written as sources and built by a C compiler, beside `model.run`: outputs, and times.

Networks are those of `graph_networks.py`, in float16 on a GPU. The program that `model.export`
writes is built by `make`, and takes turns with the model: both repeat what they have on the device,
the model bound to arrays that are there, as replays of its CUDA graph, the program as it times
itself.

    PYTHONPATH=src python benchmarks/exported_models.py --models resnet18 mobilenet_v2 --batch 1
    PYTHONPATH=src python benchmarks/exported_models.py --device cpu --image 64
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import measure
import numpy as np
import torch
from graph_networks import exported, network, of_bound

import tilewright
from tilewright.cli._measure.turns import Batch, of_calls
from tilewright.runtime import opencl
from tilewright.runtime.ndarray import array, empty
from tilewright.runtime.nvrtc import include_folders

#: Turns of both, and the seconds of one.
_ROUNDS, _SPAN = 7, 0.1


def build_flags(device: str) -> list[str]:
    """Where headers are, and the driver's library, which needs no toolkit."""
    if device == "cpu":
        return []
    if device == "opencl":  # the header that the tests bring, where there is no other
        header = measure.FOLDER.parent / "tests" / "support" / "opencl"
        return [f"CPPFLAGS=-I{header}", "LDLIBS=-l:libOpenCL.so.1"]
    folders = [f for f in include_folders() if Path(f, "cuda.h").exists()]
    return [*(f"CPPFLAGS=-I{f}" for f in folders[:1]), "LDLIBS=-l:libcuda.so.1"]


def in_queue(model: Any, x: Any, wanted: Any) -> Batch:
    """Calls on arrays of the device, one behind the other."""
    given, made = array(x, "opencl"), empty(wanted.shape, str(wanted.dtype), "opencl:0")
    call = model.bind({"x": given}, {"y": made})

    def batch(number: int) -> float:
        call()
        opencl.synchronize()
        begin = time.perf_counter()
        for _ in range(number):
            call()
        opencl.synchronize()
        return (time.perf_counter() - begin) / number

    return batch


def row(name: str, batch: int, options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """One network at one batch."""
    device = options.device
    kind = torch.float32 if device == "cpu" else torch.float16
    where = "cpu" if device == "cpu" or not torch.cuda.is_available() else "cuda"
    net = network(name)
    if net is None:
        raise RuntimeError("torchvision is not installed")
    torch.manual_seed(1)
    images = torch.randn(batch, 3, options.image, options.image)
    images = images.to(where, kind)
    data = exported(net.to(where, kind), images[:1])
    model = tilewright.load(data, target="llvm" if device == "cpu" else device)
    x = images.cpu().numpy()
    wanted = next(iter(model.run({"x": x}).values()))
    begin = time.perf_counter()
    model.export({"x": x}, folder, "net")
    written = time.perf_counter() - begin
    begin = time.perf_counter()
    subprocess.run(["make", "-s", "-j8", *build_flags(device)], cwd=folder, check=True)
    built = time.perf_counter() - begin
    x.tofile(folder / "x.raw")
    command = [folder / "net", folder / "net.weights", folder / "x.raw", folder / "y.raw"]
    subprocess.run(command, check=True, timeout=60)
    found = np.fromfile(folder / "y.raw", wanted.dtype).reshape(wanted.shape)
    error = np.linalg.norm(found.astype("f8") - wanted) / np.linalg.norm(wanted.astype("f8"))
    if device == "cuda":
        y = torch.empty(wanted.shape, dtype=kind, device="cuda")
        turn = of_bound(model.bind({"x": images}, {"y": y}))
    elif device == "opencl":
        turn = in_queue(model, x, wanted)
    else:
        turn = of_calls(model.bind({"x": x}, {"y": np.empty_like(wanted)}))
    number = max(1, int(_SPAN / turn(3)))
    times: dict[str, list[float]] = {"model": [], "program": []}
    for _ in range(_ROUNDS):
        times["model"].append(turn(number) * 1e6)
        done = subprocess.run(
            [*command, str(number)], check=True, timeout=60, stdout=subprocess.PIPE, text=True
        )
        times["program"].append(float(done.stdout.split()[0]))
    us = {side: statistics.median(t) for side, t in times.items()}
    return {
        "model": name, "batch": batch, "model us": us["model"], "program us": us["program"],
        "model / program": us["model"] / us["program"], "relative error": float(error),
        "same bits": bool((found == wanted).all()), "write s": written, "make s": built,
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    add = parser.add_argument
    add("--models", nargs="+", default=["resnet18", "mobilenet_v2"])
    add("--batch", nargs="+", type=int, default=[1])
    add("--image", type=int, default=224)
    add("--device", default="cuda", choices=["cpu", "cuda", "opencl"])
    add("--out", help="a folder for the results")
    options = parser.parse_args()
    rows: list[dict[str, Any]] = []
    for name in options.models:
        for batch in options.batch:
            with tempfile.TemporaryDirectory() as folder:
                try:
                    rows.append(row(name, batch, options, Path(folder)))
                except (RuntimeError, OSError, subprocess.SubprocessError) as error:
                    rows.append({"model": name, "batch": batch, "failed": str(error)[:300]})
            print(rows[-1], flush=True)
            if options.out:
                where = measure.environment("torch", gpu=options.device != "cpu")
                label = {"cpu": "cpu", "cuda": "h200", "opencl": "h200_opencl"}[options.device]
                found = {"environment": where, "rows": rows}
                measure.save(f"{label}_exported_models", found, options.out)
    print(measure.table(rows))
    sys.exit(any("failed" in r for r in rows))


if __name__ == "__main__":
    main()
