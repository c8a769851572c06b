"""MegEngine's table of large depthwise convolutions again: 24 layers beside PyTorch's.

Batch 64, 384 channels, images of 16, 32 and 64 square, filters of 3 to 31 rows, in float32 at its
own accuracy and in float16: the forward pass, and the forward pass with both gradients. One layer
is measured and its time taken 24 times; the layers of a stack do not overlap. Ours is the fastest
of some kernels for each pass, checked against PyTorch in float64; they take turns with PyTorch in
both layouts, cuDNN's search switched on and TF32 off: medians of CUDA-graph replays, inputs rotated
past the cache where they are over 8 MB.

"MegEngine ms" and "its PyTorch ms" are the forward passes in float32 of RepLKNet's table 1 (Ding et
al., arXiv 2203.06717), on an RTX 2080 Ti beside PyTorch 1.9 with cuDNN 7.6: compare the factors.

    PYTHONPATH=src python benchmarks/megengine_table.py --gpus 4
"""

from __future__ import annotations

import argparse
import functools
import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import grouped
import large_kernels
import measure
from gpu_layers import PASSES, layer
from parts import run_on_gpus
from problem_parts import Named, first_choices, results, run_part

import tilewright
from tilewright.topi.operators.conv import Conv
from tilewright.topi.problem import Problem
from tilewright.topi.templates import TEMPLATES

LAYERS, CHANNELS = 24, 384
IMAGES, KERNELS, TYPES = (16, 32, 64), tuple(range(3, 32, 2)), ("float32", "float16")
#: Milliseconds of 24 forward passes by image and filter: PyTorch's and MegEngine's.
MEGENGINE = {
    16: {3: (5.6, 5.6), 5: (11.0, 6.5), 7: (14.4, 6.4), 9: (17.6, 6.9), 13: (36.0, 7.5),
         17: (57.2, 8.4), 21: (83.4, 8.4), 27: (133.5, 8.4), 29: (150.7, 8.3), 31: (171.4, 8.4)},
    32: {3: (21.9, 21.9), 5: (34.1, 28.7), 7: (54.8, 34.6), 9: (76.1, 40.6), 13: (141.2, 52.5),
         17: (230.5, 64.5), 21: (342.3, 73.9), 27: (557.8, 87.9), 29: (638.6, 92.7),
         31: (734.8, 96.7)},
    64: {3: (69.6, 69.6), 5: (141.2, 112.6), 7: (228.6, 130.7), 9: (319.8, 152.6),
         13: (600.0, 199.7), 17: (977.7, 251.5), 21: (1454.4, 301.0), 27: (2371.1, 378.2),
         29: (2698.4, 406.0), 31: (3090.4, 431.7)},
}  # fmt: skip
#: Of the heuristic's choices, how many are tried; of every other template for tensor cores, the
#: first.
_CHOSEN = 3
#: Rounds, and seconds a problem, about; PyTorch's slowest take five rounds whatever it costs.
_ROUNDS, _SECONDS = 7, 0.15
#: In the order of the page.
_SECTIONS = [
    f"{image} square, {dtype}, {heading}"
    for heading in ("forward", "forward and backward")
    for dtype in TYPES
    for image in IMAGES
]


def problems(arguments: argparse.Namespace) -> Iterator[tuple[str, Conv]]:
    """Every pass of every layer with the section that it belongs to."""
    every = itertools.product(TYPES, arguments.images, arguments.kernels, PASSES)
    for dtype, image, kernel, pass_ in every:
        p = layer(
            arguments.channels, image, kernel, batch=arguments.batch, dtype=dtype, pass_=pass_
        )
        if arguments.only in f"{image} square, {dtype} {p}":
            yield f"{image} square, {dtype}", p


def tried(p: Conv, target: str) -> list[Named]:
    """Templates with parameters."""
    machine = tilewright.Target.parse(target)
    found = first_choices(p, target, _CHOSEN)
    names = {name for name, _ in found}
    for name, template in TEMPLATES.items():
        special = template.arch or template.least
        if special and name not in names and template.fits(p, machine):
            found += [(name, vars(c)) for c in template.candidates(p, machine)[:1]]
    return found


def stacks(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """A row for each stack of layers: the forward pass, and all passes together.

    A stack with a pass that could not be measured has none.
    """
    passes: dict[tuple[str, int], dict[str, dict[str, Any]]] = {}
    for row in rows:
        passes.setdefault((row["section"], row["kernel"]), {})[row["pass"]] = row
    found = []
    for kinds, heading in ((PASSES[:1], "forward"), (PASSES, "forward and backward")):
        for (section, kernel), by_pass in passes.items():
            if not by_pass.keys() >= set(kinds):
                continue
            ours, nchw, nhwc = (
                sum(LAYERS * by_pass[kind][f"{who} us"] / 1e3 for kind in kinds)
                for who in ("tilewright", "PyTorch NCHW", "PyTorch NHWC")
            )
            line = {
                "section": f"{section}, {heading}", "kernel": kernel, "tilewright ms": ours,
                "PyTorch NCHW ms": nchw, "PyTorch NHWC ms": nhwc, "NCHW / tilewright": nchw / ours,
                "best peer / tilewright": min(nchw, nhwc) / ours,
            }  # fmt: skip
            image, _, dtype = section.partition(" square, ")
            known = MEGENGINE.get(int(image), {}).get(kernel)
            if known and kinds == PASSES[:1] and dtype == "float32":
                theirs, megengine = known
                line |= {
                    "its PyTorch ms": theirs, "MegEngine ms": megengine,
                    "its PyTorch / MegEngine": theirs / megengine,
                }  # fmt: skip
            found.append(line)
    return sorted(found, key=lambda line: _SECTIONS.index(line["section"]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--gpus", type=int, default=1, help="GPUs of this machine to use")
    parser.add_argument("--images", type=int, nargs="+", default=IMAGES, choices=IMAGES)
    parser.add_argument("--kernels", type=int, nargs="+", default=KERNELS)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--channels", type=int, default=CHANNELS)
    parser.add_argument("--only", default="", help="sections and problems that contain this")
    parser.add_argument("--name", default="h200_megengine_table", help="of the results")
    parser.add_argument("--out", default="benchmarks/results")
    parser.add_argument("--target", default="cuda -arch=sm_90a", help="or llvm, to try it out")
    parser.add_argument("--part", type=int, default=-1, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    Path(arguments.out).mkdir(parents=True, exist_ok=True)
    wanted = list(problems(arguments))
    if arguments.part >= 0:
        device = "cpu" if arguments.target.startswith("llvm") else "cuda"
        row = functools.partial(
            large_kernels.time_problem, device=device, rounds=_ROUNDS, limit=_SECONDS
        )
        run_part(arguments, arguments.target, wanted, row, large_kernels.says, tried)
        return
    parts = run_on_gpus(arguments.gpus, arguments.out)
    order = {str(p): k for k, (_, p) in enumerate(wanted)}
    made = results(arguments, parts, lambda row: order[str(Problem.from_dict(row["problem"]))])
    measured, made["rows"] = made["rows"], stacks(made["rows"])
    settings = {key: getattr(arguments, key) for key in ("batch", "channels")}
    print(grouped.text(made["rows"]))
    print(measure.save(arguments.name, made | {"layers": LAYERS, **settings}, arguments.out))
    if len(measured) < len(wanted):
        raise SystemExit(f"{len(wanted) - len(measured)} problems failed, see above")


if __name__ == "__main__":
    main()
