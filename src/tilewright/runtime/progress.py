"""How many kernels of a model are built, shown while they are."""

from __future__ import annotations

import atexit
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
#: Seconds behind a kernel that a call has asked for after which no other one is awaited.
_IDLE = 0.5


@contextmanager
def shown(given: Progress | None = None) -> Iterator[Progress]:
    """What to tell how many of how many kernels are built: ``given``, else what shows it on stderr.

    That is a bar on a terminal and a line that changes in a notebook, which are taken away at the
    end, and nothing elsewhere. With TILEWRIGHT_PROGRESS=1 there are lines where there is neither;
    with 0 nothing is shown.
    """
    made = None if given is not None else _display()
    if made is None:
        yield given or _silent
        return
    try:
        with _one_by_one.paused():
            yield made.tell
    finally:
        made.end()


@contextmanager
def one_more() -> Iterator[None]:
    """A kernel is built that a call has asked for, as by a layer of a model: nobody knows how many
    others will be. Those that follow soon are counted together, and shown as by :func:`shown`."""
    series = _one_by_one
    series.begin()
    try:
        yield
    finally:
        series.end()


def _display() -> _Bar | _Lines | None:
    """What shows it, None for nothing."""
    asked = os.environ.get("TILEWRIGHT_PROGRESS", "")
    if asked == "0" or sys.stderr is None:
        return None
    if _is_terminal(sys.stderr):
        return _Bar()
    if type(sys.stderr).__module__.startswith("ipykernel."):
        return _OneLine()
    return _Lines() if asked == "1" else None


def _is_terminal(stream: TextIO | None) -> bool:
    return stream is not None and stream.isatty()  # None where it was closed before Python began


def _silent(done: int, of: int) -> None:
    """Shows nothing."""


class _Lines:
    """A line every few seconds, and one at the end of what had any."""

    _pause = _PAUSE

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
        self._said, self._next = self._told, now + self._pause
        done, of = self._said
        self._print(f"compiling kernels: {done}{f' of {of}' * bool(of)}, {now - self._begin:.0f} s")

    def _print(self, text: str) -> None:
        print(text, file=sys.stderr, flush=True)

    def end(self) -> None:
        """Say the last, where something was said before it."""
        if self._said != (0, 0) and self._told != self._said:
            self._say()


class _OneLine(_Lines):
    """A line that is written over, as notebooks show it."""

    _pause = 1.0

    def _print(self, text: str) -> None:
        print(f"\r{text}", end="", file=sys.stderr, flush=True)

    def end(self) -> None:
        """Take the line away."""
        if self._said != (0, 0):
            self._print(" " * 60 + "\r")


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
            self._done, self._of = done, of or None
            if self._bar is not None:
                self._bar.update(self._bar.task_ids[0], completed=done, total=self._of)

    def end(self) -> None:
        """Take the line away."""
        self._timer.cancel()
        with self._lock:
            self._ended = True
            if self._bar is not None:
                self._bar.stop()


class _OneByOne:
    """Kernels that calls ask for one after the other; nothing is shown of them while more is known
    of others."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._display: _Bar | _Lines | None = None
        self._waits: threading.Timer | None = None
        self._done = self._open = self._paused = 0

    def begin(self) -> None:
        with self._lock:
            if self._waits is not None:
                self._waits.cancel()
                self._waits = None
            self._open += 1
            if self._display is None and not self._paused:
                self._display = _display()

    def end(self) -> None:
        with self._lock:
            self._open -= 1
            if self._display is None:
                return
            self._done += 1
            self._display.tell(self._done, 0)
            if not self._open:
                self._waits = threading.Timer(_IDLE, self._over)
                self._waits.daemon = True
                self._waits.start()

    def _over(self) -> None:
        with self._lock:
            if not self._open:
                self._close()

    def close(self) -> None:
        """Show nothing any more, also where a thread cannot end it, as at the end of a program."""
        with self._lock:
            self._close()

    def _close(self) -> None:
        display, self._display, self._done = self._display, None, 0
        if display is not None:
            display.end()

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Nothing is shown meanwhile."""
        with self._lock:
            self._paused += 1
            self._close()
        try:
            yield
        finally:
            with self._lock:
                self._paused -= 1


_one_by_one = _OneByOne()
atexit.register(lambda: _one_by_one.close())  # a terminal would be left without its cursor


def _anew() -> None:
    """The child of a fork has no thread that ends what its parent shows."""
    global _one_by_one
    _one_by_one = _OneByOne()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_anew)
