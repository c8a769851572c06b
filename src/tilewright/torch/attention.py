"""Attention as a function of :mod:`torch.nn.functional`."""

from __future__ import annotations

import functools
import math
from typing import Any

import torch
import torch.nn.functional as F

from tilewright.graph.fx.attention import is_faster
from tilewright.ir.errors import ProblemError
from tilewright.topi import Attention
from tilewright.torch.any_operator import compute
from tilewright.torch.autocast import autocast
from tilewright.torch.calls import target_of
from tilewright.torch.eager_fast_path import is_transformed

#: Calls of different shapes whose answers are kept.
_MOST = 1024


def scaled_dot_product_attention(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor,
    attn_mask: torch.Tensor | None = None, dropout_p: float = 0.0, is_causal: bool = False,
    scale: float | None = None, enable_gqa: bool = False,
) -> torch.Tensor:  # fmt: skip
    """``F.scaled_dot_product_attention`` by :func:`~tilewright.torch.compute`.

    Parameters
    ----------
    query : (..., heads, L, E), or with fewer dimensions.
    key, value : (..., heads, S, E) and (..., heads, S, Ev); with ``enable_gqa`` of a divisor of the
        heads of queries.
    attn_mask : None, or what is broadcast to (..., heads, L, S): true where a row attends to a key,
        or added.
    scale : of the products; by default ``1 / sqrt(E)``.

    The output is (..., heads, L, Ev). Tensors that were transposed from (batch, L, heads, E) are
    read as they lie, and so lies the output. PyTorch computes what Tilewright has no faster
    kernel for: whatever needs a gradient, ``dropout_p``, tensors without an element, float32 on a
    GPU, bfloat16 on a CPU, and calls under ``torch.compile``, whose backend "tilewright" takes
    attention from the graph. Raises what PyTorch raises.
    """
    tensors = (query, key, value, *(() if attn_mask is None else (attn_mask,)))

    def plain() -> torch.Tensor:
        return F.scaled_dot_product_attention(
            query, key, value, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa
        )

    if torch.compiler.is_compiling() or dropout_p or is_transformed():
        return plain()
    if torch.is_grad_enabled() and any(t.requires_grad for t in tensors):
        return plain()
    if not _alike(query, key, value, attn_mask, is_causal, enable_gqa):
        return plain()
    shape = (*query.shape[:-1], value.shape[-1])
    query, key, value = autocast(query, key, value)
    q, k, v = (_heads(t) for t in (query, key, value))
    rows_first = all(t.transpose(1, 2).is_contiguous() for t in (q, k, v))
    if rows_first:
        q, k, v = (t.transpose(1, 2) for t in (q, k, v))
    values: list[tuple[str, Any]] = [("layout", "BSHD" if rows_first else "BHSD")]
    values.append(("causal", is_causal))
    if scale is not None:
        values.append(("scale", repr(float(scale))))
    given = [q, k, v]
    if attn_mask is not None:
        if attn_mask.dtype == torch.bool:
            values.append(("mask_dtype", "bool"))
        else:
            attn_mask = attn_mask.to(q.dtype)
        given.append(_mask(attn_mask, shape))
    own = tuple(values)
    dtype = str(q.dtype).removeprefix("torch.")
    if not _has_kernel(tuple(t.shape for t in given), dtype, own, q.device):
        return plain()
    found = compute(Attention, *given, **dict(own))
    return (found.transpose(1, 2) if rows_first else found).reshape(shape)


def _alike(query: Any, key: Any, value: Any, mask: Any, causal: bool, shared: bool) -> bool:
    """Whether PyTorch has no error about these, and they have elements; shapes that do not fit are
    problems that there are not."""
    if not (query.dim() == key.dim() == value.dim() >= 2):
        return False
    if not query.shape[:-3] == key.shape[:-3] == value.shape[:-3]:
        return False
    if query.dim() > 2 and not shared and query.shape[-3] != key.shape[-3]:
        return False
    whole = (query, key, value) if mask is None else (query, key, value, mask)
    if any(t.device != query.device or not t.numel() for t in whole):
        return False
    if mask is not None and (causal or mask.dim() > query.dim()):
        return False
    if mask is not None and mask.dtype not in (torch.bool, query.dtype):
        return False
    return bool(query.dtype == key.dtype == value.dtype)


def _heads(x: torch.Tensor) -> torch.Tensor:
    """(batch, heads, rows, elements)."""
    if x.dim() > 4:
        return x.flatten(0, -4)
    return x[(None,) * (4 - x.dim())]


def _mask(mask: torch.Tensor, shape: tuple[int, ...]) -> torch.Tensor:
    """A mask in at most four dimensions, of a result of this shape."""
    if len(shape) <= 4:
        return mask
    mask = mask[(None,) * (len(shape) - mask.dim())]
    return mask.expand(*shape[:-3], *mask.shape[-3:]).flatten(0, -4)


@functools.lru_cache(_MOST)
def _has_kernel(
    shapes: tuple[tuple[int, ...], ...], dtype: str, values: tuple[Any, ...], device: torch.device
) -> bool:
    if dtype not in Attention.TYPES or device.type not in ("cpu", "cuda"):
        return False
    try:
        p = Attention.of_shapes(*shapes, dtype=dtype, **dict(values))
    except ProblemError:  # about which PyTorch has an error of its own
        return False
    return math.prod(p.result.shape) < p.most_batch and is_faster(p, target_of(device))
