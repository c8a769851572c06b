"""Tables."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from tilewright.report.markup import Html, join, tag
from tilewright.report.numbers import short

_NUMBER = re.compile(r"[–-]|-?[\d.,]+(e-?\d+)? ?\D{0,4}")


def table(
    headers: Sequence[Any],
    rows: Sequence[Sequence[Any]],
    caption: str = "",
    best: Sequence[int] = (),
    wrap: Sequence[int] = (),
) -> Html:
    """A table whose first column names the rows.

    Parameters
    ----------
    headers : one a column.
    rows : cells; columns of numbers, also of ones with a unit ("1.5×", "20%"), stand to the
        right; floats have three digits, None is a dash, "" nothing.
    best : columns among which the smallest number of each row is shown in bold.
    wrap : columns whose text may take several lines.
    """
    numeric = [
        k > 0 and bool(rows) and all(_is_number(row[k]) for row in rows)
        for k in range(len(headers))
    ]
    kinds = ["number" if n else None for n in numeric]
    kinds = ["wrap" if k in wrap else kind for k, kind in enumerate(kinds)]
    head = [tag("th", h, scope="col", class_=k) for h, k in zip(headers, kinds, strict=True)]
    body = []
    for row in rows:
        times = {k: row[k] for k in best if isinstance(row[k], (int, float))}
        winner = min(times, key=times.__getitem__) if len(times) > 1 else None
        cells = []
        for k, (cell, kind) in enumerate(zip(row, kinds, strict=True)):
            if k == 0:
                cells.append(tag("th", _text(cell), scope="row", class_=kind))
            else:
                shown = tag("strong", _text(cell)) if k == winner else _text(cell)
                cells.append(tag("td", shown, class_=kind))
        body.append(tag("tr", *cells))
    made = tag(
        "table",
        *([tag("caption", caption)] if caption else []),
        tag("thead", tag("tr", *head)),
        tag("tbody", join(body, "\n")),
    )
    label = caption or "table"
    return tag("div", made, class_="scroll", tabindex=0, role="region", aria_label=label)


def _is_number(cell: Any) -> bool:
    return not isinstance(cell, str) or not cell or _NUMBER.fullmatch(cell) is not None


def _text(cell: Any) -> Any:
    if cell is None:
        return "–"
    return short(cell) if isinstance(cell, float) else cell
