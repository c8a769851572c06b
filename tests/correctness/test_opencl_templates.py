"""The library's schedules on OpenCL devices: vectors, and nothing shared where that is emulated."""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import product

import pytest
from tests.support.depthwise import TOLERANCE, run

import tilewright
from tilewright.target import Target
from tilewright.topi import Conv
from tilewright.topi.opencl import candidates as opencl
from tilewright.topi.operators.conv import LAYOUTS
from tilewright.topi.templates import TEMPLATES, candidates, default_schedule, templates

DTYPES = ["float32", "float16", "bfloat16"]
EVERY_LAYOUT = [name for known in LAYOUTS.values() for name in known]


def _problem(pass_: str, layout: str, dtype: str = "float32") -> Conv:
    flat = len(layout) == 3
    return Conv.parse(
        "2x8x25" if flat else "2x8x5x8", "8x1x5" if flat else "8x1x3x3",
        padding="SAME", stride=2, pass_=pass_, layout=layout, dtype=dtype,
        epilogue="" if pass_ == "wgrad" else "bias+relu",
    )  # fmt: skip


@pytest.mark.spread
@pytest.mark.needs_opencl
@pytest.mark.parametrize(
    ("pass_", "layout", "dtype"),
    [(*parts, DTYPES[k % 3]) for k, parts in enumerate(product(Conv.PASSES, EVERY_LAYOUT))],
)
def test_a_problem_on_this_device(pass_: str, layout: str, dtype: str) -> None:
    p = _problem(pass_, layout, dtype)
    found, schedule = default_schedule(p, "opencl")
    assert run(p, tilewright.build(schedule, found.args, "opencl")) < TOLERANCE[dtype]


@pytest.mark.parametrize("layout", EVERY_LAYOUT)
@pytest.mark.parametrize("pass_", Conv.PASSES)
def test_where_sharing_is_emulated_nothing_is_shared(
    pass_: str, layout: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(opencl, "shares_memory", lambda target: False)
    p = _problem(pass_, layout)
    for template, config in list(candidates(p, "opencl"))[:4]:
        text = str(tilewright.lower(*template.scheduled(p, config), "opencl"))
        assert "shared" not in text
        assert "sync" not in text


@pytest.mark.parametrize("pass_", Conv.PASSES)
def test_where_memory_is_shared_those_who_share_come_first(
    pass_: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(opencl, "shares_memory", lambda target: True)
    names = [t.name.partition(".")[0] for t in templates(_problem(pass_, "NHWC"), "opencl")]
    assert names == ["gpu", "opencl"]


@pytest.mark.needs_opencl
def test_a_filter_may_be_shared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opencl, "shares_memory", lambda target: True)
    p = _problem("forward", "NHWC")
    found, schedule = default_schedule(p, "opencl")
    kernel = tilewright.build(schedule, found.args, "opencl")
    assert "__local" in kernel.source
    assert run(p, kernel) < TOLERANCE["float32"]


@pytest.mark.needs_opencl
def test_channels_are_summed_as_vectors() -> None:
    p = Conv.parse("1x16x8x8", "16x1x3x3", padding=1, layout="NHWC")
    found, schedule = default_schedule(p, "opencl")
    text = tilewright.build(schedule, found.args, "opencl").source
    sums = r"\*\(__private float4\*\)&DepthwiseConv\w*\[.*\] = \w+ \+ \w+ \* \w+;"
    assert re.search(sums, text)


def test_a_device_that_is_not_here_is_taken_to_share_nothing() -> None:
    p = _problem("wgrad", "NHWC")
    assert [t.name for t in templates(p, "opencl -arch=of-no-maker")] == ["opencl.item_pixels"]


def test_a_gpu_of_nvidia_is_known_by_its_name() -> None:
    card = Target.parse("opencl -device='NVIDIA H100 PCIe'")
    assert (opencl.machine(card).units, opencl.shares_memory(card)) == (114, True)


@pytest.mark.needs_opencl
def test_a_device_at_hand_says_what_it_has(monkeypatch: pytest.MonkeyPatch) -> None:
    from tilewright.runtime import opencl_device

    class Handle:
        max_compute_units, max_work_group_size, local_mem_size = 6, 512, 20_000

    small = replace(opencl_device.device(), name="Adreno", handle=Handle, host=False, shared=True)
    monkeypatch.setattr(opencl_device, "device", lambda name: small)
    found = opencl.machine(Target.parse("opencl"))
    assert (found.units, found.group, found.busy, found.shared) == (6, 512, 6 * 256, True)
    layer = Conv.parse((1, 64, 28, 28), (64, 64, 3, 3), 1, padding=1)
    tiles = TEMPLATES["gpu.products"].candidates(layer, Target.parse("opencl"))
    assert tiles
    assert max(t.shared for t in tiles) <= 20_000
