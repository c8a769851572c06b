"""Tiles of images that threads of a GPU sum over."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class ReductionTile:
    """A thread goes over tiles of ``rows`` by ``columns`` pixels and sums ``taps`` rows of the
    filter, of ``vector`` channels where they lie side by side. ``lanes`` threads share a sum,
    ``threads`` such groups make a block, and ``chunks`` partial sums of each tap remain."""

    rows: int = 2
    columns: int = 4
    taps: int = 3
    vector: int = 1
    lanes: int = 32
    threads: int = 4
    chunks: int = 8
