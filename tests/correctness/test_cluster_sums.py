"""Sums whose parts the blocks of a cluster have and add: on sim, in the proof, on Hopper."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest
from tests.correctness.test_cluster_memory import barriers_of_clusters
from tests.correctness.test_clusters import HOPPER, TARGETS, _conv, _square
from tests.support.depthwise import TOLERANCE
from tests.support.tiles import check_tile, error_of, lowered

import tilewright
from tilewright.codegen.cuda import generate
from tilewright.ir.errors import LoweringError
from tilewright.ir.stmt import seq
from tilewright.ir.visit import loads
from tilewright.lower.async_.producer_warps import check_producer
from tilewright.runtime.nvrtc import compile_cubin
from tilewright.runtime.sass import disassemble
from tilewright.topi import Conv
from tilewright.topi.operators import Gemm
from tilewright.topi.pieces.box_tiles import BoxGradientTile, BoxProductTile
from tilewright.topi.templates import TEMPLATES, candidates
from tilewright.verify import check

#: Sums of products of boxes, and gradients by the filter, in parts of 2, 4 and 8 blocks.
SUMS: list[tuple[str, Conv, Any]] = [
    ("gpu.box_clusters", _square(channels=512), BoxProductTile(64, 1, 1, 64, 3, splits=4)),
    ("gpu.box_clusters", _square(channels=512), BoxProductTile(64, 1, 1, 64, 2, splits=8)),
    ("gpu.box_clusters", _square("dgrad", channels=64),
     BoxProductTile(96, 1, 1, 64, 3, splits=2, turned=1, staged=96)),
    ("gpu.box_clusters", _conv(channels=128), BoxProductTile(1, 8, 8, 64, 3, splits=2)),
    # The last block has one step of five, and results see less than a tile.
    ("gpu.box_clusters", _square(channels=264).replace(batch=1, epilogue="bias+relu"),
     BoxProductTile(64, 1, 1, 64, 3, splits=4)),
    ("gpu.box_clusters", _square(channels=200).replace(batch=1, height=1, dtype="bfloat16"),
     BoxProductTile(8, 1, 1, 64, 3, splits=2, turned=1)),
    ("gpu.box_gradient", _square("wgrad", 128), BoxGradientTile(128, 128, 3, 2, cluster=1)),
    ("gpu.box_gradient", _conv("wgrad", 5, 64),
     BoxGradientTile(64, 64, 3, 2, producer=1, cluster=1)),
]  # fmt: skip


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(("name", "p", "tile"), SUMS, ids=lambda x: str(x)[:60])
def test_sums_over_a_cluster_are_right(name: str, p: Conv, tile: Any, target: str) -> None:
    assert error_of(name, p, tile, target) < TOLERANCE[p.dtype]


@pytest.mark.parametrize("target", TARGETS)
def test_sums_of_integers_may_be_the_results(target: str) -> None:
    p = Gemm(m=20, n=72, k=1040, dtype="int8", transpose_b=True)
    check_tile("gpu.box_clusters", p, BoxProductTile(24, 1, 1, 64, 3, 4, turned=1), target)


@pytest.mark.parametrize(("name", "p", "tile"), SUMS, ids=lambda x: str(x)[:60])
def test_they_are_proved_and_one_kernel(name: str, p: Conv, tile: Any) -> None:
    func = lowered(name, p, tile, HOPPER)
    assert check(func) == []
    assert len(barriers_of_clusters(func)) == 2
    text = generate(tilewright.ir.Module("m", func.params, (func,)), "sm_90a").text
    assert f"__cluster_dims__({tile.splits}, 1, 1)" in text


def test_a_producer_has_ended_where_blocks_meet() -> None:
    name, p, tile = SUMS[-1]
    func = lowered(name, p, tile, HOPPER)
    assert func.producer
    check_producer(func, 64)
    with pytest.raises(LoweringError, match="behind a barrier of the cluster"):
        check_producer(replace(func, body=seq(barriers_of_clusters(func)[0], func.body)), 64)


@pytest.mark.needs_nvrtc
def test_parts_are_read_in_vectors_of_16_bytes() -> None:
    name, p, tile = SUMS[0]
    func = lowered(name, p, tile, HOPPER)
    text = generate(tilewright.ir.Module("m", func.params, (func,)), "sm_90a").text
    code = disassemble(compile_cubin(text, "sm_90a").data)
    assert code.count("LD.E.128") == 8
    assert code.count("UCGABAR_WAIT") == 2


@pytest.mark.needs_nvrtc
def test_blocks_meet_without_a_fence_of_the_gpu_and_read_all_parts_before_they_store() -> None:
    p, tile = _layer(512, 2048, 1, "wgrad", 64), BoxGradientTile(128, 128, 4, 2, 1, 1, 0, 1, 1)
    func = lowered("gpu.box_gradient", p, tile, HOPPER)
    text = generate(tilewright.ir.Module("m", func.params, (func,)), "sm_90a").text
    code = disassemble(compile_cubin(text, "sm_90a").data)
    assert "MEMBAR.ALL.GPU" not in code
    moved = re.findall(r"LD\.E\.128|STG\.E\.64", code)
    assert moved == ["LD.E.128"] * 16 + ["STG.E.64"] * 8


def _layer(
    channels: int, filters: int, kernel: int, pass_: str = "forward", batch: int = 1
) -> Conv:
    return Conv.parse((batch, channels, 7, 7), (filters, channels, kernel, kernel), 1,
                      padding=kernel // 2, pass_=pass_, dtype="float16", layout="NHWC")  # fmt: skip


@pytest.mark.parametrize(
    ("p", "is_so"),
    [
        (_layer(512, 512, 3), False),
        (Gemm(m=32, n=1504, k=2808, dtype="float16", transpose_b=True), True),
        (_layer(512, 2048, 1), False),
        (_layer(512, 512, 3, batch=64), False),
    ],
    ids=str,
)
def test_clusters_sum_where_tiles_are_few_and_steps_many(p: Any, is_so: bool) -> None:
    template, tile = next(iter(candidates(p, HOPPER)))
    assert (template.name == "gpu.box_clusters") == is_so
    assert not is_so or tile.splits in (2, 4, 8)


def test_no_thread_sums_all_rows_of_few() -> None:
    """The sums of others would be registers that their place chooses."""
    p = Gemm(m=3, n=1000, k=2048, dtype="float16", transpose_b=True, epilogue="bias+gelu")
    for tile in TEMPLATES["gpu.box_clusters"].candidates(p, HOPPER):
        body = lowered("gpu.box_clusters", p, tile, HOPPER).body
        assert not any("blockIdx" in str(x) for x in loads(body) if x.buffer.scope == "local")


def test_two_blocks_sum_a_gradient_where_all_have_a_place_at_once() -> None:
    for channels, cluster in ((512, 1), (1024, 0)):
        _, tile = next(iter(candidates(_layer(channels, 2048, 1, "wgrad", 64), HOPPER)))
        assert tile.cluster == cluster
