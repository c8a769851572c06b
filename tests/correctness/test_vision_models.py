"""The models of the benchmark are those of the papers, and optimize_ finds what is to be found."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.needs_torch


@pytest.fixture
def models(monkeypatch):
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "benchmarks"))
    return importlib.import_module("vision_models").MODELS


@pytest.mark.parametrize(
    ("name", "parameters", "depthwise"),
    [("ConvNeXt-T", 28_589_128, 18), ("MobileNetV2", 3_504_872, 17)],
)
def test_the_models_are_those_of_the_papers(models, name, parameters, depthwise):
    import tilewright.torch

    with torch.device("meta"):
        model = models[name]()
    assert sum(p.numel() for p in model.parameters()) == parameters
    assert len(tilewright.torch.optimize_(model).replaced) == depthwise
    assert model(torch.empty(2, 3, 224, 224, device="meta")).shape == (2, 1000)
