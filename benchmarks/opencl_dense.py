"""Dense convolutions on an OpenCL device: spatial packing beside im2col and a product of matrices.

The nine 3x3 layers of VGG-16, which article 004 measures, batch 1, channels first. Of each variant
the ``--tried`` tiles that are guessed to be fastest are built; the fastest of them takes turns with
those of the others and with CLBlast's convolution (``CLBlastSconvgemm``), where ``libclblast`` is
there. Times are those of the device, from the events of all kernels of a call, packing and im2col
included: medians of interleaved calls. Of every result 64 elements are compared with sums in
float64.

    PYTHONPATH=src python benchmarks/opencl_dense.py [--device NAME] [--tried 4] [--out FOLDER]

On an NVIDIA GPU, whose driver brings OpenCL, name its library in an ICD file first; a few seconds:

    mkdir -p /tmp/icd && echo libnvidia-opencl.so.1 > /tmp/icd/nvidia.icd
    OCL_ICD_VENDORS=/tmp/icd PYTHONPATH=src python benchmarks/opencl_dense.py --device NVIDIA

CLBlast is Debian's ``libclblast1``, or a file that ``--clblast`` names.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import ctypes.util
import statistics
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import measure
import numpy as np

import tilewright
from tilewright.ir.errors import TilewrightError
from tilewright.report.results import geometric_mean
from tilewright.runtime import array
from tilewright.runtime.opencl_device import Device, device, devices, load_opencl
from tilewright.topi import Conv
from tilewright.topi.templates import TEMPLATES

#: Channels of x and of y, height and width.
LAYERS = (
    (3, 64, 224), (64, 64, 224), (64, 128, 112), (128, 128, 112), (128, 256, 56), (256, 256, 56),
    (256, 512, 28), (512, 512, 28), (512, 512, 14),
)  # fmt: skip
#: What takes turns: templates, and which of their tiles.
VARIANTS: dict[str, tuple[str, Callable[[Any], bool]]] = {
    "packing": ("opencl.packing", lambda tile: True),
    "im2col": ("opencl.products", lambda tile: not tile.implicit),
    "shared": ("gpu.products", lambda tile: True),
}
PACKING, GEMM, CLBLAST = "packing", "im2col", "CLBlast"
#: Rounds in which tiles are compared, elements that are checked, and the error that they may have.
_SOME, _CHECKED = 3, 64
_ERROR = {"float32": 1e-4, "float16": 2e-2}
#: CLBlastKernelModeCrossCorrelation of clblast_c.h.
_CROSS_CORRELATION = 151


def layer(channels: int, filters: int, size: int, dtype: str) -> Conv:
    shape, filter = (1, channels, size, size), (filters, channels, 3, 3)
    return Conv.parse(shape, filter, 1, padding=1, dtype=dtype)


class Clock:
    """Times of the device: what ran between the first and the last event of a call."""

    def __init__(self, place: Device) -> None:
        self.cl = load_opencl()
        profiling = self.cl.command_queue_properties.PROFILING_ENABLE
        self.queue = self.cl.CommandQueue(place.context, place.handle, properties=profiling)

    def kernels(self, call: Callable[[], Any]) -> float:
        """Microseconds in the kernels that a call of ours launches, one after another."""
        with self._recorded() as events:
            call()
        self.queue.finish()
        return float(sum(e.profile.end - e.profile.start for e in events) / 1e3)

    def markers(self, call: Callable[[], Any]) -> float:
        """Microseconds between markers around what a call puts into the queue."""
        first = self.cl.enqueue_marker(self.queue)
        call()
        last = self.cl.enqueue_marker(self.queue)
        self.queue.finish()
        return float(last.profile.end - first.profile.end) / 1e3

    @contextlib.contextmanager
    def _recorded(self) -> Iterator[list[Any]]:
        events, launch = [], self.cl.enqueue_nd_range_kernel

        def recorded(*args: Any) -> Any:
            events.append(launch(*args))
            return events[-1]

        self.cl.enqueue_nd_range_kernel = recorded
        try:
            yield events
        finally:
            self.cl.enqueue_nd_range_kernel = launch


class Operands:
    """Arrays of a problem on a device."""

    def __init__(self, p: Conv, index: int) -> None:
        rng, self.p, where = np.random.default_rng(0), p, f"opencl:{index}"
        scale = (p.channels * 9) ** -0.5
        self.x, self.w = (
            (rng.standard_normal(t.shape, "float32") * s).astype(p.dtype)
            for t, s in zip(p.inputs().values(), (1.0, scale), strict=True)
        )
        unknown = np.full(p.result.shape, np.nan, p.dtype)
        self.given = [array(a, where) for a in (self.x, self.w)]
        self.result, self.fresh = array(unknown, where), partial(array, unknown, where)

    def check(self, what: str) -> None:
        """Compare some elements, those of corners among them, and forget all."""
        p, rng = self.p, np.random.default_rng(1)
        found = self.result.numpy().astype("float64")
        padded = np.pad(self.x[0].astype("float64"), ((0, 0), (1, 1), (1, 1)))
        for k in range(_CHECKED):
            c, y, x = (int(rng.integers(e)) for e in p.result.shape[1:])
            y, x = ((0, 0), (p.height - 1, p.width - 1))[k] if k < 2 else (y, x)
            exact = float((padded[:, y : y + 3, x : x + 3] * self.w[c]).sum())
            if not abs(found[0, c, y, x] - exact) < _ERROR[p.dtype]:
                raise SystemExit(f"{p} {what}: {found[0, c, y, x]} at {(c, y, x)} is not {exact}")
        self.result = self.fresh()


def built(p: Conv, place: Device, variant: str, tried: int) -> dict[str, Any]:
    """Kernels of the first tiles of a variant, by what they are called; what is refused is said."""
    name, wanted = VARIANTS[variant]
    target = tilewright.Target.parse(f"opencl -device={place.name!r}")
    template = TEMPLATES[name]
    if not template.fits(p, target):
        return {}
    tiles = [t for t in template.candidates(p, target) if wanted(t)][:tried]

    def build(tile: Any) -> Any:
        declared = template.declare(p, tile)
        try:
            return tilewright.build(template.schedule(declared, tile), declared.args, target)
        except TilewrightError as error:
            print(f"{p} {name} {tile}: {str(error).splitlines()[0]}", file=sys.stderr)
            return None

    with ThreadPoolExecutor(4) as pool:
        kernels = list(pool.map(build, tiles))
    pairs = zip(tiles, kernels, strict=True)
    return {f"{name} {tile}": kernel for tile, kernel in pairs if kernel is not None}


def clblast(path: str) -> Any:
    """The library, or None where there is none."""
    found = path or ctypes.util.find_library("clblast") or "libclblast.so.1"
    try:
        library = ctypes.CDLL(found)
    except OSError as error:
        print(f"without CLBlast: {error}", file=sys.stderr)
        return None
    size, pointer = ctypes.c_size_t, ctypes.c_void_p
    pairs: list[Any] = [pointer, size] * 3
    library.CLBlastSconvgemm.argtypes = [ctypes.c_int, *[size] * 13, *pairs, pointer, pointer]
    return library


def theirs(library: Any, given: Operands, queue: Any) -> None:
    """CLBlast's convolution."""
    p, waiting = given.p, ctypes.c_void_p(queue.int_ptr)
    numbers = (p.channels, p.height, p.width, 3, 3, 1, 1, 1, 1, 1, 1, p.out_channels, 1)
    memories = [v for a in (*given.given, given.result) for v in (a._memory.buffer.int_ptr, 0)]
    status = library.CLBlastSconvgemm(
        _CROSS_CORRELATION, *numbers, *memories, ctypes.byref(waiting), None
    )
    if status:
        raise SystemExit(f"CLBlastSconvgemm of {p}: status {status}")


def row(p: Conv, place: Device, args: argparse.Namespace, library: Any) -> dict[str, Any]:
    """What a layer takes, in microseconds, by variant."""
    given, clock = Operands(p, devices().index(place)), Clock(place)
    calls: dict[str, Callable[[], float]] = {}
    chosen: dict[str, str] = {}
    for variant in VARIANTS:
        found: dict[str, float] = {}
        timed: dict[str, Callable[[], float]] = {}
        for name, kernel in built(p, place, variant, args.tried).items():
            call = partial(_launch, kernel, given, clock.queue)
            timed[name] = partial(clock.kernels, call)
            timed[name]()
            given.check(name)
        times: dict[str, list[float]] = {name: [] for name in timed}
        for _ in range(_SOME):
            for name, time in timed.items():
                times[name].append(time())
        found = {name: statistics.median(values) for name, values in times.items()}
        if found:
            chosen[variant] = min(found, key=lambda name: found[name])
            calls[variant] = timed[chosen[variant]]
    if library is not None and p.dtype == "float32":
        call = partial(theirs, library, given, clock.queue)
        call()
        clock.queue.finish()
        given.check(CLBLAST)
        calls[CLBLAST] = partial(clock.markers, call)
    turns: dict[str, list[float]] = {variant: [] for variant in calls}
    for _ in range(args.rounds):
        for variant, time in calls.items():
            turns[variant].append(time())
    medians = {variant: statistics.median(values) for variant, values in turns.items()}
    ratios = {f"{variant}/{PACKING}": medians[variant] / medians[PACKING] for variant in medians}
    del ratios[f"{PACKING}/{PACKING}"]
    rate = p.nominal_flops / medians[PACKING] / 1e3
    return {"layer": p.short, **medians, "GFLOP/s": rate, **ratios, "tiles": chosen}


def _launch(kernel: Any, given: Operands, queue: Any) -> None:
    kernel(*given.given, given.result, stream=queue)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--device", default="", help="part of its name; the first one by default")
    parser.add_argument("--dtype", default="float32", choices=sorted(_ERROR))
    parser.add_argument("--tried", type=int, default=4, help="tiles of each variant")
    parser.add_argument("--rounds", type=int, default=11, help="turns of each variant")
    parser.add_argument("--layers", type=int, nargs="*", help="some, by their position from 0 on")
    parser.add_argument("--clblast", default="", help="the file of the library")
    parser.add_argument("--name", default="opencl_dense", help="of the result's file")
    parser.add_argument("--out", help="the folder of the result's file")
    args = parser.parse_args()
    place = device(args.device)
    if place.host:
        _name_processor(place)
    if args.dtype == "float16" and not place.half:
        raise SystemExit(f"{place.name} does not compute in float16 (cl_khr_fp16)")
    library = clblast(args.clblast)
    rows = []
    for k, shape in enumerate(LAYERS):
        if args.layers is None or k in args.layers:
            rows.append(row(layer(*shape, args.dtype), place, args, library))
            print(measure.table([{k: v for k, v in rows[-1].items() if k != "tiles"}]), flush=True)
    names = [key for key in rows[0] if "/" in key and key != "GFLOP/s"]
    means = {key: geometric_mean([r[key] for r in rows if key in r]) for key in names}
    print("geometric means: " + ", ".join(f"{key} {value:.2f}" for key, value in means.items()))
    if args.out:
        found = measure.environment("pyopencl", gpu=False)
        driver = f"{place.handle.platform.name} {place.handle.driver_version}"
        found |= {"device": place.name, "driver": driver}
        result = {"environment": found, "layers": rows, "geometric means": means}
        print(measure.save(args.name, result, args.out))


def _name_processor(place: Device) -> None:
    """Of PoCL's wheel, which knows no processor that is younger than itself."""
    sys.path.append(str(Path(__file__).parents[1]))
    from tests.support.pocl import name_processor

    name_processor(place.handle)


if __name__ == "__main__":
    main()
