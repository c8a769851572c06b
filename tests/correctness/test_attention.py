"""Attention: each kernel of it against float64, and PyTorch's function of that name."""

from __future__ import annotations

import math
import re

import numpy as np
import pytest
from tests.support.attention import PROBLEMS, error, exact, inputs
from tests.support.depthwise import TOLERANCE, decode, encode, relative_error
from tests.support.tiles import built, module_of

from tilewright.select.algorithm import Scheduled
from tilewright.select.registry import algorithms
from tilewright.select.remembered import chosen_kernel
from tilewright.target import Target
from tilewright.topi import Attention
from tilewright.topi.pieces.attention import AttentionGroupTile, AttentionMmaTile
from tilewright.topi.templates import templates

TARGETS = ["llvm", "sim", pytest.param("opencl", marks=pytest.mark.needs_opencl)]


@pytest.mark.spread
@pytest.mark.parametrize("p", PROBLEMS, ids=str)
@pytest.mark.parametrize("target", TARGETS)
def test_the_first_choice_is_right(p, target):
    kernel = chosen_kernel(p, Target.parse(target))
    assert error(p, kernel) < TOLERANCE["float32"]


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64"])
@pytest.mark.parametrize("p", PROBLEMS[1:-1:2], ids=str)
def test_other_types_are_right_on_a_cpu(p, dtype):
    p = p.replace(dtype=dtype)
    assert error(p, chosen_kernel(p, Target.parse("llvm"))) < TOLERANCE[dtype]


@pytest.mark.spread
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("p", PROBLEMS, ids=str)
def test_tensor_cores_compute_it(p, dtype):
    p, sim = p.replace(dtype=dtype), Target.parse("sim")
    assert templates(p, sim)[0].name in ("gpu.attention", "gpu.attention_groups")
    assert error(p, chosen_kernel(p, sim)) < TOLERANCE[dtype]


@pytest.mark.spread
@pytest.mark.parametrize(
    "tile",
    [AttentionMmaTile(2), AttentionMmaTile(1, 16, 1), AttentionMmaTile(2, 32, 2, 2),
     AttentionMmaTile(3, 16, 3), AttentionMmaTile(4, 64, 2)],
    ids=str,
)  # fmt: skip
@pytest.mark.parametrize("p", [PROBLEMS[2], *PROBLEMS[4:8]], ids=str)
def test_keys_come_at_once_or_in_steps(p, tile):
    p = p.replace(dtype="float16")
    assert error(p, built("gpu.attention", p, tile, "sim")) < TOLERANCE["float16"]


@pytest.mark.parametrize(
    "tile", [AttentionGroupTile(2, 64, 2), AttentionGroupTile(1, 32, 3)], ids=str
)
@pytest.mark.parametrize("p", [
    Attention(batch=2, heads=2, rows=70, keys=130, depth=64, dtype="float16", mask=(1, 1, 70, 130)),
    Attention(heads=4, kv_heads=2, rows=100, keys=100, depth=24, width=40, dtype="bfloat16",
              layout="BSHD", causal=True),
    Attention(heads=1, rows=65, keys=65, depth=128, dtype="float16", layout="BS3HD",
              mask=(1, 1, 1, 65), mask_dtype="bool"),
], ids=str)  # fmt: skip
def test_warpgroups_compute_it(p, tile):
    assert error(p, built("gpu.attention_groups", p, tile, "sim")) < TOLERANCE[p.dtype]


@pytest.mark.parametrize(
    ("name", "tile", "steps"),
    [
        ("gpu.attention_groups", AttentionGroupTile(2, 64, 2), "blockIdx_x * 2 + 2"),
        ("gpu.attention_groups", AttentionGroupTile(1, 96, 3), "(blockIdx_x * 2 + 1) // 3 + 1"),
        ("gpu.attention", AttentionMmaTile(2, 64, 3), "blockIdx_x // 2 + 1"),
    ],
)
@pytest.mark.parametrize(("rows", "keys"), [(150, 150), (100, 200), (190, 70)])
def test_steps_of_keys_that_no_row_of_a_block_attends_to_are_left_out(
    name, tile, steps, rows, keys
):
    p = Attention(
        heads=1, rows=rows, keys=keys, depth=64, dtype="float16", layout="BSHD", causal=True
    )
    if (rows, keys) == (150, 150):
        text = str(module_of(name, p, tile))
        assert re.search(rf"for j_outer in range\((T.min\()?{re.escape(steps)}", text)
    assert error(p, built(name, p, tile, "sim")) < TOLERANCE[p.dtype]


@pytest.mark.needs_nvrtc
@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
@pytest.mark.parametrize("p", [
    Attention(batch=64, heads=3, rows=197, keys=197, depth=64, layout="BS3HD", dtype="float16"),
    Attention(batch=64, heads=3, rows=49, keys=49, depth=32, layout="BS3HD", dtype="bfloat16",
              mask=(1, 3, 49, 49)),
    Attention(heads=8, rows=1024, keys=1024, depth=64, dtype="float16"),
    Attention(heads=8, rows=4096, keys=4096, depth=128, dtype="float16", causal=True),
], ids=str)  # fmt: skip
def test_its_rows_stay_in_registers(p, arch):
    target = Target.parse(f"cuda -arch={arch}")
    template = templates(p, target)[0]
    kernel = built(template.name, p, template.candidates(p, target)[0], target)
    assert [used.spills for used in kernel.resources.values()] == [0]
    assert [used.stack for used in kernel.resources.values()] == [0]


def test_values_of_any_width_are_summed_in_whole_vectors():
    """Of 36 elements, too, as MobileViT has: sums whose lanes are turned off are no registers."""
    p = Attention(heads=2, rows=24, keys=32, depth=36, width=36)
    target = Target.parse("llvm -threads=1 -arch=avx512")
    (template,) = (t for t in templates(p, target) if t.name == "cpu.attention")
    module = module_of(template.name, p, template.candidates(p, target)[0], target)
    sums = [line for line in str(module).splitlines() if line.lstrip().startswith("Weighted[")]
    assert sums
    assert not any("# where" in line for line in sums)


@pytest.mark.parametrize("p", PROBLEMS[4:6], ids=str)
def test_all_candidates_for_a_cpu_are_right(p):
    machine = Target.parse("llvm")
    (found,) = (a for a in algorithms() if a.name == "cpu.attention")
    assert isinstance(found, Scheduled)
    tiles = found.candidates(p, machine)
    assert len(tiles) > 4
    for tile in tiles:
        assert error(p, found.kernel(p, tile, machine)) < TOLERANCE["float32"]


def test_scores_that_are_large_do_not_overflow():
    p = Attention(heads=1, rows=4, keys=6, depth=4)
    arrays = {n: x * 300 for n, x in inputs(p).items()}
    y = np.empty(p.result.shape, "float32")
    chosen_kernel(p, Target.parse("llvm"))(*arrays.values(), y)
    assert np.abs(y - exact(p, arrays)).max() < 0.05


@pytest.mark.parametrize("number", [-1e4, -1e20, -3.3e38])
@pytest.mark.parametrize(("name", "dtype", "tile"), [
    ("", "float32", None),
    ("gpu.attention", "bfloat16", AttentionMmaTile(1, 16, 2)),
    ("gpu.attention_groups", "bfloat16", AttentionGroupTile(1, 32, 2)),
])  # fmt: skip
def test_any_number_may_be_added_to_all_scores_of_a_row(name, dtype, tile, number):
    """It leaves them what their type can hold of them, as in PyTorch."""
    p = Attention(heads=1, rows=9, keys=40, depth=16, mask=(9, 40), dtype=dtype)
    arrays = inputs(p)
    arrays["mask"] = encode(np.where(np.arange(9) < 5, number, 0.0)[:, None] + np.zeros(40), dtype)
    y = encode(np.zeros(p.result.shape), dtype)
    kernel = built(name, p, tile, "sim") if name else chosen_kernel(p, Target.parse("llvm"))
    kernel(*arrays.values(), y)
    close = 3e-3 if dtype == "float32" else TOLERANCE[dtype]
    assert relative_error(y, exact(p, arrays)) < close


def test_nan_in_a_query_is_nan_in_its_row_alone():
    p = Attention(heads=1, rows=4, keys=6, depth=4)
    arrays = inputs(p)
    arrays["q"][0, 0, 2, 1] = np.nan
    y = np.empty(p.result.shape, "float32")
    chosen_kernel(p, Target.parse("llvm"))(*arrays.values(), y)
    assert np.isnan(y[0, 0, 2]).all()
    assert not np.isnan(np.delete(y, 2, axis=2)).any()


def test_its_work_is_counted():
    p = Attention(batch=2, heads=3, rows=5, keys=7, depth=8, width=4)
    assert p.flops == 2 * 6 * 5 * 7 * 12
    assert p.bytes == 4 * 6 * (5 * 8 + 7 * 12 + 5 * 4)
    assert p.replace(causal=True).flops == 2 * 6 * 15 * 12


def test_a_scale_that_is_the_usual_one_is_the_same_problem():
    p = Attention(rows=4, keys=4, depth=16)
    assert p.replace(scale="0.25") == p
    assert p.replace(scale=0.25) == p
    assert p.replace(scale=0.5).scaled_by == 0.5
    assert Attention.from_json(p.replace(scale=0.5).to_json()) == p.replace(scale="0.5")


@pytest.mark.needs_torch
@pytest.mark.parametrize("p", PROBLEMS, ids=str)
def test_it_is_what_pytorch_computes(p):
    import torch

    arrays = inputs(p)
    found = p.torch_function(torch)(*map(torch.from_numpy, arrays.values())).numpy()
    assert found.shape == p.result.shape
    assert math.isclose(np.linalg.norm(found - exact(p, arrays)), 0, abs_tol=1e-4)
    assert decode(found).dtype == np.float64
