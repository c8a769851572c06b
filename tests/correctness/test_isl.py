"""What propagation leaves open, isl decides exactly."""

from __future__ import annotations

import threading

import islpy
import pytest

from tilewright.arith import isl
from tilewright.arith.isl import UNBOUNDED, Undecided, sample

#: Of three unknowns, which takes isl hundreds of operations.
_HARD = [(((0, 6), (1, 10), (2, 15)), 1, 1), (((0, 7), (1, -11), (2, 13)), 3, 5)]


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
    monkeypatch.setattr(isl, "_own", threading.local())
    with pytest.raises(Undecided):
        sample(_HARD, [-99, -99, -99], [99, 99, 99])


def test_what_a_thread_gives_up_is_not_given_up_by_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A program is proved beside the generator of its code, which asks, too."""
    monkeypatch.setattr(isl, "MAX_OPERATIONS", 100)
    monkeypatch.setattr(isl, "_own", threading.local())
    given_up = []

    def ask() -> None:
        try:
            sample(_HARD, [-99, -99, -99], [99, 99, 99])
        except Undecided as error:
            given_up.append(error)

    with isl.limited():
        beside = threading.Thread(target=ask)
        beside.start()
        beside.join()
        assert given_up
        space = islpy.Space.set_alloc(isl.context(), 0, 1)
        assert not islpy.Set.universe(space).sample_point().is_void()
