"""Article 003 runs as it is written: its declaration, its five schedules, and what they print."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.support.articles import (
    ARCHITECTURES,
    GPUS,
    Article,
    assert_same_program,
    depthwise,
    error,
    parse_2017,
    parse_script,
    spills,
)

from tilewright import tvm
from tilewright.tvm import te

ARTICLE = Article("003")
VERSIONS = ["naive", "v1", "v2", "v3", "v4"]


@pytest.fixture(scope="module")
def names() -> dict[str, Any]:
    """What the article's blocks define."""
    found: dict[str, Any] = {"te": te, "tvm": tvm, "np": np}
    for version in VERSIONS:
        ARTICLE.run(version, found)
    return found


def scheduled(names: dict[str, Any], version: str, shape: tuple[int, ...]) -> Any:
    return names[f"make_dwsp_conv2d_gpu_scheduler_{version}"](*shape)


def run(s: Any, args: Any, shape: tuple[int, ...], target: str) -> float:
    """The relative error of a program for a target, called with arrays of its device."""
    b, c, h, w, k = shape
    rng = np.random.default_rng(0)
    a_np = rng.random((b, c, h, w), dtype="float32")
    w_np = rng.random((c, 1, k, k), dtype="float32")
    dev = tvm.device(target, 0)
    out = tvm.nd.array(np.full((b, c, h, w), np.nan, "float32"), dev)
    tvm.build(s, args, target)(tvm.nd.array(a_np, dev), tvm.nd.array(w_np, dev), out)
    return error(out.numpy(), depthwise(a_np, w_np))


def test_the_block_that_measures_compares_with_a_reference(capsys):
    pytorch = {"pytorch_depthwise_conv2d": lambda a, w: (depthwise(a, w), 1.0)}  # not in the text
    names: dict[str, Any] = {"np": np, **pytorch}
    ARTICLE.run("measure", names)
    assert capsys.readouterr().out == "2DConv PyTorch: 1.0000 ms\n"
    assert names["ref"].shape == (3, 4, 16, 32)


def test_the_declaration_runs_on_a_cpu(names):
    shape = (3, 4, 16, 32, 7)
    s, inp, ker, out, padded = names["base_declaration"](*shape)
    assert run(s, [inp, ker, out], shape, "llvm") < 1e-5
    s[padded].compute_inline()
    assert run(s, [inp, ker, out], shape, "llvm") < 1e-5


@pytest.mark.parametrize("target", GPUS)
@pytest.mark.parametrize("version", VERSIONS)
def test_every_version_is_right(names, version, target):
    # Few threads are slow in sim; with (5, 9) no version's tiles divide the image.
    shape = (3, 4, 16, 32, 7) if target != "sim" or version > "v2" else (2, 2, 5, 9, 3)
    s, *args = scheduled(names, version, shape)
    assert run(s, args, shape, target) < 1e-5


@pytest.mark.needs_nvrtc
@pytest.mark.parametrize("arch", ARCHITECTURES)
@pytest.mark.parametrize("version", VERSIONS)
def test_no_version_spills_registers(names, version, arch):
    s, *args = scheduled(names, version, (3, 4, 16, 32, 7))
    assert spills(s, args, arch) == 0


@pytest.mark.parametrize("shape", [(2, 3, 17, 31, 5), (1, 1, 3, 4, 1)])
@pytest.mark.parametrize("version", ["v3", "v4"])
def test_images_that_tiles_do_not_divide(names, version, shape):
    s, *args = scheduled(names, version, shape)
    assert run(s, args, shape, "sim") < 1e-5


@pytest.mark.parametrize("version", VERSIONS)
def test_the_printed_program_is_the_articles(names, version, golden):
    s, *args = scheduled(names, version, (3, 4, 16, 32, 7))
    mod = tvm.lower(s, args, simple_mode=True)
    wanted = parse_script(ARTICLE.ir[version])
    assert_same_program(parse_script(str(mod)), wanted)
    assert_same_program(parse_2017(mod.text("2017")), wanted)
    assert str(mod).splitlines()[0] == ARTICLE.ir[version].splitlines()[0]
    golden(str(mod))


def test_the_printed_program_is_the_articles_to_the_letter_but_for_common_subexpressions(names):
    s, *args = scheduled(names, "v4", (3, 4, 16, 32, 7))
    lines = ARTICLE.ir["v4"].splitlines()
    assert str(tvm.lower(s, args)).splitlines() == [x for x in lines if "# " not in x]
