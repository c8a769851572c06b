"""Boxes of tensors in swizzled shared memory, as TMA loads them and tensor cores read them."""

from __future__ import annotations

import ctypes
import importlib
import re
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.support.changed import lacking
from tests.support.narrow import to_bits
from tests.support.tile_programs import boxed, copied, through_swizzled, windows

import tilewright
from tilewright import te
from tilewright.ir.stmt import If, Instr, Queue, Sync, seq
from tilewright.ir.visit import statements
from tilewright.lower.pipeline import lower
from tilewright.runtime import cuda_maps
from tilewright.runtime.cuda_maps import tiled
from tilewright.runtime.ndarray import array
from tilewright.runtime.sass import opcodes
from tilewright.runtime.sim import simulate
from tilewright.target.boxes import Box, TensorMap
from tilewright.target.instructions import instruction_named, tma_load, wgmma
from tilewright.target.windows import Window
from tilewright.verify import check

HOPPER = "cuda -arch=sm_90a"
#: Of images by channels by rows by columns, 32 columns of a row of 64 images.
ROWS = TensorMap(0, Box((1, 2, 0, 3), (1, 1, 64, 32)), 64)
LOADS = ("UTMALDG.2D", "SYNCS.PHASECHK", "SYNCS.EXCH", "HGMMA.64x64x16.F32")
#: By name: a product, and what its machine code has to hold.
PRODUCTS: dict[str, tuple[Any, tuple[str, ...]]] = {
    "rows-of-k": (boxed, LOADS),
    "rows-of-j": (partial(boxed, right="j"), LOADS),
    "both-turned": (partial(boxed, "i", "j", columns=128, n=144, k=72), LOADS[:3]),
    "104-columns": (partial(boxed, columns=104, n=200), (*LOADS[:3], "HGMMA.64x104x16.F32")),
    "192-columns-in-rows": (
        partial(boxed, "i", "j", columns=192, n=200),
        (*LOADS[:3], "HGMMA.64x192x16.F32"),
    ),
    "64-and-32-bytes": (partial(boxed, swizzles=(64, 32)), LOADS),
    "turned-64-and-32-bytes": (partial(boxed, "i", "j", n=40, swizzles=(64, 32)), LOADS),
    "turned-left": (partial(boxed, "i", "k", swizzles=(32, 64), k=72, stages=4), LOADS),
    "registers": (partial(boxed, "registers", "j", swizzles=(0, 64), stages=2), LOADS),
    "bfloat16": (partial(boxed, element="bfloat16", n=40, k=200, stages=4), (*LOADS[:3], "HGMMA")),
    "at-once": (partial(boxed, stages=0), LOADS),
    "chunks": (through_swizzled, ("LDSM.16.M88.4", "LDGSTS.E.BYPASS.128", "HMMA.16816.F32")),
    "chunks-of-128-bytes": (partial(through_swizzled, swizzle=128, stages=2), ("LDSM", "LDGSTS")),
}


def operands(name: str, args: Any) -> tuple[list[Any], np.ndarray]:
    """Small whole numbers, and their exact product."""
    rng = np.random.default_rng(0)
    made: list[Any] = []
    values = []
    for tensor in args[:2]:
        whole = rng.integers(-4, 5, [int(n) for n in tensor.shape]).astype("float32")
        values.append(whole.astype(np.float64))
        bits = str(tensor.dtype) == "bfloat16"
        made.append(to_bits(whole) if bits else whole.astype(str(tensor.dtype)))
    a, b = values
    rows, columns = (int(n) for n in args[2].shape)
    return made, (a if len(a) == rows else a.T) @ (b.T if len(b) == columns else b)


@pytest.mark.parametrize("name", PRODUCTS)
def test_sums_of_small_integers_are_exact_in_sim(name: str) -> None:
    schedule, args = PRODUCTS[name][0]()
    made, exact = operands(name, args)
    result = np.full(exact.shape, 77, "float32")
    tilewright.build(schedule, list(args), "sim")(*made, result)  # raises where it finds something
    np.testing.assert_array_equal(result, exact)


@pytest.mark.spread
@pytest.mark.needs_nvrtc
@pytest.mark.parametrize("name", PRODUCTS)
def test_machine_code_has_the_instructions_meant_and_no_spills(name: str) -> None:
    program, meant = PRODUCTS[name]
    schedule, args = program()
    made = tilewright.build(schedule, list(args), HOPPER).program
    assert all(used.spills == 0 for used in made.resources.values())
    found = opcodes(made.assembly)
    for wanted in meant:
        assert any(op.startswith(wanted) for op in found), (wanted, sorted(found))


@pytest.mark.needs_nvrtc
@pytest.mark.parametrize(("name", "modes"), [("rows-of-k", {1}), ("64-and-32-bytes", {2, 3})])
def test_descriptors_tell_the_swizzle(name: str, modes: set[int]) -> None:
    schedule, args = PRODUCTS[name][0]()
    source = tilewright.build(schedule, list(args), HOPPER).source
    assert {int(m) for m in re.findall(r"(\d)ull << 62", source)} == modes


@pytest.mark.needs_cuda
@pytest.mark.parametrize("name", PRODUCTS)
def test_sums_of_small_integers_are_exact_on_a_gpu(name: str) -> None:
    schedule, args = PRODUCTS[name][0]()
    made, exact = operands(name, args)
    there = [array(x, "cuda", str(t.dtype)) for x, t in zip(made, args, strict=False)]
    kernel = tilewright.build(schedule, list(args), "cuda -arch=sm_90a")
    for _ in range(2):  # the second time with arrays that lie elsewhere
        result = array(np.full(exact.shape, 77, "float32"), "cuda")
        kernel(*there, result)
        np.testing.assert_array_equal(result.numpy(), exact)
        there = [array(x, "cuda", str(t.dtype)) for x, t in zip(made, args, strict=False)]


@pytest.mark.parametrize("size", [(64, 8, 8), (200, 150, 136)])
def test_the_product_of_the_benchmark_is_right(
    size: tuple[int, int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "benchmarks"))
    product = importlib.import_module("matmul_tma").product
    m, n, k = size
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-4, 5, (rows, k)).astype("float16") for rows in (m, n))
    c = np.full((m, n), 77, "float16")
    tilewright.build(*product(*size, stages=4), "sim")(a, b, c)
    np.testing.assert_array_equal(c, a.astype("float32") @ b.astype("float32").T)


@pytest.mark.parametrize("cached", [False, True])
@pytest.mark.parametrize("symbolic", [False, True])
def test_tiles_at_the_edge_of_a_tensor(symbolic: bool, cached: bool) -> None:
    schedule, args = copied(symbolic, cached)
    x = np.arange(7200).reshape(100, 72).astype("float16") % 50
    y = np.full((100, 72), 77, "float16")
    tilewright.build(schedule, list(args), "sim")(x, y)
    np.testing.assert_array_equal(y, x + 1)


@pytest.mark.needs_nvrtc
@pytest.mark.parametrize("cached", [False, True])
@pytest.mark.parametrize("symbolic", [False, True])
def test_maps_are_the_same_of_extents_that_a_call_tells(symbolic: bool, cached: bool) -> None:
    schedule, args = copied(symbolic, cached)
    program = tilewright.build(schedule, list(args), HOPPER).program
    assert program.maps == [[TensorMap(0, Box((0, 1), (64, 64)), 128)]]


@pytest.mark.needs_cuda
def test_extents_that_a_call_tells_on_a_gpu() -> None:
    schedule, args = copied(symbolic=True)
    kernel = tilewright.build(schedule, list(args), "cuda -arch=sm_90a")
    for m in (100, 65, 1):
        x = np.arange(m * 72).reshape(m, 72).astype("float16") % 50
        y = array(np.full((m, 72), 77, "float16"), "cuda")
        kernel(array(x, "cuda"), y)
        np.testing.assert_array_equal(y.numpy(), x + 1)


def expected_windows(x: np.ndarray) -> np.ndarray:
    images, channels, height, width = x.shape
    padded = np.zeros((channels, height + 2, 128, 32), "float16")
    padded[:, 1:-1, :images, :width] = x.transpose(1, 2, 0, 3)
    return padded[:, :-2] + padded[:, 2:]


@pytest.mark.parametrize("rows", [1, 3])
@pytest.mark.parametrize("swizzle", [0, 64])
def test_what_an_image_does_not_have_is_zero(swizzle: int, rows: int) -> None:
    schedule, args = windows(swizzle=swizzle, rows=rows)
    x = np.random.default_rng(0).integers(-4, 5, (100, 3, 5, 24)).astype("float16")
    y = np.full((3, 5, 128, 32), 77, "float16")
    tilewright.build(schedule, list(args), "sim")(x, y)
    np.testing.assert_array_equal(y, expected_windows(x))


@pytest.mark.needs_cuda
@pytest.mark.parametrize("rows", [1, 3])
@pytest.mark.parametrize("swizzle", [0, 64])
def test_what_an_image_does_not_have_is_zero_on_a_gpu(swizzle: int, rows: int) -> None:
    schedule, args = windows(swizzle=swizzle, rows=rows)
    x = np.random.default_rng(0).integers(-4, 5, (100, 3, 5, 24)).astype("float16")
    y = array(np.full((3, 5, 128, 32), 77, "float16"), "cuda")
    tilewright.build(schedule, list(args), "cuda -arch=sm_90a")(array(x, "cuda"), y)
    np.testing.assert_array_equal(y.numpy(), expected_windows(x))


@pytest.mark.needs_nvrtc
@pytest.mark.parametrize("rows", [1, 3])
def test_a_box_of_images_is_one_map_of_four_dimensions_in_the_order_of_the_box(rows: int) -> None:
    schedule, args = windows(rows=rows)
    program = tilewright.build(schedule, list(args), HOPPER).program
    assert program.maps == [[TensorMap(0, Box((1, 2, 0, 3), (1, rows, 64, 32)), 64)]]
    assert "UTMALDG.4D" in {op[:10] for op in opcodes(program.assembly)}


@pytest.mark.needs_nvrtc
@pytest.mark.parametrize("arch", ["sm_80", "sm_120"])
def test_older_and_other_gpus_copy_by_loops_or_by_their_own_units(arch: str) -> None:
    schedule, args = windows()
    program = tilewright.build(schedule, list(args), f"cuda -arch={arch}").program
    assert bool(program.maps[0]) is (arch == "sm_120")
    assert any(op.startswith("UTMALDG") for op in opcodes(program.assembly)) is (arch == "sm_120")


@pytest.mark.needs_nvrtc
def test_arrays_that_no_map_can_describe_are_copied_by_loops() -> None:
    """There, addresses are no multiples of 16 bytes: other code is compiled for them."""
    schedule, args = windows()
    program = tilewright.build(schedule, list(args), HOPPER).program
    files = program.artifacts()
    assert "tma.load" in files["source.cu"].decode()
    assert "TensorMap" not in files["unaligned.cu"].decode()


def test_sim_misses_every_commit_wait_fence_and_barrier_before_boxes() -> None:
    schedule, args = windows(height=2)
    module = lower(schedule, list(args), HOPPER)
    x = np.ones((100, 3, 2, 24), "float16")
    y = np.zeros((3, 2, 128, 32), "float16")
    assert simulate(module, [x, y]).ok
    found = [s for f in module.funcs for s in statements(f.body) if isinstance(s, (Queue, Sync))]
    assert {getattr(s, "action", "sync") for s in found} == {
        "commit", "wait", "proxy", "sync",
    }  # fmt: skip
    for k, s in enumerate(found):
        kinds = {f.kind for f in simulate(lacking(module, s), [x, y]).findings}
        if isinstance(s, Queue):
            lacking_fence = s.action == "proxy"
            assert ("unfenced access" if lacking_fence else "unfinished instruction") in kinds, s
        else:  # behind a wait, which all threads come to, none is needed for what was loaded
            awaited = getattr(found[k - 1], "action", "") == "wait"
            assert ("race" in kinds) is not awaited, s


def test_the_proof_misses_every_barrier_and_finds_commits_of_some_threads() -> None:
    schedule, args = boxed()
    module = lower(schedule, list(args), HOPPER)
    (func,) = module.funcs
    assert check(func) == []
    for s in [s for s in statements(func.body) if isinstance(s, Sync)]:
        assert "race" in {f.kind for f in check(lacking(module, s).funcs[0])}
    lane = next(axis.var for axis in func.launch if axis.tag == "threadIdx.x")
    alone = If(lane < 1, Queue("tma", "commit"))
    found = check(replace(func, body=seq(func.body, alone)))
    assert {f.kind for f in found} == {"divergence"}


def test_one_thread_asks_for_a_box_and_all_commit_and_wait() -> None:
    schedule, args = boxed()
    module = lower(schedule, list(args), HOPPER)
    text = repr(module)
    assert "if threadIdx_x == 0:\n" in text
    guarded = re.findall(r"if threadIdx_x == 0:\n\s+with T.instruction\('tma_load", text)
    loads = [
        s
        for f in module.funcs
        for s in statements(f.body)
        if isinstance(s, Instr) and s.instruction.tensor_map
    ]
    assert len(guarded) == len(loads) > 0


PIPELINES = [(2, False), (3, False), (4, True), (2, True)]


@pytest.mark.parametrize(("stages", "over"), PIPELINES)
def test_windows_by_pipelines_of_boxes(stages: int, over: bool) -> None:
    schedule, args = windows(rows=3, stages=stages, over=over)
    x = np.random.default_rng(0).integers(-4, 5, (100, 3, 5, 24)).astype("float16")
    y = np.full((3, 5, 128, 32), 77, "float16")
    tilewright.build(schedule, list(args), "sim")(x, y)
    np.testing.assert_array_equal(y, expected_windows(x))


@pytest.mark.needs_cuda
@pytest.mark.parametrize(("stages", "over"), PIPELINES)
def test_windows_by_pipelines_of_boxes_on_a_gpu(stages: int, over: bool) -> None:
    schedule, args = windows(rows=3, stages=stages, over=over)
    x = np.random.default_rng(0).integers(-4, 5, (100, 3, 5, 24)).astype("float16")
    y = array(np.full((3, 5, 128, 32), 77, "float16"), "cuda")
    tilewright.build(schedule, list(args), "cuda -arch=sm_90a")(array(x, "cuda"), y)
    np.testing.assert_array_equal(y.numpy(), expected_windows(x))


def test_what_the_host_says_of_a_tensor() -> None:
    n = te.var("n")
    x = te.placeholder((n, 3, 5, 24), "float16", name="X").buffer
    found = tiled(ROWS, x, {"n": 100})
    assert found.kind == "FLOAT16"
    assert found.extents == (24, 100, 5, 3)
    assert found.strides == (720, 48, 240)
    assert found.box == (32, 64, 1, 1)
    assert found.swizzle == "64B"


def test_what_the_host_says_of_dimensions_that_are_one() -> None:
    n = te.var("n")
    x = te.placeholder((n, 3, 5, 24), "float16", name="X").buffer
    found = tiled(TensorMap(0, Box((2, 3), (64, 8), (), (3, 1))), x, {"n": 100})
    assert (found.extents, found.strides, found.box) == ((24, 1500), (48,), (8, 64))


def test_what_the_host_says_of_windows() -> None:
    """Of three rows and five columns, two columns apart, with one row and two columns before."""
    n = te.var("n")
    x = te.placeholder((n, 10, 9, 64), "float16", name="X").buffer
    window = Window((10, 5), (1, 2), (-1, -2))
    made = TensorMap(0, Box((0, 1, 2, 3), (128, 64)), 128, window)
    assert TensorMap.of(made.row) == made
    found = tiled(made, x, {"n": 7})
    assert (found.extents, found.strides) == ((64, 9, 10, 7), (128, 1152, 11520))
    assert (found.box, found.steps) == ((128, 64), (1, 2, 1, 1))
    assert found.corners == ((-2, -1), (-2, -1))


def test_what_the_host_says_of_windows_of_volumes() -> None:
    n = te.var("n")
    x = te.placeholder((n, 4, 10, 9, 64), "float16", name="X").buffer
    window = Window((4, 10, 5), (1, 1, 2), (-1, 0, -2))
    made = TensorMap(0, Box((0, 1, 2, 3, 4), (128, 64)), 128, window)
    assert TensorMap.of(made.row) == made
    found = tiled(made, x, {"n": 7})
    assert found.extents == (64, 9, 10, 4, 7)
    assert (found.box, found.steps) == ((128, 64), (1, 2, 1, 1, 1))
    assert found.corners == ((-2, 0, -1), (-2, 0, -1))


def test_corners_of_windows_are_the_nearer_the_more_dimensions_images_have() -> None:
    assert not Window((9,), (1,), (-300,)).limits((400,))
    assert "within 128" in Window((9, 9), (1, 1), (-300, 0)).limits((400, 9))
    assert not Window((9, 9), (1, 1), (-17, 0)).limits((40, 9))
    assert "within 16" in Window((9, 9, 9), (1, 1, 1), (0, -17, 0)).limits((9, 40, 9))


def test_the_driver_gets_corners_of_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    """And of small tensors a bit that it sets is cleared, where it is of before 13.2."""
    driver = pytest.importorskip("cuda.bindings.driver")
    told: list[Any] = []

    def encoding(storage: int, *rest: Any) -> int:
        told.append([list(x) if hasattr(x, "__len__") else getattr(x, "value", x) for x in rest])
        ctypes.memset(storage, 0xFF, 128)
        return 0

    version = [13_010]
    monkeypatch.setattr(cuda_maps, "load_driver", lambda: driver)
    monkeypatch.setattr(cuda_maps, "_driver_function", lambda mode: encoding)
    monkeypatch.setattr(driver, "cuDriverGetVersion", lambda: (driver.CUresult(0), version[0]))
    made = TensorMap(0, Box((0, 1, 2, 3), (128, 64)), 128, Window((10, 5), (1, 2), (-1, -2)))
    found = []
    for batch, version[0] in ((7, 13_010), (7, 13_020), (70, 13_010)):
        x = te.placeholder((batch, 10, 9, 64), "float16", name="X").buffer
        kept = cuda_maps.MapStorage(1)
        (storage,) = kept.addresses
        cuda_maps.encoder(tiled(made, x, {}))(storage, 4096)
        found.append(ctypes.c_uint64.from_address(storage + 8).value >> 21 & 1)
    assert found == [0, 1, 1]
    assert told[0][3:9] == [
        [64, 9, 10, 7], [128, 1152, 11520, 0], [-2, -1], [-2, -1], 64, 128,
    ]  # fmt: skip


def test_the_driver_gets_aligned_storage_and_the_innermost_dimension_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    driver = pytest.importorskip("cuda.bindings.driver")
    told: list[Any] = []

    def encoding(storage: int, kind: int, rank: int, address: int, *rest: Any) -> int:
        told.extend([storage % 128, kind, address, *(list(x) for x in rest[:4]), *rest[4:]])
        ctypes.memset(storage, 7, 128)
        return 0

    monkeypatch.setattr(cuda_maps, "load_driver", lambda: driver)
    monkeypatch.setattr(cuda_maps, "_driver_function", lambda mode: encoding)
    x = te.placeholder((100, 3, 5, 24), "float16", name="X").buffer
    described = tiled(ROWS, x, {})
    kept = cuda_maps.MapStorage(1)
    (storage,) = kept.addresses
    cuda_maps.encoder(described)(storage, 4096)
    assert ctypes.string_at(storage, 128) == bytes([7]) * 128
    half, swizzle, promotion = 6, 2, 2  # as cuda.h numbers them
    strides = [720, 48, 240, 0]
    assert told == [
        0, half, 4096, [24, 100, 5, 3], strides, [32, 64, 1, 1], [1] * 4, 0, swizzle, promotion, 0,
    ]  # fmt: skip


@pytest.mark.needs_nvrtc
def test_maps_are_kept_with_compiled_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tilewright.runtime.build import forget

    monkeypatch.setenv("TILEWRIGHT_CACHE", str(tmp_path / "cache"))
    schedule, args = windows()
    first = tilewright.build(schedule, list(args), HOPPER)
    maps = first.program.maps
    first.save(tmp_path / "kernel.tw")
    del first
    forget()
    schedule, args = windows()  # neither lowered nor compiled
    again = tilewright.build(schedule, list(args), HOPPER)
    assert again.program.maps == tilewright.load(tmp_path / "kernel.tw").program.maps == maps
    assert again.program.buffers[0].shape == (100, 3, 5, 24)


def test_instructions_are_known_by_their_names() -> None:
    for made in (
        tma_load((64, 32), "float16", 64),
        tma_load((3, 8, 128), "uint8"),
        wgmma(64, "bfloat16", swizzles=(0, 128)),
        wgmma(64, left="i", right="j", swizzles=(64, 32)),
    ):
        assert instruction_named(made.name) is made
