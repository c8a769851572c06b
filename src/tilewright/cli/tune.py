"""Search for the fastest schedule of an operator on a device, and keep what is found.

  tilewright tune depthwise_conv2d --input 64x384x32x32 --filter 384x1x7x7 --padding 3 \\
      --dtype float16 --target cuda --trials 200
  tilewright tune depthwise_conv2d --input 1x32x112x112 --filter 32x1x3x3 --padding SAME --resume
  tilewright tune ... --target cuda --scheduler tcp://host:8786   # dask worker --resources GPU=1
  tilewright tune ... --target "opencl -device=mali" --remote board:9190   # tilewright serve
  tilewright tune --set mobilenetv2 --batch 64 --pass forward,dgrad,wgrad --target cuda

Each measurement is on record as soon as it is done (`tilewright records list`); Ctrl-C ends the
search with what it found, and --resume goes on with it.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tilewright.cli import _problems
from tilewright.ir.errors import TilewrightError

if TYPE_CHECKING:
    from tilewright.tune.tuner import Tuner

TUNERS = ("xgb", "ga", "random", "grid")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The problem, the target, and how to search."""
    _problems.add_arguments(parser)
    parser.add_argument("--target", default="llvm", help='"llvm", "cuda", "opencl", "sim"')
    parser.add_argument("--threads", type=int, metavar="N", help="of the CPU; by default all cores")
    parser.add_argument("--trials", type=int, default=128, metavar="N", help="at most (128)")
    parser.add_argument("--tuner", choices=TUNERS, default="xgb")
    parser.add_argument("--early-stopping", type=int, metavar="N",
                        help="stop when N trials in a row brought nothing better")  # fmt: skip
    parser.add_argument("--resume", action="store_true", help="count what is on record as done")
    parser.add_argument("--records", metavar="FILE",
                        help="by default records.sqlite in the cache folder")  # fmt: skip
    parser.add_argument("--log", metavar="FILE", help="append JSON lines as AutoTVM's to it too")
    parser.add_argument("--jobs", type=int, metavar="N", help="processes that build")
    parser.add_argument("--devices", default="0", metavar="0,1", help="those that measure (cuda)")
    parser.add_argument("--scheduler", metavar="ADDRESS",
                        help="a Dask scheduler, whose workers build and measure")  # fmt: skip
    parser.add_argument("--remote", default="", metavar="HOST:PORT",
                        help="machines that measure, where `tilewright serve` runs")  # fmt: skip
    parser.add_argument("--repeat", type=int, default=5, metavar="N", help="of which the median")
    parser.add_argument("--min-repeat-ms", type=float, default=20.0, metavar="MS")
    parser.add_argument("--timeout", type=float, default=10.0, metavar="S", help="for one run")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", action="store_true", help="print the best for a program to read")
    parser.add_argument("-o", "--output", metavar="FILE", help="write the same to a file")


def run(args: argparse.Namespace) -> int:
    """Search, problem after problem; 130 after Ctrl-C, 1 where nothing was right for one."""
    from tilewright.cli._devices import with_threads
    from tilewright.runtime.files import check_writable, write_file
    from tilewright.tune import library
    from tilewright.tune.records import Records

    target = with_threads(args.target, args.threads)
    named = _problems.problems(args)
    for name in ("trials", "repeat", "jobs", "early_stopping"):
        if (given := getattr(args, name)) is not None and given < 1:
            raise TilewrightError(f"--{name.replace('_', '-')} {given}: at least 1")
    if args.seed < 0 or not args.min_repeat_ms >= 0 or not args.timeout > 0:
        raise TilewrightError("--seed and --min-repeat-ms are not negative, --timeout is positive")
    for path in filter(None, (args.output, args.log)):
        check_writable(Path(path))
    if args.remote:
        from tilewright.tune.remote import target_there

        target = target_there(args.remote, target)
    tasks = [library.task(one.problem, target) for one in named]
    reports: list[dict[str, Any]] = []
    status = 0
    with Records(args.records) as records:
        for number, task in enumerate(tasks, 1):
            which = f"{number}/{len(tasks)} " if len(tasks) > 1 else ""
            tuner = _search(args, task, records, which)
            reports.append(_report(tuner))
            if tuner.best_config is None:
                status = 1
            if tuner.interrupted:
                print("the same command with --resume goes on", file=sys.stderr)
                status = 130
                break
    text = json.dumps(reports if len(tasks) > 1 else reports[0], indent=1)
    if args.json:
        print(text)
    if args.output:
        write_file(Path(args.output), text + "\n")
    return status


def _search(args: argparse.Namespace, task: Any, records: Any, which: str) -> Tuner:
    """Search for one problem, and say what was found."""
    from tilewright.tune import callback, library
    from tilewright.tune.display import Display, best_text
    from tilewright.tune.local import LocalBuilder, LocalRunner, measure_option

    problem = task.args[0]
    tuner = _tuner(args, task)
    option = measure_option(
        LocalBuilder(n_parallel=args.jobs),
        LocalRunner(args.timeout, 1, args.repeat, args.min_repeat_ms, _devices(args.devices),
                    args.seed, remote=args.remote),
        args.scheduler,
    )  # fmt: skip
    callbacks: list[Any] = [Display(prefix=f"{which}{problem.pass_}", result=args.json)]
    if args.log:
        callbacks.append(callback.log_to_file(args.log))
    tuner.tune(
        args.trials, option, args.early_stopping, callbacks, records=records, resume=args.resume,
    )  # fmt: skip
    if not args.json and tuner.best_config is not None:
        name, parameters = library.parameters_of(tuner.best_config)
        values = ", ".join(f"{k} {v}" for k, v in parameters.items())
        print(f"{problem}\n{best_text(tuner)}: {name}, {values}")
    if tuner.best_config is None and tuner.last_reason:
        print(f"tilewright: nothing was right: {tuner.last_reason}", file=sys.stderr)
    return tuner


def _devices(text: str) -> tuple[int, ...]:
    if not all(part.isdigit() for part in text.split(",")):
        raise TilewrightError(f"--devices {text}: give numbers, as in --devices 0,1")
    return tuple(int(part) for part in text.split(","))


def _tuner(args: argparse.Namespace, task: Any) -> Tuner:
    from tilewright.tune.simple_tuners import GATuner, GridSearchTuner, RandomTuner
    from tilewright.tune.xgb_tuner import XGBTuner

    kinds: dict[str, Any] = {
        "xgb": XGBTuner, "ga": GATuner, "random": RandomTuner, "grid": GridSearchTuner,
    }  # fmt: skip
    made: Tuner = kinds[args.tuner](task, seed=args.seed)
    return made


def _report(tuner: Tuner) -> dict[str, Any]:
    best = tuner.best_config
    return {
        "problem": tuner.task.key,
        "target": str(tuner.task.target),
        "trials": tuner.trials,
        "failed": sum(n for kind, n in tuner.errors.items() if kind),
        "seconds": None if best is None else tuner.best_cost,
        "flops": tuner.best_flops,
        "config": None if best is None else best.to_json_dict(),
        "interrupted": tuner.interrupted,
    }
