"""What holds of the library's schedules beyond being right: batches, sizes, reproducibility."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from tests.support.dense import convolution
from tests.support.depthwise import TOLERANCE, decode, encode, poison, random_inputs, reference, run

import tilewright
from tilewright import te
from tilewright.ir.errors import ScheduleError
from tilewright.target import Target
from tilewright.topi import Conv, Conv3d
from tilewright.topi.declare import IMAGES
from tilewright.topi.templates import TEMPLATES, candidates, default_schedule, templates

PASSES = ["forward", "dgrad", "wgrad"]
LAYOUTS = ["NCHW", "NHWC"]
SMALL = Conv.parse("4x8x9x8", "8x1x3x3", padding=1)


@pytest.mark.parametrize("target", ["llvm", "sim"])
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("pass_", PASSES)
def test_one_kernel_serves_every_batch(pass_, layout, target):
    p = SMALL.replace(pass_=pass_, layout=layout)
    template, config = next(candidates(p, target))
    found = template.declare(p, config, te.var("n"))
    kernel = tilewright.build(template.schedule(found, config), found.args, target)
    for batch in (1, 4):
        assert run(p.replace(batch=batch), kernel) < TOLERANCE["float32"]


_VOLUMES = [
    Conv3d.parse((3, 6, 4, 7, 9), (6, 1, 3, 3, 3), 6, padding=1, epilogue=("bias", "relu")),
    Conv3d.parse((2, 5, 5, 6, 7), (10, 1, 3, 2, 5), 5, stride=(2, 1, 3), padding=(2, 0, 1)),
    Conv3d.parse((1, 3, 2, 3, 3), (3, 1, 5, 7, 7), 3, padding=4, dtype="float16"),
    Conv3d.parse((2, 8, 6, 5, 5), (8, 1, 5, 1, 1), 8, dilation=(1, 2, 1), dtype="bfloat16"),
]
_OF_VOLUMES = ("gpu.strips", "gpu.pixels", "gpu.reduction_planes", "gpu.reduction_pixels")


@pytest.mark.spread
@pytest.mark.parametrize("target", [
    "sim", pytest.param("cuda -arch=sm_90a", marks=pytest.mark.needs_cuda),
])  # fmt: skip
@pytest.mark.parametrize("layout", ["NCDHW", "NDHWC"])
@pytest.mark.parametrize("pass_", PASSES)
@pytest.mark.parametrize("p", _VOLUMES, ids=str)
def test_images_may_have_three_dimensions(p, pass_, layout, target):
    """Of any batch, without images also, by tiles far apart in rank."""
    steps = () if pass_ == "wgrad" else p.epilogue
    p = p.replace(pass_=pass_, layout=layout, epilogue=steps)
    machine = Target.parse(target)
    (template,) = (t for t in map(TEMPLATES.get, _OF_VOLUMES) if t.fits(p, machine))
    tiles = list(template.candidates(p, machine))
    device = target.split()[0].replace("sim", "cpu")
    for config, batch in ((tiles[0], te.var("n")), (tiles[len(tiles) // 3], None)):
        kernel = tilewright.build(*template.scheduled(p, config, batch), target)
        assert run(p, kernel, device=device, exact=convolution) < TOLERANCE[p.dtype]
        if batch is not None and device == "cpu":
            shapes = {n: (0, *s[1:]) if n in IMAGES else s for n, s in p.shapes().items()}
            result = p.result.shape if pass_ == "wgrad" else (0, *p.result.shape[1:])
            out = encode(np.full(result, np.nan), p.result.dtype)
            kernel(*random_inputs(p, shapes).values(), out)
            assert not decode(out).any()


@pytest.mark.parametrize("pass_", PASSES)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_tensor_may_have_more_elements_than_32_bits_count(layout, pass_):
    p = Conv.parse("4096x512x64x64", "512x1x3x3", padding=1, pass_=pass_, layout=layout)
    for target in ("cuda -arch=sm_90a", "llvm"):
        found, schedule = default_schedule(p, target)
        assert "int64" in str(tilewright.lower(schedule, found.args, target).funcs[0])


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_weight_gradient_is_the_same_with_any_number_of_threads(layout):
    p = SMALL.replace(pass_="wgrad", layout=layout)
    arrays = random_inputs(p, p.shapes())
    results = []
    for threads in (1, 2, 2):
        found, schedule = default_schedule(p, "llvm")
        out = poison(p)
        kernel = tilewright.build(schedule, found.args, f"llvm -threads={threads}")
        kernel(*arrays.values(), out)
        results.append(out.tobytes())
    assert len(set(results)) == 1


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("pass_", PASSES)
def test_targets_agree_bit_for_bit_on_small_integers(pass_, layout):
    p = SMALL.replace(pass_=pass_, layout=layout, stride=(2, 1))
    rng = np.random.default_rng(0)
    shapes = p.shapes()
    arrays = {n: rng.integers(-8, 9, s).astype("float32") for n, s in shapes.items()}
    for target in ("llvm", "sim"):
        found, schedule = default_schedule(p, target)
        out = poison(p)
        tilewright.build(schedule, found.args, target)(*arrays.values(), out)
        np.testing.assert_array_equal(out, reference(p, arrays))


@pytest.mark.needs_torch
@pytest.mark.parametrize(("kernel", "stride", "dilation"), [(3, 2, 1), (4, 2, 1), (3, 3, 2)])
def test_the_gradient_by_the_input_is_the_transposed_convolution(kernel, stride, dilation):
    import torch

    x, w = torch.randn(2, 6, 5, 7), torch.randn(6, 1, kernel, kernel)
    wanted = torch.nn.functional.conv_transpose2d(
        x.double(), w.double(), stride=stride, padding=1, dilation=dilation, groups=6
    )
    p = Conv.parse(
        wanted.shape, w.shape, stride=stride, padding=1, dilation=dilation, pass_="dgrad"
    )
    assert p.output_shape == tuple(x.shape)
    found, schedule = default_schedule(p, "llvm")
    out = np.full(p.input_shape, np.nan, "float32")
    tilewright.build(schedule, found.args)(x.numpy(), w.numpy(), out)
    np.testing.assert_allclose(out, wanted.numpy(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("target", ["llvm", "cuda -arch=sm_80", "opencl", "sim"])
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("pass_", PASSES)
def test_every_problem_has_candidates_whose_parameters_survive_records(pass_, layout, target):
    for kernel in (1, 3, 31):
        p = Conv.parse(
            (1, 8, 16, 16), (8, 1, kernel, kernel), padding=kernel // 2, layout=layout, pass_=pass_
        )
        assert templates(p, target)
        for template, config in candidates(p, target):
            assert TEMPLATES[template.name] is template
            assert template.parse(dataclasses.asdict(config)) == config


def test_parameters_of_another_template_are_refused():
    template = TEMPLATES["cpu.lines"]
    for values in ({"wheels": 4}, {"rows": 4, "vectors": 2, "lanes": "16", "taps": 3}):
        with pytest.raises(ScheduleError, match=r"cpu\.lines has the integer parameters"):
            template.parse(values)
