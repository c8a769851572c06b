"""What a measurement says: tables for a terminal, and figures for programs."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tilewright.cli._bench.contest import OURS, Row
from tilewright.cli._measure.floors import Roof
from tilewright.report.numbers import counted, short
from tilewright.report.results import geometric_mean, short_name

if TYPE_CHECKING:
    from rich.console import Console


def show_row(console: Console, row: Row) -> None:
    """One problem as hyperfine shows commands; ratios are those of medians."""
    from rich.box import SIMPLE_HEAD
    from rich.markup import escape
    from rich.table import Table
    from rich.text import Text

    console.print(f"[bold]{escape(str(row.problem))}[/]", soft_wrap=True)
    if row.failure:
        console.print(f"[red]no kernel of ours:[/] {escape(row.failure)}", soft_wrap=True)
    if not row.times:
        return
    scale, unit = _unit(min(statistics.median(found) for found in row.times.values()))
    made = Table(box=SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
    made.add_column("", no_wrap=True)
    for name in (f"median ± σ, {unit}", "min … max", "of floor", "time"):
        made.add_column(name, justify="right", no_wrap=True)
    ours = row.median(OURS)
    fastest = min(row.times, key=lambda n: statistics.median(row.times[n]))
    for name, times in row.times.items():
        middle, part = statistics.median(times), row.of_floor(name)
        made.add_row(
            Text(name, style="bold" if name == fastest else ""),
            f"{_text(middle * scale)} ± {_text(_deviation(times) * scale)}",
            f"{_text(min(times) * scale)} … {_text(max(times) * scale)}",
            "–" if part is None else f"{part:.0%}",
            "" if name == OURS or not ours else f"{middle / ours:.2f}×",
        )
    console.print(made)
    if row.ratio is not None and row.best_peer:
        word, factor = ("faster", row.ratio) if row.ratio >= 1 else ("slower", 1 / row.ratio)
        spread = factor * math.hypot(*(_deviation(row.times[n]) / statistics.median(row.times[n])
                                       for n in (OURS, row.best_peer)))  # fmt: skip
        colour = "green" if row.ratio >= 1 else "red"
        console.print(
            f"[{colour}]{factor:.2f} ± {spread:.2f}[/] times {word} than {row.best_peer}",
            soft_wrap=True,
        )
    notes = [escape(row.schedule)] if row.schedule else []
    if row.floor:
        notes.append(f"floor {_text(row.floor * scale)} {unit}")
    if row.error is not None:
        notes.append(f"relative error {row.error:.0e}".replace("e-0", "e-"))
    notes.append(counted(len(next(iter(row.times.values()))), "round"))
    console.print(f"[dim]{'; '.join(notes)}[/]\n", soft_wrap=True)


def show_summary(console: Console, rows: Sequence[Row]) -> None:
    """All problems in one table, with the geometric means."""
    from rich.box import SIMPLE_HEAD
    from rich.markup import escape
    from rich.table import Table

    found = [row for row in rows if row.times]
    if len(found) < 2:
        return
    made = Table(box=SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
    made.add_column("median µs")
    others = any(row.best_peer is not None for row in found)
    for name in (OURS, *["best of the others", "faster"] * others, "of floor"):
        made.add_column(name, justify="right", no_wrap=True)
    for row in found:
        ours, peer, part = row.median(OURS), row.best_peer, row.of_floor(OURS)
        colour = "green" if (row.ratio or 0) >= 1 else "red"
        beside = (
            "–" if peer is None else f"{_text((row.median(peer) or 0) * 1e6)} {peer}",
            "–" if row.ratio is None else f"[{colour}]{row.ratio:.2f}×[/]",
        )
        made.add_row(
            escape(f"{row.problem.pass_} {short_name(row.problem)}"),
            "–" if ours is None else _text(ours * 1e6),
            *(beside if others else ()),
            "–" if part is None else f"{part:.0%}",
        )
    console.print(made)
    mean = geometric_mean([row.ratio for row in found if row.ratio])
    if mean:
        many = sum(1 for row in found if row.ratio)
        console.print(
            f"[bold]{mean:.2f}×[/] as fast as the best of the others, geometric mean of {many} "
            "problems."
        )


def figures(
    rows: Sequence[Row], roofs: dict[str, Roof], around: dict[str, str], hints: Sequence[str]
) -> dict[str, Any]:
    """All that was measured, for :mod:`json`; times in microseconds.

    ``tilewright report`` reads it, and ``benchmarks/page.py``.
    """
    mean = geometric_mean([row.ratio for row in rows if row.ratio])
    best = max((roof.bandwidth for roof in roofs.values()), default=0.0)
    return {
        "environment": around,
        "bandwidth_GBps": best / 1e9 or None,
        "rate_GFLOPps": {dtype: roof.rate / 1e9 for dtype, roof in roofs.items() if roof.rate},
        "geometric mean": mean,
        "hints": list(hints),
        "rows": [_figures(row) for row in rows],
    }


def _figures(row: Row) -> dict[str, Any]:
    p, part = row.problem, row.of_floor(OURS)
    made: dict[str, Any] = {
        "section": row.section or f"{p.operator}, {p.pass_}, {p.dtype}",
        "name": str(p),
        "operator": p.operator,
        "pass": p.pass_,
        "dtype": p.dtype,
        **p.columns(),
    }
    for name, times in row.times.items():
        made[f"{name} us"] = statistics.median(times) * 1e6
    if row.floor:
        made["floor us"] = row.floor * 1e6
    if row.copy:
        made["copy us"] = row.copy * 1e6
    if row.ratio:
        made["best peer / tilewright"] = row.ratio
    if part:
        made["tilewright / floor"] = 1 / part
    made["tile"] = row.schedule
    if row.error is not None:
        made["error"] = row.error
    if row.failure:
        made["failure"] = row.failure
    made["problem"] = p.to_dict()
    made["times"] = {
        name: {
            "mean": statistics.fmean(times) * 1e6, "deviation": _deviation(times) * 1e6,
            "min": min(times) * 1e6, "max": max(times) * 1e6,
            "median": statistics.median(times) * 1e6, "rounds": len(times),
        }
        for name, times in row.times.items()
    }  # fmt: skip
    return made


def _deviation(times: Sequence[float]) -> float:
    return statistics.stdev(times) if len(times) > 1 else 0.0


def _unit(seconds: float) -> tuple[float, str]:
    for scale, unit in ((1.0, "s"), (1e3, "ms")):
        if seconds * scale >= 1:
            return scale, unit
    return 1e6, "µs"


def _text(value: float) -> str:
    return short(value)
