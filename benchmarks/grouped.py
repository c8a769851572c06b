"""Tables of results whose rows have sections: one a section, and above them the means of each.

A row is an object with "section", times in columns that end in " us" (ours is "tilewright us") and
ratios: "best peer / tilewright", of which more is better, "tilewright / floor", of which 1 is the
best, and "fused / alone", what an epilogue costs. Other columns are texts and numbers; what all
rows of a section share is said once, above them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import measure

from tilewright.report.results import geometric_mean

#: Ratios by column; the worst of them, and what it is called.
RATIOS = {
    "best peer / tilewright": (min, "at least"),
    "tilewright / floor": (max, "at most"),
    "fused / alone": (max, "no more than"),
}
#: What a section says once, where its rows agree.
_SHARED = ("operator", "pass", "dtype", "layout", "kernel", "stride")
_NEVER = ("section", "operator", "hints")

Row = Mapping[str, Any]


def text(rows: Sequence[Row]) -> str:
    """The tables in Markdown."""
    groups = sections(rows)
    parts = []
    if len(groups) > 1:
        known = [c for c in RATIOS if any(row.get(c) for row in rows)]
        lines = [_summary(name, found, known) for name, found in groups.items()]
        parts.append(measure.table(lines))
    for name, found in groups.items():
        shared = [
            f"{k} {found[0][k]}" if k in ("kernel", "stride") else str(found[0][k])
            for k in _SHARED
            if k in found[0] and _same(k, found)
        ]
        extra = [word for word in shared if word not in name.replace(",", " ").split()]
        about = f" ({', '.join(extra)})" if extra and len(found) > 1 else ""
        parts += [f"**{name}**{about}", measure.table(_lines(found))]
    return "\n\n".join(parts)


def sections(rows: Sequence[Row]) -> dict[str, list[Row]]:
    """The rows of each section, in their order."""
    groups: dict[str, list[Row]] = {}
    for row in rows:
        groups.setdefault(str(row.get("section", "")), []).append(row)
    return groups


def mean(rows: Sequence[Row], column: str) -> float | None:
    """The geometric mean of a column's numbers, None where there is none."""
    return geometric_mean([row[column] for row in rows if row.get(column)])


def _summary(name: str, rows: Sequence[Row], columns: Sequence[str]) -> dict[str, Any]:
    line: dict[str, Any] = {"section": name, "problems": len(rows)}
    for column in columns:
        worst, called = RATIOS[column]
        values = [row[column] for row in rows if row.get(column)]
        line[column] = "" if not values else mean(rows, column)
        line[called] = worst(values, default="")
    return line


def _lines(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """The columns that are no object and not shared, and a last line with the geometric means."""
    columns = [
        name
        for name in dict.fromkeys(key for row in rows for key in row)
        if name not in _NEVER
        and all(isinstance(r.get(name, ""), (str, int, float)) or r[name] is None for r in rows)
        and not (name in _SHARED and len(rows) > 1 and _same(name, rows))
    ]
    if "name" in columns and any("shape" in row for row in rows):
        columns.remove("name")  # the shape, the kernel and the stride say it in columns
    lines = [{c: "" if row.get(c) is None else row[c] for c in columns} for row in rows]
    ratios = [c for c in columns if c in RATIOS]
    if ratios and len(rows) > 1:
        last: dict[str, Any] = dict.fromkeys(columns, "")
        last[columns[0]] = "geometric mean"
        lines.append(last | {c: found for c in ratios if (found := mean(rows, c)) is not None})
    return lines


def _same(column: str, rows: Sequence[Row]) -> bool:
    return len({row.get(column) for row in rows}) == 1
