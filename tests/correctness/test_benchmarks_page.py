"""The page of benchmarks and the README's claim say what the committed results say.

``pytest --update-golden`` writes both anew, as ``python benchmarks/page.py`` does.
"""

from __future__ import annotations

import importlib
import json
import re
from pathlib import Path
from typing import Any

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture
def page(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Any:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    found = importlib.import_module("page")
    if request.config.getoption("--update-golden"):
        found.main()
    return found


def test_the_page_is_that_of_the_committed_results(page: Any) -> None:
    hint = "python benchmarks/page.py writes the page anew"
    assert page.PAGE.read_text() == page.page_text(page.load()), hint


def test_the_readme_claims_what_was_measured(page: Any) -> None:
    text = page.README.read_text()
    hint = "python benchmarks/page.py writes the claim anew"
    assert text == page.readme_text(text, page.load()), hint


def test_every_result_tells_its_device_its_date_and_its_command(page: Any) -> None:
    for results in page.load().values():
        found = results["environment"]
        assert {"device", "date", "command", "tilewright", "python", "numpy"} <= found.keys()
        assert page.script(results).exists()


def synthetic() -> dict[str, Any]:
    """What a benchmark of many problems writes, made up."""
    row = {"pass": "forward", "shape": "64x32x112x112", "kernel": 3, "stride": 1, "layout": "NCHW"}
    rows = [
        row | {"section": "K 3, float32", "name": "first", "dtype": "float32",
               "tilewright us": 50.0, "floor us": 40.0, "pytorch nchw us": 200.0,
               "pytorch nhwc us": 100.0, "best peer / tilewright": 2.0, "tilewright / floor": 1.25,
               "tile": "rows 4"},
        row | {"section": "K 3, float32", "name": "second", "dtype": "float32",
               "shape": "64x64x112x112", "stride": 2, "tilewright us": 20.0, "floor us": 20.0,
               "pytorch nchw us": 160.0, "pytorch nhwc us": None, "best peer / tilewright": 8.0,
               "tilewright / floor": 1.0, "tile": "rows 8", "times": {"tilewright": {"min": 19}}},
        row | {"section": "gradients", "name": "third", "dtype": "float16", "pass": "wgrad",
               "tilewright us": 30.0, "best peer / tilewright": 3.0, "tilewright / floor": 1.5},
    ]  # fmt: skip
    return {
        "device": "NVIDIA H200", "date": "2026-11-21", "versions": {"torch": "2.11.0"},
        "bandwidth_GBps": 4120.4, "rows": rows,
    }  # fmt: skip


def test_rows_with_sections_become_tables_with_geometric_means(page: Any, tmp_path: Path) -> None:
    (tmp_path / "h200_article_000.json").write_text(json.dumps(synthetic()))
    results = page.load(tmp_path)["h200_article_000"]
    assert page.script(results).name == "article_000.py"  # by the name of the file
    text = page.section(results)
    lines = [re.sub(r" +", " ", line) for line in text.splitlines()]
    assert "| on | NVIDIA H200 |" in lines
    assert "| beside | copies 4,120 GB/s |" in lines
    means = "| best peer / tilewright | at least | tilewright / floor | at most |"
    assert f"| section | problems {means}" in lines
    assert "| K 3, float32 | 2 | 4.00 | 2.00 | 1.12 | 1.25 |" in lines
    assert "**K 3, float32** (forward, NCHW, kernel 3)" in lines
    times = "tilewright us | floor us | pytorch nchw us | pytorch nhwc us"
    assert f"| shape | stride | {times} |" in "\n".join(lines)
    assert "| 64x64x112x112 | 2 | 20.0 | 20.0 | 160 | | 8.00 | 1.00 | rows 8 |" in lines
    assert "| geometric mean | | | | | | 4.00 | 1.12 | |" in lines
    assert "**gradients**" in lines
    assert "times" not in text


def test_the_claim_of_many_problems_has_the_mean_of_every_pass(page: Any) -> None:
    results = page.normal(synthetic() | {"command": "python benchmarks/gpu_depthwise.py"}, "x")
    (found,) = page.claims({"x": results}).split("\n- ")
    words = " ".join(found.split())
    assert "NVIDIA H200: 3 depthwise convolutions and gradients run 3.6 times as fast" in words
    assert "better layout of PyTorch 2.11.0 (geometric mean; forward 4.0, wgrad 3.0)" in words
    assert "at 1.23 times the least time" in words


def test_of_a_problem_that_was_measured_again_the_latest_run_counts(page: Any) -> None:
    more = {"multiplier": 1, "dtype": "float16", "layout": "NHWC"}
    whole = synthetic() | {"command": "python benchmarks/gpu_depthwise.py"}
    whole["rows"] = [row | more | {"shape": f"{k}"} for k, row in enumerate(whole["rows"])]
    again = whole | {"date": "2999-01-01"}
    again["rows"] = [row | {"best peer / tilewright": 1000.0} for row in whole["rows"][:1]]
    files = {name: page.normal(part, "x") for name, part in (("a", again), ("b", whole))}
    words = " ".join(page.claims(files).split())
    assert f"{len(whole['rows'])} depthwise convolutions" in words
    assert words != " ".join(page.claims({"b": files["b"]}).split())


def layers() -> dict[str, Any]:
    """What the benchmark of layers on a CPU writes, made up."""
    row = {
        "operator": "depthwise_conv2d", "pass": "forward", "shape": "1x8x9x9", "kernel": "3x3",
        "stride": "1", "dtype": "float32", "layout": "NHWC", "PyTorch us": 80.0,
        "PyTorch channels_last us": 40.0, "ONNX Runtime us": 60.0, "best peer": "PyTorch",
    }  # fmt: skip
    rows = [
        row | {"section": section, "tilewright us": us, "best peer / tilewright": 40.0 / us}
        for section, us in (("1 thread", 20.0), ("1 thread", 5.0), ("2 threads", 10.0),
                            ("2 threads", 40.0))
    ]  # fmt: skip
    place = {
        "device": "a CPU", "date": "2026-11-21", "torch": "2.13", "onnxruntime": "1.27",
        "command": "python benchmarks/cpu_layers.py --threads 1 2",
    }  # fmt: skip
    return {"environment": place, "hints": ["Times varied."], "rows": rows}


def test_layers_on_a_cpu_have_a_table_for_each_number_of_threads(page: Any) -> None:
    text = page.section(page.normal(layers(), "cpu_layers"))
    lines = [re.sub(r" +", " ", line) for line in text.splitlines()]
    assert lines[0] == "## Depthwise layers on a CPU (a CPU)"
    assert "| 1 thread | 2 | 4.00 | 2.00 |" in "\n".join(lines)
    assert "| 2 threads | 2 | 2.00 | 1.00 |" in "\n".join(lines)
    assert "**2 threads** (depthwise_conv2d, forward, float32, NHWC, kernel 3x3, stride 1)" in lines


def test_the_claim_of_layers_has_the_mean_by_threads_and_the_least(page: Any) -> None:
    words = " ".join(page.claims({"x": page.normal(layers(), "cpu_layers")}).split())
    assert words == (
        "- a CPU: 2 depthwise layers run 4.0 times as fast with 1 thread and 2.0 times as fast "
        "with 2 threads as in the best of PyTorch 2.13 in NCHW and channels_last and of ONNX "
        "Runtime 1.27 (geometric mean, our better layout; at least 1.00 times)."
    )


def test_the_claim_of_layers_of_one_filter_in_two_types_names_these(page: Any) -> None:
    found = layers()
    others = [dict(row, section=f"{row['section']}, bfloat16") for row in found["rows"]]
    words = " ".join(
        page.claims({"x": page.normal(found | {"rows": found["rows"] + others}, "x")}).split()
    )
    assert words.startswith(
        "- a CPU: 2 depthwise layers with filters of 3x3 run 4.0 times as fast with 1 thread, 2.0 "
        "times as fast with 2 threads, 4.0 times as fast with 1 thread, bfloat16, 2.0 times"
    )


def test_what_an_epilogue_costs_has_means_and_the_worst(page: Any) -> None:
    row = {
        "pass": "forward", "shape": "1x8x9x9", "kernel": 3, "stride": 1, "dtype": "float32",
        "tilewright us": 10.0, "convolution alone": 9.0, "torch.compile NCHW us": 40.0,
        "best peer / tilewright": 4.0, "tile": "gpu.strips 2", "section": "bias+silu, batch 1",
    }  # fmt: skip
    rows = [
        row | {"layout": "NCHW", "fused / alone": 1.0},
        row | {"layout": "NHWC", "fused / alone": 1.21},
    ]
    place = {"device": "a GPU", "date": "2026-11-21", "torch": "2.13",
             "command": "python benchmarks/fused_epilogues.py --gpus 4"}  # fmt: skip
    results = page.normal({"environment": place, "GPUs": 4, "rows": rows}, "h200_fused_epilogues")
    lines = [re.sub(r" +", " ", line) for line in page.section(results).splitlines()]
    head = "| shape | tilewright us | convolution alone | torch.compile NCHW us |"
    assert any(line.startswith(head) for line in lines)
    assert any(line.startswith("| geometric mean |") and "1.10" in line for line in lines)
    words = " ".join(page.claims({"x": results}).split())
    assert "a GPU: depthwise layers of MobileNetV2" in words
    assert words.endswith("(geometric means): bias+silu, batch 1: 1.100 and 4.0.")


def test_the_claim_of_a_model_has_every_pass_that_both_sides_did(page: Any) -> None:
    best = [
        {"pass": "training", "PyTorch ms": 440.0, "tilewright ms": 80.0, "faster": 5.5},
        {"pass": "inference", "PyTorch ms": 55.0, "tilewright ms": 22.0, "faster": 2.5},
        {"pass": "merged inference", "PyTorch ms": 50.0},
    ]
    place = {"device": "a GPU", "date": "2026-11-21", "torch": "2.13",
             "command": "python benchmarks/replknet.py"}  # fmt: skip
    settings = {"model": "31B", "batch": 64, "dtype": "float16"}
    results = {"environment": place, "settings": settings, "rows": [], "best": best}
    words = " ".join(page.claims({"x": page.normal(results, "h200_replknet")}).split())
    assert words == (
        "- a GPU: RepLKNet-31B (batch 64, autocast to float16) beside the best of PyTorch 2.13, "
        "eager and compiled, in both layouts: training 5.5 times as fast, inference 2.5 times as "
        "fast."
    )


def test_the_claim_of_megengines_table_has_means_by_passes_and_type(page: Any) -> None:
    rows = [
        {"section": f"{image} square, {dtype}, {passes}", "kernel": 3,
         "best peer / tilewright": ratio}
        for image, dtype, passes, ratio in (
            (16, "float32", "forward", 2.0), (32, "float32", "forward", 8.0),
            (16, "float16", "forward and backward", 9.0),
        )
    ]  # fmt: skip
    place = {"device": "a GPU", "date": "2026-11-21", "torch": "2.13",
             "command": "python benchmarks/megengine_table.py --gpus 4"}  # fmt: skip
    results = page.normal(
        {"environment": place, "rows": rows, "layers": 24}, "h200_megengine_table"
    )
    assert "## MegEngine's table of large depthwise convolutions again (a GPU)" in (
        page.section(results)
    )
    words = " ".join(page.claims({"x": results}).split())
    assert words.endswith(
        "forward in float32 4.0, forward and backward in float16 9.0 times as fast (geometric "
        "means)."
    )


def test_a_page_is_made_of_the_results_that_are_there(page: Any, tmp_path: Path) -> None:
    assert page.load(tmp_path) == {}
    assert page.page_text({}).startswith("# Benchmarks")
    assert page.claims({}) == ""
