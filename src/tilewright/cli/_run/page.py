"""The page of a run: its times, the kernels they go to, the memory between these, and the graph."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tilewright import __version__
from tilewright.cli._run.figures import Difference, Times, by_kernel
from tilewright.report import (
    Html,
    cards,
    code,
    details,
    facts,
    figure,
    page,
    paragraph,
    section,
    table,
)
from tilewright.report.memory_map import Stay, bytes_text, memory_map

if TYPE_CHECKING:
    from tilewright.graph.executor import Executor

#: Kernels that the page shows without a click.
_OPEN = 20


def run_page(
    name: str,
    executor: Executor,
    times: Times,
    layers: Sequence[Mapping[str, Any]],
    differences: Sequence[Difference],
    around: Mapping[str, str],
) -> str:
    """The page as HTML; ``layers`` are those of :func:`~tilewright.cli._run.figures.layers`, and
    ``around`` is what the figures depend on."""
    found, count = times.to_dict(), len(times.seconds)
    shown = {
        f"median of {count} runs, 90% within {found['p90']:.3g} ms": f"{found['median']:.3g} ms",
        f"kernels, {len(executor.kernels)} different ones": len(executor.steps),
        "for the values between them": bytes_text(executor.plan.nbytes),
        "of constants": bytes_text(sum(x.nbytes for x in executor.constants.values())),
    }
    parts: list[Any] = [cards(shown), _kernels(layers), _memory(executor)]
    if differences:
        rows = [
            [d.name, "yes" if d.fits else "no", d.note or f"{d.absolute:.3g}", f"{d.worst:.3g}"]
            for d in differences
        ]
        heads = ["output", "as expected", "off by at most", "of what is allowed"]
        parts.append(section("Outputs", table(heads, rows)))
    graph = details("What runs, after all passes", code(str(executor.graph), label="graph"))
    parts += [section("Graph", graph), section("Environment", facts(around))]
    return page(
        name, *parts, lead="Figures of one model on one machine.",
        footer=f"Written by tilewright {__version__}.",
    )  # fmt: skip


def _kernels(layers: Sequence[Mapping[str, Any]]) -> Html:
    total = sum(row["ms"] for row in layers) or 1.0
    rows = [
        [row["kernel"], row["ms"] * 1e3, f"{row['ms'] / total:.1%}", row["count"],
         row["gflops"], row["gbytes"]]
        for row in by_kernel(layers)
    ]  # fmt: skip
    heads = ["kernel", "µs", "share", "times", "GFLOP/s", "GB/s"]
    parts = [
        paragraph(
            "Each kernel timed by itself, that which takes longest first; what a kernel runs "
            "several times a call is added up. Rates count each operation and each byte of its "
            "operands and results once."
        ),
        table(heads, rows[:_OPEN], wrap=[0]),
    ]
    if len(rows) > _OPEN:
        parts.append(details(f"{len(rows) - _OPEN} more", table(heads, rows[_OPEN:], wrap=[0])))
    return section("Kernels", *parts)


def _memory(executor: Executor) -> Html:
    names = {number: value.name for value, number in executor.index.items()}
    stays = [
        Stay(names.get(k, "") or f"value {k}", x.begin, x.end, executor.plan.offsets[k], x.nbytes)
        for k, x in enumerate(executor.lifetimes)
    ]
    chart = memory_map("Memory plan", stays, len(executor.steps), executor.plan.nbytes)
    together = sum(s.nbytes for s in stays)
    caption = (
        f"Values between kernels, {bytes_text(together)} together. Each is a rectangle: across, "
        "the kernels from the one that writes it to the last that reads it; down, where it lies."
    )
    return section("Memory", figure(chart, caption))
