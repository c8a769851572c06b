"""A gradient by the filter whose images are one chunk is made by one kernel."""

from __future__ import annotations

import dataclasses

import pytest
from tests.support.depthwise import TOLERANCE, poison, random_inputs, reference, relative_error

import tilewright
from tilewright.target import Target
from tilewright.topi import Conv
from tilewright.topi.templates import TEMPLATES

SM_90A = Target.parse("cuda -arch=sm_90a")


def problem(data, filter, **more):
    return Conv.parse(data, filter, **{"padding": 1, "pass_": "wgrad", **more})


#: By template, problems of channels that do not fill blocks, of multipliers and both precisions.
CASES = [
    ("gpu.band_gradient", problem("3x2x9x13", "4x1x3x3", dtype="float16")),
    ("gpu.band_gradient", problem("3x3x9x16", "3x1x5x4", padding=2, dtype="bfloat16")),
    ("gpu.reduction_planes", problem("3x5x9x7", "10x1x3x5", padding=2, stride=2)),
    ("gpu.reduction_planes", problem("3x5x30", "5x1x3", dtype="bfloat16")),
    ("gpu.reduction_pixel_tiles", problem("3x24x9x7", "24x1x3x3", layout="NHWC")),
    ("gpu.reduction_pixel_tiles", problem("2x40x9x8", "40x1x3x3", layout="NHWC", dtype="float16")),
]


def built(name, p, chunks, target):
    template = TEMPLATES[name]
    tile = dataclasses.replace(template.candidates(p, SM_90A)[0], chunks=chunks)
    return tilewright.build(*template.scheduled(p, tile), target)


@pytest.mark.parametrize("chunks", [1, 2])
@pytest.mark.parametrize(("name", "p"), CASES, ids=[f"{name} {p}" for name, p in CASES])
def test_chunks_are_summed(name, p, chunks):
    arrays, out = random_inputs(p, p.shapes()), poison(p)
    built(name, p, chunks, "sim")(*arrays.values(), out)
    assert relative_error(out, reference(p, arrays)) < TOLERANCE[p.dtype]


@pytest.mark.needs_nvrtc
@pytest.mark.parametrize(("name", "p"), CASES, ids=[f"{name} {p}" for name, p in CASES])
def test_one_chunk_is_one_kernel(name, p):
    assert [built(name, p, n, SM_90A).source.count("__global__") for n in (1, 2)] == [1, 2]
