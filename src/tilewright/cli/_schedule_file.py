"""A user's Python file that defines a schedule."""

from __future__ import annotations

import difflib
import runpy
import sys
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tilewright.ir.errors import ArgumentError, TilewrightError
from tilewright.schedule import Schedule
from tilewright.te import Tensor, Var


@dataclass(frozen=True)
class Found:
    """A schedule with the arguments of a call; ``target`` is the file's, None where it has none."""

    schedule: Schedule
    args: Sequence[Any]
    name: str
    target: Any


def load(path: str, func: str | None = None) -> Found:
    """What the file ``path`` defines: ``s`` and ``args``, or what its function ``func`` returns.

    Without ``func``, the file's only schedule goes by any name, and a function of no parameters
    that is its only one is called. Raises :class:`ArgumentError` that says what is missing or what
    failed, with the line of the file.
    """
    if not Path(path).is_file():
        raise ArgumentError(f"{path}: there is no such file")
    folder = str(Path(path).resolve().parent)
    sys.path.insert(0, folder)  # as when Python runs the file
    try:
        names = _guarded(path, lambda: runpy.run_path(path, run_name="__lower__"))
        return _find(path, names, func)
    finally:
        sys.path.remove(folder)


def _find(path: str, names: dict[str, Any], func: str | None) -> Found:
    target = names.get("target")
    own = {
        name: value
        for name, value in names.items()
        if callable(value) and getattr(value, "__module__", None) == "__lower__"
    }
    if func is not None:
        return _called(path, names, own, func, target)
    schedules = {name: v for name, v in names.items() if isinstance(v, Schedule)}
    schedule = schedules.get("s", schedules.get("schedule"))
    if schedule is None and len(schedules) == 1:
        schedule = next(iter(schedules.values()))
    if schedule is not None:
        args = names.get("args")
        if args is None:
            raise ArgumentError(
                f"{path} has a schedule but no args: define args = [A, B, out], the tensors that "
                "a call passes, in order"
            )
        return Found(schedule, _checked(path, "args", args), "main", target)
    if len(schedules) > 1:
        raise ArgumentError(
            f"{path} has several schedules ({', '.join(schedules)}): call the one to show s"
        )
    if len(own) == 1:
        return _called(path, names, own, next(iter(own)), target)
    hint = f"; --func takes one of {', '.join(own)}" if own else ""
    raise ArgumentError(
        f"{path} defines no schedule: let it define s = te.create_schedule(...) and args = [...], "
        f"or a function that returns both{hint}"
    )


def _called(path: str, names: dict[str, Any], own: dict[str, Any], func: str, target: Any) -> Found:
    function = names.get(func)
    if not callable(function):
        near = difflib.get_close_matches(func, own, 1)
        there = f"did you mean {near[0]}?" if near else f"it has {', '.join(own) or 'none'}"
        raise ArgumentError(f"{path} has no function {func!r}; {there}")
    made = _guarded(path, function)
    if not (isinstance(made, tuple) and len(made) == 2 and isinstance(made[0], Schedule)):
        raise ArgumentError(
            f"{path}: {func}() must return (schedule, args), and returned {_kind(made)}"
        )
    return Found(made[0], _checked(path, f"what {func}() returns", made[1]), func, target)


def _kind(made: Any) -> str:
    if isinstance(made, tuple):
        return f"({', '.join(type(part).__name__ for part in made)})"
    return type(made).__name__


def _checked(path: str, what: str, args: Any) -> Sequence[Any]:
    if not isinstance(args, (list, tuple)) or not all(isinstance(a, (Tensor, Var)) for a in args):
        raise ArgumentError(f"{path}: {what} must be a list of tensors and symbolic extents")
    return args


def _guarded(path: str, call: Callable[[], Any]) -> Any:
    """``call()``; what the file's own code raises is said with its line there."""
    try:
        return call()
    except (TilewrightError, KeyboardInterrupt):
        raise
    except SystemExit as stop:
        raise ArgumentError(
            f"{path} ended the program (exit status {stop.code}) before its schedule was read"
        ) from None
    except SyntaxError as error:
        line = f":{error.lineno}" if error.lineno else ""  # none of what is no text
        raise ArgumentError(f"{error.filename or path}{line}: {error.msg}") from None
    except Exception as error:
        wanted = str(Path(path).resolve())
        lines = [
            frame.lineno
            for frame in traceback.extract_tb(error.__traceback__)
            if str(Path(frame.filename).resolve()) == wanted
        ]
        place = f"{path}:{lines[-1]}" if lines else path
        raise ArgumentError(f"{place}: {type(error).__name__}: {error}") from error


def guess_target(schedule: Schedule) -> str:
    """Where a schedule is for: a GPU if it binds an axis to blocks or threads, else the CPU.

    The CUDA device at hand, or an H100's architecture where there is none: lowering and compiling
    need no device.
    """
    from tilewright.runtime import Device

    threads = (s.mark(axis).thread for s in schedule.stages for axis in s.leaf_iter_vars)
    if not any(thread is not None and thread.tag != "vthread" for thread in threads):
        return "llvm"
    return "cuda" if Device("cuda").exist else "cuda -arch=sm_90a"
