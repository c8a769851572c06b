"""Requests from many threads to one model: every result equal, and memory that stays what it is.

Threads call one model, every second one a clone of it, with batches of several sizes in random
order, and compare each result, bit for bit, with what one thread computed before. Once every thread
has had some requests, the memory of the process (VmRSS) is read every second. The exit status is 1
where a result differs, or where the median of the last quarter is more than 1 % above that of the
second.

    PYTHONPATH=src python benchmarks/many_threads.py [--threads 50] [--seconds 60] [--model m.onnx]

Without --model it is torchvision's MobileNetV2, or `vision_models.py`'s, at 64 pixels.
"""

from __future__ import annotations

import argparse
import random
import statistics
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np

import tilewright

BATCHES = (1, 2, 3, 5)
#: Requests of each thread before memory is looked at.
WARM = 50


def network(path: str | None) -> Any:
    """The model."""
    if path is not None:
        return tilewright.load(path)
    import torch
    from graph_networks import exported
    from graph_networks import network as of_name

    made = of_name("mobilenet_v2")
    assert made is not None
    return tilewright.load(exported(made.float(), torch.zeros(1, 3, 64, 64)))


def cases(model: Any) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """Inputs of each batch, and what one thread makes of them."""
    found = []
    for batch in BATCHES:
        rng = np.random.default_rng(batch)
        given = {}
        for p in model.inputs:
            shape = [e if isinstance(e, int) else batch for e in p.shape or ()]
            given[p.name] = rng.standard_normal(shape).astype(p.dtype)
        found.append((given, model.run(given)))
    return found


def memory() -> int:
    """Bytes that the process has in memory."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS")) * 1024


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--threads", type=int, default=50)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--model", help="an ONNX file")
    options = parser.parse_args()
    model = network(options.model)
    known = cases(model)
    counts, wrong = [0] * options.threads, list[str]()
    end = float("inf")

    def requests(k: int) -> None:
        mine = model.clone() if k % 2 else model
        rng = random.Random(k)
        while time.monotonic() < end and not wrong:
            given, wanted = rng.choice(known)
            for name, x in mine.run(given).items():
                if not np.array_equal(x, wanted[name]):
                    wrong.append(f"thread {k}: {name} differs after {counts[k]} requests")
            counts[k] += 1

    threads = [threading.Thread(target=requests, args=(k,)) for k in range(options.threads)]
    for t in threads:
        t.start()
    # Each thread's allocator keeps what its largest request took, which comes early or late.
    while min(counts) < WARM and not wrong:
        time.sleep(0.1)
    end = time.monotonic() + options.seconds
    before, sizes = sum(counts), []
    while any(t.is_alive() for t in threads):
        time.sleep(min(1.0, options.seconds / 40))
        sizes.append(memory())
    quarter = max(1, len(sizes) // 4)
    early, late = (statistics.median(s) for s in (sizes[quarter : 2 * quarter], sizes[-quarter:]))
    served = sum(counts) - before
    print(f"{options.threads} threads, {served:,} requests in {options.seconds:.0f} s, "
          f"{min(counts)} to {max(counts)} a thread")  # fmt: skip
    print(f"memory: {early / 1e6:.1f} MB in the second quarter, {late / 1e6:.1f} MB in the last")
    print("\n".join(wrong) or "all results are equal, bit for bit")
    return 1 if wrong or late > 1.01 * early else 0


if __name__ == "__main__":
    sys.exit(main())
