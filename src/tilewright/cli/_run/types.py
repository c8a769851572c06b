"""The types that a model computes in: options, and what they make of it."""

from __future__ import annotations

import argparse
import time
from typing import TYPE_CHECKING

from tilewright.ir.errors import ArgumentError

if TYPE_CHECKING:
    from rich.console import Console

    from tilewright.graph.model import Model


def add_types(parser: argparse.ArgumentParser) -> None:
    """The type of products, and what int8 needs."""
    add = parser.add_argument
    add("--dtype", choices=("float16", "bfloat16", "int8"), help="of products of float32")
    add(
        "--calibration",
        action="append",
        default=[],
        metavar="[NAME:]X",
        help="a sample for int8, as --input; may be repeated",
    )
    add("--budget", type=float, metavar="R", help="relative error up to which int8 goes")
    add("--percentile", type=float, default=100.0, metavar="P", help="of sizes in int8's ranges")


def quantized(model: Model, args: argparse.Namespace, console: Console) -> Model:
    """The model in int8, where that is wanted."""
    from tilewright.cli._run.inputs import arrays
    from tilewright.graph.calibrate import calibrated

    if args.dtype != "int8":
        if args.calibration or args.budget is not None or args.percentile != 100:
            raise ArgumentError("--calibration, --budget and --percentile are for --dtype int8")
        return model
    if not args.calibration:
        raise ArgumentError("--dtype int8 needs samples: --calibration X.npy, once for each")
    seed = getattr(args, "seed", 0)
    samples = [arrays([x], model.inputs, seed, "--calibration") for x in args.calibration]
    begin = time.perf_counter()
    with console.status("measuring the samples, and what may be in int8"):
        known = calibrated(model, samples, args.budget, args.percentile)
    console.print(str(known), markup=False, soft_wrap=True)
    console.print(f"calibrate: {time.perf_counter() - begin:.1f} s", markup=False)
    return model.quantized(known)
