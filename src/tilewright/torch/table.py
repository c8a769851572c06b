"""Tables of plain text."""

from __future__ import annotations

from collections.abc import Sequence


def text_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Columns as wide as their widest cell; a line under the head.

    >>> print(text_table(("a", "b"), [("1", "two"), ("three", "4")]))
    a      b
    -----  ---
    1      two
    three  4
    """
    widths = [max(len(r[k]) for r in (head, *rows)) for k in range(len(head))]
    lines = [head, tuple("-" * w for w in widths), *rows]
    return "\n".join(
        "  ".join(cell.ljust(w) for cell, w in zip(line, widths, strict=True)).rstrip()
        for line in lines
    )
