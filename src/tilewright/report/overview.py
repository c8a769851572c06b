"""A page of all that was measured: rooflines, tables of every operator and peer, tuning curves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from tilewright import __version__
from tilewright.report.crossover import cell, crossover
from tilewright.report.curves import Curve, Point, curves
from tilewright.report.histories import History
from tilewright.report.markup import Html, tag
from tilewright.report.page import (
    cards,
    columns,
    details,
    facts,
    figure,
    legend,
    page,
    paragraph,
    section,
)
from tilewright.report.results import OURS, Results, Row, geometric_mean, short_name
from tilewright.report.roofline import Kernel, Roof, roofline
from tilewright.report.table import table
from tilewright.topi.operators.conv import Conv

#: Rows of a filter from which on several algorithms compete.
_LARGE = 7
#: Curves that a page shows at once; the others open at a click.
_OPEN = 8


@dataclass
class _Device:
    """What was measured on one device; the rows have their numbers on the page."""

    name: str
    results: list[Results] = field(default_factory=list)
    rows: list[tuple[int, Row]] = field(default_factory=list)
    tuned: list[tuple[int, History]] = field(default_factory=list)

    @property
    def title(self) -> str:
        """The name as people write it."""
        return device_title(self.name)


def device_title(name: str) -> str:
    """The name that records have, as people write it."""
    return name.replace(", 1 threads", ", 1 thread")


def overview(
    results: Sequence[Results], histories: Sequence[History], title: str = "Measurements"
) -> str:
    """The page as HTML.

    Parameters
    ----------
    results : files of measurements, of any devices.
    histories : what tuning measured; problems without a right candidate are counted only.
    """
    devices = _devices(results, [h for h in histories if h.trials])
    parts: list[Any] = [_cards(results, histories)]
    for device in devices:
        of = f" on {device.title}" if len(devices) > 1 else ""
        parts.append(_rooflines(device, of))
        if device.rows:
            parts.append(section(f"Times{of}", *_tables(device)))
        maps = _maps(device)
        if maps:
            parts.append(section(f"The fastest algorithm{of}", *maps))
        if device.tuned:
            parts.append(section(f"Tuning{of}", *_tuning(device)))
    failed = [h for h in histories if not h.trials]
    if failed:
        rows = [[h.name, h.measured, next(iter(h.failed), "")] for h in failed]
        shown = table(["problem", "candidates", "the first reason"], rows)
        parts.append(section("Without a right candidate", shown))
    parts.append(section("Environment", *_environments(results, histories)))
    names = "; ".join(device.title for device in devices)
    return page(
        title,
        *parts,
        lead=f"Measured on {names}." if names else "Nothing was measured.",
        footer=f"Written by tilewright {__version__}.",
    )


def _devices(results: Sequence[Results], histories: Sequence[History]) -> list[_Device]:
    """By name; problems are numbered through, those that tuning alone knows behind the others. What
    was measured and tuned on one device has one number."""
    found: dict[str, _Device] = {}
    number = 0
    for one in results:
        device = found.setdefault(one.device, _Device(one.device))
        device.results.append(one)
        for row in one.rows:
            number += 1
            device.rows.append((number, row))
    for history in histories:
        device = found.setdefault(history.device, _Device(history.device))
        same = [k for k, row in device.rows if row.problem and row.problem == history.problem]
        number += not same
        device.tuned.append((same[0] if same else number, history))
    return list(found.values())


# -- the first look ------------------------------------------------------------------------------


def _cards(results: Sequence[Results], histories: Sequence[History]) -> Html:
    rows = [row for one in results for row in one.rows]
    ratios = [row.ratio for row in rows if row.ratio]
    mean = geometric_mean(ratios)
    shown: dict[str, Any] = {}
    if rows:
        what = "problem" if len(rows) == 1 else "problems"
        shown[f"{what} measured beside others" if ratios else f"{what} measured"] = len(rows)
    if mean:
        shown["as fast as the best of the others, geometric mean"] = f"{mean:.2f}×"
    if len(ratios) > 1:
        shown["from the slowest to the fastest"] = f"{min(ratios):.2f}–{max(ratios):.2f}×"
    near = geometric_mean([row.of_floor for row in rows if row.of_floor])
    if near:
        shown["of what the machines can do, geometric mean"] = f"{near:.0%}"
    if histories:
        shown["candidates tried by tuning"] = f"{sum(h.measured for h in histories):,}"
    return cards(shown)


# -- rooflines -----------------------------------------------------------------------------------


def _rooflines(device: _Device, of: str) -> Html:
    """Every problem of a device whose work is known."""
    kernels = [_kernel(n, row) for n, row in device.rows]
    known = {row.problem for _, row in device.rows}
    kernels += [_tuned_kernel(n, h) for n, h in device.tuned if h.problem not in known]
    drawn = [k for k in kernels if k is not None]
    main, more = _roofs(device)
    chart = roofline(
        f"Roofline{of}", drawn, main.bandwidth if main else None, main.peak if main else None,
        height=400, more=more,
    )  # fmt: skip
    words = ["A dot is a problem: what it does each second over what it does for each byte that "
             "it has to move. Numbers are those of the tables."]  # fmt: skip
    if main is None:
        words.append(
            "`tilewright bench --json` on this device measures the roof, which is missing."
        )
    elif more:
        words.append("The upper slope is a copy from the caches, the fainter one from memory.")
    compared = [legend(OURS, "the best of the others")] if any(k.other for k in drawn) else []
    return section(f"Roofline{of}", paragraph(" ".join(words)), *compared, figure(chart))


def _kernel(number: int, row: Row) -> Kernel | None:
    p, ours = row.problem, row.ours
    if p is None or not ours:
        return None
    other = row.us[row.best_peer] * 1e-6 if row.best_peer else None
    name = f"{number}: {row.name}"
    return Kernel(name, p.flops, p.bytes, ours * 1e-6, str(number), other)


def _tuned_kernel(number: int, history: History) -> Kernel | None:
    p = history.problem
    if p is None:
        return None
    name = f"{number}: {history.name}"
    return Kernel(name, p.flops, p.bytes, history.best[1], str(number))


def _roofs(device: _Device) -> tuple[Roof | None, list[Roof]]:
    """What no dot is above: the fastest copy seen, and the greatest rate; then the others."""
    memory = max((r.bandwidth for r in device.results if r.bandwidth), default=None)
    rates: dict[str, float] = {}
    for one in device.results:
        for dtype, rate in one.rates.items():
            rates[dtype] = max(rate, rates.get(dtype, 0.0))
    copies = [r.problem.bytes / r.copy / 1e3 for _, r in device.rows if r.problem and r.copy]
    best = max([*copies, *([memory] if memory else [])], default=None)
    if best is None or not rates:
        return None, []
    peak = max(rates.values())
    more = [Roof(best, rate, dtype) for dtype, rate in rates.items() if rate < 0.95 * peak]
    if memory and best > 1.05 * memory:
        more.append(Roof(memory, peak))
    return Roof(best, peak), more


# -- tables --------------------------------------------------------------------------------------


def _tables(device: _Device) -> list[Html]:
    """One for each section of the rows, with the geometric means in its last row."""
    groups: dict[str, list[tuple[int, Row]]] = {}
    for number, row in device.rows:
        groups.setdefault(row.section, []).append((number, row))
    parts = [
        paragraph(
            "Medians in µs; the fastest of a row is bold. “Faster” is the time of the fastest of "
            "the others for each unit of ours, “of floor” how near the least time is that the "
            "machine needs: 100% would be as fast as it copies as many bytes, or multiplies and "
            "adds as often."
        )
    ]
    for name, rows in groups.items():
        parts += [tag("h3", name), _table(rows)]
    return parts


def _table(rows: Sequence[tuple[int, Row]]) -> Html:
    names = list(dict.fromkeys(name for _, row in rows for name in row.us))
    peers = [name for name in names if name != OURS]
    floors = any(row.floor for _, row in rows)
    heads = ["", "problem", OURS, *peers]
    heads += (["faster"] if peers else []) + (["floor", "of floor"] if floors else [])
    lines: list[list[Any]] = []
    for number, row in rows:
        cells: list[Any] = [
            number,
            short_name(row.problem) or row.name,
            *(row.us.get(n) for n in (OURS, *peers)),
        ]
        cells += [_times(row.ratio)] if peers else []
        cells += [row.floor, _percent(row.of_floor)] if floors else []
        lines.append(cells)
    if len(rows) > 1 and peers:
        lines.append(_means(rows, peers, floors))
    return table(heads, lines, best=range(2, 3 + len(peers)), wrap=[1])


def _means(rows: Sequence[tuple[int, Row]], peers: Sequence[str], floors: bool) -> list[Any]:
    """How many times as long the others take."""
    cells: list[Any] = ["", "geometric mean of the ratios to ours", "1.00×"]
    for name in peers:
        ratios = [row.us[name] / row.ours for _, row in rows if row.ours and name in row.us]
        cells.append(_times(geometric_mean(ratios)))
    cells.append(_times(geometric_mean([row.ratio for _, row in rows if row.ratio])))
    if floors:
        cells += ["", _percent(geometric_mean([r.of_floor for _, r in rows if r.of_floor]))]
    return cells


def _times(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}×"


def _percent(value: float | None) -> str:
    return "–" if value is None else f"{value:.0%}"


# -- algorithms ----------------------------------------------------------------------------------


def _maps(device: _Device) -> list[Html]:
    """Of tuning that has tried several algorithms for large filters, on a GPU."""
    peers = {
        row.problem: row.us[row.best_peer]
        for _, row in device.rows
        if row.problem is not None and row.best_peer is not None
    }
    found = []
    for _, h in device.tuned:
        if isinstance(h.problem, Conv) and min(h.problem.kernel) >= _LARGE:
            times = [(words.partition(",")[0], s * 1e6) for _, s, words in h.trials]
            found.append(cell(h.problem, times, peers.get(h.problem)))
    found = [c for c in found if len(c.times) > 1]
    return crossover(found, "the best of the others") if found else []


# -- tuning --------------------------------------------------------------------------------------


def _tuning(device: _Device) -> list[Html]:
    """The best of each problem, and the course of its search."""
    rows: list[list[Any]] = []
    for number, h in device.tuned:
        at, seconds, words = h.best
        rate = f"{h.problem.flops / seconds / 1e9:,.0f}" if h.problem else "–"
        failed = sum(h.failed.values())
        rows.append(
            [number, _history_name(h), seconds * 1e6, rate, h.measured, failed or "–", at, words]
        )
    heads = ["", "problem", "best µs", "GFLOP/s", "tried", "failed", "found at", "schedule"]
    drawn = [_curve(number, h) for number, h in device.tuned]
    parts = [
        table(heads, rows, wrap=[1, len(heads) - 1]),
        paragraph("Each dot is a candidate that was right; the line is the best so far."),
        columns(*drawn[:_OPEN]),
    ]
    if len(drawn) > _OPEN:
        parts.append(details(f"{len(drawn) - _OPEN} more", columns(*drawn[_OPEN:])))
    return parts


def _curve(number: int, h: History) -> Html:
    points = [Point(n, s * 1e6, f"{words}: {s * 1e6:.3g} µs") for n, s, words in h.trials]
    costs = [p.y for p in points]
    chart = curves(
        f"Tuning of {h.name}",
        [Curve("candidate", points), Curve("best so far", points, step=True)],
        x="candidate",
        y="µs",
        log=max(costs) > 4 * min(costs),
    )
    return figure(chart, f"{number}: {_history_name(h)}")


def _history_name(h: History) -> str:
    return f"{h.problem.pass_} {short_name(h.problem)}" if h.problem else h.name


# -- environment ---------------------------------------------------------------------------------


def _environments(results: Sequence[Results], histories: Sequence[History]) -> list[Html]:
    parts = []
    for one in results:
        known = dict(one.environment)
        if one.bandwidth:
            known["copies"] = f"{one.bandwidth:,.0f} GB/s"
        for dtype, rate in one.rates.items():
            known[f"{dtype} arithmetic"] = f"{rate:,.0f} GFLOP/s"
        parts.append(details(one.path, facts(known), open=len(results) == 1))
    for device, target in dict.fromkeys((h.device, h.target) for h in histories):
        parts.append(paragraph(f"Tuning for the target {target} on {device_title(device)}."))
    return parts
