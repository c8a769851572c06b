"""Models with a mistake somewhere run, or are refused in words: there is no crash, no exception but
ours, and no more memory than a small model may need."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.model_mutants import MOST_INPUT, Mutant, drawn, shape
from tests.support.models import node, onnx_model

import tilewright
from tilewright.graph import ModelError
from tilewright.ir.errors import TilewrightError

pytestmark = pytest.mark.needs_onnx


@given(seed=st.integers(0, 10**9))
def test_a_mutated_model_runs_or_is_refused(seed):
    data = Mutant("onnx", seed).draw().data
    try:
        model = tilewright.load(data)
        shapes = [shape(p) for p in model.inputs]
        if sum(np.prod(s, dtype=object) for s in shapes) > MOST_INPUT:
            return
        rng = np.random.default_rng(0)
        x = {p.name: drawn(rng, s, p.dtype) for p, s in zip(model.inputs, shapes, strict=True)}
        graph = model.graph(x)
    except TilewrightError:
        return
    assert sum(np.prod(v.shape, dtype=object) for v in graph.constants) < MOST_INPUT


def test_what_is_too_large_is_refused():
    wide = {"wide": np.array([1 << 20, 1 << 20], "int64")}
    for kind in ("Expand", "Tile"):
        data = onnx_model([node(kind, "x wide")], {"x": [1, 1]}, constants=wide)
        with pytest.raises(ModelError, match="elements"):
            tilewright.load(data)(np.ones((1, 1), "float32"))
