"""One measurement as it is kept: a row of the table of :mod:`.records`."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from tilewright.ir.errors import TilewrightError
from tilewright.target import Target
from tilewright.tune import untrusted
from tilewright.tune.arguments import deserialize, serialize
from tilewright.tune.config import ConfigEntity
from tilewright.tune.entity import TuningError
from tilewright.tune.measure import Device, MeasureErrorNo, MeasureInput, MeasureResult
from tilewright.tune.task import Task

#: All but the number, which counts them.
COLUMNS = (
    "problem, target, device, driver, version, template, args, config, cost, costs, error, "
    "reason, all_cost, timestamp, extra"
)


@dataclass(frozen=True)
class Record:
    """One row."""

    id: int
    problem: str
    device: Device
    input: MeasureInput
    result: MeasureResult

    @property
    def name(self) -> str:
        """The problem for people to read."""
        return problem_name(self.input.task.name, json.dumps(serialize(self.input.task.args)))


@dataclass(frozen=True)
class Summary:
    """What is on record for one problem, target and device.

    ``name`` is the problem for people to read; ``best`` is in seconds.
    """

    name: str
    problem: str
    target: str
    device: Device
    measured: int
    failed: int
    best: float | None
    last: float


def problem_name(template: str, args: str) -> str:
    """A problem as it writes itself, or a template with its arguments."""
    try:
        found = deserialize(untrusted.parse(args))
        if len(found) == 1 and hasattr(found[0], "key"):
            return str(found[0])
        return f"{template}({', '.join(map(str, found))})"
    except Exception:  # of a version that knew other ones, or of nobody's
        return f"{template}{str(args)[:80]}"


def to_row(inp: MeasureInput, result: MeasureResult, device: Device) -> tuple[Any, ...]:
    """A measurement in the order of :data:`COLUMNS`."""
    task = inp.task
    return (
        task.key, str(task.target), device.name, device.driver, device.version, task.name,
        json.dumps(serialize(task.args)), json.dumps(inp.config.to_json_dict()),
        result.cost if result.ok else None, json.dumps(list(result.costs)),
        int(result.error_no), result.reason, result.all_cost, result.timestamp,
        json.dumps(result.extra),
    )  # fmt: skip


def from_row(row: tuple[Any, ...]) -> Record | None:
    """The inverse, of a row that begins with its number; None where another version knows what is
    in it.

    Raises :class:`TuningError` for what no version wrote: SQLite keeps values of any type, and the
    file may be anybody's.
    """
    (number, problem, target, name, driver, version, template, args, config, _, costs, error,
     reason, all_cost, timestamp, extra) = row  # fmt: skip
    try:
        untrusted.text(problem, target, name, driver, version, template, reason)
        entity = ConfigEntity.from_json_dict(untrusted.parse(config))
        result = MeasureResult(
            untrusted.seconds(untrusted.parse(costs)), MeasureErrorNo(error), reason,
            float(all_cost), float(timestamp), dict(untrusted.parse(extra)),
        )  # fmt: skip
        given = untrusted.parse(args)
    except TuningError:
        raise
    except Exception as error:  # what wrong types lead to
        raise TuningError(f"row {number} is no measurement: {error!r}") from None
    try:
        task = Task(template, tuple(deserialize(given)), Target.parse(target))
    except TuningError:
        raise
    except TilewrightError:
        return None
    except Exception as error:
        raise TuningError(f"row {number} is of no problem: {error!r}") from None
    return Record(
        number, problem, Device(name, driver, version), MeasureInput(task, entity), result
    )
