"""Tuning on a table of times that were measured before: the space of a task, whole, in a file.

Tuners are compared on it with no device, and the same answers every time.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tilewright.tune.entity import TuningError
from tilewright.tune.measure import Device, MeasureErrorNo, MeasureInput, MeasureResult
from tilewright.tune.task import Task


class Table:
    """Seconds by the index of the configuration; None where it failed.

    It is a measure option: ``tuner.tune(100, Table.read(path))``.
    """

    def __init__(
        self, costs: Mapping[int, float | None] | Sequence[float | None], device: Device
    ) -> None:
        rows = costs.items() if isinstance(costs, Mapping) else enumerate(costs)
        self.costs = dict(rows)
        self.device = device
        self.parallel = 2

    @staticmethod
    def read(path: str | Path) -> Table:
        """The table of a file that :meth:`write` wrote; raises :class:`TuningError` for others."""
        try:
            found: dict[str, Any] = json.loads(Path(path).read_text())
            device = Device(found["device"], found["driver"], found["version"])
            return Table([None if c is None else c * 1e-6 for c in found["microseconds"]], device)
        except (KeyError, TypeError, ValueError) as error:
            raise TuningError(f"{path} is no table of a search space: {error}") from None

    def write(self, path: str | Path, task: Task) -> None:
        """One JSON file, in the order of indices; times in microseconds."""
        costs = [self.costs.get(i) for i in range(task.config_space.range_length)]
        whole = {
            "task": task.to_json(),
            "device": self.device.name,
            "driver": self.device.driver,
            "version": self.device.version,
            "microseconds": [None if c is None else round(c * 1e6, 4) for c in costs],
        }
        Path(path).write_text(json.dumps(whole) + "\n")

    @property
    def best(self) -> float:
        """The least time of all."""
        return min(c for c in self.costs.values() if c is not None)

    def open(self, task: Task) -> Table:
        return self

    def measure(self, inputs: Sequence[MeasureInput]) -> Iterator[tuple[int, MeasureResult]]:
        """See :meth:`~tilewright.tune.measure.Measurer.measure`."""
        for k, inp in enumerate(inputs):
            cost = self.costs.get(inp.config.index)
            if cost is None:
                yield k, MeasureResult((), MeasureErrorNo.UNKNOWN_ERROR, "failed in the table")
            else:
                yield k, MeasureResult((cost,))

    def close(self) -> None:
        """Nothing to end."""
