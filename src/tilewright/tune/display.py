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
#: Columns of a terminal that a line of progress needs with all its parts.
_WIDE = 110
#: Letters of a reason that are shown.
_REASON = 300


class Display:
    """A callback that shows the best so far, the rate, failures and the time left.

    A tuner tells it of its ``begin``, before anything is built or measured, of each trial, and of
    its ``end``, which takes the live line away and leaves a summary; with ``result=False`` one
    without the best candidate, where others say that.
    """

    def __init__(
        self,
        total: int | None = None,
        prefix: str = "",
        console: Console | None = None,
        result: bool = True,
    ) -> None:
        from rich.console import Console as MakeConsole

        self.total, self.prefix, self.result = total, prefix.strip(), result
        self.console = console or MakeConsole(stderr=True, highlight=False)
        self._live: Any = None
        self._task: Any = None
        self._begin = time.monotonic()
        self._before: int | None = None
        self._said = 0.0

    def begin(self, tuner: Tuner) -> None:
        """Say what comes, and that processes are started."""
        self._begin = self._said = time.monotonic()
        self._before = None
        if self.console.is_terminal:
            self._start(self._goal(tuner))
        else:
            self._print(f"at most {self._goal(tuner)} trials{_of_space(tuner)}; starting")

    def measured(self, tuner: Tuner, done: int) -> None:
        """Say how far a batch is."""
        if self._live is not None:
            best = "measuring" if tuner.best_config is None else best_text(tuner)
            self._live.update(self._task, completed=done, best=best)

    def __call__(
        self, tuner: Tuner, inputs: Sequence[MeasureInput], results: Sequence[MeasureResult]
    ) -> None:
        total = self._goal(tuner)
        if self._before is None:
            self._before = tuner.trials - len(results)
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

    def _goal(self, tuner: Tuner) -> int:
        """The trials after which it ends at the latest."""
        return self.total or min(tuner.n_trial, len(tuner.space))

    def _start(self, total: int) -> None:
        from rich.progress import (
            BarColumn,
            MofNCompleteColumn,
            Progress,
            SpinnerColumn,
            TextColumn,
            TimeElapsedColumn,
            TimeRemainingColumn,
        )

        wide = self.console.width >= _WIDE
        self._live = Progress(
            SpinnerColumn(),
            TextColumn(self.prefix or "tuning"),
            *([BarColumn(bar_width=24)] if wide else []),
            MofNCompleteColumn(),
            TextColumn("[bold green]{task.fields[best]}"),
            *([TextColumn("{task.fields[rate]}")] if wide else []),
            TextColumn("[dim]{task.fields[failed]}"),
            *([TimeElapsedColumn()] if wide else []),
            TimeRemainingColumn(),
            TextColumn("left"),
            console=self.console,
            transient=True,
        )
        self._live.start()
        self._task = self._live.add_task("", total=total, best="starting", rate="", failed="")

    def _rate(self, tuner: Tuner) -> float:
        """Trials a minute of this run."""
        done = tuner.trials - (self._before or 0)
        return 60.0 * done / max(time.monotonic() - self._begin, 1e-3)

    def _print(self, text: str) -> None:
        self.console.print(f"{self.prefix} {text}".strip(), soft_wrap=True, markup=False)

    def end(self, tuner: Tuner) -> None:
        """Take the live line away; say what was done and why it ended, and what was found."""
        if self._live is not None:
            self._live.stop()
            self._live = None
        text = f"{_done(tuner, duration(time.monotonic() - self._begin))}; {failed_text(tuner)}"
        if self.result:
            text += f"; best {best_text(tuner)}"
            if tuner.best_config:
                text += f", trial {tuner.best_iter}: {tuner.best_config}"
        self._print(text)
        if self.result and tuner.last_reason:
            reason = tuner.last_reason.partition("\n")[0]
            self._print(f"the last that failed: {reason[:_REASON]}")


def _done(tuner: Tuner, spent: str) -> str:
    """How many trials there were, how many of them now, and why there were not more."""
    new = tuner.trials - tuner.recalled
    if tuner.interrupted or tuner.failed:
        how = "interrupted" if tuner.interrupted else "ended by an error"
        text = f"{how} after {trials_text(tuner.trials)} in {spent}"
    elif not new and tuner.recalled:
        text = f"no new trials: {tuner.recalled} are on record"
    else:
        text = f"done: {trials_text(tuner.trials)} in {spent}"
    if new and tuner.recalled:
        text += f", {tuner.recalled} of them on record before"
    if tuner.ended and not tuner.interrupted:
        text += f", of {tuner.n_trial} asked for: {tuner.ended}"
    if not new and tuner.recalled:
        text += "; without resume all are measured again"
    return text


def _of_space(tuner: Tuner) -> str:
    size = len(tuner.space)
    asked = f", {tuner.n_trial} were asked for" if tuner.n_trial > size else ""
    return f" in a space of {size} candidates{asked}"


def trials_text(count: int) -> str:
    """``1 trial``, ``2 trials``."""
    return f"{count} trial" if count == 1 else f"{count} trials"


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
