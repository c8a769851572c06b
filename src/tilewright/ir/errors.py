"""Errors that say what was wrong, where, and what would mend it."""

from __future__ import annotations

import os
import sys

_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def user_location() -> str:
    """The innermost line outside this package that led here, as ``file.py:12``."""
    frame = sys._getframe(1)
    while frame is not None:
        if not frame.f_code.co_filename.startswith(_PACKAGE):
            return f"{frame.f_code.co_filename}:{frame.f_lineno}"
        if frame.f_back is None:
            break
        frame = frame.f_back
    return "<unknown>"


def in_declaration() -> bool:
    """Whether the caller's caller is a function of the user's that ``te.compute`` evaluates."""
    frame = sys._getframe(2)
    if frame.f_code.co_filename.startswith(_PACKAGE):
        return False
    above = frame.f_back
    while above is not None:
        if above.f_code.co_name == "compute" and above.f_code.co_filename.startswith(_PACKAGE):
            return True
        above = above.f_back
    return False


class TilewrightError(RuntimeError):
    """The base of every error that Tilewright raises on purpose."""


class LanguageError(TilewrightError, TypeError):
    """An expression or declaration that has no meaning."""


class UnknownTypeError(LanguageError, ValueError):
    """A type of values that there is not."""


class NestedTagError(LanguageError, ValueError):
    """A tag within another one."""


class _PlacedError(TilewrightError):
    """An error about a stage of a schedule.

    Parameters
    ----------
    problem : what is wrong, in a sentence.
    stage, axis : the names of the stage and the axis concerned.
    where : the line of the user's schedule, as :func:`user_location` gives it.
    mend : what to do instead.
    """

    def __init__(
        self, problem: str, *, stage: str = "", axis: str = "", where: str = "", mend: str = ""
    ) -> None:
        self.problem, self.stage, self.axis = problem, stage, axis
        self.where, self.mend = where, mend
        place = [f"stage {stage!r}"] if stage else []
        if axis:
            place.append(f"axis {axis!r}")
        if where:
            place.append(f"at {where}")
        text = f"{problem} ({', '.join(place)})" if place else problem
        super().__init__(f"{text}. {mend}" if mend else text)


class ScheduleError(_PlacedError):
    """An illegal use of a schedule primitive; ``where`` is the line of the call if not given."""

    def __init__(
        self, problem: str, *, stage: str = "", axis: str = "", where: str = "", mend: str = ""
    ) -> None:
        place = where or user_location()
        super().__init__(problem, stage=stage, axis=axis, where=place, mend=mend)


class LoweringError(_PlacedError):
    """A schedule that cannot become a program."""


class VerificationError(TilewrightError):
    """A lowered program that was refuted; the message holds a concrete witness."""


class TargetError(TilewrightError):
    """A target that is unknown, lacks a library, or cannot do what was asked."""


class ArgumentError(TilewrightError, ValueError):
    """An argument of a kernel call that does not fit the kernel; nothing was written."""


class ProblemError(TilewrightError, ValueError):
    """A problem that no operator can have; the message says what would make it possible."""
