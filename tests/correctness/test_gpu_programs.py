"""Programs and small products on the schedules of a GPU: what is reduced, elements in vectors."""

from __future__ import annotations

import zlib
from dataclasses import replace

import numpy as np
import pytest
from tests.support.articles import ARCHITECTURES, spills
from tests.support.depthwise import encode, random_inputs

import tilewright
from tilewright.target import Target
from tilewright.topi import Gemm
from tilewright.topi.operators import Program
from tilewright.topi.problem import Problem
from tilewright.topi.sketches.column_sums import ColumnSumTile
from tilewright.topi.templates import TEMPLATES, templates

SIM, OPENCL = Target.parse("sim"), Target.parse("opencl")


def program(shape: str, *body: str, dtype: str = "float32", others: tuple[str, ...] = ()):
    return Program(operands=tuple(f"{dtype}[{x}]" for x in (shape, *others)), body=body)


def normalised(shape: str, dtype: str) -> Program:
    """A layer normalisation behind a scaled residual."""
    rank, n = shape.count("x"), int(shape.split("x")[-1])
    return program(
        shape, "multiply(a0, a1)", "add(t0, a2)", "cast(t1, dtype='float32')",
        f"sum(t2, axis=({rank},), keepdims=True)", f"divide(t3, {n})", "subtract(t2, t4)",
        "multiply(t5, t5)", f"sum(t6, axis=({rank},), keepdims=True)", f"divide(t7, {n})",
        "add(t8, 1e-06)", "sqrt(t9)", "divide(t5, t10)", f"cast(t11, dtype='{dtype}')",
        "multiply(t12, a1)", dtype=dtype, others=(str(n), shape),
    )  # fmt: skip


#: By template. Rows that divide into vectors and others, some longer than a block of threads.
PROGRAMS = {
    "gpu.rows": [
        normalised("3x5x96", "float16"), normalised("2x100", "float32"),
        normalised("2x49", "bfloat16"), program("5x197", "softmax(a0, axis=-1)"),
        program("4x64", "log_softmax(a0, axis=1)", dtype="float16"),
        program("3x4x7x7", "sum(a0, axis=(2, 3), keepdims=True)", "divide(t0, 49)"),
        program("3x2x6", "sum(a0, axis=(1, 2))", "exp(t0)", dtype="float16"),
        program("1000", "sum(a0)"), program("6x5x8", "max(a0, axis=(0, 1, 2), keepdims=True)"),
        program("3x40", "argmax(a0, axis=1)"), program("3x5000", "sum(a0, axis=1)"),
        program("9x40", "prod(a0, axis=1)", dtype="int32"),
        program("8x1x40", "strided_slice(a0, begin=(3, 0, 0), strides=(2, 1, 1), shape=(2, 1, 40))",
                "sum(t0, axis=(2,), keepdims=True)", "multiply(t1, a1)", others=("2x1x1",)),
        program("2x4096", "multiply(a0, a0)", "sum(t0, axis=1, keepdims=True)", "divide(a0, t1)"),
    ],
    "gpu.column_sums": [
        program("2x7x9x16", "sum(a0, axis=(1, 2), keepdims=True)", "divide(t0, 63)",
                dtype="float16"),
        program("2x30x12", "multiply(a0, a1)", "sum(t0, axis=1)", "add(t1, a2)",
                others=("2x30x12", "12")),
        program("300x5", "max(a0, axis=0)"), program("2x5x7x33", "sum(a0, axis=(1, 2))",
                                                     "relu(t0)", dtype="bfloat16"),
        program("3x400x64", "sum(a0, axis=1)", dtype="int32"),
        program("4x3x40x64", "sum(a0, axis=(0, 2))", dtype="float16"),
        program("2x20x9x16", "cast(a0, dtype='float32')", "cast(a1, dtype='float32')",
                "subtract(t1, a2)", "multiply(t0, t2)", "sums(t0, t3, axis=(0, 1, 2))",
                others=("2x20x9x16", "16"), dtype="float16"),
        program("70x12", "multiply(a0, a0)", "sums(a0, t0, a1, axis=(0,))", others=("70x12",)),
        program("3x9x8x16", "cast(a0, dtype='float32')", "multiply(t0, t0)",
                "sums(t0, t1, axis=(1, 2))", dtype="float16"),
    ],
    "gpu.turned": [
        program("2x20x3x4x24", "transpose(a0, axes=(2, 0, 3, 4, 1))", dtype="float16"),
        program("2x33x50", "relu(a0)", "transpose(t0, axes=(0, 2, 1))", "add(t1, a1)",
                others=("33",)),
        program("70x40", "transpose(a0, axes=(1, 0))", "cast(t0, dtype='float32')",
                dtype="float16"),
        program("3x16x17", "transpose(a0, axes=(2, 0, 1))", dtype="int8"),
    ],
    "gpu.dots": [
        Gemm(m=1, n=48, k=1152, transpose_b=True, dtype="float16", epilogue="bias+silu"),
        Gemm(m=3, n=20, k=28, transpose_b=True, dtype="bfloat16"),
        Gemm(m=5, n=7, k=35, transpose_b=True, batch=2),
        Gemm(m=4, n=6, k=16, pass_="dgrad"),
        Gemm(m=2, n=30, k=100, transpose_b=True, dtype="int8", accumulate="int32"),
    ],
}  # fmt: skip
CASES = [(name, p) for name, programs in PROGRAMS.items() for p in programs]


def run(p: Problem, name: str, config: object, target: str, arrays: list[np.ndarray]):
    kernel = tilewright.build(*TEMPLATES[name].scheduled(p, config), target)
    out = encode(np.zeros(p.result.shape), p.result.dtype)
    kernel(*arrays, out)
    return out.astype("float64")


@pytest.mark.parametrize(("name", "p"), CASES, ids=str)
def test_reductions_agree_with_those_of_a_cpu(name, p):
    assert templates(p, SIM)[0].name == name
    arrays = list(random_inputs(p, p.shapes()).values())
    loops = TEMPLATES["cpu.loops"]
    wanted = run(p, "cpu.loops", loops.candidates(p, Target.parse("llvm"))[0], "llvm", arrays)
    tiles = TEMPLATES[name].candidates(p, SIM)
    drawn = zlib.crc32(p.key.encode())
    for tile in {tiles[0], tiles[drawn % len(tiles)], tiles[-1 - drawn // 7 % len(tiles)]}:
        found = run(p, name, tile, "sim", arrays)
        close = {"float32": 1e-5, "float16": 1e-3, "bfloat16": 8e-3}.get(p.result.dtype, 0)
        assert np.linalg.norm(found - wanted) <= close * np.linalg.norm(wanted), tile


@pytest.mark.parametrize("channels", [24, 32, 48, 144])
def test_a_cpu_sums_few_channels_in_vectors(channels):
    p = program(f"1x112x112x{channels}", "sum(a0, axis=(1, 2), keepdims=True)")
    (tile, *_) = TEMPLATES["cpu.loops"].candidates(p, Target.parse("llvm"))
    assert tile.columns > 1


def test_a_cpu_counts_in_vectors_what_is_before_few_elements():
    """Where the few largest are is small; what is counted for each element is not."""
    p = program("32x1000", "topk_places(a0, k=5, axis=1, largest=True)")
    (tile, *_) = TEMPLATES["cpu.loops"].candidates(p, Target.parse("llvm"))
    assert tile.columns > 1
    x = np.random.default_rng(0).integers(0, 99, (32, 1000)).astype("float32")
    found = run(p, "cpu.loops", tile, "llvm", [x])
    assert np.array_equal(found, np.argsort(-x, axis=1, kind="stable")[:, :5])


@pytest.mark.parametrize(
    ("pixels", "channels", "dtype", "crowded"),
    [
        (515, 64, "float32", True), (600, 256, "float16", True), (777, 32, "float64", True),
        (515, 80, "float32", False), (64, 256, "float32", False), (515, 64, "float16", False),
    ],
)  # fmt: skip
def test_a_cpu_turns_pixels_of_one_place_of_a_cache_by_whole_lines(
    pixels, channels, dtype, crowded
):
    p = program(f"2x{pixels}x{channels}", "transpose(a0, axes=(0, 2, 1))", dtype=dtype)
    (tile, *_) = TEMPLATES["cpu.loops"].candidates(p, Target.parse("llvm"))
    assert (tile.rows == 32) is crowded
    x = np.random.default_rng(0).standard_normal((2, pixels, channels)).astype(dtype)
    assert np.array_equal(run(p, "cpu.loops", tile, "llvm", [x]), x.transpose(0, 2, 1))


@pytest.mark.spread
@pytest.mark.needs_opencl
@pytest.mark.parametrize(("name", "p"), CASES[::2], ids=str)
def test_work_items_of_opencl_reduce_alike(name, p):
    """Through local memory: they have no shuffles. Of columns in vectors of two, PoCL loses every
    second sum of a chunk for the processor that ``support/pocl.py`` names; for its own it does not.
    """
    arrays = list(random_inputs(p, p.shapes()).values())
    tiles = [
        t for t in TEMPLATES[name].candidates(p, OPENCL)
        if not (isinstance(t, ColumnSumTile) and t.vector == 2 and t.chunks > 1)
    ]  # fmt: skip
    tile = tiles[zlib.crc32(p.key.encode()) % len(tiles)]
    wanted, found = (run(p, name, tile, target, arrays) for target in ("sim", "opencl"))
    close = {"float32": 1e-5, "float16": 1e-3, "bfloat16": 8e-3}.get(p.result.dtype, 0)
    assert np.linalg.norm(found - wanted) <= close * np.linalg.norm(wanted), tile


@pytest.mark.parametrize("p", [
    program("4x8", "cumsum(a0, axis=1)"), program("1x6x6x8", "max_pool(a0, size=(2, 2), strides=(2,"
            " 2), padding=(0, 0), dilation=(1, 1), out=(3, 3), last=True)"),
    program("6x6", "sum(a0, axis=0)", "transpose(a0, axes=(1, 0))", "add(t1, t0)"),
    program("6x6", "sum(a0, axis=1, keepdims=True)", "transpose(t0, axes=(1, 0))", "add(a0, t1)"),
    program("4x5", "sum(a0, axis=1, keepdims=True)", "sum(t0, axis=0, keepdims=True)"),
    program("4x8", "strided_slice(a0, begin=(2, 0), strides=(1, 1), shape=(2, 8))",
            "sum(t0, axis=1, keepdims=True)", "strided_slice(a0, begin=(0, 0), strides=(1, 1), "
            "shape=(2, 8))", "multiply(t2, t1)"),
], ids=str)  # fmt: skip
def test_other_reductions_are_loops(p):
    assert templates(p, SIM)[0].name == "gpu.loops"


@pytest.mark.needs_nvrtc
@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_rows_and_columns_stay_in_registers(arch):
    target = Target.parse(f"cuda -arch={arch}")
    mean = "sum(a0, axis=(1, 2), keepdims=True)"
    for p in (normalised("64x14x14x384", "float16"), normalised("1x14x14x384", "float16"),
              program("64x56x56x144", mean, dtype="float16"), PROGRAMS["gpu.dots"][0]):  # fmt: skip
        template = templates(p, target)[0]
        config = template.candidates(p, target)[0]
        d = template.declare(p, config)
        schedule = template.schedule(d, config)
        kernel = tilewright.build(schedule, d.args, target)
        assert "load_half4" in kernel.source or "load_half8" in kernel.source
        assert all(r.stack == 0 for r in kernel.resources.values())
        assert spills(schedule, d.args, arch) == 0


@pytest.mark.needs_nvrtc
def test_two_conditions_on_the_same_floats_have_no_branch_between_them():
    p = program("4x64", "less_equal(a0, 0.0)", "greater_equal(a0, 6.0)", "logical_or(t0, t1)",
                "where(t2, 0.0, a1)", others=("4x64",))  # fmt: skip
    loops, target = TEMPLATES["gpu.loops"], Target.parse("cuda -arch=sm_90a")
    kernel = tilewright.build(*loops.scheduled(p, loops.candidates(p, target)[0]), target)
    assert " | " in kernel.source
    assert "||" not in kernel.source


#: Elements in vectors: with what rows share, of several types, few of them, and windows.
ELEMENTS = [
    program("8x12x16", "sigmoid(a1)", "multiply(t0, a0)", dtype="float16", others=("8x1x16",)),
    program("12x24", "cast(a0, dtype='float32')", "exp(t0)", dtype="float16"),
    program("3x10", "concatenate(a0, a1, axis=1)", dtype="bool", others=("3x6",)),
    program("2x9x9x16", "max_pool(a0, size=(3, 3), strides=(2, 2), padding=(1, 1), dilation=(1, 1),"
            " out=(5, 5), last=True)", dtype="float16"),
    program("4x6x8", "softmax(a0, axis=1)"),
    program("2x3x6x8", "quantize(a0, 0.1, 0, dtype='int8')", "transpose(t0, axes=(0, 2, 3, 1))"),
    program("2x5x4x6", "transpose(a0, axes=(0, 2, 3, 1))", "add(t0, a1)", dtype="float16",
            others=("5",)),
    program("2x6x9x3", "frames(a0, count=4, size=5, stride=2, before=1, width=16)",
            dtype="float16"),
    program("1x3x7x6", "transpose(a0, axes=(0, 2, 3, 1))",
            "frames(t0, count=6, size=3, stride=1, before=1, width=12)"),
]  # fmt: skip


@pytest.mark.parametrize("p", ELEMENTS, ids=str)
def test_elements_are_computed_in_vectors(p):
    loops = TEMPLATES["gpu.loops"]
    plain, *_ = (t for t in loops.candidates(p, SIM) if not t.vectors)
    tile = loops.candidates(p, SIM)[0]
    assert tile.vectors
    arrays = list(random_inputs(p, p.shapes()).values())
    found, wanted = (run(p, "gpu.loops", t, "sim", arrays) for t in (tile, plain))
    assert np.array_equal(found, wanted)


def pooled(image: str, out: int, stride: int, function: str = "avg_pool", k: int = 3) -> str:
    windows = f"size=({k}, {k}), strides=({stride}, {stride}), padding=(1, 1), dilation=(1, 1)"
    return f"{function}({image}, {windows}, out=({out}, {out}), last=True)"


#: Windows that overlap, behind functions, too, which would be computed for each tap.
WINDOWS = [
    program("1x15x15x8", pooled("a0", 8, 2, "max_pool"), dtype="float16"),
    program("1x7x7x12", pooled("a0", 7, 1), "subtract(t0, a0)"),
    program("2x8x8x8", "multiply(a0, a1)", "add(t0, a2)", "cast(t1, dtype='float16')",
            pooled("t2", 8, 1), "subtract(t3, t2)", "add(a0, t4)", dtype="float16",
            others=("1x1x1x8", "1x1x1x8")),
    program("1x8x8x4", pooled("a0", 6, 1, "sum_pool", 5)),
]  # fmt: skip


@pytest.mark.parametrize("p", WINDOWS, ids=str)
def test_a_row_of_taps_is_read_once_for_a_tile(p):
    """Also where images begin and end; that is a part of what is read tap by tap."""
    loops = TEMPLATES["gpu.loops"]
    arrays = list(random_inputs(p, p.shapes()).values())
    for tile in (tiles := [t for t in loops.candidates(p, SIM) if t.window]):
        found, wanted = (
            run(p, "gpu.loops", t, "sim", arrays) for t in (tile, replace(tile, window=0))
        )
        assert np.array_equal(found, wanted), tile
    tile = max(tiles, key=lambda t: t.rows)
    kept, again = (read(p, t, arrays) for t in (tile, replace(tile, window=0)))
    assert kept < 0.9 * again


def read(p: Problem, tile: object, arrays: list[np.ndarray]) -> int:
    """Elements of the image that a program reads."""
    kernel = tilewright.build(*TEMPLATES["gpu.loops"].scheduled(p, tile), SIM)
    report = kernel.simulate(*arrays, encode(np.zeros(p.result.shape), p.result.dtype))
    return sum(a.elements for a in report.accesses if (a.scope, a.buffer) == ("global", "a0"))


@pytest.mark.needs_opencl
@pytest.mark.parametrize("p", ELEMENTS, ids=str)
def test_elements_are_computed_in_vectors_of_opencl(p):
    loops, card = TEMPLATES["gpu.loops"], Target.parse("opencl -device='NVIDIA H200'")
    tile = loops.candidates(p, card)[0]
    assert tile.vectors
    arrays = list(random_inputs(p, p.shapes()).values())
    found, wanted = (run(p, "gpu.loops", tile, target, arrays) for target in ("opencl", "sim"))
    close = {"float32": 1e-6, "float16": 1e-3}.get(p.result.dtype, 0)
    assert np.linalg.norm(found - wanted) <= close * np.linalg.norm(wanted)


@pytest.mark.needs_nvrtc
def test_elements_in_vectors_compile_without_spills():
    for p in (*ELEMENTS, *WINDOWS):
        for tile in TEMPLATES["gpu.loops"].candidates(p, Target.parse("cuda"))[:2]:
            assert spills(*TEMPLATES["gpu.loops"].scheduled(p, tile), "sm_90a") == 0


@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_what_is_turned_is_read_and_written_in_full_sectors(dtype):
    p = program("2x128x64", "transpose(a0, axes=(0, 2, 1))", dtype=dtype)
    template = TEMPLATES["gpu.turned"]
    d = template.declare(p, config := template.candidates(p, SIM)[0])
    kernel = tilewright.build(template.schedule(d, config), d.args, SIM)
    report = kernel.simulate(
        *random_inputs(p, p.shapes()).values(), np.zeros(p.result.shape, dtype)
    )
    found = [a for a in report.accesses if a.scope == "global"]
    assert {a.buffer for a in found} == {"a0", "transpose"}
    assert all(a.transactions == a.ideal for a in found)


def test_a_row_is_read_once_in_full_sectors():
    p = normalised("64x384", "float16")
    template = TEMPLATES["gpu.rows"]
    config = template.candidates(p, SIM)[0]
    kernel = tilewright.build(*template.scheduled(p, config), SIM)
    out = encode(np.zeros(p.result.shape), "float16")
    report = kernel.simulate(*random_inputs(p, p.shapes()).values(), out)
    of_rows = [a for a in report.accesses if a.scope == "global" and a.buffer in ("a0", "a2")]
    assert sum(a.elements for a in of_rows) == 2 * 64 * 384
    loose = [a for a in report.accesses if a.scope == "global" and a.transactions > a.ideal]
    assert not loose


def test_a_group_reduces_few_long_rows_also_where_its_memory_is_emulated():
    mali = Target.parse("opencl -device=mali")
    for rows, length, name in ((1, 5000, "rows"), (1, 20, "loops"), (400, 5000, "loops")):
        p = program(f"{rows}x{length}", "sum(a0, axis=1)")
        template = templates(p, mali)[0]
        assert template.name == f"gpu.{name}"
        if name == "rows":
            assert max(tile.lanes for tile in template.candidates(p, mali)) == 256


def test_a_linear_layer_of_one_row_is_of_rows_where_there_are_no_tensor_cores():
    layer = Gemm(m=1, n=4096, k=25088, transpose_b=True)
    for target in ("opencl -device='NVIDIA H200'", "cuda -arch=sm_90a"):
        template = templates(layer, Target.parse(target))[0]
        assert template.name == "gpu.dots"
        tile = template.candidates(layer, Target.parse(target))[0]
        assert tile.vector * 4 == 16  # bytes
    for other in (layer.replace(m=2), layer.replace(dtype="float16")):
        assert templates(other, Target.parse("cuda -arch=sm_90a"))[0].name != "gpu.dots"
