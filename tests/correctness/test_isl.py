"""What propagation leaves open, isl decides exactly."""

from __future__ import annotations

import pytest

from tilewright.arith import isl
from tilewright.arith.isl import UNBOUNDED, Undecided, sample


def test_a_point_satisfies_every_row() -> None:
    rows = [(((0, 3), (1, 5)), 7, 7), (((0, 1), (1, -1)), 2, UNBOUNDED)]
    found = sample(rows, [-20, -20, 4], [20, 20, 9])
    assert found is not None
    x, y, unused = found
    assert 3 * x + 5 * y == 7
    assert x - y >= 2
    assert unused == 4


def test_there_is_none_between_two_multiples() -> None:
    """6x + 10y + 15z can be anything, but not 1 with all three small."""
    rows = [(((0, 6), (1, 10), (2, 15)), 1, 1)]
    assert sample(rows, [0, 0, 0], [9, 9, 9]) is None
    assert sample(rows, [-9, -9, -9], [9, 9, 9]) is not None


def test_it_gives_up_rather_than_hang(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(isl, "MAX_OPERATIONS", 10)
    isl.context.cache_clear()
    try:
        rows = [(((0, 6), (1, 10), (2, 15)), 1, 1), (((0, 7), (1, -11), (2, 13)), 3, 5)]
        with pytest.raises(Undecided):
            sample(rows, [-99, -99, -99], [99, 99, 99])
    finally:
        isl.context.cache_clear()
