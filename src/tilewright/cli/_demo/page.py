"""The demo's page, and its figures for programs."""

from __future__ import annotations

from typing import Any

from tilewright import __version__
from tilewright.cli._demo.search import OURS, Result
from tilewright.cli._demo.view import amount, columns, mean_ratio, row
from tilewright.cli._measure.environment import environment as surroundings
from tilewright.cli._measure.machine import Machine
from tilewright.cli._measure.peers import Peers
from tilewright.report import (
    Bar,
    Curve,
    Html,
    Point,
    bars,
    cards,
    code,
    curves,
    details,
    facts,
    figure,
    page,
    paragraph,
    section,
    table,
    tag,
)
from tilewright.report import columns as beside

#: What the generated text is, by target: for people, and for the colours.
_LANGUAGES = {
    "llvm": ("LLVM IR", "llvm"),
    "cuda": ("CUDA C++", "cuda"),
    "opencl": ("OpenCL C", "opencl"),
    "sim": ("the loops that NumPy runs", "python"),
}

#: Lines of generated code that the page shows of each kernel.
_LINES = 300


def environment(machine: Machine, peers: Peers, command: str, seconds: float) -> dict[str, str]:
    """What the figures depend on."""
    more = {"target": str(machine.target), "seconds": f"{seconds:.0f}"}
    if machine.kind == "llvm":
        more["threads"] = str(machine.threads)
        more["float32 per vector"] = str(machine.lanes)
    return surroundings(machine.device, command, more | peers.versions())


def demo_page(results: list[Result], machine: Machine, peers: Peers, around: dict[str, str]) -> str:
    """The page as HTML."""
    parts = [_cards(results), _results(results, machine, peers)]
    found = [r for r in results if r.points]
    if found and machine.timed and peers.names:
        parts.append(_times(found, peers))
    if found:
        parts += [_searches(found, machine), _programs(found, machine)]
    parts.append(section("Environment", facts(around)))
    return page(
        f"Depthwise convolution on {machine.device}",
        *parts,
        lead="Layers of MobileNetV2, ConvNeXt-T and RepLKNet-31B at batch 1, in float32 and NCHW: "
        "schedules found by trying their parameters one by one, each kernel checked against NumPy "
        "in float64."
        if any(r.layer.network for r in results)
        else "Schedules found by trying their parameters one by one, each kernel checked against "
        "NumPy in float64.",
        footer=f"Written by tilewright {__version__}.",
    )


def _cards(results: list[Result]) -> Html:
    shown: dict[str, Any] = {}
    mean = mean_ratio(results)
    if mean:
        best = max((r for r in results if r.ratio), key=lambda r: r.ratio or 0)
        shown["as fast as the best library, geometric mean"] = f"{mean:.2f}×"
        shown[f"at best, on {best.layer.name}"] = f"{best.ratio:.2f}×"
    shown["candidates built, checked and timed"] = sum(r.tried for r in results)
    errors = [r.error for r in results if r.error is not None]
    if errors:
        shown["the largest relative error"] = f"{max(errors):.0e}".replace("e-0", "e-")
    return cards(shown)


def _results(results: list[Result], machine: Machine, peers: Peers) -> Html:
    heads = columns(machine, peers.names)
    rows = []
    for r in results:
        values: list[Any] = list(row(r, machine, peers.names))
        if machine.timed:
            for k, name in enumerate((OURS, *peers.names)):
                values[k] = r.us(name)
        rows.append([r.layer.name, *values, r.best or "none"])
    shown = table(
        ["layer", *(name for name, _ in heads), "schedule"],
        rows,
        best=range(1, 2 + len(peers.names)) if machine.timed else (),
        wrap=[1 + len(heads)],
    )
    meanings = [tag("li", tag("strong", name), f": {text}") for name, text in heads]
    notes = [paragraph(hint) for hint in (*machine.hints, *peers.hints)]
    failures = [
        tag("li", f"{r.layer.name}: {count} × {reason}")
        for r in results
        for reason, count in r.failures.most_common()
    ]
    refused = [details("Candidates that failed", tag("ul", *failures))] if failures else []
    return section("Results", shown, tag("ul", *meanings), *notes, *refused)


def _times(results: list[Result], peers: Peers) -> Html:
    groups = {}
    for r in results:
        times = {name: us for name in (OURS, *peers.names) if (us := r.us(name)) is not None}
        if times:
            groups[r.layer.name] = [Bar(name, us) for name, us in times.items()]
    drawn = bars("Time of a layer", groups, "µs", (OURS, *peers.names))
    caption = "Time of a layer; shorter is faster. Each layer has a scale of its own."
    return section("Times", figure(drawn, caption))


def _searches(results: list[Result], machine: Machine) -> Html:
    unit = "µs" if machine.timed else "transactions"
    drawn = []
    for r in results:
        points = [
            Point(p.index + 1, p.cost, f"{p.label}: {amount(p.cost, machine)}") for p in r.points
        ]
        costs = [p.cost for p in r.points]
        chart = curves(
            f"Search for {r.layer.name}",
            [Curve("candidate", points), Curve("best so far", points, step=True)],
            x="candidate",
            y=unit,
            log=min(costs) > 0 and max(costs) > 4 * min(costs),
        )
        caption = f"{r.layer.name}: {r.best}" + (f" ({r.stopped})" if r.stopped else "")
        drawn.append(figure(chart, caption))
    text = "Each dot is a schedule that was built and ran; the line is the best so far."
    if machine.timed:
        text += (
            " A dot is timed once, for some milliseconds, right after it was checked. The three "
            "fastest then take turns with the libraries, of which the results above are medians: "
            "compare those."
        )
    return section("Searches", paragraph(text), beside(*drawn))


def _programs(results: list[Result], machine: Machine) -> Html:
    language, colours = _LANGUAGES[machine.kind]
    shown = []
    for r in results:
        name = r.layer.name
        parts = [details("The loops of the schedule", code(r.loops, label=f"{name}: loops"))]
        if r.ir != r.source:
            text = "The program after all passes, as it was proved in bounds and free of races"
            parts.append(details(text, code(r.ir, label=f"{name}: program")))
        parts.append(
            details(
                f"The generated code: {language}",
                code(r.source, colours, f"{name}: code", _LINES),
            )
        )
        shown.append(details(f"{name}: {r.best}", *parts))
    return section("Programs", *shown)


def figures(
    results: list[Result], machine: Machine, peers: Peers, around: dict[str, str]
) -> dict[str, Any]:
    """All that was found, for :mod:`json`; times in microseconds."""
    rows = []
    for r in results:
        rows.append(
            {
                "layer": r.layer.name,
                "key": r.layer.key,
                "us": {name: r.us(name) for name in r.times},
                "faster": r.ratio,
                "of limit": r.of_limit,
                "limit us": None if r.limit is None else r.limit * 1e6,
                "traffic": r.traffic,
                "error": r.error,
                "schedule": r.best,
                "candidates": r.total,
                "tried": r.tried,
                "failures": dict(r.failures),
                "stopped": r.stopped,
                "points": [
                    {"candidate": p.index, "schedule": p.label, "cost": p.cost} for p in r.points
                ],
            }
        )
    return {
        "environment": around,
        "cost": "us" if machine.timed else "transactions",
        "peers": peers.names,
        "hints": [*machine.hints, *peers.hints],
        "geometric mean": mean_ratio(results),
        "layers": rows,
    }
