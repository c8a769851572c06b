"""What each template and each of its parameters is worth, by the schedules that a sweep measured.

    python benchmarks/worth.py [--parameters] [--file benchmarks/results/h200_sweep.json.gz]

Of each template: for how many problems it was measured, among these those of which nothing else
was, those where it was fastest, and by how much what is left is slower without it: the geometric
mean over problems for which others were measured, and of how many problems by more than 5 and 10 %.
With ``--parameters`` the same of every parameter, if it had only the one value with which least is
lost: one that is worth nothing may be left out. Sweeps are of different versions, and most of what
was measured was ranked high then, so that a small worth says more than a large one.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Iterator
from typing import Any

import measure
import numpy as np
import sweeps
from sweeps import Measured

from tilewright.topi.templates import TEMPLATES

Array = np.ndarray[Any, Any]


def fastest(rows: Array) -> float:
    """Microseconds of the fastest, those that spilled left out; infinite where there is none."""
    times = rows[:, -2]
    return float(times[times > 0].min(initial=math.inf))


def losses(
    measured: list[Measured], template: str, kept: Callable[[Array], Array]
) -> Iterator[float]:
    """For each problem, by how much what is left is slower if only those parameters of a template
    stay that are ``kept``; infinite where nothing is left."""
    for m in measured:
        if template in m.tables:
            rows = m.tables[template]
            others = min((fastest(x) for t, x in m.tables.items() if t != template),
                         default=math.inf)  # fmt: skip
            yield min(others, fastest(rows[kept(rows)])) / min(others, fastest(rows))


def row(name: str, found: list[float]) -> dict[str, Any]:
    left = [x for x in found if x < math.inf]
    return {
        "": name, "problems": len(found), "nothing left": len(found) - len(left),
        "slower": sum(x > 1 for x in left),
        "mean": math.exp(sum(map(math.log, left)) / max(1, len(left))),
        "by 5 %": sum(x > 1.05 for x in left), "by 10 %": sum(x > 1.1 for x in left),
        "most": max(left, default=1.0),
    }  # fmt: skip


def of_parameters(measured: list[Measured], template: str) -> Iterator[dict[str, Any]]:
    """A row for each parameter, with the value with which least is lost."""
    values = [m.tables[template] for m in measured if template in m.tables]
    for k, field in enumerate(vars(TEMPLATES[template].config())):
        best = None
        for value in sorted({v for rows in values for v in rows[:, k].tolist()}):

            def kept(x: Array, k: int = k, value: float = value) -> Array:
                found: Array = x[:, k] == value
                return found

            found = list(losses(measured, template, kept))
            made = row(f"{template} {field}={value:g}", found)
            if best is None or (made["nothing left"], made["mean"]) < (
                best["nothing left"], best["mean"]
            ):  # fmt: skip
                best = made
        if best is not None:
            yield best


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--parameters", action="store_true", help="of every parameter, too")
    parser.add_argument("--file", default=sweeps.PACKED, help="a sweep, packed or raw")
    arguments = parser.parse_args()
    measured = sweeps.read([arguments.file])
    names = sorted({t for m in measured for t in m.tables})
    rows = [row(t, list(losses(measured, t, lambda x: np.zeros(len(x), "bool")))) for t in names]
    if arguments.parameters:
        rows += [made for t in names for made in of_parameters(measured, t)]
    print(measure.table(rows))


if __name__ == "__main__":
    main()
