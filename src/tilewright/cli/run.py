"""Run an ONNX model: its outputs, how long it takes, and where.

  tilewright run m.onnx --input x.npy --output y.npz
  tilewright run m.onnx --input 8x3x224x224 --threads 1 --iterations 50 --profile
  tilewright run m.onnx --input x:x.npy --expect y:y.npy --rtol 1e-4
  tilewright run m.onnx --reference onnxruntime --json figures.json --html page.html
  tilewright run m.onnx --problems p.txt && tilewright tune --problems p.txt
  tilewright run m.onnx --dtype int8 --calibration a.npy --calibration b.npy --budget 0.05
  tilewright run m.onnx --fast-run --fast-run-seconds 300
  tilewright run m.onnx --input 8x3x224x224 --save m.tw && tilewright run m.tw --input x.npy
  tilewright run m.onnx --target "opencl -device=mali" --remote board:9190  # tilewright serve

Inputs are files, literals like [1.0,2], or shapes, of which arrays are random; those that are not
given are random, too, of the open dimensions that others have by name, else 1. The exit status is
1 where outputs are not what was expected. The names of MegEngine's load_and_run for the same
options are understood. A terminal shows how many kernels are compiled; elsewhere
TILEWRIGHT_PROGRESS=1 prints a line every ten seconds.
"""

from __future__ import annotations

import argparse
import json
import shlex
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tilewright.cli._run.search import LAYOUTS
from tilewright.cli._run.types import add_types, quantized
from tilewright.ir.errors import ArgumentError

if TYPE_CHECKING:
    from rich.console import Console

    from tilewright.cli._run.figures import Difference, Times
    from tilewright.graph.executor import Executor
    from tilewright.graph.model import Model
    from tilewright.graph.remote import RemoteModel


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The model, what goes in, what is to come out, and what is measured."""
    add = parser.add_argument
    add("model", metavar="MODEL", help="an ONNX file, or what --save wrote")
    add(
        "--input",
        action="append",
        default=[],
        metavar="[NAME:]X",
        help=".npy, .npz, a literal or a shape; may be repeated, or given with semicolons",
    )
    add("--seed", type=int, default=0, metavar="N", help="of random inputs (0)")
    add("--target", help='"llvm" (the CPU, by default), "cuda", "opencl" or "sim"')
    for name, target in (("--cpu", "llvm"), ("--cuda", "cuda")):
        add(name, dest="target", action="store_const", const=target, help=f"--target {target}")
    add(
        "--remote",
        metavar="HOST:PORT",
        help="compile here, and run on another machine, where `tilewright serve` is",
    )
    add("--threads", "--multithread", type=int, metavar="N", help="of the CPU; by default all")
    add("--output", metavar="FILE.npz", help="where the outputs go")
    add(
        "--save",
        metavar="FILE",
        help="where the model goes with its kernels for these inputs, for run and tilewright.load",
    )
    add("--precision", choices=("winograd",), help="of 3x3 convolutions: in fewer products")
    add_types(parser)
    group = parser.add_argument_group("checking")
    group.add_argument(
        "--expect",
        action="append",
        default=[],
        metavar="[NAME:]X.npy",
        help="what an output is to be; .npy, or .npz of several",
    )
    group.add_argument("--reference", choices=("onnxruntime",), help="what gives it instead")
    group.add_argument("--rtol", type=float, default=1e-4, metavar="R", help="relative (1e-4)")
    group.add_argument(
        "--atol",
        type=float,
        metavar="A",
        help="absolute; by default 1e-5 of the largest number of an output",
    )
    group = parser.add_argument_group("searching")
    group.add_argument(
        "--fast-run", "--fast_run", action="store_true",
        help="measure candidates of the kernels, the longest first, and take the fastest",
    )  # fmt: skip
    group.add_argument(
        "--fast-run-seconds", type=float, default=60.0, metavar="S",
        help="for how many seconds (60), and until a kernel is known; the next run goes on",
    )  # fmt: skip
    group.add_argument(
        "--full-run", "--full_run", action="store_true", help="the same of all, however long"
    )
    for layout in LAYOUTS:
        names = dict.fromkeys((f"--enable-{layout}", f"--enable_{layout.replace('-', '_')}"))
        group.add_argument(*names, dest="layouts", action="append_const", const=layout,
                           default=[], help=argparse.SUPPRESS)  # fmt: skip
    group = parser.add_argument_group("measuring")
    group.add_argument("--iterations", "--iter", type=int, default=10, metavar="N", help="(10)")
    group.add_argument(
        "--warmup", "--warmup-iter", "--warmup_iter", type=int, default=1, metavar="N",
        help="iterations before (1)",
    )  # fmt: skip
    group.add_argument("--profile", action="store_true", help="a table of kernels by their times")
    group.add_argument("--graph", action="store_true", help="print the graph that runs")
    group.add_argument("--json", metavar="PATH", help="write the figures; - is standard output")
    group.add_argument(
        "--html", metavar="PATH", help="write a page: times, kernels, the memory plan, the graph"
    )
    group.add_argument(
        "--problems",
        metavar="FILE",
        help="write what its kernels compute, for `tilewright tune` and `bench --problems FILE`",
    )


def run(args: argparse.Namespace) -> int:
    """Run it; 1 where an output is not what was expected.

    Raises :class:`ModelError` for a model that cannot be run, :class:`ArgumentError` for options.
    """
    from rich.console import Console

    import tilewright
    from tilewright.cli._devices import with_threads
    from tilewright.cli._run.expected import check_reference, differences_of
    from tilewright.cli._run.figures import Times
    from tilewright.cli._run.inputs import arrays
    from tilewright.cli._run.there import check_options, there
    from tilewright.graph.model import Model
    from tilewright.graph.saved import check_name
    from tilewright.runtime.files import check_writable

    if args.remote:
        check_options(args)
    if args.reference:
        check_reference()  # before all that takes time
    if args.iterations < 1 or args.warmup < 0:
        raise ArgumentError("--iterations is at least 1, and --warmup not negative")
    if args.seed < 0 or not args.rtol >= 0 or not (args.atol is None or args.atol >= 0):
        raise ArgumentError("--seed, --rtol and --atol are not negative")
    if not args.fast_run_seconds >= 0:
        raise ArgumentError("--fast-run-seconds is not negative")
    if args.expect and args.reference:
        raise ArgumentError("--expect or --reference: what is expected comes from one of them")
    for path in (args.json, args.output, args.problems, args.html, args.save):
        if path and path != "-":
            check_writable(Path(path))
    if args.save:
        check_name(Path(args.save))
    console = Console(highlight=False, stderr=args.json == "-")
    if args.layouts:
        asked = ", ".join(f"--enable-{x}" for x in args.layouts)
        console.print(f"layouts are chosen for the target, also without {asked}", markup=False)
    usual = args.target is None and args.threads is None  # a saved model has its own
    target = None if usual else with_threads(args.target or "llvm", args.threads)
    begin = time.perf_counter()
    model = tilewright.load(
        args.model,
        target=target,
        dtype=None if args.dtype == "int8" else args.dtype,
        precision=args.precision,
    )
    if not isinstance(model, Model):
        raise ArgumentError(f"{args.model} is a kernel, and not a model")
    loaded = time.perf_counter() - begin
    console.print(f"load model: {loaded * 1e3:.1f} ms", markup=False)

    def told(line: str) -> None:
        console.print(line, markup=False, soft_wrap=True)

    inputs = arrays(args.input, model.inputs, args.seed, told=told)
    model = quantized(model, args, console)
    runs = there(args, model, console) if args.remote else model
    begin = time.perf_counter()
    executor = runs.compile(inputs)
    compiled = time.perf_counter() - begin
    memory = executor.plan.nbytes / 2**20
    console.print(
        f"prepare: {compiled * 1e3:.1f} ms; {len(executor.steps)} kernels, {len(executor.kernels)} "
        f"different ones; {memory:.2f} MiB between them", markup=False,
    )  # fmt: skip
    if args.fast_run or args.full_run:
        model, executor = _searched(model, executor, inputs, args, console)
        runs = model
    if args.graph:
        console.print(str(executor.graph), markup=False, soft_wrap=True)
    outputs, seconds, steps = _measure(runs, executor, inputs, args, console)
    times = Times(seconds)
    _show_times(console, times)
    if args.profile:
        _show_layers(console, executor, steps)
    differences = differences_of(args, model, inputs, outputs)
    for d in differences:
        _show_difference(console, d)
    if args.output:
        _write_outputs(Path(args.output), outputs)
    if args.save:
        runs.save(args.save)
    if args.html:
        _write_page(args, runs, executor, times, steps, differences)
    if args.problems:
        from tilewright.cli._problems import write_problems

        write_problems(Path(args.problems), [step.node.problem for step in executor.steps])
    if args.json:
        _write_json(args.json, executor, (loaded, compiled), times, steps, differences)
    return 0 if all(d.fits for d in differences) else 1


def _searched(
    model: Model, executor: Executor, inputs: dict[str, Any], args: argparse.Namespace,
    console: Console,
) -> tuple[Model, Executor]:  # fmt: skip
    """The model by the fastest of its kernels' candidates."""
    from contextlib import nullcontext

    from tilewright.cli._run.search import search

    begin = time.perf_counter()
    limit = None if args.full_run else args.fast_run_seconds
    shown = console.status("measuring candidates") if console.is_terminal else nullcontext()
    with shown as status:

        def told(done: int, of: int) -> None:
            if status is not None:
                status.update(f"measured the candidates of {done} of {of} kernels")

        done, of = search(executor, inputs, limit, told)
    again = model.again()
    found = again.compile(inputs)
    rest = "" if done == of else "; the next run goes on"
    taken = time.perf_counter() - begin
    console.print(f"search: {taken:.1f} s; {done} of {of} kernels{rest}", markup=False)
    return again, found


def _measure(
    model: Model | RemoteModel, executor: Executor, inputs: dict[str, Any],
    args: argparse.Namespace, console: Console,
) -> tuple[dict[str, Any], list[float], list[list[float]]]:  # fmt: skip
    """The outputs, the seconds of iterations, and, of as many others, of each kernel."""
    from tilewright.graph.remote import RemoteModel

    if isinstance(model, RemoteModel):
        from tilewright.cli._run.there import measured

        return measured(model, inputs, args, console)
    outputs = model.run(inputs)
    for _ in range(args.warmup):
        model.run(inputs)
    seconds = []
    for _ in range(args.iterations):
        begin = time.perf_counter()
        model.run(inputs)
        seconds.append(time.perf_counter() - begin)
    steps: list[list[float]] = []
    for _ in range(args.iterations if args.profile or args.json or args.html else 0):
        steps.append([])
        executor.run(inputs, steps[-1])
    return outputs, seconds, steps


def _show_times(console: Console, times: Times) -> None:
    found = times.to_dict()
    text = ", ".join(f"{n} {found[n]:.3f}" for n in ("mean", "p90", "p99", "min", "max"))
    console.print(
        f"{len(times.seconds)} iterations: median {found['median']:.3f} ms ({text}, standard "
        f"deviation {found['deviation']:.3f})", markup=False, soft_wrap=True,
    )  # fmt: skip


def _show_layers(console: Console, executor: Executor, steps: list[list[float]]) -> None:
    from rich.table import Table

    from tilewright.cli._run.figures import by_kernel, layers

    rows = by_kernel(layers(executor, steps))
    total = sum(row["ms"] for row in rows) or 1.0
    table = Table("µs", "share", "times", "GFLOP/s", "GB/s", "kernel")
    for column in table.columns[:-1]:
        column.justify = "right"
    for row in rows:
        table.add_row(
            f"{row['ms'] * 1e3:,.1f}", f"{row['ms'] / total:.1%}", str(row["count"]),
            f"{row['gflops']:.1f}", f"{row['gbytes']:.1f}", row["kernel"],
        )  # fmt: skip
    console.print(table, markup=False)


def _show_difference(console: Console, d: Difference) -> None:
    off = d.note or (
        f"at most {d.absolute:.3g} off ({d.relative:.3g} of the largest), {d.worst:.3g} of what is "
        "allowed"
    )
    fits = "as expected" if d.fits else "NOT as expected"
    console.print(f"{d.name}: {fits}; {off}", markup=False, soft_wrap=True)


def _write_outputs(path: Path, outputs: dict[str, Any]) -> None:
    import io

    import numpy as np

    from tilewright.runtime.files import write_file

    whole = io.BytesIO()
    np.savez(whole, **outputs)
    write_file(path, whole.getvalue())


def _write_page(
    args: argparse.Namespace, runs: Model | RemoteModel, executor: Executor, times: Times,
    steps: list[list[float]], differences: list[Difference],
) -> None:  # fmt: skip
    from tilewright.cli._measure.environment import environment
    from tilewright.cli._run.figures import layers
    from tilewright.cli._run.page import run_page
    from tilewright.graph.remote import RemoteModel
    from tilewright.runtime.files import write_file
    from tilewright.tune.machine import machine

    command = "tilewright " + shlex.join(sys.argv[1:])
    here = runs.machine if isinstance(runs, RemoteModel) else machine(executor.target)
    around = environment(here["device"], command, {"target": here["target"]})
    rows = layers(executor, steps)
    text = run_page(Path(args.model).name, executor, times, rows, differences, around)
    write_file(Path(args.html), text)


def _write_json(
    path: str, executor: Executor, prepared: tuple[float, float], times: Times,
    steps: list[list[float]], differences: list[Difference],
) -> None:  # fmt: skip
    from dataclasses import asdict

    from tilewright.cli._run.figures import layers
    from tilewright.runtime.files import write_file

    found = {
        "target": str(executor.target), "load_ms": prepared[0] * 1e3,
        "prepare_ms": prepared[1] * 1e3, "arena_bytes": executor.plan.nbytes,
        "ms": times.to_dict(), "layers": layers(executor, steps),
        "outputs": [asdict(d) for d in differences],
    }  # fmt: skip
    text = json.dumps(found, indent=1) + "\n"
    if path == "-":
        sys.stdout.write(text)
    else:
        write_file(Path(path), text)
