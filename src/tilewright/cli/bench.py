"""Time an operator beside PyTorch and ONNX Runtime, and beside what the machine can do at best.

  tilewright bench depthwise_conv2d --input 64x384x32x32 --filter 384x1x7x7 --padding 3 \\
      --dtype float16 --target cuda
  tilewright bench --set mobilenetv2 --set convnext --threads 1 --json bench.json
  tilewright bench depthwise_conv2d --problems layers.txt --peers PyTorch

Everything takes turns in one process, so that what disturbs one disturbs all; on CUDA replays of
graphs are timed, over data that the caches do not hold where it is larger than 8 MB. The floor is
how long a copy of as many bytes takes, or as many multiplications and additions, whichever is more;
both are measured in the same run. `tilewright report` makes a page of the --json file.
"""

from __future__ import annotations

import argparse
import json
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tilewright.cli import _problems
from tilewright.ir.errors import ArgumentError, TargetError

if TYPE_CHECKING:
    from rich.console import Console

    from tilewright.cli._measure.floors import Roof
    from tilewright.cli._measure.machine import Machine


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The problems, the machine, whom to compare with."""
    from tilewright.cli._measure.peers import PEERS

    _problems.add_arguments(parser)
    group = parser.add_argument_group("measuring")
    group.add_argument(
        "--target",
        help='"llvm" (the CPU), "cuda", "opencl"; by default a CUDA device, else the CPU',
    )
    group.add_argument("--threads", type=int, metavar="N", help="of the CPU; by default all cores")
    group.add_argument(
        "--peers",
        metavar="NAMES",
        help=f"with commas, of: {', '.join(PEERS)}; none; by default all that are installed",
    )
    group.add_argument(
        "--policy",
        choices=("heuristic", "profile", "reproducible"),
        default="heuristic",
        help="how our kernel is chosen: by what is on record and by rule, or by measuring first",
    )
    group.add_argument("--rounds", type=int, default=30, metavar="N", help="at most (30)")
    group.add_argument(
        "--seconds", type=float, default=5.0, metavar="S", help="for a problem, about (5)"
    )
    group.add_argument("--json", metavar="PATH", help="write the figures; - is standard output")


def run(args: argparse.Namespace) -> int:
    """Measure; 1 where a problem has no kernel of ours, 130 after Control-C.

    Raises :class:`TargetError` where the target has no clock or is not here.
    """
    from rich.console import Console

    from tilewright.cli._bench.contest import Contest
    from tilewright.cli._bench.view import figures, show_row, show_summary
    from tilewright.cli._measure.environment import environment
    from tilewright.cli._measure.machine import find
    from tilewright.cli._measure.peers import Peers
    from tilewright.report.numbers import counted
    from tilewright.runtime.files import check_writable

    if args.rounds < 2 or args.seconds <= 0:
        raise ArgumentError("--rounds is at least 2, and --seconds is positive")
    named = _problems.problems(args)
    wanted = _peers(args.peers)
    if args.json and args.json != "-":
        check_writable(Path(args.json))
    machine = find(args.target, args.threads)
    if not machine.timed:
        raise TargetError("sim has no clock: bench on llvm, cuda or opencl")
    console = Console(highlight=False, stderr=args.json == "-")
    with _doing(console, "looking for PyTorch and ONNX Runtime"):
        peers = Peers(machine, wanted)
    with _doing(console, "measuring how fast the machine copies and multiplies"):
        roofs = _roofs(machine, sorted({n.problem.dtype for n in named}))
    _introduce(console, machine, roofs)
    contest = Contest(machine, peers, args.policy, roofs, args.rounds, args.seconds)
    rows: list[Any] = []
    interrupted = False
    for number, one in enumerate(named, 1):
        try:
            with _doing(console, f"{number}/{len(named)} {one.problem}"):
                rows.append(contest.run(one.problem, one.section))
        except KeyboardInterrupt:
            interrupted = True
            break
        show_row(console, rows[-1])
    show_summary(console, rows)
    hints = [*machine.hints, *peers.hints]
    unsteady = sum(1 for row in rows if row.unsteady)
    if unsteady:
        hints.append(
            f"Times of {unsteady} of {counted(len(rows), 'problem')} varied much between rounds, "
            "as they do where other programs run; time those again on a quiet machine."
        )
    for hint in hints:
        console.print(hint, style="dim", soft_wrap=True, markup=False)
    if args.json and rows:
        more = {"target": str(machine.target), **peers.versions()}
        if machine.kind == "llvm":
            more["threads"] = str(machine.threads)
        around = environment(_device(machine), shlex.join(["tilewright", *sys.argv[1:]]), more)
        _write(args.json, figures(rows, roofs, around, hints), console)
    if interrupted:
        return 130
    return 1 if any(row.failure for row in rows) else 0


def _peers(text: str | None) -> list[str]:
    from tilewright.cli._measure.peers import PEERS

    if text is None:
        return list(PEERS)
    by_name = {name.lower(): name for name in PEERS}
    found = []
    for word in (part.strip() for part in text.split(",")):
        if word.lower() in ("none", ""):
            continue
        if word.lower() not in by_name:
            raise ArgumentError(f"--peers {word}: there are {', '.join(PEERS)}; or none")
        found.append(by_name[word.lower()])
    return found


def _roofs(machine: Machine, dtypes: list[str]) -> dict[str, Roof]:
    from tilewright.cli._measure.floors import Roof as Make
    from tilewright.cli._measure.floors import bandwidth, rate

    copied = bandwidth(machine)
    return {dtype: Make(copied, rate(machine, dtype)) for dtype in dtypes}


def _introduce(console: Console, machine: Machine, roofs: dict[str, Roof]) -> None:
    from rich.markup import escape

    from tilewright import __version__
    from tilewright.report.numbers import short

    threads = f", {machine.threads} thread{'s' * (machine.threads > 1)}"
    target = f"target {machine.kind}{threads if machine.kind == 'llvm' else ''}"
    console.print(
        f"[bold]tilewright {__version__}[/] on {escape(machine.device)} [dim]({target})[/]",
        soft_wrap=True,
    )
    copied = next(iter(roofs.values())).bandwidth
    says = [f"copies {short(copied / 1e9)} GB/s"] if copied else []
    says += [f"{short(r.rate / 1e9)} GFLOP/s in {dtype}" for dtype, r in roofs.items() if r.rate]
    if says:
        console.print(f"[dim]This machine {', '.join(says)}.[/]\n", soft_wrap=True)


def _doing(console: Console, what: str) -> Any:
    import contextlib

    from rich.markup import escape

    return console.status(escape(what)) if console.is_terminal else contextlib.nullcontext()


def _device(machine: Machine) -> str:
    """As records name it, so that a report finds what belongs together."""
    from tilewright.tune.machine import machine as named

    return str(named(machine.target)["device"])


def _write(path: str, found: dict[str, Any], console: Console) -> None:
    from tilewright.runtime.files import FileError

    text = json.dumps(found, indent=1) + "\n"
    if path == "-":
        sys.stdout.write(text)
        return
    try:
        Path(path).write_text(text, encoding="utf-8")
    except OSError as error:
        raise FileError(f"{path} was not written: {error}") from None
    console.print(f"Figures: {path}", markup=False)
