"""Models with a mistake somewhere run, or are refused in words: there is no crash, no exception but
ours, and no more memory than a small model may need."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.models import NETWORKS, node, onnx_model

import tilewright
from tilewright.graph import ModelError
from tilewright.ir.errors import TilewrightError

pytestmark = pytest.mark.needs_onnx

#: Elements of a value, at most: a mutated shape may ask for anything.
_MOST = 1 << 22


def _shapes() -> bytes:
    """Operators of shapes, which have most to get wrong."""
    nodes = [
        node("Shape", "x", "s"),
        node("Gather", "s one", "h"),
        node("Unsqueeze", "h axes", "u"),
        node("Concat", "u minus", "t", axis=0),
        node("Reshape", "x t", "r"),
        node("Transpose", "r", "p", perm=[1, 0]),
        node("Slice", "p begin end", "c"),
        node("Pad", "c pads", "d"),
        node("Softmax", "d", "e", axis=1),
        node("ReduceMean", "e", "m", axes=[0]),
        node("Expand", "m wide", "y"),
    ]
    numbers = {
        "one": 1, "axes": [0], "minus": [-1], "begin": [0, 0], "end": [4, 2],
        "pads": [1, 0, 0, 1], "wide": [2, 3],
    }  # fmt: skip
    constants = {k: np.array(v, "int64") for k, v in numbers.items()}
    return onnx_model(nodes, {"x": [1, 3, 16, 16]}, constants=constants)


def models() -> list[bytes]:
    return [_shapes(), *(f(16).model() for f in NETWORKS.values())]


def mutated(data: bytes, seed: int) -> bytes:
    """A model with one to three changes: of bytes, names, operators, attributes, shapes, types."""
    import onnx

    rng = random.Random(seed)
    if rng.random() < 0.2:
        text = bytearray(data)
        for _ in range(rng.randint(1, 3)):
            text[rng.randrange(len(text))] = rng.randrange(256)
        return bytes(text)
    proto = onnx.load_from_string(data)
    kinds = sorted({n.op_type for n in proto.graph.node} | {"Einsum", "MatMul", "Squeeze", "Tile"})
    for _ in range(rng.randint(1, 3)):
        n = rng.choice(proto.graph.node)
        change = rng.randrange(8)
        if change == 0 and n.input:
            known = [x for m in proto.graph.node for x in (*m.input, *m.output)]
            n.input[rng.randrange(len(n.input))] = rng.choice(known)
        elif change == 1:
            n.op_type = rng.choice(kinds)
        elif change == 2 and n.attribute:
            a = rng.choice(n.attribute)
            for k in range(len(a.ints)):
                a.ints[k] = rng.choice([0, -1, 1, 2, 7, 2**31, 2**62])
            a.i = rng.choice([0, -1, 1, 2, 7, 2**40])
        elif change == 3 and proto.graph.initializer:
            t = rng.choice(proto.graph.initializer)
            if t.dims:
                t.dims[rng.randrange(len(t.dims))] = rng.choice([0, 1, 3, 1000, -1, 2**40])
        elif change == 4 and proto.graph.initializer:
            rng.choice(proto.graph.initializer).data_type = rng.randrange(28)
        elif change == 5 and n.attribute:
            n.attribute.remove(rng.choice(n.attribute))
        elif change == 6 and n.input:
            del n.input[-1]
        else:
            proto.opset_import[0].version = rng.choice([1, 7, 11, 13, 20, 99])
    return bytes(proto.SerializeToString())


@given(which=st.integers(0, 4), seed=st.integers(0, 10**9))
def test_a_mutated_model_runs_or_is_refused(which, seed):
    data = mutated(models()[which], seed)
    try:
        model = tilewright.load(data)
        x = np.ones((1, 3, 16, 16), "float32")
        graph = model.graph({p.name: x for p in model.inputs})
    except TilewrightError:
        return
    assert sum(np.prod(v.shape, dtype=object) for v in graph.constants) < _MOST


def test_what_is_too_large_is_refused():
    wide = {"wide": np.array([1 << 20, 1 << 20], "int64")}
    for kind in ("Expand", "Tile"):
        data = onnx_model([node(kind, "x wide")], {"x": [1, 1]}, constants=wide)
        with pytest.raises(ModelError, match="elements"):
            tilewright.load(data)(np.ones((1, 1), "float32"))
