"""What may be called after each batch of a tuner."""

from __future__ import annotations

import contextlib
import os
import stat
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from tilewright.runtime.files import disk_full
from tilewright.tune.entity import TuningError
from tilewright.tune.log_format import encode
from tilewright.tune.measure import MeasureInput, MeasureResult

if TYPE_CHECKING:
    from tilewright.tune.records import Records
    from tilewright.tune.tuner import Callback, Tuner


def log_to_file(file_out: str | Path | TextIO, protocol: str = "json") -> Callback:
    """Append each measurement to a file, as a line of AutoTVM's log, on disk before the next batch.

    ``file_out`` may be an open text file. ``protocol`` is AutoTVM's; "json" is the only one.
    Raises :class:`TuningError` where the file cannot be written.
    """
    if protocol != "json":
        raise ValueError(f"protocol={protocol!r}: logs are JSON lines")

    def write(
        tuner: Tuner, inputs: Sequence[MeasureInput], results: Sequence[MeasureResult]
    ) -> None:
        lines = "".join(encode(i, r) + "\n" for i, r in zip(inputs, results, strict=True))
        if not isinstance(file_out, (str, Path)):
            file_out.write(lines)
            return
        with _writing(file_out), Path(file_out).open("a", encoding="utf-8") as file:
            file.write(lines)
            file.flush()
            if stat.S_ISREG(os.fstat(file.fileno()).st_mode):  # a pipe has no disk
                os.fsync(file.fileno())

    if isinstance(file_out, (str, Path)):
        with _writing(file_out):
            Path(file_out).absolute().parent.mkdir(parents=True, exist_ok=True)
    return write


@contextlib.contextmanager
def _writing(path: str | Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        why = disk_full(error) or str(error)
        raise TuningError(f"the log {path} cannot be written: {why}") from None


def log_to_database(records: Records, device: Any) -> Callback:
    """Append each measurement to a :class:`~tilewright.tune.records.Records`, as of ``device``."""

    def write(
        tuner: Tuner, inputs: Sequence[MeasureInput], results: Sequence[MeasureResult]
    ) -> None:
        records.add(zip(inputs, results, strict=True), device)

    return write


class Monitor:
    """Keeps the course of a run: ``costs`` and ``best`` in seconds, by trial."""

    def __init__(self) -> None:
        self.costs: list[float] = []
        self.best: list[float] = []
        self.timestamps: list[float] = []

    def __call__(
        self, tuner: Tuner, inputs: Sequence[MeasureInput], results: Sequence[MeasureResult]
    ) -> None:
        for result in results:
            self.costs.append(result.cost)
            self.best.append(min(result.cost, *self.best[-1:]) if self.best else result.cost)
            self.timestamps.append(result.timestamp or time.time())

    def trial_scores(self) -> list[float]:
        """Runs a second, by trial; 0 where one failed."""
        return [1.0 / c for c in self.costs]

    def trial_timestamps(self) -> list[float]:
        """When each trial ended, in seconds since 1970."""
        return list(self.timestamps)


def progress_bar(total: int | None = None, prefix: str = "", si_prefix: str = "") -> Callback:
    """A live line: best so far, trials a minute, failures, time left.

    ``total`` defaults to the number of trials asked for. Where the output is no terminal, a line
    is printed now and then instead.
    """
    from tilewright.tune.display import Display

    return Display(total, prefix)
