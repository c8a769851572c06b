"""Layers on a CPU: our best layout against the best of PyTorch and ONNX Runtime.

Every layer is computed in NCHW and in NHWC by the kernels that the policy "profile" chooses, having
measured its candidates in the same run, each checked against PyTorch in float64. Both take turns
with PyTorch in NCHW and in `channels_last` and with ONNX Runtime, all in one type and with the same
number of threads, as in `tilewright bench`: before each batch the threads of the others sleep. A
row has the time of our faster layout; the floor is a copy of as many bytes, or as many
multiplications and additions, whichever takes longer.

    PYTHONPATH=src python benchmarks/cpu_layers.py [--threads 1 2] [--large | --dense | --winograd
        | --kind transposed | --kind volumes] [--tried]

Layers are depthwise; with ``--dense`` those of ResNet-50, VGG-16 and ResNeXt-50, with ``--large``
those of large filters, in float32 and in bfloat16, with ``--kind`` transposed ones, or those of
three dimensions. Filters of dense layers, of these and of layers of integers are constants, which
ours and ONNX Runtime pack ahead of all calls, as in a network; PyTorch's functions pack them in
each.

With ``--winograd`` layers are the dense ones of 3x3 and stride 1, a row for each precision, exact
and with Winograd's algorithm allowed, in the same rounds. A kernel may then multiply less than a
sum over taps does, and be faster than the floor; so may one that multiplies tiles of matrices,
where the processor has AMX. With ``--types uint8`` or ``int8`` they are layers of quantised
networks, with bias, scales and ReLU, beside ONNX Runtime's QLinearConv in both layouts.

With ``--policy heuristic`` kernels are those that nobody measured. With ``--cpu-time`` times are
those of the process, on one thread of a machine that others use. ``--tried`` prints what every
candidate took when it was chosen among.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import grouped
import measure

from tilewright.cli._bench.contest import OURS, Contest, Row
from tilewright.cli._bench.view import figures
from tilewright.cli._measure import floors
from tilewright.cli._measure.machine import find
from tilewright.cli._measure.peers import Peers
from tilewright.select import options as options_of
from tilewright.select.profile_cache import ProfileCache
from tilewright.topi.operators.conv import Conv
from tilewright.topi.operators.conv3d import Conv3d
from tilewright.topi.operators.convolution import Convolution
from tilewright.topi.problem import Problem

#: The input, the size of the filters, the stride; padding keeps the size at stride 1.
LAYERS = (
    ("1x256x96x96", 3, 1), ("1x256x96x96", 5, 1), ("1x256x64x64", 3, 1), ("1x256x21x21", 3, 1),
    ("3x4x16x32", 7, 1), ("1x32x112x112", 3, 1), ("1x144x56x56", 3, 1), ("1x144x56x56", 3, 2),
    ("1x384x14x14", 3, 1), ("1x384x14x14", 7, 1), ("1x96x56x56", 7, 1), ("1x384x32x32", 31, 1),
    ("8x384x32x32", 31, 1),
)  # fmt: skip
#: Layers of RepLKNet's filters.
LARGE = (("1x384x32x32", 31, 1), ("8x384x32x32", 31, 1))
#: Dense layers and layers in groups: the input, the channels of the result, groups.
DENSE = (
    ("1x64x56x56", 3, 1, 64, 1), ("1x128x28x28", 3, 1, 128, 1), ("1x256x14x14", 3, 1, 256, 1),
    ("1x512x7x7", 3, 1, 512, 1), ("1x128x56x56", 3, 2, 128, 1), ("1x512x14x14", 3, 2, 512, 1),
    ("1x64x56x56", 1, 1, 256, 1), ("1x256x56x56", 1, 1, 64, 1), ("1x512x28x28", 1, 1, 128, 1),
    ("1x1024x14x14", 1, 1, 256, 1), ("1x512x7x7", 1, 1, 2048, 1), ("1x256x56x56", 1, 2, 512, 1),
    ("1x3x224x224", 7, 2, 64, 1), ("1x64x224x224", 3, 1, 64, 1), ("1x128x112x112", 3, 1, 128, 1),
    ("1x128x56x56", 3, 1, 128, 32), ("1x256x56x56", 3, 2, 256, 32), ("1x256x28x28", 3, 1, 256, 32),
    ("1x512x14x14", 3, 1, 512, 32), ("1x1024x7x7", 3, 1, 1024, 32),
)  # fmt: skip
#: Transposed layers, of decoders and generators, by the image and the filter of the convolution
#: whose gradient they are, as PyTorch has it; and layers in three dimensions, of videos and of
#: volumes.
TRANSPOSED = (
    ("1x64x112x112", "128x64x4x4", 2), ("1x128x56x56", "256x128x4x4", 2),
    ("1x256x28x28", "512x256x4x4", 2), ("1x64x56x56", "128x64x2x2", 2),
    ("1x128x28x28", "256x128x2x2", 2), ("1x64x56x56", "64x64x3x3", 1),
    ("1x64x56x56", "128x64x3x3", 2),
)  # fmt: skip
VOLUMES = (
    ("1x16x16x56x56", "16x16x3x3x3", 1), ("1x64x8x28x28", "64x64x3x3x3", 1),
    ("1x128x8x14x14", "128x128x3x3x3", 1), ("1x64x16x56x56", "128x64x1x1x1", 1),
    ("1x64x8x56x56", "64x64x1x3x3", 1), ("1x64x8x28x28", "64x64x3x1x1", 1),
    ("1x64x16x28x28", "128x64x3x3x3", 2),
)  # fmt: skip
LAYOUTS = ("NCHW", "NHWC")
PEERS = ("PyTorch", "PyTorch channels_last", "ONNX Runtime", "ONNX Runtime channels_last")
#: What follows a layer of a quantised network, by its type: results saturate at zero.
QUANTIZED = {
    "uint8": "bias+dequantize+relu+quantize(0.5)",
    "int8": "bias+dequantize+relu+quantize(0.5,-128)",
}


def problems(
    shape: str,
    k: int,
    stride: int,
    dtype: str = "float32",
    filters: int = 0,
    groups: int = 0,
    **more: Any,
) -> list[Conv]:
    """A layer in every layout; depthwise unless it says how many ``filters`` it has; ``more`` are
    other fields."""
    channels = int(shape.split("x")[1])
    groups = groups or channels
    filter = f"{filters or channels}x{channels // groups}x{k}x{k}"
    return [
        Conv.parse(
            shape,
            filter,
            groups,
            stride=stride,
            padding=k // 2,
            layout=layout,
            dtype=dtype,
            epilogue=QUANTIZED.get(dtype, ""),
            **more,
        )
        for layout in LAYOUTS
    ]


def others(kind: str) -> list[tuple[str, list[Convolution]]]:
    """The layers that are "transposed" or "volumes", each with its name and in every layout."""
    made: list[tuple[str, list[Convolution]]] = []
    for shape, filter, stride in VOLUMES if kind == "volumes" else TRANSPOSED:
        taps = list(map(int, filter.split("x")[2:]))
        padding = [(k - 1) // 2 for k in taps]
        more: dict[str, Any] = {"constants": ("filter",), "stride": stride, "padding": padding}
        if kind == "volumes":
            problem: list[Convolution] = [
                Conv3d.parse(shape, filter, 1, layout=x, **more) for x in ("NCDHW", "NDHWC")
            ]
        else:
            problem = [
                Conv.parse(shape, filter, 1, layout=x, pass_="dgrad", **more) for x in LAYOUTS
            ]
        made.append((f"{shape} K{taps[-1]} s{stride}", problem))
    return made


def found(
    types: list[str], layers: tuple[Any, ...], fields: list[dict[str, Any]], kind: str | None
) -> Iterator[tuple[str, tuple[str, list[Convolution]]]]:
    """By type, the layers' names and their problems."""
    for dtype in types:
        if kind:
            yield from ((dtype, layer) for layer in others(kind))
            continue
        for shape, k, stride, *filters in layers:
            every = [problems(shape, k, stride, dtype, *filters, **x) for x in fields]
            yield dtype, (f"{shape} K{k} s{stride}", [p for ps in every for p in ps])


def line(rows: list[Row]) -> dict[str, Any]:
    """The figures of a layer: those of our faster layout, and how far the other one is behind.

    Raises :class:`AssertionError` where a layout has no kernel, or one that is wrong.
    """
    if failures := [f"{row.problem}: {row.failure}" for row in rows if row.failure]:
        raise AssertionError("; ".join(failures))
    best, *others = sorted(rows, key=lambda row: row.median(OURS) or 0.0)
    (found,) = figures([best], {}, {}, [])["rows"]
    behind = max(
        ((r.median(OURS) or 0.0) / (best.median(OURS) or 1.0) for r in others), default=1.0
    )
    return dict(found) | {"best peer": best.best_peer or "", "other layout / ours": behind}


def tried(problem: Problem, contest: Contest) -> list[str]:
    """A line for every candidate that was measured, the fastest first."""
    target, found = contest.machine.target, []
    for choice in options_of(problem, target, contest.policy, cache=contest.cache):
        if choice.seconds is None:
            break
        values = choice.algorithm.to_values(choice.config)
        words = ", ".join(f"{k} {v}" for k, v in values.items())
        found.append(f"{choice.seconds * 1e6:10.0f} us  {choice.algorithm.name} {words}")
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--seconds", type=float, default=5.0, help="of a layer, about (5)")
    parser.add_argument("--rounds", type=int, default=30, help="of a layer, at most (30)")
    parser.add_argument("--only", default="", help="layers that contain this: 1x384, K31")
    parser.add_argument("--large", action="store_true", help="layers of large filters")
    parser.add_argument("--dense", action="store_true", help="layers that are not depthwise")
    parser.add_argument("--kind", choices=["transposed", "volumes"], help="of layers, not these")
    parser.add_argument("--winograd", action="store_true", help="3x3 layers, Winograd's allowed")
    parser.add_argument("--policy", default="profile", help="how kernels are chosen (profile)")
    parser.add_argument("--tried", action="store_true", help="print what candidates took")
    parser.add_argument("--cpu-time", action="store_true", help="of the process, for one thread")
    parser.add_argument("--types", nargs="+", help="of the data (float32, and bfloat16 if --large)")
    parser.add_argument("--out", default="benchmarks/results")
    options = parser.parse_args()
    layers: tuple[Any, ...] = LARGE if options.large else DENSE if options.dense else LAYERS
    fields: list[dict[str, Any]] = [{}]
    if options.winograd:
        layers = tuple(x for x in DENSE if (x[1], x[2], x[4]) == (3, 1, 1))
        fields = [{"precision": x, "constants": ("filter",)} for x in ("exact", "winograd")]
    elif options.dense or options.types:
        fields = [{"constants": ("filter",)}]
    types = options.types or (["float32", "bfloat16"] if options.large else ["float32"])
    lines, unsteady, hints = [], [], []
    for threads in options.threads:
        machine = find("llvm", threads)
        if options.cpu_time:
            machine.clock = time.process_time
        peers = Peers(machine, PEERS)
        roofs = {dtype: floors.roof(machine, dtype) for dtype in types}
        with TemporaryDirectory() as folder:
            fresh = ProfileCache(Path(folder) / "select.sqlite")  # of the present kernels
            contest = Contest(
                machine, peers, options.policy, roofs, options.rounds, options.seconds, fresh
            )
            for dtype, (name, every) in found(types, layers, fields, options.kind):
                if options.only not in name:
                    continue
                section = f"{threads} thread{'s' * (threads > 1)}"
                section += f", {dtype}" if len(types) > 1 else ""
                rows = contest.together(every, section)
                for first in range(0, len(rows), len(LAYOUTS)):
                    lines.append(line(rows[first : first + len(LAYOUTS)]))
                    ours, ratio = lines[-1]["tilewright us"], lines[-1]["best peer / tilewright"]
                    print(
                        f"{lines[-1]['name']}, {threads}: {ours:.0f} us, {ratio:.2f}x", flush=True
                    )
                if any(row.unsteady for row in rows):
                    unsteady.append(f"{name} {dtype}, {threads} threads")
                for row in rows if options.tried else ():
                    assert isinstance(row.problem, Convolution)
                    print(row.problem.layout, *tried(row.problem, contest), sep="\n", flush=True)
        hints += [hint for hint in peers.hints if hint not in hints]
    print(grouped.text(lines))
    hints += [f"Times varied much between rounds: {', '.join(unsteady)}."] if unsteady else []
    print(*hints)
    kind = "large_" if options.large else "dense_" if options.dense else ""
    kind = "winograd_" if options.winograd else f"{options.kind}_" if options.kind else kind
    results = {
        "environment": measure.environment("torch", "onnxruntime", "llvmlite", gpu=False),
        "hints": hints,
        "rows": lines,
    }
    print(measure.save(f"cpu_{kind}layers", results, options.out))


if __name__ == "__main__":
    main()
