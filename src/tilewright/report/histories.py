"""What tuning did: the candidates of each problem in the order in which they were measured."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from tilewright.topi.problem import Problem
from tilewright.tune.record import Record
from tilewright.tune.records import Records


@dataclass
class History:
    """One problem on one device.

    Attributes
    ----------
    trials : (number of the candidate, seconds, configuration in words) of those that were right.
    failed : how many were not, by reason.
    """

    name: str
    device: str
    target: str
    problem: Problem | None
    measured: int = 0
    trials: list[tuple[int, float, str]] = field(default_factory=list)
    failed: dict[str, int] = field(default_factory=dict)

    @property
    def best(self) -> tuple[int, float, str]:
        """The fastest of the trials."""
        return min(self.trials, key=lambda trial: trial[1])


def histories(records: Records, words: Sequence[str] = ()) -> list[History]:
    """Of every problem on record whose name has all ``words``, the latest last.

    Those of different versions and drivers of a device are one history.
    """
    found: dict[tuple[str, str, str], History] = {}
    for record in records.find():
        if not all(word in f"{record.name} {record.device.name}" for word in words):
            continue
        key = record.problem, str(record.input.target), record.device.name
        made = found.get(key)
        if made is None:
            made = found[key] = History(record.name, key[2], key[1], _problem(record))
        made.measured += 1
        if record.result.ok:
            made.trials.append((made.measured, record.result.cost, _words(record)))
        else:
            reason = record.result.reason.partition("\n")[0] or record.result.error_no.name
            made.failed[reason] = made.failed.get(reason, 0) + 1
    return list(found.values())


def _problem(record: Record) -> Problem | None:
    args = record.input.task.args
    return args[0] if len(args) == 1 and isinstance(args[0], Problem) else None


def _words(record: Record) -> str:
    """The configuration without the parameters that its schedule does not have."""
    from tilewright.tune.library import ABSENT

    chosen: dict[str, Any] = {n: e.to_json() for n, e in record.input.config.entities.items()}
    template = chosen.pop("template", "")
    shown = [f"{name} {value}" for name, value in chosen.items() if value != ABSENT]
    return ", ".join([*([str(template)] if template else []), *shown])
