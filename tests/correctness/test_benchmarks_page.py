"""The page of benchmarks and the README's claim say what the committed results say.

``pytest --update-golden`` writes both again, as ``python benchmarks/page.py`` does.
"""

from __future__ import annotations

import importlib
import re
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
BENCHMARKS = ROOT / "benchmarks"
RATIO = "best peer / tilewright"


@pytest.fixture
def page(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Any:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    found = importlib.import_module("page")
    if request.config.getoption("--update-golden"):
        found.main()
    return found


def results(page: Any, name: str, rows: list[Any], **others: Any) -> Any:
    """Results of a benchmark, made up."""
    place = {
        "device": "a GPU", "date": "2026-11-21 10:00 UTC", "torch": "2.13", "onnxruntime": "1.27",
        "command": f"python benchmarks/{name}.py",
    }  # fmt: skip
    place |= others.pop("environment", {})
    return page.normal({"environment": place, "rows": rows, **others}, name)


def cells(text: str) -> list[list[str]]:
    """The cells of the tables of a page, a list a line."""
    lines = [line for line in text.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def plain(text: str) -> str:
    return " ".join(text.split())


def test_the_page_is_that_of_the_committed_results(page: Any) -> None:
    hint = "python benchmarks/page.py writes the page again"
    assert page.PAGE.read_text() == page.page_text(page.load()), hint


def test_the_page_of_files_is_that_of_the_committed_results(page: Any) -> None:
    hint = "python benchmarks/page.py writes the page again"
    assert page.SOURCES.read_text() == page.sources_text(page.load()), hint


def test_the_page_is_at_most_250_lines(page: Any) -> None:
    assert len(page.PAGE.read_text().splitlines()) <= 250


def test_the_readme_claims_what_was_measured(page: Any) -> None:
    text = page.README.read_text()
    hint = "python benchmarks/page.py writes the claim again"
    assert text == page.readme_text(text, page.load()), hint


def test_every_result_tells_its_device_its_date_and_its_command(page: Any) -> None:
    for found in page.load().values():
        assert {"device", "date", "command", "tilewright", "python", "numpy"} <= set(
            found["environment"]
        )
        assert page.script(found).exists()


def test_every_file_of_results_is_on_the_page_or_named_by_a_text_or_a_benchmark(page: Any) -> None:
    paths = [p for top in ("benchmarks", "docs", "src", "tests") for p in (ROOT / top).rglob("*")]
    texts = [path.read_text() for path in paths if path.suffix in (".py", ".md")]
    named = {name for text in texts for name in re.findall(r"\bh200_[\w-]+", text)}
    stems = {path.name.split(".")[0] for path in (BENCHMARKS / "results").iterdir()}
    several = tuple(name for name in named if name.endswith("_"))  # as h200_sanitizer_*.log
    assert not {s for s in stems - named - set(page.load()) if not s.startswith(several)}


def test_problems_of_a_filter_and_a_pass_are_one_line_with_mean_and_least(page: Any) -> None:
    row = {"pass": "forward", "shape": "64x32x112x112", "kernel": 3, "dtype": "float32",
           "tilewright / floor": 1.25}  # fmt: skip
    section = "MobileNetV2, K 3, batch 64, large, forward, float32"
    rows = [
        row | {"section": section, RATIO: 2.0},
        row | {"section": section.replace("32", "16"), RATIO: 8.0},
        row | {"section": "batch 1, forward, float32", RATIO: 3.0},
    ]
    found = results(page, "gpu_depthwise", rows)
    lines = cells(page.page_text({"x": found}))
    command = "`gpu_depthwise.py`"
    what = "3x3, batch 64, forward (MobileNetV2)"
    assert [what, "2", "4.0", "2.0", "PyTorch 2.13", command] in lines
    assert ["3x3, batch 1, forward", "1", "3.0", "3.0", "PyTorch 2.13", command] in lines
    assert plain(page.claims({"x": found})) == (
        "- a GPU, 3 depthwise convolutions and gradients with filters of 3x3 to 7x7: 3.6 times "
        "(2.0 to 8.0), at 1.25 times the least time that the device needs."
    )


def test_layers_on_a_cpu_have_a_line_for_each_number_of_threads(page: Any) -> None:
    row = {"kernel": "3x3", "dtype": "float32", "tilewright us": 1.0}
    rows = [
        row | {"section": threads, "kernel": kernel, RATIO: ratio}
        for threads, kernel, ratio in (
            ("1 thread", "3x3", 2.0), ("1 thread", "31x31", 8.0),
            ("2 threads", "3x3", 0.5), ("2 threads", "31x31", 12.5),
        )
    ]  # fmt: skip
    found = results(page, "cpu_layers", rows, environment={"device": "a CPU"})
    lines = cells(page.page_text({"x": found}))
    peer, command = "PyTorch 2.13, ONNX Runtime 1.27", "`cpu_layers.py`"
    first, second = (f"a CPU: 3x3 to 31x31, {n}, float32" for n in ("1 thread", "2 threads"))
    assert [first, "2", "4.0", "2.0", peer, command] in lines
    assert [second, "2", "2.5", "0.50", peer, command] in lines
    assert plain(page.claims({"x": found})).endswith(
        "4.0 times with 1 thread and 2.5 times with 2 threads as fast as the best of PyTorch 2.13 "
        "in either layout and ONNX Runtime 1.27 (geometric mean; at least 0.50)."
    )


@pytest.mark.parametrize("option", ["kind transposed", "kind volumes", "dense", "types uint8"])
def test_other_layers_are_not_claimed_to_be_depthwise_ones(page: Any, option: str) -> None:
    row = {"section": "1 thread", "name": "conv2d dgrad", "kernel": "4x4", "dtype": "float32"}
    more = {"layout": "NHWC", "groups": 1, "tilewright us": 1.0, RATIO: 2.0}
    found = results(page, f"cpu_layers --{option}", [row | more], environment={"device": "a CPU"})
    assert page.claims({"x": found}) == ""


def test_layers_in_fewer_products_have_a_line(page: Any) -> None:
    rows = [
        {"section": "1 thread", "name": f"conv2d forward{more}", RATIO: ratio}
        for more, ratio in (("", 1.0), (" winograd", 2.0), ("", 4.0), (" winograd", 8.0))
    ]
    found = results(page, "cpu_layers --winograd", rows, environment={"device": "a CPU"})
    lines = cells(page.page_text({"x": found}))
    peer, command = "PyTorch 2.13, ONNX Runtime 1.27", "`cpu_layers.py --winograd`"
    assert ["a CPU: 3x3 layers, winograd, 1 thread", "2", "4.0", "2.0", peer, command] in lines
    assert not page.claims({"x": found})


def test_the_cost_of_an_epilogue_has_the_mean_and_the_worst(page: Any) -> None:
    section = {"section": "bias+silu, batch 1", "tilewright us": 10.0}
    rows = [section | {RATIO: 4.0, "fused / alone": 1.0}, section | {"fused / alone": 1.21}]
    text = page.page_text({"x": results(page, "fused_epilogues", rows)})
    what, peer = "3x3 and bias+silu, batch 1, one kernel", "torch.compile 2.13"
    assert [what, "1", "4.0", "4.0", peer, "`fused_epilogues.py`"] in cells(text)
    assert "takes 10 % more time than the convolution alone (mean of 2, at most 21 %" in plain(text)


def test_a_model_says_what_was_not_compared_and_what_other_machines_gave(page: Any) -> None:
    best = [
        {"pass": "training", "PyTorch ms": 440.0, "tilewright ms": 80.0, "faster": 5.5},
        {"pass": "inference", "PyTorch ms": 55.0, "tilewright ms": 22.0, "faster": 2.5},
        {"pass": "merged inference", "PyTorch ms": 50.0},
    ]
    late = {"way": "PyTorch compile NCHW", "pass": "training", "failed": "it was not done in time"}
    found = results(
        page, "replknet", [], settings={"model": "31B", "batch": 64, "dtype": "float16"}, best=best,
        profile=[
            {"pass": "training", "variant": "PyTorch eager NCHW", "sum ms": 430.0},
            {"pass": "training", "variant": "tilewright eager NHWC", "sum ms": 43.0},
        ],
        **{"left out": [late]},
        **{"other machines": [{"device": "NVIDIA H200", "pass": "training", "faster": 4.5}]},
    )  # fmt: skip
    assert plain(page.claims({"x": found})) == (
        "- a GPU, RepLKNet-31B (batch 64, autocast to float16) after `optimize_`: training 4.5 to "
        "5.5 times on 2 machines (10.0 times by the GPU's time alone, without the host), inference "
        "2.5 times as fast as PyTorch 2.13."
    )
    text = page.page_text({"x": found})
    what, command = "RepLKNet-31B, batch 64, training", "`replknet.py`"
    assert [what, "1", "5.5", "5.5", "PyTorch 2.13", command] in cells(text)
    assert "training: graphs of torch.compile were not ready" in plain(text)


def test_stacks_of_layers_are_a_line_for_each_type_and_its_passes(page: Any) -> None:
    rows = [
        {"section": f"{image} square, {dtype}, {passes}", "kernel": 3, RATIO: ratio}
        for image, dtype, passes, ratio in (
            (16, "float32", "forward", 2.0), (32, "float32", "forward", 8.0),
            (16, "float16", "forward and backward", 9.0),
        )
    ]  # fmt: skip
    found = results(page, "megengine_table", rows, layers=24)
    lines = [line[:4] for line in cells(page.page_text({"x": found}))]
    name = "MegEngine's table, stacks of 24 layers"
    assert [f"{name}, float32, forward", "2", "4.0", "2.0"] in lines
    assert [f"{name}, float16, forward and backward", "1", "9.0", "9.0"] in lines


def test_a_page_is_made_of_the_results_that_are_there(page: Any, tmp_path: Path) -> None:
    assert page.load(tmp_path) == {}
    assert page.page_text({}).startswith("# Benchmarks")
    assert page.claims({}) == ""
