"""How two templates compare in what a benchmark tried: the best of each, by pass, filter and type.

    python benchmarks/compare_templates.py gpu.pixels gpu.pixel_tiles
    python benchmarks/compare_templates.py gpu.reduction_pixels gpu.reduction_pixel_tiles

Read are the files ``NAME-tried.jsonl`` that gpu_depthwise.py writes: microseconds by candidate, of
each problem. A ratio is the geometric mean, over the problems for which both were tried, of the
first template's best time by the second's.
"""

from __future__ import annotations

import argparse
import gzip
import json
import math
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import measure

_FILE = "benchmarks/results/h200_gpu_depthwise-tried.jsonl.gz"


def best(path: str, templates: tuple[str, ...]) -> Iterator[tuple[dict[str, Any], list[float]]]:
    """Problems for which all of ``templates`` were tried, with the best time of each."""
    with gzip.open(path, "rt") if path.endswith(".gz") else open(path) as lines:
        for line in lines:
            given = json.loads(line)
            times = given["times"]
            found = [[us for k, us in times.items() if k.split()[0] == t] for t in templates]
            if all(found):
                yield given["problem"], [min(each) for each in found]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("first")
    parser.add_argument("second")
    parser.add_argument("--file", default=_FILE)
    parser.add_argument("--pass", dest="pass_", default="", help="of all passes")
    parser.add_argument("--batch", type=int, default=64)
    arguments = parser.parse_args()
    ratios = defaultdict(list)
    for p, (first, second) in best(arguments.file, (arguments.first, arguments.second)):
        if p["batch"] == arguments.batch and arguments.pass_ in ("", p["pass"]):
            ratios[p["pass"], p["kernel_h"], p["dtype"]].append(first / second)
    rows = [
        {
            "pass": pass_, "K": kernel, "type": dtype, "problems": len(found),
            f"{arguments.first} / {arguments.second}": math.exp(
                sum(map(math.log, found)) / len(found)
            ),
            "least": min(found), "most": max(found),
        }
        for (pass_, kernel, dtype), found in sorted(ratios.items())
    ]  # fmt: skip
    print(measure.table(rows))


if __name__ == "__main__":
    main()
