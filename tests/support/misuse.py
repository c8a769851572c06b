"""Errors of schedules: that they name the stage, the axis, the line that is wrong, and the mend."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

import tilewright
from tilewright.ir.errors import LoweringError, ScheduleError
from tilewright.schedule import Schedule


def refuses(
    do: Callable[[], Any], problem: str, *, stage: str = "", axis: str = "", mend: str
) -> None:
    """``do`` is a misuse of a primitive; the error says where ``do`` is written."""
    with pytest.raises(ScheduleError) as caught:
        do()
    _check(caught.value, problem, stage, axis, mend)
    assert caught.value.where in _lines(do)


def cannot_lower(
    s: Schedule,
    args: Sequence[Any],
    target: str,
    problem: str,
    *,
    cause: Callable[[], Any] | str = "",
    stage: str = "",
    axis: str = "",
    mend: str,
) -> None:
    """The schedule has no program; the error says where ``cause`` is written, or this place."""
    with pytest.raises(LoweringError) as caught:
        tilewright.lower(s, args, target)
    _check(caught.value, problem, stage, axis, mend)
    if callable(cause):
        assert caught.value.where in _lines(cause)
    else:
        assert caught.value.where == cause


def _check(
    error: ScheduleError | LoweringError, problem: str, stage: str, axis: str, mend: str
) -> None:
    assert problem in error.problem
    assert (error.stage, error.axis) == (stage, axis)
    assert mend in error.mend
    assert mend
    for part in (error.problem, error.mend, error.stage, error.axis, error.where):
        assert part in str(error)


def _lines(do: Callable[[], Any]) -> set[str]:
    code = do.__code__
    return {f"{code.co_filename}:{line}" for _, _, line in code.co_lines() if line is not None}
