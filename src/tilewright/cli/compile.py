"""Write an ONNX model as sources that need nothing of Tilewright's

  tilewright compile m.onnx --input 8x3x224x224 -o net && make -C net
  net/net net/net.weights x.raw y.raw

The folder has the kernels, functions that create and run the model, their header, the weights, a
program that runs it on raw files, and a Makefile: in C for a CPU; in C with kernels in CUDA C++ and
as machine code for --target "cuda -arch=sm_90a", or in OpenCL C for --target opencl. Shapes are
those of the inputs, given as `tilewright run` takes them; what is not given has 1 for each open
dimension. With --batch 1 8 64 it is one program for these batches, which share the weights. For
--dtype int8, --calibration X.npy gives a sample, once for each, as for `tilewright run`. A
terminal shows how many kernels are compiled; elsewhere TILEWRIGHT_PROGRESS=1 prints lines.
"""

from __future__ import annotations

import argparse
import shlex
from pathlib import Path

from tilewright.cli._run.types import add_types, quantized
from tilewright.ir.errors import ArgumentError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The model, the shapes of its inputs, and where it goes."""
    add = parser.add_argument
    add("model", metavar="MODEL", help="an ONNX file, or what `tilewright run --save` wrote")
    add("-o", "--output", metavar="DIR", help="the folder, which is made")
    add(
        "--input", action="append", default=[], metavar="[NAME:]X",
        help=".npy, .npz, a literal or a shape; may be repeated, or given with semicolons",
    )  # fmt: skip
    add(
        "--target",
        metavar="TARGET",
        help='as "llvm -mcpu=avx2", "cuda -arch=sm_80", opencl; by default this CPU',
    )
    add(
        "--batch", type=int, nargs="+", default=[], metavar="N",
        help="one program for several batches, which its functions take: --batch 1 8 64",
    )  # fmt: skip
    add_types(parser)
    add("--threads", type=int, metavar="N", help="for which schedules are chosen; by default all")
    add(
        "--problems", metavar="FILE",
        help="write what its kernels compute, for `tilewright tune --problems FILE`; without -o "
        "nothing else",
    )  # fmt: skip
    add("--name", metavar="NAME", help="of the function; by default the folder's")


def run(args: argparse.Namespace) -> int:
    """Write it; raises :class:`ModelError` for a model that has no such form."""
    from rich.console import Console

    import tilewright
    from tilewright.cli._devices import with_threads
    from tilewright.cli._problems import write_problems
    from tilewright.cli._run.inputs import arrays
    from tilewright.graph.model import Model

    usual = args.target is None and args.threads is None  # a saved model has its own
    target = None if usual else with_threads(args.target or "llvm", args.threads)
    kind = None if args.dtype == "int8" else args.dtype
    model = tilewright.load(args.model, target=target, dtype=kind)
    if not isinstance(model, Model):
        raise ArgumentError(f"{args.model} is a kernel: kernel.export writes it")
    inputs = arrays(args.input, model.inputs, 0, told=print)
    model = quantized(model, args, Console(highlight=False))
    if args.problems:
        write_problems(Path(args.problems), model.problems(inputs, args.batch))
        if not args.output:
            return 0
    if not args.output:
        raise ArgumentError("name a folder for the sources, as in -o net")
    folder = Path(args.output)
    files = model.export(inputs, folder, args.name, batches=args.batch)
    made = shlex.quote(args.output)
    print(f"{files[0]} and {len(files) - 1} files beside it: make -C {made}")
    return 0
