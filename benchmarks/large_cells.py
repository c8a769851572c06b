"""How large filters do beside PyTorch, cell by cell, from the lines that large_kernels.py printed.

Of runs that were cut as much as was printed: what a later file says of a cell counts. Prints how
many cells of float16 with 384 channels were seen, the least of their factors, and geometric means.

    PYTHONPATH=src python benchmarks/large_cells.py benchmarks/results/h200_large_kernels*.log
"""

from __future__ import annotations

import argparse
import math
import re
from pathlib import Path

from gpu_layers import PASSES

#: "... depthwise_conv2d forward 64x384x32x32 K31 ... float16 NCHW: 75.2 us, 53% of the peak, 92.5x"
_LINE = re.compile(
    r"depthwise_conv2d (\w+) (\d+)x384x(\d+)x\d+ K(\d+) .*float16 NCHW: .* ([\d.]+)x, gpu"
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("logs", nargs="+", help="in the order in which they were written")
    cells: dict[tuple[str, int, int, int], float] = {}
    for path in parser.parse_args().logs:
        for found in _LINE.finditer(Path(path).read_text()):
            batch, image, kernel = map(int, found.group(2, 3, 4))
            cells[found[1], batch, image, kernel] = float(found[5])
    print(f"{len(cells)} cells, at least {min(cells.values())} times as fast as PyTorch")
    for batch, least in ((64, 7), (64, 13), (1, 7)):
        means = [_mean([x for c, x in cells.items() if c[0] == pass_ and c[1] == batch
                        and c[3] >= least]) for pass_ in PASSES]  # fmt: skip
        whole = _mean([x for c, x in cells.items() if c[1] == batch and c[3] >= least])
        each = ", ".join(f"{p} {m:.1f}" for p, m in zip(PASSES, means, strict=True))
        print(f"batch {batch}, filters from {least} on: {whole:.1f} ({each})")


def _mean(factors: list[float]) -> float:
    return math.exp(sum(map(math.log, factors)) / len(factors))


if __name__ == "__main__":
    main()
