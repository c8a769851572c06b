"""Search fast kernels for real layers on this machine, and compare them.

Takes depthwise convolutions of MobileNetV2, ConvNeXt-T and RepLKNet-31B at batch 1, schedules them
for the machine at hand (an NVIDIA GPU, else the CPU), tries the parameters of the schedules one by
one, checks every kernel against NumPy in float64, times the best beside PyTorch and ONNX Runtime
where these are installed, and writes a page with the results, the programs and the code.

Control-C ends the search and keeps what was found.

  tilewright demo --quick
  tilewright demo --layers convnext,256x28x28k5 --threads 1
  tilewright demo --target sim          GPU schedules without a GPU, every access checked
"""

from __future__ import annotations

import argparse
import json
import shlex
import sys
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tilewright.cli._demo.search import Result
    from tilewright.cli._demo.view import View
    from tilewright.cli._measure.machine import Machine
    from tilewright.cli._measure.peers import Peers

#: Candidates a layer, and seconds of a run, from its start to its page.
_CANDIDATES, _SECONDS = 14, 36.0
_QUICK_CANDIDATES, _QUICK_SECONDS = 5, 15.0
#: Of them, those that remain for writing and for the last candidate of a layer, which may be begun
#: late; and, of what a layer has, the part for timing beside the libraries and its limits.
_RESERVE, _COMPARING, _MOST_COMPARING, _LEAST = 3.0, 0.5, 2.5, 0.5


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Where, what, and what to write."""
    parser.add_argument(
        "--target",
        help='"llvm" (the CPU), "cuda", "opencl" or "sim"; by default a CUDA device, else the CPU',
    )
    parser.add_argument(
        "--threads", type=int, metavar="N", help="threads of the CPU; by default all cores"
    )
    parser.add_argument(
        "--quick", action="store_true", help="a layer of each network, few candidates"
    )
    parser.add_argument(
        "--layers",
        nargs="+",
        default=[],
        metavar="LAYER",
        help="networks or shapes (144x56x56k3s2: channels, height, width, filter, stride)",
    )
    parser.add_argument(
        "--html",
        default="tilewright-demo.html",
        metavar="PATH",
        help='the page to write (%(default)s); "" for none',
    )
    parser.add_argument("--json", metavar="PATH", help="also write the figures for a program")


def run(args: argparse.Namespace) -> int:
    """Search, compare, show, write; 130 after Control-C, 1 where no layer has a kernel.

    Raises :class:`TargetError` where the target can compile nothing on this machine.
    """
    from tilewright.cli._demo.layers import choose
    from tilewright.cli._demo.view import View
    from tilewright.cli._measure.machine import find
    from tilewright.cli._measure.peers import Peers

    begin = time.monotonic()
    layers = choose(args.layers, args.quick)
    machine = find(args.target, args.threads)
    view = View(machine, [])
    _introduce(view, machine, len(layers))
    with view.console.status("looking for PyTorch and ONNX Runtime"):
        peers = Peers(machine, ("PyTorch", "ONNX Runtime"))
    view.peers = peers.names
    others = " and ".join(peers.names) or "no library: none is installed"
    if machine.timed:
        view.console.print(f"The best of each layer is compared with {others}.", soft_wrap=True)
    interrupted = False
    with view.showing(len(layers)):
        try:
            limit = _QUICK_SECONDS if args.quick else _SECONDS
            _search(layers, args.quick, machine, peers, view, begin + limit - _RESERVE)
        except KeyboardInterrupt:
            interrupted = True
    seconds = time.monotonic() - begin
    _summarize(view, machine, peers, seconds, interrupted)
    _write(args, view.results, machine, peers, seconds)
    if interrupted:
        return 130
    return 0 if any(r.points for r in view.results) else 1


def _introduce(view: View, machine: Machine, layers: int) -> None:
    from rich.markup import escape

    from tilewright import __version__

    threads = f", {machine.threads} threads" if machine.kind == "llvm" else ""
    one = machine.threads == 1
    console = view.console
    console.print(
        f"[bold]tilewright {__version__}[/] on {escape(machine.device)} "
        f"[dim](target {machine.kind}{threads[:-1] if one else threads})[/]",
        soft_wrap=True,
    )
    what = "layer" if layers == 1 else "layers"
    console.print(
        f"Searching schedules for {layers} depthwise convolution {what}, batch 1, float32.",
        soft_wrap=True,
    )


def _search(
    layers: Any, quick: bool, machine: Machine, peers: Peers, view: View, end: float
) -> None:
    """All layers one after the other, by ``end`` if each finds a candidate in time; what was found
    stands in ``view.results``."""
    from tilewright.cli._demo.search import Search

    most = _QUICK_CANDIDATES if quick else _CANDIDATES
    most *= 1 if machine.kind == "llvm" else 2  # two families of schedules, compiled in less time
    for number, layer in enumerate(layers):
        search = Search(layer, machine, most)
        share = max(0.0, end - time.monotonic()) / (len(layers) - number)
        comparing = max(_LEAST, min(_MOST_COMPARING, _COMPARING * share))
        try:
            search.run(max(_LEAST, share - comparing), view.update)
        except KeyboardInterrupt:
            search.result.stopped = "interrupted"
            if search.result.points:
                view.done(search.finish(peers, comparing))
            raise
        if number == 0 and search.unable:
            raise search.unable
        if search.result.points:
            view.update(search.result, "timing the best beside the others")
        view.done(search.finish(peers, comparing))


def _summarize(
    view: View, machine: Machine, peers: Peers, seconds: float, interrupted: bool
) -> None:
    """The table, the mean, what failed and what is missing."""
    from rich.markup import escape

    from tilewright.cli._demo.search import VARIED
    from tilewright.cli._demo.view import mean_ratio
    from tilewright.report.numbers import counted

    console, results = view.console, view.results
    if not results:
        console.print("Interrupted before a kernel was found.")
        return
    console.print(view.table())
    mean = mean_ratio(results)
    if mean:
        peer = " and ".join(view.peers)
        better = "the better of " if len(view.peers) > 1 else ""
        console.print(
            f"[bold]{mean:.2f}×[/] as fast as {better}{peer}, geometric mean of "
            f"{counted(sum(1 for r in results if r.ratio), 'layer')}."
        )
    tried = sum(r.tried for r in results)
    console.print(f"{tried} candidates in {seconds:.0f} s, each checked against NumPy in float64.")
    if not machine.timed and any(r.points for r in results):
        console.print(
            "The simulator watched every access: no races, nothing out of bounds, nothing read "
            "before it is written. Its costs are those of a GPU's memory; a layer is 2 channels "
            "of at most 28 × 28."
        )
    failures: Counter[str] = Counter()
    for result in results:
        failures.update(result.failures)
    for reason, count in failures.most_common(3):
        console.print(f"[yellow]{count} failed:[/] {escape(reason)}")
    stopped = sum(1 for r in results if r.stopped)
    if interrupted:
        console.print("[yellow]Interrupted[/]: this is what was found until then.")
    elif stopped:
        layers = counted(stopped, "layer")
        console.print(f"[dim]The search of {layers} was cut short to end in time.[/]")
    unsteady = sum(1 for r in results if r.unsteady)
    if unsteady:
        machine.hints.append(
            f"Times of {unsteady} of {counted(len(results), 'layer')} varied by more than "
            f"{VARIED:.0%} between rounds, as they do where other programs run; time those again "
            "on a quiet machine."
        )
    for hint in [*machine.hints, *peers.hints]:
        console.print(f"[dim]{escape(hint)}[/]", soft_wrap="install" in hint)  # lines to copy


def _write(
    args: argparse.Namespace,
    results: list[Result],
    machine: Machine,
    peers: Peers,
    seconds: float,
) -> None:
    """The page and the figures; a folder that cannot be written to is said, and no failure."""
    from tilewright.cli._demo.page import demo_page, environment, figures

    if not results:
        return
    around = environment(machine, peers, shlex.join(["tilewright", *sys.argv[1:]]), seconds)
    if args.html:
        _put(args.html, demo_page(results, machine, peers, around), "The whole story")
    if args.json:
        text = json.dumps(figures(results, machine, peers, around), indent=1) + "\n"
        _put(args.json, text, "Figures")


def _put(path: str, text: str, what: str) -> None:
    try:
        Path(path).write_text(text, encoding="utf-8", errors="replace")
    except OSError as error:
        print(f"tilewright: {path} was not written: {error.strerror}", file=sys.stderr)
    else:
        print(f"{what}: {path}")
