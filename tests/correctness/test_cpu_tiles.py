"""Instructions of CPUs that multiply 16-bit and 8-bit numbers: BF16 of AVX-512, and AMX's tiles.

Where the processor has them they run; everywhere their machine code is read.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from tests.support.cpu_code import SAPPHIRE_RAPIDS, machine_code, x86_only
from tests.support.narrow import from_bits, to_bits

import tilewright
from tilewright import te
from tilewright.ir.itervar import IterVar
from tilewright.runtime.llvm_host import host_features
from tilewright.schedule import Schedule, Stage
from tilewright.target.instructions import (
    amx_bf16,
    amx_load_bf16,
    amx_load_f32,
    amx_load_s8,
    amx_load_s32,
    amx_s8,
    amx_store_f32,
    amx_store_s32,
    amx_zero_f32,
    amx_zero_s32,
    dot_bf16,
    turned_pairs_bf16,
)

#: By type: the product, loads of its operands, the store, zeros, loads of sums, their type.
TILES = {
    "bfloat16": (amx_bf16, amx_load_bf16, amx_store_f32, amx_zero_f32, amx_load_f32, "float32"),
    "int8": (amx_s8, amx_load_s8, amx_store_s32, amx_zero_s32, amx_load_s32, "int32"),
}


def tiles(
    element: str, m: int = 32, n: int = 32, k: int = 4096, target: str = "llvm"
) -> tuple[Schedule, list[Any]]:
    """``C[i, j] = sum(A[i, k] * B[k, j])`` in tiles; B has groups of its rows side by side."""
    multiply, load, store, _, _, total = TILES[element]
    group = {"bfloat16": 2, "int8": 4}[element]
    a = te.placeholder((m, k), element, name="A")
    b = te.placeholder((k // group, n * group), element, name="B")
    ko = te.reduce_axis((0, k // group), name="ko")
    ki = te.reduce_axis((0, group), name="ki")
    c = te.compute(
        (m, n),
        lambda i, j: te.sum(
            a[i, ko * group + ki].astype(total) * b[ko, j * group + ki].astype(total),
            axis=[ko, ki],
        ),
        name="C",
    )
    s = te.create_schedule(c.op)
    sums = s.cache_write(c, "local")
    left, right = (s.cache_read(x, "local", [sums]) for x in (a, b))
    io, jo, i, _ = s[c].tile(*s[c].op.axis, 16, 16)
    on_blocks(s[c], io, target)
    s[c].tensorize(i, store)
    s[sums].compute_at(s[c], jo)
    i, j = s[sums].op.axis
    step, ko = s[sums].split(s[sums].op.reduce_axis[0], 16)
    s[sums].reorder(step, i, j, ko, s[sums].op.reduce_axis[1])
    s[sums].tensorize(i, multiply)
    for tile in (left, right):
        s[tile].compute_at(s[sums], step)
        s[tile].tensorize(s[tile].op.axis[0], load)
    return s, [a, b, c]


def on_blocks(stage: Stage, axis: IterVar, target: str) -> None:
    """The simulator runs what is on a GPU: here each block is one thread."""
    if target == "sim":
        stage.bind(axis, te.thread_axis("blockIdx.x"))


def operands(element: str, args: list[Any]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Random whole numbers, as they lie in memory, and their product."""
    rng = np.random.default_rng(0)
    (m, k), group = (int(e) for e in args[0].shape), {"bfloat16": 2, "int8": 4}[element]
    n = int(args[2].shape[1])
    x, y = rng.integers(-8, 9, (m, k)), rng.integers(-8, 9, (k, n))
    packed = y.reshape(k // group, group, n).swapaxes(1, 2).reshape(k // group, n * group)
    if element == "bfloat16":
        return to_bits(x.astype("f4")), to_bits(packed.astype("f4")), x @ y
    return x.astype(np.int8), packed.astype(np.int8), x @ y


@pytest.mark.parametrize("target", ["llvm", "sim"])
@pytest.mark.parametrize("element", TILES)
def test_products_in_tiles_agree_with_numpy(element: str, target: str) -> None:
    s, args = tiles(element, k=128, target=target)
    x, y, expected = operands(element, args)
    found = np.empty(expected.shape, TILES[element][-1])
    kernel = tilewright.build(s, args, target)
    kernel(x, y, found)
    np.testing.assert_array_equal(found, expected)
    if target == "llvm" and "amx-tile" not in host_features():
        assert "tile" not in kernel.assembly, "loops where there are no tiles"


@x86_only
@pytest.mark.parametrize("element", TILES)
def test_sums_stay_in_tiles_for_a_processor_that_has_them(element: str) -> None:
    text = machine_code(*tiles(element), SAPPHIRE_RAPIDS)
    product = {"bfloat16": "tdpbf16ps", "int8": "tdpbssd"}[element]
    program = text[: text.index("-- End function")]
    loops = re.split(r"^\.L\w+:", program, flags=re.MULTILINE)
    busy = [loop[: loop.index("\n\tj")] for loop in loops if product in loop]
    assert busy
    for loop in busy:
        found = re.findall(r"\t(tile\w+|tdp\w+)", loop)
        assert found == ["tileloadd", "tileloadd", product] * found.count(product)
    assert not re.search("tilestored.*Spill", program), "no sum begins by way of memory"


@x86_only
@pytest.mark.parametrize("element", TILES)
def test_tiles_are_cleared_and_loaded_by_instructions(element: str) -> None:
    _, _, store, zero, load, total = TILES[element]
    a = te.placeholder((32, 40), total, name="A")
    copies = te.compute((2, 16, 16), lambda t, i, j: a[t * 16 + i, j + t * 8], name="copies")
    zeros = te.compute((16, 16), lambda i, j: te.const(0, total), name="zeros")
    s = te.create_schedule([copies.op, zeros.op])
    held = [s.cache_write(copies, "local"), s.cache_write(zeros, "local")]
    s[held[0]].compute_at(s[copies], s[copies].op.axis[0])
    s[held[0]].tensorize(s[held[0]].op.axis[1], load)
    s[copies].tensorize(s[copies].op.axis[1], store)
    s[held[1]].tensorize(s[held[1]].op.axis[0], zero)
    s[zeros].tensorize(s[zeros].op.axis[0], store)
    x = np.arange(32 * 40).reshape(32, 40).astype(total)
    found, none = np.empty((2, 16, 16), total), np.ones((16, 16), total)
    tilewright.build(s, [a, copies, zeros])(x, found, none)
    np.testing.assert_array_equal(found, np.stack([x[:16, :16], x[16:, 8:24]]))
    assert not none.any()
    text = machine_code(s, [a, copies, zeros], SAPPHIRE_RAPIDS)
    for name in ("tileloadd", "tilestored", "ldtilecfg"):
        assert f"\t{name}" in text


def pairs(target: str = "llvm", n: int = 64, k: int = 20) -> tuple[Schedule, list[Any]]:
    """``C[i] = sum(A[k, i] * B[k, i])``, rows of A and B in pairs side by side."""
    a, b = (te.placeholder((k // 2, n, 2), "bfloat16", name=name) for name in "AB")
    ko, ki = te.reduce_axis((0, k // 2), name="ko"), te.reduce_axis((0, 2), name="ki")
    c = te.compute(
        (n,),
        lambda i: te.sum(
            a[ko, i, ki].astype("float32") * b[ko, i, ki].astype("float32"), axis=[ko, ki]
        ),
        name="C",
    )
    s = te.create_schedule(c.op)
    sums = s.cache_write(c, "local")
    outer, _ = s[c].split(s[c].op.axis[0], 16)
    on_blocks(s[c], outer, target)
    s[sums].compute_at(s[c], outer)
    s[sums].reorder(ko, s[sums].op.axis[0], ki)
    s[sums].tensorize(s[sums].op.axis[0], dot_bf16)
    return s, [a, b, c]


@pytest.mark.parametrize("target", ["llvm", "llvm -arch=baseline", "sim"])
def test_dot_products_of_bfloat16_agree_with_numpy(target: str) -> None:
    s, args = pairs(target)
    rng = np.random.default_rng(0)
    x, y = (rng.integers(-8, 9, (10, 64, 2)).astype("f4") for _ in range(2))
    found = np.empty(64, "f4")
    kernel = tilewright.build(s, args, target)
    kernel(to_bits(x), to_bits(y), found)
    np.testing.assert_array_equal(found, (x * y).sum((0, 2)))
    if target != "sim":
        has = target == "llvm" and {"avx512f", "avx512bf16"} <= host_features()
        assert ("vdpbf16ps" in kernel.assembly) == has


@pytest.mark.skipif("avx512bf16" not in host_features(), reason="the processor has no BF16")
def test_dot_products_of_bfloat16_round_as_float32() -> None:
    s, args = pairs()
    rng = np.random.default_rng(1)
    x, y = (to_bits(rng.standard_normal((10, 64, 2)).astype("f4")) for _ in range(2))
    found = np.empty(64, "f4")
    tilewright.build(s, args)(x, y, found)
    exact = (from_bits(x).astype("f8") * from_bits(y).astype("f8")).sum((0, 2))
    assert np.linalg.norm(found - exact) < 1e-6 * np.linalg.norm(exact)


@pytest.mark.parametrize("step", turned_pairs_bf16)
@pytest.mark.parametrize("target", ["llvm", "sim"])
def test_neighbours_are_taken_two_and_two_from_the_last_on(step: int, target: str) -> None:
    n = 32
    last = step * (n - 1)
    a = te.placeholder((last + 2,), "bfloat16", name="A")
    b = te.compute((n, 2), lambda i, k: a[last + k - i * step], name="B")
    s = te.create_schedule(b.op)
    outer, inner = s[b].split(s[b].op.axis[0], 16)
    on_blocks(s[b], outer, target)
    s[b].tensorize(inner, turned_pairs_bf16[step])
    x = np.arange(last + 2, dtype="uint16")
    found = np.zeros((n, 2), "uint16")
    kernel = tilewright.build(s, [a, b], target)
    kernel(x, found)
    np.testing.assert_array_equal(found[:, 0], last - step * np.arange(n))
    np.testing.assert_array_equal(found[:, 1], found[:, 0] + 1)
    if "avx512bw" in host_features() and target == "llvm":
        assert re.search(r"vperm\w+\s.*%zmm", kernel.assembly), "no element is moved by itself"
