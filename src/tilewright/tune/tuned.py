"""The library's problems with the schedules that were fastest on a device: what was learnt.

They come from the records of this machine, and from files that the package brings, one a device, in
``tune/shipped``. Such a file is JSON lines: the device with the names of each template's
parameters, then a line a problem, ``{"problem": {...}, "best": [[template, [parameters],
microseconds], ...]}``.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, fields
from functools import cache
from pathlib import Path
from typing import Any

from tilewright.ir.errors import TilewrightError
from tilewright.runtime.files import write_file
from tilewright.target import Target
from tilewright.topi.problem import Problem
from tilewright.topi.templates import TEMPLATES
from tilewright.tune.entity import TuningError
from tilewright.tune.library import NAME, parameters_of
from tilewright.tune.measure import Device
from tilewright.tune.records import Record, Records, default_path

#: Of the files; those of another format are an error.
FORMAT = 1
FOLDER = Path(__file__).parent / "shipped"
#: Kept of each problem: at most this many, those within this factor of the fastest, and a few more.
MOST, WITHIN, LEAST = 8, 1.25, 3


@dataclass(frozen=True)
class Ranked:
    """A schedule's template with its parameters, by name, and the seconds that it took."""

    template: str
    values: tuple[tuple[str, int], ...]
    seconds: float


@dataclass(frozen=True)
class Tuned:
    """A problem with its fastest schedules on a device, the fastest first."""

    problem: Problem
    target: str
    device: str
    best: tuple[Ranked, ...]


def from_records(found: Iterable[Record]) -> list[Tuned]:
    """The problems of the library among records, each on each of its targets and devices."""
    times: dict[tuple[str, str, str], dict[tuple[Any, ...], float]] = {}
    problems: dict[str, Problem] = {}
    for record in found:
        if record.input.task.name != NAME or not record.result.ok:
            continue
        args = record.input.task.args
        if len(args) != 1 or not isinstance(args[0], Problem):
            continue
        try:
            template, values = parameters_of(record.input.config)
            values = asdict(TEMPLATES[template].parse(values))
        except TilewrightError:  # a schedule that the library does not have now
            continue
        key = args[0].key
        problems[key] = args[0]
        place = (key, str(record.input.target), record.device.name)
        config = (template, tuple(sorted(values.items())))
        known = times.setdefault(place, {})
        known[config] = min(record.result.cost, known.get(config, record.result.cost))
    return [
        Tuned(problems[key], target, device, _fastest(known))
        for (key, target, device), known in times.items()
    ]


def _fastest(known: dict[tuple[Any, ...], float]) -> tuple[Ranked, ...]:
    ranked = sorted((s, config) for config, s in known.items())[:MOST]
    limit = ranked[0][0] * WITHIN
    kept = [(s, c) for k, (s, c) in enumerate(ranked) if k < LEAST or s <= limit]
    return tuple(Ranked(template, values, s) for s, (template, values) in kept)


# -- files that the package brings -------------------------------------------------------------


def file_name(target: str, device: str) -> str:
    """``cuda-nvidia-h200.jsonl``."""
    return f"{Target.parse(target).kind}-{re.sub('[^a-z0-9]+', '-', device.lower())}.jsonl"


def write(path: Path, tuned: Sequence[Tuned], device: Device) -> None:
    """Write what was tuned on one device; raises :class:`TuningError` where there is nothing, or
    where it is of several targets."""
    targets = sorted({t.target for t in tuned})
    if len(targets) != 1:
        raise TuningError(
            f"a file has the records of one target, there are {', '.join(targets) or 'none'}: "
            "give --target, --device, and tune something first"
        )
    names = {
        r.template: [f.name for f in fields(TEMPLATES[r.template].config)]
        for t in tuned
        for r in t.best
    }
    head = {
        "tilewright_tuned": FORMAT, "target": targets[0], "device": device.name,
        "driver": device.driver, "version": device.version,
        "templates": dict(sorted(names.items())),
    }  # fmt: skip
    lines = [head]
    for t in sorted(tuned, key=lambda t: t.problem):
        best = [
            [r.template, [_value(r, n) for n in names[r.template]], round(r.seconds * 1e6, 3)]
            for r in t.best
        ]
        lines.append({"problem": t.problem.to_short_dict(), "best": best})
    text = "".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_file(path, text)


def _value(r: Ranked, name: str) -> int:
    """A parameter, or its default where the template got it later."""
    known = dict(r.values)
    return known[name] if name in known else int(getattr(TEMPLATES[r.template].config(), name))


def read(path: Path) -> list[Tuned]:
    """What a file holds, without problems of which no schedule is left; raises
    :class:`TuningError` naming the line that is none of its."""
    found: list[Tuned] = []
    head: dict[str, Any] = {}
    named: dict[str, list[str]] = {}
    with path.open(encoding="utf-8") as file:
        for number, line in enumerate(file, 1):
            try:
                given = json.loads(line)
                if number == 1:
                    head = given
                    if head["tilewright_tuned"] != FORMAT:
                        raise ValueError(f"format {head['tilewright_tuned']}, known is {FORMAT}")
                    named = head["templates"]
                    continue
                best = tuple(
                    Ranked(t, tuple(sorted(zip(named[t], values, strict=True))), micros * 1e-6)
                    for t, values, micros in given["best"]
                    if _has(t, named[t])
                )
                problem = Problem.from_dict(given["problem"])
            except (KeyError, TypeError, ValueError, TilewrightError) as error:
                raise TuningError(f"{path}, line {number}: no record of tuning: {error}") from None
            if best:
                found.append(Tuned(problem, head["target"], head["device"], best))
    return found


@cache
def _names(template: str) -> frozenset[str]:
    return frozenset(f.name for f in fields(TEMPLATES[template].config))


def _has(template: str, parameters: list[str]) -> bool:
    """Whether the library has a template with parameters of these names."""
    return template in TEMPLATES and _names(template) >= set(parameters)


@cache
def shipped(kind: str, folder: Path = FOLDER) -> tuple[Tuned, ...]:
    """What the package brings for targets of a kind."""
    return tuple(t for path in sorted(folder.glob(f"{kind}-*.jsonl")) for t in read(path))


# -- this machine's ----------------------------------------------------------------------------

_own: dict[tuple[Path, str], tuple[Any, tuple[Tuned, ...]]] = {}


def own(kind: str, path: Path | None = None) -> tuple[Tuned, ...]:
    """What was tuned on this machine for targets of a kind; read again when the file has changed.

    Without a file, and where it cannot be read, there is nothing: choosing must not fail over it.
    """
    path = path or default_path()
    if path is None or not os.path.exists(path):  # Path.exists raises PermissionError
        return ()
    stamp = tuple(_stamps(path))
    known = _own.get((path, kind))
    if known is None or known[0] != stamp:
        try:
            with Records(path, create=False) as records:
                found = records.find(template=NAME, only_right=True)
        except TilewrightError:
            found = []
        known = stamp, tuple(from_records(r for r in found if r.input.target.kind == kind))
        _own[path, kind] = known
    return known[1]


def device_of(target: Target) -> str:
    """The device that was tuned for a target, as another machine has it; empty where there is none
    on record, or several."""
    found = {t.device for t in own(target.kind) if t.target == str(target)}
    return found.pop() if len(found) == 1 else ""


def _stamps(path: Path) -> Iterator[tuple[int, int]]:
    for file in (path, path.with_name(path.name + "-wal")):
        try:
            status = file.stat()
        except OSError:
            continue
        yield status.st_mtime_ns, status.st_size
