"""A benchmark spread over the GPUs of a machine: a process a GPU, which sees that one alone."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any


def run_on_gpus(gpus: int, out: str) -> list[Any]:
    """Run this script once a GPU with ``--part K``; what each wrote to ``out/part-K.json``. Of the
    GPUs that ``CUDA_VISIBLE_DEVICES`` lists, where it does, the first are taken."""
    seen = [name for name in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if name]
    if seen and len(seen) < gpus:
        sys.exit(f"--gpus {gpus}, but CUDA_VISIBLE_DEVICES has {','.join(seen)}")
    parts = [
        subprocess.Popen(
            [sys.executable, *sys.argv, "--part", str(k)],
            env={**os.environ, "CUDA_VISIBLE_DEVICES": seen[k] if seen else str(k)},
        )
        for k in range(gpus)
    ]
    codes = [part.wait() for part in parts]
    if any(codes):
        sys.exit("a part failed")
    found = []
    for k in range(gpus):
        path = Path(f"{out}/part-{k}.json")
        found.append(json.loads(path.read_text()))
        path.unlink()
    return found
