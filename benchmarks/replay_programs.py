"""The programs that ``replay.py`` lowers, under names that stay the same between versions."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from functools import cache, partial
from pathlib import Path
from typing import Any

import cpu_layers
import gpu_layers
import large_kernels
from latency_programs import TENSOR_CORES, programs

from tilewright import te, tvm
from tilewright.target import Target
from tilewright.topi import Attention, Conv, Gemm, Mlp
from tilewright.topi.epilogue import Step, parse_epilogue
from tilewright.topi.operators import ConvProgram, Program
from tilewright.topi.operators.conv_program import max_pool
from tilewright.topi.problem import Problem
from tilewright.topi.template import DEPTHWISE
from tilewright.topi.templates import TEMPLATES
from tilewright.tune.article_003 import NAME as ARTICLE_003
from tilewright.tune.article_003 import SHAPE as ARTICLE_003_SHAPE
from tilewright.tune.task import create
from tilewright.tune.tuned import FOLDER, read

#: Makes a schedule and the arguments of its kernel.
Make = Callable[[], tuple[Any, list[Any]]]
#: Where a program is lowered for, and how it is made.
Case = tuple[str, Make]

#: Fixed architectures and numbers of threads, so that hashes do not depend on the machine. No
#: OpenCL device is named "any": code is for one of which nothing is known.
HOPPER, AMPERE = "cuda -arch=sm_90a", "cuda -arch=sm_80"
OPENCL = "opencl -device=any"
CPUS = tuple(f"llvm -arch={arch} -threads=4" for arch in ("avx2", "avx512", "amx"))
#: Where the folder of the tests is, which complete the articles' code blocks.
_TESTS = Path(__file__).parents[1]


@cache
def cases() -> dict[str, Case]:
    """Every program by its name."""
    found: dict[str, Case] = {}
    for part in (records, articles, latency, templates):
        for name, case in part():
            assert name not in found, f"two programs are called {name}"
            found[name] = case
    return found


def scheduled(p: Problem, template: str, values: dict[str, int]) -> tuple[Any, list[Any]]:
    """A problem under a template with parameters."""
    chosen = TEMPLATES[template]
    config = chosen.parse(values)
    declaration = chosen.declare(p, config)
    return chosen.schedule(declaration, config), declaration.args


def records() -> Iterator[tuple[str, Case]]:
    """The fastest schedule of every problem in the files that the package brings."""
    for path in sorted(FOLDER.glob("*.jsonl")):
        for tuned in read(path):
            best = tuned.best[0]
            make = partial(scheduled, tuned.problem, best.template, dict(best.values))
            yield f"record: {tuned.device}: {tuned.problem.key}", (tuned.target, make)


def articles() -> Iterator[tuple[str, Case]]:
    """The articles' programs as the tests complete them, and corners of article 003's space."""
    if str(_TESTS) not in sys.path:
        sys.path.append(str(_TESTS))
    from tests.correctness import test_article_000 as a000
    from tests.correctness import test_article_003 as a003
    from tests.correctness import test_article_004 as a004

    def named(make: Callable[[], dict[str, Any]], module: Any) -> tuple[Any, list[Any]]:
        names = make()
        return names["s"], module.arguments(names)

    def of_000(schedule: str, shape: tuple[int, ...]) -> dict[str, Any]:
        if schedule == "fused":
            return dict(a000.fused(shape, a000.VTHREAD))
        names = a000.declared(shape)
        if schedule == "declaration":
            a000.ARTICLE.run("inline", names)
        else:
            a000.SCHEDULES[schedule](names)
        return dict(names)

    def of_003(version: str, shape: tuple[int, ...]) -> tuple[Any, list[Any]]:
        names: dict[str, Any] = {"te": te, "tvm": tvm}
        for label in a003.VERSIONS:
            a003.ARTICLE.run(label, names)
        if version == "declaration":
            s, *args, padded = names["base_declaration"](*shape)
            s[padded].compute_inline()
        else:
            s, *args = a003.scheduled(names, version, shape)
        return s, args

    def corner(index: int) -> tuple[Any, list[Any]]:
        task = create(ARTICLE_003, ARTICLE_003_SHAPE, HOPPER)
        point = [(index >> k & 1) * (dim - 1) for k, dim in enumerate(task.config_space.dims)]
        s, args = task.instantiate(task.config_space.get(task.config_space.index(point)))
        return s, list(args)

    made: dict[str, Make] = {}
    for shape in ((1, 256, 96, 96, 3, 1, 1), (1, 1, 33, 40, 3, 1, 1), (1, 2, 11, 10, 3, 2, 2)):
        for schedule in ("declaration", *a000.SCHEDULES, "fused"):
            make = partial(named, partial(of_000, schedule, shape), a000)
            made[f"000: {schedule}: {_by(shape)}"] = make
    for small in ((3, 4, 16, 32, 7), (2, 3, 17, 31, 5)):
        for version in ("declaration", *a003.VERSIONS):
            made[f"003: {version}: {_by(small)}"] = partial(of_003, version, small)
    for layer in (a004.VGG, (2, 8, 20)):
        made[f"004: declaration: {_by(layer)}"] = partial(
            named, partial(a004.declared, layer), a004
        )
        for label in a004.KERNELS:
            make = partial(named, partial(a004.scheduled, label, layer), a004)
            made[f"004: {label}: {_by(layer)}"] = make
    for name, case in made.items():
        for target in (CPUS[0],) if "declaration" in name else (HOPPER, OPENCL):
            yield f"article {name}: {target}", (target, case)
    for index in range(0, 128, 3):
        yield f"article 003: corner {index}: {HOPPER}", (HOPPER, partial(corner, index))


def _by(numbers: tuple[int, ...]) -> str:
    return "x".join(map(str, numbers))


def latency() -> Iterator[tuple[str, Case]]:
    """The programs whose compilation is timed."""
    for target in (HOPPER, AMPERE, CPUS[1]):
        for name, make in programs(target).items():
            if target != AMPERE or name not in TENSOR_CORES:
                yield f"latency: {name}: {target}", (target, make)


def templates() -> Iterator[tuple[str, Case]]:
    """For each template and target, the first parameters for the first layers of the benchmarks
    that it is for, one of each pass, width of type and kind of filter."""
    for text in (HOPPER, AMPERE, OPENCL, *CPUS):
        target, seen = Target.parse(text), set[tuple[Any, ...]]()
        for p in (*_layers(), *_dense(), *_programs(), *_attention()):
            kernel, stride = (p.kernel_h, p.stride) if isinstance(p, Conv) else (1, 1)
            size = (kernel > 5) + (kernel > 13)
            for template in TEMPLATES.values():
                wide = p.dtype == "float32"
                kind: tuple[Any, ...] = (template.name, p.pass_, wide, size, stride)
                kind = (*kind, bool(p.epilogue))
                if p.operator not in DEPTHWISE:
                    kind = (*kind, p.operator, p.channels_last)
                if kind in seen or not template.fits(p, target):
                    continue
                seen.add(kind)
                make = partial(_first, template.name, p, text)
                yield f"template: {template.name}: {p.key}: {text}", (text, make)


def _first(template: str, p: Problem, target: str) -> tuple[Any, list[Any]]:
    config = TEMPLATES[template].candidates(p, Target.parse(target))[0]
    return scheduled(p, template, dict(vars(config)))


@cache
def _layers() -> tuple[Conv, ...]:
    """Layers of the benchmarks, in bfloat16 last, and some fused and dilated ones."""
    found = [p for _, p in gpu_layers.sections()]
    found += [p for _, p in large_kernels.sections()]
    for shape, k, stride in cpu_layers.LAYERS:
        for p in cpu_layers.problems(shape, k, stride):
            found += [p, p.replace(pass_="dgrad"), p.replace(pass_="wgrad")]
    for layout in gpu_layers.LAYOUTS:
        p = gpu_layers.layer(96, 56, 7, batch=8, layout=layout)
        found.append(p.replace(epilogue="scale_shift+relu"))
        found.append(p.replace(dtype="float16", epilogue="scale_shift+relu"))
        found.append(p.replace(dilation=2, padding=6, multiplier=2))
    found += [p.replace(dtype="bfloat16") for p in found if p.dtype == "float32"]
    return tuple(sorted(dict.fromkeys(found), key=lambda p: p.dtype == "bfloat16"))


def _attention() -> Iterator[Problem]:
    for dtype in ("float32", "float16"):
        yield Attention(batch=4, heads=3, rows=197, keys=197, depth=64, dtype=dtype, layout="BS3HD")


def _dense() -> Iterator[Problem]:
    """Convolutions of ResNet-50 and of ResNeXt, and products of matrices, in all passes; some of
    few results, few channels and bytes, also of each channel alone and in blocks."""
    for dtype in ("float32", "float16"):
        for pass_ in ("forward", "dgrad", "wgrad"):
            for layout in gpu_layers.LAYOUTS:
                more = {"dtype": dtype, "pass_": pass_, "layout": layout}
                yield Conv.parse("8x64x56x56", "64x64x3x3", 1, padding=1, **more)
                yield Conv.parse("8x128x56x56", "128x4x3x3", 32, padding=1, stride=2, **more)
            yield Gemm(m=512, n=384, k=768, dtype=dtype, pass_=pass_, transpose_b=True)
        yield Gemm(m=4, n=384, k=768, dtype=dtype, transpose_b=True)
    small = Conv.parse("1x256x14x14", "256x256x3x3", 1, padding=1, dtype="float16", layout="NHWC")
    stem = Conv.parse("8x3x224x224", "64x3x7x7", 1, padding=3, stride=2, dtype="float16",
                      layout="NHWC")  # fmt: skip
    yield from (small, stem, stem.replace(pass_="wgrad"))
    many = Conv.parse("64x64x56x56", "64x64x3x3", 1, padding=1, dtype="float16", layout="NHWC")
    tiny = Conv.parse("64x64x7x7", "64x64x3x3", 1, padding=1, dtype="float16", layout="NHWC")
    yield from (many.replace(pass_="wgrad"), tiny.replace(pass_="wgrad"))
    steps = "bias+dequantize+relu+quantize(1)"
    yield small.replace(dtype="int8", accumulate="int32", epilogue=steps)
    integers: dict[str, Any] = {"accumulate": "int32", "epilogue": steps}
    yield Conv.parse("1x96x28x28", "96x1x3x3", padding=1, dtype="uint8", layout="NHWC", **integers)
    yield Conv.parse("1x128x28x28", "128x4x3x3", 32, padding=1, dtype="uint8", layout="NHWC",
                     **integers)  # fmt: skip
    yield Conv.parse("64x512x28x28", "256x512x1x1", 1, dtype="int8", layout="NCHW32", **integers)
    yield Mlp(m=12544, k=96, hidden=384, n=96, inner="bias+gelu", norm="1e-6",
              epilogue=parse_epilogue("bias+residual"), dtype="float16")  # fmt: skip
    yield Mlp(m=8, k=480, hidden=20, n=480, inner="bias+silu", epilogue=(Step("bias"),),
              dtype="float16")  # fmt: skip
    yield small.replace(dtype="float32", precision="tf32")
    for pass_ in ("wgrad", "dgrad"):
        yield many.replace(dtype="float32", precision="tf32", pass_=pass_)
    yield stem.replace(dtype="float32", precision="tf32", pass_="dgrad")
    yield Conv.parse("64x256x56x56", "64x256x1x1", 1, precision="tf32x3", layout="NHWC")
    yield small.replace(dtype="float32", precision="winograd")


def _programs() -> Iterator[Program | ConvProgram]:
    """A normalisation of rows, a mean over pixels, a turn, and convolutions that are pooled."""
    half, images = "float16[64x14x14x384]", "float16[64x56x56x144]"
    yield Program(operands=(half,), body=("softmax(a0, axis=-1)",))
    yield Program(operands=(images,), body=("sum(a0, axis=(1, 2))", "divide(t0, 3136)"))
    yield Program(operands=("float16[64x3136x64]",), body=("transpose(a0, axes=(0, 2, 1))",))
    for image, filters in (("8x64x56x56", "64x64x3x3"), ("1x256x28x28", "256x256x3x3")):
        conv = Conv.parse(image, filters, 1, padding=1, dtype="float16", layout="NHWC")
        rows = conv.out_image[0] // 2
        yield ConvProgram.of(conv, [max_pool(2, (rows, rows))])
