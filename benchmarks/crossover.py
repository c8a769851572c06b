"""The crossover of the algorithms for large filters: one page of maps, from what was measured.

For forward passes and both gradients, a map a batch: filters across, images down, in each cell the
fastest algorithm, by how much the second takes longer, and how many times as long PyTorch takes
where it was timed.

    PYTHONPATH=src python benchmarks/crossover.py -o crossover.html
    PYTHONPATH=src python benchmarks/crossover.py MORE-tried.jsonl ...

Of a schedule that several files have timed, the time of the last one counts.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

import sweeps

from tilewright.report import page, section
from tilewright.report.crossover import Cell, cell, crossover
from tilewright.report.results import read
from tilewright.topi.operators.conv import Conv

RESULTS = Path(__file__).parent / "results"
#: The sweep of all algorithms, and what was tried since at batch 64.
SWEEPS = (RESULTS / "h200_large_sweep.json.gz", RESULTS / "h200_large_kernels_64-tried.jsonl")


def pytorch(folder: Path = RESULTS) -> dict[str, float]:
    """Microseconds of PyTorch's best layout by problem."""
    found: dict[str, float] = {}
    for file in sorted(folder.glob("*_large_kernels.json")):
        for row in read(file).rows:
            if row.problem is not None and row.best_peer is not None:
                found[str(row.problem)] = row.us[row.best_peer]
    return found


def cells(files: Sequence[str | Path]) -> list[Cell]:
    """The problems of sweeps."""
    times: dict[Conv, dict[str, dict[tuple[float, ...], float]]] = {}
    for m in sorted(sweeps.read(files), key=lambda m: m.sweep):
        known = times.setdefault(m.problem, defaultdict(dict))
        for template, rows in m.tables.items():
            known[template] |= {tuple(row[:-2]): row[-2] for row in rows if row[-2] > 0}
    others = pytorch()
    return [
        cell(p, ((t, us) for t, found in known.items() for us in found.values()),
             others.get(str(p.replace(precision="exact"))))
        for p, known in times.items()
    ]  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("files", nargs="*", default=SWEEPS, help="by default those in results")
    parser.add_argument("-o", "--output", default="crossover.html", help="(%(default)s)")
    parser.add_argument("--device", default="NVIDIA H200", help="where they were measured")
    args = parser.parse_args()
    found = cells(args.files)
    text = page(
        "Large filters: which algorithm is fastest",
        section("Maps", *crossover(found)),
        lead=f"Depthwise convolutions on {args.device}, channels first; medians of graph replays.",
        footer="Written by benchmarks/crossover.py.",
    )
    Path(args.output).write_text(text)
    print(f"{len(found)} problems: {args.output}")


if __name__ == "__main__":
    main()
