"""Measurements as benchmarks write them: what ``tilewright bench --json`` gives, and its kin.

A file is an object with ``rows``; a row has a time of Tilewright's in the column "tilewright us",
and those of others in columns that end alike. What was measured where stands in ``environment``, or
in ``device``, ``date`` and ``versions`` of the file itself.
"""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tilewright.ir.errors import ProblemError, TilewrightError
from tilewright.topi.operators.conv import Conv
from tilewright.topi.problem import Problem

OURS = "tilewright"
_US = " us"
#: Times that are no competitor's.
_OTHER = ("floor", "copy")
_PASSES = {"fwd": "forward"}


class ResultsError(TilewrightError):
    """A file of results that cannot be read; the message says why."""


@dataclass(frozen=True)
class Row:
    """One problem.

    Attributes
    ----------
    section : what it belongs to, as "mobilenetv2, batch 64, forward, float16".
    us : microseconds by name, :data:`OURS` and the others.
    floor, copy : microseconds that the machine needs at least, and a copy of as many bytes.
    problem : what it was, None where the row does not tell all of it.
    """

    section: str
    name: str
    pass_: str
    us: Mapping[str, float]
    floor: float | None = None
    copy: float | None = None
    problem: Problem | None = None
    schedule: str = ""

    @property
    def ours(self) -> float | None:
        """Our time in microseconds."""
        return self.us.get(OURS)

    @property
    def best_peer(self) -> str | None:
        """The name of the fastest of the others."""
        peers = [name for name in self.us if name != OURS]
        return min(peers, key=lambda n: self.us[n], default=None)

    @property
    def ratio(self) -> float | None:
        """The time of the fastest of the others for each unit of ours."""
        ours, peer = self.ours, self.best_peer
        return self.us[peer] / ours if ours and peer else None

    @property
    def of_floor(self) -> float | None:
        """How near the floor we are: 1 is the best that the machine can do."""
        return self.floor / self.ours if self.floor and self.ours else None


@dataclass(frozen=True)
class Results:
    """One file.

    ``bandwidth`` is in GB/s, ``rates`` are in GFLOP/s by type.
    """

    path: str
    environment: Mapping[str, str]
    rows: Sequence[Row]
    bandwidth: float | None = None
    rates: Mapping[str, float] = field(default_factory=dict)

    @property
    def device(self) -> str:
        """What it was measured on, with the threads of a CPU."""
        return self.environment.get("device", "an unnamed device")


def read(path: str | Path) -> Results:
    """The results in a file; raises :class:`ResultsError` for anything else."""
    try:
        given = json.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ResultsError(f"{path} cannot be read: {error}") from None
    rows = given.get("rows") if isinstance(given, dict) else None
    timed = [r for r in rows or () if isinstance(r, dict) and _number(r.get(OURS + _US))]
    if not timed:
        raise ResultsError(
            f'{path} is no file of results: it is an object with "rows", of which some have '
            f'"{OURS}{_US}", as `tilewright bench --json` writes it'
        )
    rates = given.get("rate_GFLOPps") or {}
    return Results(
        str(path),
        environment(given),
        [_row(r) for r in timed],
        _number(given.get("bandwidth_GBps")),
        {str(k): float(v) for k, v in rates.items() if _number(v)},
    )


def environment(given: Mapping[str, Any]) -> dict[str, str]:
    """What a file says of where it was measured, as texts."""
    found = {k: str(given[k]) for k in ("device", "date", "command") if k in given}
    versions = given.get("versions")
    found |= {k: str(v) for k, v in versions.items()} if isinstance(versions, Mapping) else {}
    named = given.get("environment")
    return found | ({k: str(v) for k, v in named.items()} if isinstance(named, Mapping) else {})


def times(row: Mapping[str, Any]) -> dict[str, float]:
    """Microseconds by name, without the floor's and the copy's."""
    return {
        name.removesuffix(_US): value
        for name, value in row.items()
        if name.endswith(_US) and _number(value) and name.removesuffix(_US) not in _OTHER
    }


def geometric_mean(values: Sequence[float]) -> float | None:
    """None of no values."""
    return math.exp(statistics.fmean(map(math.log, values))) if values else None


def short_name(p: Problem | None) -> str:
    """A problem without its operator, its pass, and what is as usual; "" of none.

    >>> short_name(Conv.parse("64x384x32x32", "384x1x7x7", padding=3))
    '64x384x32x32 K7 s1 float32 NCHW'
    """
    return "" if p is None else p.short


def _row(row: Mapping[str, Any]) -> Row:
    problem = _problem(row)
    pass_ = str(row.get("pass", "forward"))
    pass_ = _PASSES.get(pass_, pass_)
    name = str(row.get("name") or problem or row.get("shape") or "")
    section = str(row.get("section") or pass_)
    if "threads" in row and not row.get("section"):
        section += f", {row['threads']} thread{'s' * (row['threads'] != 1)}"
    return Row(
        section, name, pass_, times(row), _number(row.get("floor us")),
        _number(row.get("copy us")), problem, str(row.get("tile") or row.get("schedule") or ""),
    )  # fmt: skip


def _number(value: Any) -> float | None:
    """A positive number, None for anything else."""
    usable = isinstance(value, (int, float)) and not isinstance(value, bool)
    return float(value) if usable and math.isfinite(value) and value > 0 else None


def _problem(row: Mapping[str, Any]) -> Problem | None:
    """What a row says; where it does not say by how much images are padded, by half a filter."""
    try:
        if isinstance(row.get("problem"), Mapping):
            return Problem.from_dict(row["problem"])
        kernel = [int(k) for k in str(row.get("kernel", row.get("K"))).split("x")]
        shape = [int(n) for n in str(row["shape"]).split("x")]
        kernel = kernel * (len(shape) - 2) if len(kernel) == 1 else kernel
        pass_ = str(row.get("pass", "forward"))
        stride = tuple(int(s) for s in str(row.get("stride", 1)).split("x"))
        return Conv.parse(
            shape, [shape[1], int(row.get("multiplier", 1)), *kernel],
            pass_=_PASSES.get(pass_, pass_), stride=stride[0] if len(stride) == 1 else stride,
            padding=tuple(k // 2 for k in kernel) if len(kernel) == 2 else kernel[0] // 2,
            dtype=str(row.get("dtype", "float32")), layout=str(row.get("layout", "")),
        )  # fmt: skip
    except (ProblemError, KeyError, ValueError, TypeError):
        return None
