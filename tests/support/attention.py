"""Attention in float64, and problems to try."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from tests.support.depthwise import array_type, decode, encode, relative_error

from tilewright.topi import Attention

#: Of one key, one row, odd sizes, shared heads, each layout, each kind of mask.
PROBLEMS = (
    Attention(batch=2, heads=3, rows=5, keys=7, depth=8),
    Attention(rows=1, keys=1, depth=1),
    Attention(batch=2, heads=4, kv_heads=2, rows=5, keys=1, depth=3, width=9, layout="BSHD"),
    Attention(batch=3, heads=2, rows=49, keys=49, depth=32, layout="BS3HD", mask=(1, 2, 49, 49)),
    Attention(batch=4, heads=1, rows=9, keys=9, depth=8, layout="BS3HD", mask=(2, 1, 1, 9)),
    Attention(heads=2, rows=37, keys=50, depth=33, mask=(37, 50), mask_dtype="bool", scale="0.3"),
    Attention(heads=2, rows=33, keys=21, depth=17, causal=True),
    Attention(heads=1, rows=20, keys=70, depth=16, mask=(1, 20, 70), causal=True, scale="-2"),
    Attention(heads=2, rows=70, keys=197, depth=64, layout="BSHD"),
)


def inputs(p: Attention, seed: int = 0) -> dict[str, np.ndarray[Any, Any]]:
    """Normal numbers; of a mask some are minus infinity, or false, and all of its first row."""
    rng = np.random.default_rng(seed)
    found = {}
    for name, t in p.inputs().items():
        made = rng.standard_normal(t.shape)
        if name == "mask":
            lost = rng.random(t.shape) < 0.3
            lost[..., :1, :] |= t.shape[-2] > 1
            found[name] = (
                ~lost if t.dtype == "bool" else encode(np.where(lost, -np.inf, made), t.dtype)
            )
        else:
            found[name] = encode(made, t.dtype)
    return found


def exact(p: Attention, arrays: Mapping[str, Any]) -> np.ndarray[Any, Any]:
    """The result in float64."""
    if p.is_packed:
        q, k, v = decode(arrays["qkv"]).transpose(2, 0, 3, 1, 4)
    else:
        order = (0, 1, 2, 3) if p.layout == "BHSD" else (0, 2, 1, 3)
        q, k, v = (decode(arrays[name]).transpose(order) for name in "qkv")
    k, v = (np.repeat(x, p.heads // p.kv_heads, axis=1) for x in (k, v))
    scores = q @ k.swapaxes(2, 3) * p.scaled_by
    if p.mask:
        mask = arrays["mask"]
        if len(p.mask) == 4:
            mask = np.tile(mask, (p.batch // p.mask[0], 1, 1, 1))
        scores = np.where(mask, scores, -np.inf) if p.mask_dtype else scores + decode(mask)
    if p.causal:
        scores = np.where(np.tri(p.rows, p.keys, dtype=bool), scores, -np.inf)
    powers = np.exp(scores - np.maximum(scores.max(-1, keepdims=True), -1e300))
    found = powers @ v / np.maximum(powers.sum(-1, keepdims=True), 1e-300)
    return found if p.layout == "BHSD" else found.transpose(0, 2, 1, 3)


def error(p: Attention, kernel: Any, seed: int = 0) -> float:
    """The relative error of a kernel; nothing beside its output may change."""
    arrays, margin = inputs(p, seed), 64
    size = math.prod(p.result.shape)
    whole = np.full(size + 2 * margin, 7, array_type(p.dtype))
    whole[margin : margin + size] = encode(np.full(size, np.nan), p.dtype)
    kernel(*arrays.values(), whole[margin : margin + size].reshape(p.result.shape))
    assert (whole[:margin] == 7).all()
    assert (whole[margin + size :] == 7).all()
    result = whole[margin : margin + size].reshape(p.result.shape)
    return relative_error(result, exact(p, arrays))
