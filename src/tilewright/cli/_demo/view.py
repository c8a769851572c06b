"""The demo on a terminal, live; and elsewhere a line a layer."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from tilewright.cli._demo.search import OURS, Result
from tilewright.cli._measure.machine import Machine

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.table import Table


class View:
    """Shows results as they come.

    ``peers`` are the names of the libraries that have columns.
    """

    def __init__(self, machine: Machine, peers: Sequence[str]) -> None:
        from rich.console import Console

        self.machine, self.peers = machine, peers
        self.console: Console = Console(highlight=False)
        self.results: list[Result] = []
        self._live: Any = None
        self._now: Result | None = None
        self._phase = ""
        self._count = 0

    @contextlib.contextmanager
    def showing(self, layers: int) -> Iterator[None]:
        """The live display is on inside, where there is a terminal."""
        self._count = layers
        if not self.console.is_terminal:
            yield
            return
        from rich.live import Live

        with Live(
            self._render(), console=self.console, refresh_per_second=10, transient=True
        ) as self._live:
            yield
        self._live = None

    def update(self, result: Result, phase: str = "") -> None:
        """Another candidate of a layer was tried, or it is being timed."""
        self._now, self._phase = result, phase
        if self._live:
            self._live.update(self._render())

    def done(self, result: Result) -> None:
        """A layer is finished."""
        self.results.append(result)
        self._now = None
        if self._live:
            self._live.update(self._render())
        else:
            self.console.print(self._line(result), soft_wrap=True)

    def table(self) -> Table:
        """The results so far."""
        from rich.box import SIMPLE_HEAD
        from rich.table import Table
        from rich.text import Text

        made = Table(box=SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
        made.add_column("median µs" if self.machine.timed else "", no_wrap=True)
        for name, _ in columns(self.machine, self.peers):
            made.add_column(name, justify="right", no_wrap=True)
        network = None
        for result in self.results:
            layer = result.layer
            if layer.network != network:
                network = layer.network
                if network:
                    made.add_row(Text(network, style="bold"))
            cells = []
            heads = (name for name, _ in columns(self.machine, self.peers))
            for head, value in zip(heads, row(result, self.machine, self.peers), strict=True):
                style = ""
                if head == "faster" and value != "–":
                    style = "green" if (result.ratio or 0) >= 1 else "red"
                elif head == OURS:
                    style = "bold"
                cells.append(Text(value, style=style))
            made.add_row(Text(("  " if network else "") + layer.shape), *cells)
        return made

    def _render(self) -> RenderableType:
        from rich.console import Group
        from rich.progress_bar import ProgressBar
        from rich.spinner import Spinner
        from rich.table import Table
        from rich.text import Text

        parts: list[RenderableType] = [self.table()] if self.results else []
        now = self._now
        if now is not None:
            line = Table.grid(padding=(0, 1))
            best = min(now.points, key=lambda p: p.cost, default=None)
            words = self._phase or (
                f"best {amount(best.cost, self.machine)}: {best.label}" if best else "building"
            )
            line.add_row(
                Spinner("dots", style="cyan"),
                Text(f"{len(self.results) + 1}/{self._count}", style="dim"),
                Text(now.layer.name, style="bold"),
                ProgressBar(max(1, now.total), now.tried, width=16),
                Text(f"{now.tried}/{now.total}"),
            )
            parts += [line, Text(f"  {words}", style="dim", no_wrap=True, overflow="ellipsis")]
        return Group(*parts)

    def _line(self, result: Result) -> str:
        heads = (name for name, _ in columns(self.machine, self.peers))
        values = row(result, self.machine, self.peers)
        timed = {OURS, *self.peers} if self.machine.timed else set()
        cells = [
            f"{head} {value}" + (" µs" if head in timed else "")
            for head, value in zip(heads, values, strict=True)
        ]
        count = f"{result.tried}/{result.total} candidates"
        if not result.points:
            return f"{result.layer.name}: none of {count} works"
        return f"{result.layer.name}: {', '.join(cells)} ({count}, {result.best})"


def columns(machine: Machine, peers: Sequence[str]) -> list[tuple[str, str]]:
    """The columns after the layer's: their heads, and what they mean."""
    if not machine.timed:
        return [
            ("sectors", "32-byte sectors of global memory that move"),
            ("shared passes", "passes over the banks of shared memory"),
            ("error", "relative error norm against NumPy in float64"),
        ]
    found = [(OURS, "the best schedule found; median in µs")]
    found += [(name, "median in µs, with as many threads") for name in peers]
    if peers:
        fastest = "faster library's" if len(peers) > 1 else "library's"
        found.append(("faster", f"the {fastest} time divided by ours"))
    if machine.kind == "llvm":
        found.append(
            (
                "of limit",
                "how near it is to what this machine can do: 100% would be as fast as copying as "
                "many bytes, or multiplying and adding as often, whichever takes longer; both are "
                "measured in this run",
            )
        )
    return [*found, ("error", "relative error norm against NumPy in float64")]


def row(result: Result, machine: Machine, peers: Sequence[str]) -> list[str]:
    """The cells of those columns."""
    error = "–" if result.error is None else f"{result.error:.0e}".replace("e-0", "e-")
    if not machine.timed:
        traffic = [result.traffic.get(name) for name in ("sectors", "shared passes")]
        return [*("–" if t is None else f"{t:,.0f}" for t in traffic), error]
    cells = [_us(result.us(name)) for name in (OURS, *peers)]
    if peers:
        cells.append("–" if result.ratio is None else f"{result.ratio:.2f}×")
    if machine.kind == "llvm":
        cells.append("–" if result.of_limit is None else f"{result.of_limit:.0%}")
    return [*cells, error]


def amount(cost: float, machine: Machine) -> str:
    """A candidate's cost with its unit."""
    return f"{_us(cost)} µs" if machine.timed else f"{cost:,.0f} transactions"


def _us(value: float | None) -> str:
    if value is None:
        return "–"
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def mean_ratio(results: Sequence[Result]) -> float | None:
    """The geometric mean of how much faster the kernels are than the best library."""
    ratios = [r.ratio for r in results if r.ratio]
    return math.exp(sum(map(math.log, ratios)) / len(ratios)) if ratios else None
