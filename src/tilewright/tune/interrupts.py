"""Ctrl-C that is not lost."""

from __future__ import annotations

import signal
import threading
from types import FrameType
from typing import Any


class Interrupts:
    """Within it Ctrl-C raises :class:`KeyboardInterrupt`, as always, and is remembered.

    Python drops what is raised in a finaliser or in a function that foreign code calls;
    :meth:`check` raises it again. Where Ctrl-C does something else, or in another thread than the
    main one, which gets no signals, it does nothing.
    """

    def __init__(self) -> None:
        self._asked = False
        self._before: Any = None

    def __enter__(self) -> Interrupts:
        is_usual = signal.getsignal(signal.SIGINT) is signal.default_int_handler
        if is_usual and threading.current_thread() is threading.main_thread():
            self._before = signal.signal(signal.SIGINT, self._note)
        return self

    def __exit__(self, *_: object) -> None:
        if self._before is not None:
            signal.signal(signal.SIGINT, self._before)

    def check(self) -> None:
        """Raise :class:`KeyboardInterrupt` if there was a Ctrl-C."""
        if self._asked:
            raise KeyboardInterrupt

    def _note(self, number: int, frame: FrameType | None) -> None:
        self._asked = True
        signal.default_int_handler(number, frame)
