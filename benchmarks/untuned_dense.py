"""Dense and grouped convolutions that nobody tuned: the first choice beside PyTorch's.

Random layers of the kinds that networks have, in all passes, in 16 bits and channels last: the
schedule that is ranked first, which nothing measured, is checked against PyTorch in float32 and
takes turns with PyTorch in either layout, cuDNN's search switched on, as in ``gpu_dense.py``. Told
are the mean of the ratios, the share of problems of at least 0.9, and the mean where PyTorch's
kernel is taken whenever it is the faster one, as a choice that measures does. What is not measured
in ``--seconds`` is left out.

    PYTHONPATH=src python benchmarks/untuned_dense.py [--count 150] [--seed 1]
"""

from __future__ import annotations

import argparse
import itertools
import math
import random
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any

import measure
from gpu_dense import built, row
from gpu_layers import PASSES

from tilewright.report.results import geometric_mean
from tilewright.topi import Conv

#: Bytes of all tensors and operations of a problem, at most; and the ratio that most shall have.
_BYTES, _OPERATIONS, _LEAST = 600e6, 4e11, 0.9
#: Channels of a group where there are groups.
_OWN = (4, 8, 16, 32, 64)


def problems(count: int, seed: int) -> Iterator[Conv]:
    """Layers of batch 1 to 64, of 7 to 112 rows; a quarter of them in groups."""
    rng, found = random.Random(seed), set[Conv]()

    def log(least: float, most: float) -> int:
        return round(math.exp(rng.uniform(math.log(least), math.log(most))))

    while len(found) < count:
        image, kernel, stride = (
            log(7, 112),
            rng.choice((1, 1, 3, 3, 3, 5, 7)),
            rng.choice((1, 1, 2)),
        )
        if rng.random() < 0.25:
            own, groups = rng.choice(_OWN), log(2, 32)
            channels = outputs = own * groups
        else:
            groups, channels, outputs = 1, 8 * log(1, 256), 8 * log(1, 256)
        p = Conv.parse(
            (rng.choice((64, 64, 32, 8, 1)), channels, image, image),
            (outputs, channels // groups, kernel, kernel), groups, stride=stride,
            padding=kernel // 2, pass_=rng.choice(PASSES), layout="NHWC",
            dtype=rng.choice(("float16", "bfloat16")),
        )  # fmt: skip
        if p.bytes <= _BYTES and p.nominal_flops <= _OPERATIONS and p not in found:
            found.add(p)
            yield p


def _first(p: Conv) -> int:
    """How many schedules are tried until the first that is built, which the cache then has."""
    for rank in itertools.count():
        found = built(p, rank)
        if found is None:
            raise SystemExit(f"no schedule of {p} is built")
        if found[0] is not None:
            return rank + 1
    raise AssertionError


def _summary(rows: list[dict[str, Any]]) -> dict[str, float]:
    ratios = [r["best peer / untuned"] for r in rows]
    return {
        "problems": len(rows),
        "mean": geometric_mean(ratios),
        "least": min(ratios),
        f"share of at least {_LEAST}": sum(r >= _LEAST for r in ratios) / len(ratios),
        "mean with PyTorch's kernel where it is faster": geometric_mean(
            [max(r, 1.0) for r in ratios]
        ),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--count", type=int, default=150)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=300, help="to stop after")
    parser.add_argument("--out", default="benchmarks/results")
    options, start = parser.parse_args(), time.monotonic()
    drawn = list(problems(options.count, options.seed))
    with ProcessPoolExecutor(mp_context=get_context("spawn")) as pool:
        tried = list(pool.map(_first, drawn))
    import torch

    torch.backends.cudnn.benchmark = True
    rows = []
    for p, k in zip(drawn, tried, strict=True):
        if time.monotonic() - start > options.seconds:
            break
        rows.append({"groups": p.groups, "dtype": p.dtype, **row(p, k, linear=False)})
        print(f"{len(rows)} of {len(drawn)}: {p.short} {p.pass_}", file=sys.stderr, flush=True)
    print(measure.table(rows))
    summaries = {"all": _summary(rows)}
    summaries |= {f"{x}": _summary([r for r in rows if r["pass"] == x]) for x in PASSES}
    summaries["in groups"] = _summary([r for r in rows if r["groups"] > 1])
    for name, summary in summaries.items():
        print(name, ", ".join(f"{what} {value:.3g}" for what, value in summary.items()))
    environment = measure.environment("torch")
    results = {
        "environment": environment, "settings": vars(options), "summaries": summaries, "rows": rows,
    }  # fmt: skip
    kind = "h100" if "H100" in environment["device"] else "h200"
    print(measure.save(f"{kind}_untuned_dense", results, options.out))


if __name__ == "__main__":
    main()
