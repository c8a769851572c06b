"""Tuning on a table of times that were measured before: the space of a task, whole, in a file.

Tuners are compared on it with no device, and the same answers every time.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tilewright.runtime.files import write_file
from tilewright.tune.entity import TuningError
from tilewright.tune.measure import Device, MeasureErrorNo, MeasureInput, MeasureResult
from tilewright.tune.task import Task

if TYPE_CHECKING:
    from tilewright.tune.records import Record


class Table:
    """Seconds by the index of the configuration; None where it failed.

    It is a measure option: ``tuner.tune(100, Table.read(path))``.

    Attributes
    ----------
    costs, device : the times, and what they are of.
    errors : why configurations failed, by their index, where that is known.
    """

    def __init__(
        self,
        costs: Mapping[int, float | None] | Sequence[float | None],
        device: Device,
        errors: Mapping[int, str] | None = None,
    ) -> None:
        rows = costs.items() if isinstance(costs, Mapping) else enumerate(costs)
        self.costs = dict(rows)
        self.device = device
        self.errors = dict(errors or {})
        self.parallel = 2

    @staticmethod
    def of(task: Task, device: Device, found: Iterable[Record]) -> Table:
        """The table of what is on record of ``task`` on ``device``: medians, the least of them
        where a configuration was measured more than once."""
        costs: dict[int, float | None] = {}
        errors: dict[int, str] = {}
        for record in found:
            index = task.config_space.find(record.input.config.entities)
            if index is None or record.device != device or record.problem != task.key:
                continue
            known = costs.get(index)
            if record.result.ok:
                cost = record.result.cost
                costs[index] = cost if known is None else min(cost, known)
                errors.pop(index, None)
            elif known is None:
                costs[index] = None
                errors[index] = f"{record.result.error_no.name}: {record.result.reason}"
        return Table(costs, device, errors)

    @staticmethod
    def read(path: str | Path) -> Table:
        """The table of a file that :meth:`write` wrote; raises :class:`TuningError` for others."""
        try:
            found: dict[str, Any] = json.loads(Path(path).read_text())
            device = Device(found["device"], found["driver"], found["version"])
            costs = [None if c is None else c * 1e-6 for c in found["microseconds"]]
            errors = {int(k): str(v) for k, v in found.get("errors", {}).items()}
            return Table(costs, device, errors)
        except (KeyError, TypeError, ValueError) as error:
            raise TuningError(f"{path} is no table of a search space: {error}") from None

    def write(self, path: str | Path, task: Task, **more: Any) -> None:
        """One JSON file, in the order of indices; times in microseconds, ``more`` as it is."""
        costs = [self.costs.get(i) for i in range(task.config_space.range_length)]
        whole = {
            "task": task.to_json(),
            "device": self.device.name,
            "driver": self.device.driver,
            "version": self.device.version,
            **more,
            "microseconds": [None if c is None else round(c * 1e6, 4) for c in costs],
            "errors": {str(i): why for i, why in sorted(self.errors.items())},
        }
        write_file(Path(path), json.dumps(whole) + "\n")

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
                why = self.errors.get(inp.config.index, "failed in the table")
                yield k, MeasureResult((), MeasureErrorNo.UNKNOWN_ERROR, why)
            else:
                yield k, MeasureResult((cost,))

    def close(self) -> None:
        """Nothing to end."""
