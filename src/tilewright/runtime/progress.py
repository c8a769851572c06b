"""How many kernels of a model are built, shown while they are."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TextIO

#: Is given how many of how many kernels are built.
Progress = Callable[[int, int], None]

#: Seconds until something is shown, so that a warm start shows nothing; and between two lines.
_PATIENCE, _PAUSE = 1.0, 10.0


@contextmanager
def shown(given: Progress | None = None) -> Iterator[Progress]:
    """What to tell how many of how many kernels are built: ``given``, else what shows it on stderr.

    That is a bar on a terminal, which is taken away at the end, and nothing elsewhere. With
    TILEWRIGHT_PROGRESS=1 there are lines where there is no terminal; with 0 nothing is shown.
    """
    asked, terminal = os.environ.get("TILEWRIGHT_PROGRESS", ""), _is_terminal(sys.stderr)
    silent = asked == "0" or sys.stderr is None or not (terminal or asked == "1")
    if given is not None or silent:
        yield given or _silent
        return
    made = _Bar() if terminal else _Lines()
    try:
        yield made.tell
    finally:
        made.end()


def _is_terminal(stream: TextIO | None) -> bool:
    return stream is not None and stream.isatty()  # None where it was closed before Python began


def _silent(done: int, of: int) -> None:
    """Shows nothing."""


class _Lines:
    """A line every few seconds, and one at the end of what had any."""

    def __init__(self) -> None:
        self._begin = time.monotonic()
        self._next = self._begin + _PATIENCE
        self._told = self._said = (0, 0)

    def tell(self, done: int, of: int) -> None:
        self._told = done, of
        if time.monotonic() >= self._next:
            self._say()

    def _say(self) -> None:
        now = time.monotonic()
        self._said, self._next = self._told, now + _PAUSE
        text = f"compiling kernels: {self._said[0]} of {self._said[1]}, {now - self._begin:.0f} s"
        print(text, file=sys.stderr, flush=True)

    def end(self) -> None:
        """Say the last, where something was said before it."""
        if self._said[1] and self._told != self._said:
            self._say()


class _Bar:
    """A line that changes, and that a thread begins, since the first kernel may take long."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._bar: Any = None
        self._done, self._ended = 0, False
        self._of: int | None = None
        self._timer = threading.Timer(_PATIENCE, self._start)
        self._timer.daemon = True
        self._timer.start()

    def _start(self) -> None:
        from rich.console import Console
        from rich.progress import (
            BarColumn,
            MofNCompleteColumn,
            Progress,
            TextColumn,
            TimeElapsedColumn,
        )

        columns = (
            TextColumn("compiling kernels"), BarColumn(bar_width=24), MofNCompleteColumn(),
            TimeElapsedColumn(),
        )  # fmt: skip
        # Rich would print to stderr what others print to a file meanwhile.
        moved = _is_terminal(sys.stdout)
        console = Console(stderr=True)
        bar = Progress(*columns, console=console, transient=True, redirect_stdout=moved)
        with self._lock:
            if not self._ended:
                bar.add_task("", total=self._of, completed=self._done)
                bar.start()
                self._bar = bar

    def tell(self, done: int, of: int) -> None:
        with self._lock:
            self._done, self._of = done, of
            if self._bar is not None:
                self._bar.update(self._bar.task_ids[0], completed=done, total=of)

    def end(self) -> None:
        """Take the line away."""
        self._timer.cancel()
        with self._lock:
            self._ended = True
            if self._bar is not None:
                self._bar.stop()
