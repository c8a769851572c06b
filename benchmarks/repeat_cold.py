"""Kernels launched on an idle GPU give the bits that they give on a busy one.

An idle GPU lowers the clock of its SMs more than that of its memory: what is copied in
the background may arrive after fewer instructions than at other times, and overtake what a busy GPU
does not let it overtake. Each layer's first choice is launched for a while, then a few
times after every of some pauses, in which the GPU idles, and the results are compared bit for
bit. Only kernels that fill tiles by TMA are launched: others copy nothing in the background that
their threads read.

    PYTHONPATH=src python benchmarks/repeat_cold.py --only "NHWC" --turns 6
    PYTHONPATH=src python benchmarks/repeat_cold.py --only 832x28x28 --unfenced --name unfenced

The second line leaves out the fences of shared memory
(:mod:`tilewright.lower.async_.proxy_fences`), to see that they are missed: by a kernel with few
products a tile, which the choice does not take.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import measure
from gpu_depthwise import Layer
from gpu_layers import sections
from large_kernels import sections as large_sections
from problem_parts import build, first_choices

import tilewright
from tilewright.ir.stmt import Queue, Seq, Stmt
from tilewright.ir.visit import Rewriter, Steps
from tilewright.topi.operators.conv import Conv
from tilewright.topi.templates import TEMPLATES

_TARGET = "cuda -arch=sm_90a"
#: Seconds of launches before the result that counts, and of a pause; launches after it.
_WARM, _PAUSE, _LAUNCHES = 0.1, 0.3, 4
#: A layer, and the tile with few products for it.
_TIGHT = Conv.parse(
    "64x832x28x28", "832x1x3x3", stride=2, padding=1, dtype="float16", layout="NHWC"
)
_TILE = {
    "rows": 1, "strips": 2, "groups": 4, "pairs": 2, "down": 1, "across": 1, "lots": 8,
    "turns": 12, "stages": 2,
}  # fmt: skip


def prepare(p: Conv, path: str, unfenced: bool = False) -> str:
    """Compile the first choice for a problem: its name, nothing where it copies no tiles."""
    tight = p == _TIGHT
    template, values = ("gpu.channel_pairs", _TILE) if tight else first_choices(p, _TARGET, 1)[0]
    if unfenced:
        build_unfenced(p, template, values, path)
    elif failure := build(p, template, values, _TARGET, path):
        return f"failed: {failure}"
    name = f"{template} {','.join(map(str, values.values()))}"
    return name if "tma.load(" in tilewright.load(path).source else ""


class Unfenced(Rewriter):
    """A program without fences of shared memory."""

    def steps(self, s: Stmt) -> Steps:
        if isinstance(s, Queue) and s.action == "proxy":
            return Seq(())
        return (yield super().steps(s))


def build_unfenced(p: Conv, template: str, values: dict[str, int], path: str) -> None:
    """Compile a kernel that lacks all fences into a file."""
    chosen = TEMPLATES[template]
    config = chosen.parse(values)
    declaration = chosen.declare(p, config)
    module = tilewright.lower(chosen.schedule(declaration, config), declaration.args, _TARGET)
    funcs = tuple(replace(f, body=Unfenced().stmt(f.body)) for f in module.funcs)
    tilewright.build(replace(module, funcs=funcs), target=_TARGET, verify=False).save(path)


def differing(p: Conv, path: str, turns: int) -> tuple[int, int]:
    """How many launches gave other bits."""
    import torch

    layer, kernel = Layer(p, sets=1), tilewright.load(path)
    operands, wanted = layer.operands()[0], layer.result[0]
    found = [torch.empty_like(wanted) for _ in range(_LAUNCHES)]
    begin = time.monotonic()
    while time.monotonic() < begin + _WARM:
        for _ in range(_LAUNCHES):
            kernel(*operands, wanted)
        torch.cuda.synchronize()
    wrong = 0
    for _ in range(turns):
        torch.cuda.synchronize()
        time.sleep(_PAUSE)
        for one in found:
            kernel(*operands, one)
        wrong += sum(not torch.equal(one, wanted) for one in found)
    return wrong, turns * len(found)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--only", default="", help="problems that contain this")
    parser.add_argument("--every", type=int, default=1, help="take every N-th problem")
    parser.add_argument("--turns", type=int, default=6, help="pauses for each kernel")
    parser.add_argument("--unfenced", action="store_true", help="without fences")
    parser.add_argument("--seconds", type=float, default=300.0, help="to stop after")
    parser.add_argument("--name", default="h200_repeat_cold", help="of the results")
    parser.add_argument("--out", default="benchmarks/results")
    arguments = parser.parse_args()
    every = [_TIGHT, *(p for _, p in sections()), *(p for _, p in large_sections())]
    wanted = [p for p in every if arguments.only in str(p)][:: arguments.every]
    rows: list[dict[str, Any]] = []
    end = time.monotonic() + arguments.seconds
    with TemporaryDirectory() as folder, ProcessPoolExecutor() as pool:
        paths = [str(Path(folder) / f"{k}.kernel") for k in range(len(wanted))]
        jobs = [
            pool.submit(prepare, p, path, arguments.unfenced)
            for p, path in zip(wanted, paths, strict=True)
        ]
        names = [job.result() for job in jobs]
        failed = sum(name.startswith("failed") for name in names)
        for p, path, name in zip(wanted, paths, names, strict=True):
            if not name or name.startswith("failed") or time.monotonic() > end:
                continue
            wrong, launches = differing(p, path, arguments.turns)
            rows.append({"problem": str(p), "kernel": name, "launches": launches, "wrong": wrong})
            print(json.dumps(rows[-1]), flush=True)
    result = {
        "environment": measure.environment("torch"),
        "problems": len(wanted), "with tiles": sum(map(bool, names)) - failed,
        "not compiled": failed, "launched": len(rows),
        "launches": sum(row["launches"] for row in rows), "wrong": sum(r["wrong"] for r in rows),
        "rows": rows,
    }  # fmt: skip
    print(measure.save(arguments.name, result, arguments.out))
    sys.exit(any(row["wrong"] for row in rows))


if __name__ == "__main__":
    main()
