"""Show a schedule's program after every pass of the compiler.

FILE is a Python file that defines a schedule and the tensors of a call, as s and args, or a
function that returns both. By default the program is shown as the schedule makes it and after each
pass that changed it. Where it could not be proved to be right, standard error has the reason.

  tilewright lower conv.py
  tilewright lower conv.py --pass vectorize --diff
  tilewright lower conv.py --func fused --target cuda --source
"""

from __future__ import annotations

import argparse
import difflib
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tilewright.ir.errors import ArgumentError

if TYPE_CHECKING:
    from rich.console import Console

    from tilewright.ir.func import Func, Module
    from tilewright.schedule import Schedule

STYLES = ("plain", "script", "2017")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The file, what to show of it, and how."""
    parser.add_argument("file", metavar="FILE", help="a Python file that defines s and args")
    parser.add_argument(
        "--func", metavar="NAME", help="a function in FILE that returns (schedule, args)"
    )
    parser.add_argument(
        "--target",
        help='"llvm", "cuda -arch=sm_90a", "opencl", "sim"; by default target in FILE, else '
        "llvm, or cuda where the schedule binds threads",
    )
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--pass", dest="only", metavar="NAME", help="the program after this pass")
    what.add_argument("--list", action="store_true", help="the passes and what they changed")
    what.add_argument("--all", action="store_true", help="also passes that changed nothing")
    what.add_argument("--source", action="store_true", help="the generated code instead")
    parser.add_argument(
        "--style",
        choices=STYLES,
        default="plain",
        help="plain (buffers with all their dimensions), or flat as TVM's script or that of 2017",
    )
    parser.add_argument("--diff", action="store_true", help="what a pass changed, line by line")


@dataclass(frozen=True)
class Step:
    """The program after a pass; ``number`` counts from 0, the loops of the schedule."""

    number: int
    name: str
    text: str
    before: str

    @property
    def changed(self) -> bool:
        return self.text != self.before


def run(args: argparse.Namespace) -> int:
    """Lower it, and print what was asked for."""
    from rich.console import Console

    from tilewright.cli._schedule_file import guess_target, load

    found = load(args.file, args.func)
    target = args.target or found.target or guess_target(found.schedule)
    console = Console(highlight=False, soft_wrap=True)
    if args.source:
        _source(console, found, target)
        return 0
    steps, module = _steps(found.schedule, found.args, target, found.name, args.style)
    if args.list:
        _list(console, steps, target)
        return 0
    if args.only:
        chosen = _chosen(steps, args.only)
    else:
        chosen = [step for step in steps if step.changed or args.all]
    for step in chosen:
        _heading(console, step, len(steps) - 1)
        if args.diff and step.number:
            _print(console, _difference(step), "diff")
        else:
            _print(console, step.text, "c" if args.style == "2017" else "python")
    _prove(found.schedule, module)
    return 0


def _prove(schedule: Schedule, module: Module) -> None:
    """Say on stderr why the program would not be built."""
    from tilewright.ir.errors import VerificationError
    from tilewright.verify import verify

    places = {stage.name: stage.op.where for stage in schedule.stages}
    for func in module.funcs:
        try:
            verify(func, places)
        except VerificationError as error:
            print(f"tilewright: this program is not built: {error}", file=sys.stderr)


def _steps(
    schedule: Any, args: Sequence[Any], target: str, name: str, style: str
) -> tuple[list[Step], Module]:
    """Every pass in order, with the text of the program after it; and what the last one gives."""
    from tilewright.lower.pipeline import lower

    steps: list[Step] = []

    def trace(step: str, program: Func | Module) -> None:
        text = _text(program, style)
        steps.append(Step(len(steps), step, text, steps[-1].text if steps else ""))

    return steps, lower(schedule, args, target, name, trace=trace)


def _text(program: Func | Module, style: str) -> str:
    if style == "plain":
        return repr(program)
    from tilewright.ir.func import Func
    from tilewright.ir.script import script_text
    from tilewright.ir.text2017 import program_text
    from tilewright.lower.backend.flatten import flatten

    text = script_text if style == "script" else program_text
    funcs = (program,) if isinstance(program, Func) else program.funcs
    return "\n".join(text(func, flatten(func)) for func in funcs)


def _chosen(steps: Sequence[Step], name: str) -> list[Step]:
    """The steps of a pass by its name, or of one run of it by its number."""
    found = [s for s in steps if name in (s.name, str(s.number))]
    if not found:
        near = difflib.get_close_matches(name, [s.name for s in steps], 1)
        hint = f"; did you mean {near[0]}?" if near else "."
        raise ArgumentError(
            f"--pass {name}: there is no such pass{hint} The passes are "
            + ", ".join(dict.fromkeys(s.name for s in steps))
        )
    return found


def _list(console: Console, steps: Sequence[Step], target: str) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    made = Table("", "pass", "lines", "changed", box=SIMPLE_HEAD, pad_edge=False)
    for step in steps:
        lines = str(step.text.count("\n") + 1)
        made.add_row(str(step.number), step.name, lines, _changes(step), style=_dim(step))
    console.print(f"Target {target}", markup=False)
    console.print(made)


def _dim(step: Step) -> str:
    return "" if step.changed else "dim"


def _changes(step: Step) -> str:
    """``"+3 -1"``, "" where nothing changed."""
    if not step.number or not step.changed:
        return ""
    lines = _difference(step).splitlines()
    more, less = (sum(line.startswith(sign) for line in lines) for sign in "+-")
    return f"+{more} -{less}"


def _difference(step: Step) -> str:
    """Both programs line by line; only where they differ."""
    lines = difflib.unified_diff(step.before.splitlines(), step.text.splitlines(), lineterm="", n=2)
    return "\n".join([*lines][2:]) or "(no change)"  # less the names of the two


def _heading(console: Console, step: Step, last: int) -> None:
    note = "" if step.changed else " (no change)"
    title = "the schedule's loops" if step.number == 0 else f"after {step.name}{note}"
    if console.is_terminal:
        console.rule(f"[bold]{step.number}/{last} {title}[/]", align="left")
    else:
        console.print(f"# {step.number}/{last} {title}", markup=False)


def _print(console: Console, text: str, language: str) -> None:
    """In colours on a terminal."""
    if not console.is_terminal:
        sys.stdout.write(text.rstrip("\n") + "\n\n")
        return
    from rich.syntax import Syntax

    shown = Syntax(text, language, theme="ansi_dark").highlight(text.rstrip("\n"))
    console.print(shown, soft_wrap=True)  # whole lines, also where they are longer than the window
    console.print()


def _source(console: Console, found: Any, target: str) -> None:
    import tilewright

    kernel = tilewright.build(found.schedule, found.args, target, found.name)
    language = {"llvm": "llvm", "cuda": "cuda", "opencl": "c"}.get(kernel.target.kind, "python")
    _print(console, kernel.source, language)
