"""The progress of a tuner on the terminal."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tilewright.tune.measure import MeasureErrorNo, MeasureInput, MeasureResult

if TYPE_CHECKING:
    from rich.console import Console

    from tilewright.tune.tuner import Tuner

#: Seconds between two lines where the output is no terminal.
_PAUSE = 10.0


class Display:
    """A callback that shows the best so far, the rate, failures and the time left.

    Made anew for each run; ``end`` takes the live line away and leaves a summary.
    """

    def __init__(
        self, total: int | None = None, prefix: str = "", console: Console | None = None
    ) -> None:
        from rich.console import Console as MakeConsole

        self.total, self.prefix = total, prefix.strip()
        self.console = console or MakeConsole(stderr=True, highlight=False)
        self._live: Any = None
        self._task: Any = None
        self._begin = time.monotonic()
        self._before: int | None = None
        self._said = 0.0

    def __call__(
        self, tuner: Tuner, inputs: Sequence[MeasureInput], results: Sequence[MeasureResult]
    ) -> None:
        total = self.total or tuner.n_trial
        if self._before is None:
            self._before = tuner.trials - len(results)
            if self.console.is_terminal:
                self._start(total)
        if self._live is not None:
            self._live.update(
                self._task, completed=tuner.trials, total=total, best=best_text(tuner),
                rate=f"{self._rate(tuner):.0f}/min", failed=failed_text(tuner),
            )  # fmt: skip
        elif time.monotonic() - self._said > _PAUSE or tuner.trials >= total:
            self._said = time.monotonic()
            left = (total - tuner.trials) / max(self._rate(tuner), 1e-9) * 60
            self._print(
                f"{tuner.trials}/{total} trials, best {best_text(tuner)}, "
                f"{self._rate(tuner):.0f}/min, {failed_text(tuner)}, {duration(left)} left"
            )

    def _start(self, total: int) -> None:
        from rich.progress import (
            BarColumn,
            MofNCompleteColumn,
            Progress,
            SpinnerColumn,
            TextColumn,
            TimeRemainingColumn,
        )

        self._live = Progress(
            SpinnerColumn(),
            TextColumn(self.prefix or "tuning"),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TextColumn("[bold green]{task.fields[best]}"),
            TextColumn("{task.fields[rate]}"),
            TextColumn("[dim]{task.fields[failed]}"),
            TimeRemainingColumn(),
            console=self.console,
            transient=True,
        )
        self._live.start()
        self._task = self._live.add_task("", total=total, best="", rate="", failed="")

    def _rate(self, tuner: Tuner) -> float:
        """Trials a minute of this run."""
        done = tuner.trials - (self._before or 0)
        return 60.0 * done / max(time.monotonic() - self._begin, 1e-3)

    def _print(self, text: str) -> None:
        self.console.print(f"{self.prefix} {text}".strip(), soft_wrap=True, markup=False)

    def end(self, tuner: Tuner) -> None:
        """Take the live line away; say what was found."""
        if self._live is not None:
            self._live.stop()
            self._live = None
        how = "interrupted after" if tuner.interrupted else "done:"
        spent = duration(time.monotonic() - self._begin)
        self._print(
            f"{how} {tuner.trials} trials in {spent}, {failed_text(tuner)}; best "
            f"{best_text(tuner)}"
            + (f", trial {tuner.best_iter}: {tuner.best_config}" if tuner.best_config else "")
        )


def best_text(tuner: Tuner) -> str:
    """The least time with its rate, as ``3.5 us (172 GFLOP/s)``."""
    if tuner.best_measure_pair is None:
        return "none yet"
    text = seconds_text(tuner.best_cost)
    return f"{text} ({tuner.best_flops / 1e9:.4g} GFLOP/s)" if tuner.best_flops else text


def failed_text(tuner: Tuner) -> str:
    """How many candidates failed, by what."""
    failed = {MeasureErrorNo(k): n for k, n in tuner.errors.items() if k}
    if not failed:
        return "none failed"
    kinds = ", ".join(f"{n} {_KINDS.get(k, 'other')}" for k, n in sorted(failed.items()))
    return f"{sum(failed.values())} failed ({kinds})"


_KINDS = {
    MeasureErrorNo.INSTANTIATION_ERROR: "illegal",
    MeasureErrorNo.COMPILE_HOST: "not compiled",
    MeasureErrorNo.COMPILE_DEVICE: "not compiled",
    MeasureErrorNo.RUNTIME_DEVICE: "crashed",
    MeasureErrorNo.WRONG_ANSWER: "wrong",
    MeasureErrorNo.BUILD_TIMEOUT: "slow to build",
    MeasureErrorNo.RUN_TIMEOUT: "hung",
}


def seconds_text(seconds: float) -> str:
    """``3.52 us``."""
    for unit, factor in (("s", 1.0), ("ms", 1e3), ("us", 1e6)):
        if seconds * factor >= 1:
            return f"{seconds * factor:.4g} {unit}"
    return f"{seconds * 1e9:.4g} ns"


def duration(seconds: float) -> str:
    """``1:02:03``."""
    whole = int(seconds)
    hours, minutes = divmod(whole // 60, 60)
    text = f"{minutes}:{whole % 60:02d}"
    return f"{hours}:{minutes:02d}:{whole % 60:02d}" if hours else text
