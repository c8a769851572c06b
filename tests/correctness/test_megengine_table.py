"""MegEngine's table: times of one layer become those of a stack, beside the published ones."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture
def table(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return importlib.import_module("megengine_table")


def measured(section, kernel, pass_, ours, nchw, nhwc):
    """A row as it is measured of one layer, in microseconds."""
    return {
        "section": section, "kernel": kernel, "pass": pass_, "tilewright us": ours,
        "PyTorch NCHW us": nchw, "PyTorch NHWC us": nhwc,
    }  # fmt: skip


def test_a_stack_is_twenty_four_layers(table):
    rows = [
        measured("32 square, float32", 31, pass_, *us)
        for pass_, us in (
            ("forward", (100, 1000, 2000)), ("dgrad", (200, 4000, 3000)),
            ("wgrad", (200, 5000, 6000)),
        )
    ]  # fmt: skip
    alone = measured("16 square, float16", 3, "forward", 10, 20, 15)
    single, half, whole = table.stacks([*rows, alone])
    assert (single["section"], single["kernel"]) == ("32 square, float32, forward", 31)
    assert single["tilewright ms"] == pytest.approx(2.4)
    assert single["NCHW / tilewright"] == single["best peer / tilewright"] == pytest.approx(10)
    assert single["MegEngine ms"] == 96.7
    assert single["its PyTorch / MegEngine"] == pytest.approx(734.8 / 96.7)
    assert half["best peer / tilewright"] == pytest.approx(1.5)
    assert "MegEngine ms" not in half  # published in float32 alone
    assert whole["section"] == "32 square, float32, forward and backward"
    assert (whole["PyTorch NCHW ms"], whole["tilewright ms"]) == pytest.approx((240, 12))
    assert whole["best peer / tilewright"] == pytest.approx(20)
    assert "MegEngine ms" not in whole


def test_every_layer_of_the_table_is_measured_in_every_pass(table, monkeypatch):
    options = type("Options", (), {"images": (64,), "kernels": table.KERNELS, "only": "float16",
                                   "batch": 64, "channels": 384})  # fmt: skip
    found = [p for _, p in table.problems(options)]
    assert len(found) == 15 * 3
    assert {(p.kernel_h, p.out_image) for p in found} == {(k, (64, 64)) for k in range(3, 32, 2)}


@pytest.mark.needs_torch
def test_the_table_is_written(tmp_path):
    command = (
        "--images 16 --kernels 5 --batch 1 --channels 4 --only float32 --target llvm "
        f"--out {tmp_path}"
    )
    script = str(BENCHMARKS / "megengine_table.py")
    ran = subprocess.run(
        [sys.executable, script, *command.split()], capture_output=True, text=True, timeout=120,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    assert "**16 square, float32, forward**" in ran.stdout
    found = json.loads((tmp_path / "h200_megengine_table.json").read_text())
    assert [row["section"].rpartition(", ")[2] for row in found["rows"]] == [
        "forward", "forward and backward",
    ]  # fmt: skip
    assert len((tmp_path / "h200_megengine_table-tried.jsonl").read_text().splitlines()) == 3
