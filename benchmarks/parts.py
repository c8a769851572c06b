"""A benchmark spread over the GPUs of a machine: a process a GPU, which sees that one alone."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any


def run_on_gpus(gpus: int, out: str) -> list[Any]:
    """Run this script once a GPU with ``--part K``; what each wrote to ``out/part-K.json``. Of the
    GPUs that ``CUDA_VISIBLE_DEVICES`` lists, where it does, the first are taken.

    On a signal to end, as from ``timeout``, it ends the parts and returns what they wrote until
    then.
    """
    seen = [name for name in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if name]
    if seen and len(seen) < gpus:
        sys.exit(f"--gpus {gpus}, but CUDA_VISIBLE_DEVICES has {','.join(seen)}")
    paths = [Path(f"{out}/part-{k}.json") for k in range(gpus)]
    for path in paths:
        path.unlink(missing_ok=True)  # of a run before
    parts = [
        subprocess.Popen(
            [sys.executable, *sys.argv, "--part", str(k)],
            env={**os.environ, "CUDA_VISIBLE_DEVICES": seen[k] if seen else str(k)},
        )
        for k in range(gpus)
    ]
    cut: list[int] = []

    def end(number: int, _: Any) -> None:
        cut.append(number)
        for part in parts:
            part.terminate()

    before = signal.signal(signal.SIGTERM, end)
    codes = [part.wait() for part in parts]
    signal.signal(signal.SIGTERM, before)
    if any(codes) and not cut:
        sys.exit("a part failed")
    found = []
    for path in paths:
        with contextlib.suppress(*((OSError, ValueError) if cut else ())):
            found.append(json.loads(path.read_text()))
            path.unlink()
    if not found:
        sys.exit("it was cut before anything was measured")
    if cut:
        print("cut: these are the results until then", flush=True)
    return found
