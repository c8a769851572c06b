"""The benchmark of whole models times what it says, and tells whose kernels the time goes to."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.needs_torch
nn = torch.nn

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture
def loaded(monkeypatch):
    """Imports a file of the folder by its name."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return importlib.import_module


def test_replknet_is_timed_on_both_sides_and_written(tmp_path):
    command = (
        "--model tiny --device cpu --dtype float32 --batch 1 --engines eager --layouts NCHW "
        f"--passes inference --seconds 60 --rounds 1 --out {tmp_path}"
    )
    script = str(BENCHMARKS / "replknet.py")
    ran = subprocess.run(
        [sys.executable, script, *command.split()], capture_output=True, text=True, timeout=120,
        env={**os.environ, "OMP_NUM_THREADS": "1"},  # threads would wait for cores
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    (path,) = tmp_path.glob("*.json")
    found = json.loads(path.read_text())
    assert found["left out"] == []
    (row,) = found["rows"]
    assert (row["pass"], row["engine"], row["layout"]) == ("inference", "eager", "NCHW")
    assert row["faster"] == row["PyTorch ms"] / row["tilewright ms"]
    before, after = found["profile"]
    assert before["tilewright ms"] == 0 < before["PyTorch depthwise ms"]
    assert after["PyTorch depthwise ms"] == 0 < after["tilewright ms"]


def test_a_variant_that_is_left_out_leaves_the_others_rows(loaded):
    module, variants = loaded("replknet"), loaded("model_variants")
    one = variants.Variant("PyTorch", "eager", "NCHW", ("training",))
    two, three = (
        variants.Variant("tilewright", "eager", layout, ("training",)) for layout in module.LAYOUTS
    )
    medians = {("training", one): 30.0, ("training", two): 10.0, ("training", three): 6.0}
    first, second = module.rows(medians)
    assert (first["layout"], first["faster"]) == ("NCHW", 3.0)
    assert (second["layout"], second["PyTorch ms"], second["faster"]) == ("NHWC", None, None)
    (row,) = module.best(medians, 60)
    assert (row["tilewright variant"], row["faster"]) == ("eager NHWC", 5.0)
    assert (row["PyTorch images/s"], row["tilewright images/s"]) == (2000, 10000)


def test_convolutions_are_told_apart_by_their_weights(loaded):
    classes = loaded("kernel_classes")
    dense, deep = nn.Conv2d(4, 4, 3), nn.Conv2d(4, 4, 3, groups=4)
    x = torch.randn(1, 4, 40, 40, requires_grad=True)
    for module, kind in ((dense, classes.OTHERS), (deep, classes.THEIRS)):
        found = classes.profiled(
            lambda module=module: module(x).backward(torch.ones(1, 4, 38, 38)), "cpu"
        )
        assert found[classes.OURS] == 0
        assert (found[classes.THEIRS] > 0) == (kind == classes.THEIRS)


class Event:
    """What a profile has of one kernel, or of the operator that launched kernels."""

    def __init__(self, name, us=0.0, kernels=(), parent=None, shapes=(), cuda=False):
        self.name, self.duration, self.kernels, self.cpu_parent = name, us, kernels, parent
        self.input_shapes, self.is_user_annotation = shapes, False
        self.device_type = type("Type", (), {"name": "CUDA" if cuda else "CPU"})
        self.time_range = type("Range", (), {"elapsed_us": lambda _: us})()


def test_a_gpu_is_at_work_once_while_kernels_overlap(loaded, monkeypatch):
    classes = loaded("kernel_classes")
    events = [Event("operator"), *(Event("kernel", cuda=True) for _ in range(4))]
    ranges = ((0, 99e3), (4e3, 6e3), (1e3, 3e3), (5e3, 9e3), (5e3, 7e3))
    for event, (begin, end) in zip(events, ranges, strict=True):
        event.time_range = SimpleNamespace(start=begin, end=end)
    monkeypatch.setattr(classes, "_traced", lambda *_, **__: events)
    assert classes.busy(lambda: None) == 7


def test_kernels_belong_to_the_operator_that_launched_them(loaded):
    classes = loaded("kernel_classes")
    kernels = [
        Event(name, us, cuda=True)
        for name, us in (("tuned", 1e3), ("winograd", 2e3), ("gemm", 4e3), ("main_kernel", 8e3),
                         ("conv_depthwise2d_forward", 16e3), ("layer_norm", 32e3))
    ]  # fmt: skip
    deep = Event("aten::convolution_backward", shapes=[[1, 4, 9, 9], [1, 4, 9, 9], [4, 1, 3, 3]])
    operators = [
        Event("aten::copy_", kernels=kernels[:1], parent=Event("tilewright::depthwise_conv2d")),
        Event("aten::cudnn", kernels=kernels[1:2], parent=deep),
        Event("aten::mm", kernels=kernels[2:3]),
    ]
    assert classes.by_class([*kernels, *operators], cuda=True) == {
        classes.OURS: 1 + 8, classes.THEIRS: 2 + 16, classes.OTHERS: 4 + 32,
    }  # fmt: skip
