"""Sweeps: the times of many schedules for many problems on one device, raw and packed.

A raw file is JSON lines, one a problem: ``problem`` (its fields), ``times`` (microseconds by
candidate, ``"gpu.strips 2,4,14,7,1,3,0"``: a template with its parameters in the order of its
dataclass, beside peers that are no templates) and, where known, ``notes`` (by candidate, the
registers and spilled bytes of its kernels, or why it was not measured). The packed file is gzipped
JSON that keeps the problems, parameters, times and registers.
"""

from __future__ import annotations

import dataclasses
import gzip
import json
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from tilewright.ir.errors import TilewrightError
from tilewright.topi.operators.conv import Conv
from tilewright.topi.problem import Problem
from tilewright.topi.templates import TEMPLATES

#: Of packed files.
FORMAT = 1
PACKED = Path(__file__).parent / "results" / "h200_sweep.json.gz"


@dataclasses.dataclass(frozen=True)
class Measured:
    """One problem of a sweep.

    Attributes
    ----------
    sweep : its number; sweeps are of different versions of the library, and do not mix.
    weight : how far the sweep counts, 1 for one that is up to date.
    apart : whether launches of few blocks had them on SMs evenly, as those have that write raw
        files now.
    tables : by template, (sets, parameters + 2): parameters, microseconds, registers. A schedule
        that spilled was not measured, and has 0 microseconds.
    """

    problem: Conv
    sweep: int
    weight: float
    tables: dict[str, np.ndarray[Any, Any]]
    apart: bool = True

    @property
    def best(self) -> float:
        """Microseconds of the fastest."""
        times = np.concatenate([t[:, -2] for t in self.tables.values()])
        return float(times[times > 0].min())


def read(words: Iterable[str | Path]) -> list[Measured]:
    """Packed files, or raw ones, ``FILE`` or ``FILE:WEIGHT``; either may be compressed."""
    found: list[Measured] = []
    for word in words:
        name, _, weight = str(word).partition(":")
        first = 1 + max((m.sweep for m in found), default=-1)
        raw = Path(name).read_bytes()
        text = (gzip.decompress(raw) if name.endswith(".gz") else raw).decode()
        if text.startswith('{"format":'):
            found += _unpacked(text, name, first)
        else:
            found += _raw(text, first, float(weight or 1))
    return found


def _raw(text: str, sweep: int, weight: float) -> Iterator[Measured]:
    for line in text.splitlines():
        given = json.loads(line)
        if "times" not in given:  # the problem failed as a whole
            continue
        fields: dict[str, Any] = {
            k: tuple(v) if isinstance(v, list) else v for k, v in given["problem"].items()
        }
        if "pass" in fields:  # as Conv.to_dict has it
            fields["pass_"] = fields.pop("pass")
        rows: dict[str, list[list[float]]] = {}
        notes = given.get("notes", {})
        for candidate in {**given["times"], **notes}:
            template, _, text = candidate.partition(" ")
            note = notes.get(candidate, "")
            spilled = note.startswith("spills")
            if template in TEMPLATES and (spilled or candidate in given["times"]):
                time = 0.0 if spilled else given["times"][candidate]
                registers = re.search(r"\((\d+),", note)
                row = [*_parameters(template, text), time, int(registers[1]) if registers else 0]
                rows.setdefault(template, []).append(row)
        tables = {t: np.array(r, "float64") for t, r in sorted(rows.items())}
        if any((t[:, -2] > 0).any() for t in tables.values()):
            yield Measured(Conv(**fields), sweep, weight, tables)


def _parameters(template: str, text: str) -> list[Any]:
    """Of a candidate's name; those that the template got later have their defaults."""
    given = [int(v) for v in text.split(",")]
    defaults = [f.default for f in dataclasses.fields(TEMPLATES[template].config)]
    return [*given, *defaults[len(given) :]]


def pack(path: Path, measured: list[Measured], device: str) -> None:
    """Write a packed file; times have four digits."""
    sweeps = sorted({(m.sweep, m.weight, m.apart) for m in measured})
    number = {sweep: k for k, (sweep, _, _) in enumerate(sweeps)}
    names = sorted({t for m in measured for t in m.tables})
    whole = {
        "format": FORMAT,
        "device": device,
        "weights": [weight for _, weight, _ in sweeps],
        "apart": [apart for _, _, apart in sweeps],
        "templates": {t: [f.name for f in dataclasses.fields(TEMPLATES[t].config)] for t in names},
        "measured": [
            [number[m.sweep], m.problem.to_dict(), {t: _rows(rows) for t, rows in m.tables.items()}]
            for m in measured
        ],
    }
    text = json.dumps(whole, separators=(",", ":"))
    with gzip.GzipFile(path, "wb", 9, mtime=0) as file:
        file.write(text.encode())


def _rows(table: np.ndarray[Any, Any]) -> list[list[float]]:
    return [
        [*map(int, row[:-2]), float(f"{row[-2]:.4g}"), int(row[-1])]
        for row in table[np.lexsort(table.T[::-1])].tolist()
    ]


def _unpacked(text: str, name: str, first: int) -> Iterator[Measured]:
    whole = json.loads(text)
    if whole["format"] != FORMAT:
        raise SystemExit(f"{name} has format {whole['format']}, known is {FORMAT}: pack it again")
    for sweep, given, tables in whole["measured"]:
        try:
            problem = Problem.from_dict(given)
        except TilewrightError as error:
            raise SystemExit(f"{name}: {error}") from None
        assert isinstance(problem, Conv)
        rows = {
            t: _with_defaults(np.array(r, "float64"), t, whole["templates"][t])
            for t, r in tables.items()
            if t in TEMPLATES
        }
        apart = whole["apart"][sweep]
        yield Measured(problem, first + sweep, whole["weights"][sweep], rows, apart)


def _with_defaults(
    rows: np.ndarray[Any, Any], template: str, names: list[str]
) -> np.ndarray[Any, Any]:
    """Rows with columns for the parameters that the template got after they were packed."""
    fields = dataclasses.fields(TEMPLATES[template].config)
    if [f.name for f in fields[: len(names)]] != names:
        raise SystemExit(f"{template} has other parameters than {', '.join(names)}: sweep it again")
    later = fields[len(names) :]
    defaults = np.full((len(rows), len(later)), [f.default for f in later], "float64")
    return np.concatenate([rows[:, : len(names)], defaults, rows[:, len(names) :]], axis=1)
