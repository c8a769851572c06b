"""ATen's attention: the function of that name, and what it becomes on each device."""

from __future__ import annotations

from typing import Any

from tilewright.graph.builder import cast, reshape
from tilewright.graph.fx.operation import Converter, Operation
from tilewright.graph.passes.find_attention import takes
from tilewright.graph.value import Node, Value
from tilewright.target import Target
from tilewright.topi.operators.attention import Attention

#: Keys of which a kernel may as well compute those that rows do not attend to.
_CAUSAL = 256


def _attention(n: Operation) -> tuple[Value | None, ...]:
    """The result; what else there is, gradients need alone."""
    q, k, v = n["query"], n["key"], n["value"]
    if n["dropout_p"]:
        raise n.error("with dropout")
    if q.rank != 4:
        raise n.error(f"of {q.rank} dimensions")
    given = [q, k, v]
    attributes: dict[str, Any] = {"causal": True} if n["is_causal"] else {}
    mask = n["attn_mask"] if n["attn_mask"] is not None else n["attn_bias"]
    if mask is not None:
        mask = _unexpanded(mask)
        given.append(mask if mask.dtype == "bool" else cast(mask, q.dtype))
    if mask is not None and mask.dtype == "bool":
        attributes["mask_dtype"] = "bool"
    if n["scale"] is not None:
        attributes["scale"] = repr(float(n["scale"]))
    shapes = [x.shape for x in given]
    p = Attention.of_shapes(*shapes, dtype=q.dtype, **attributes)
    if not is_faster(p, _target(n)):
        raise n.error(
            f"PyTorch's is faster, of {q.dtype} with {q.shape[-1]} elements a head and "
            f"{k.shape[-2]} keys"
        )
    return n("attention", *given, **attributes), *[None] * 8


def is_faster(p: Attention, target: Target) -> bool:
    """Whether a target has a kernel for attention that PyTorch's is not much faster than: of
    bfloat16 it has one with matrix instructions of CPUs, and on a GPU one that leaves out the
    keys that rows do not attend to, which are half of them where they are many and causal."""
    if target.kind == "llvm":
        return p.dtype != "bfloat16" and takes(p, target)
    return not (p.causal and p.keys > _CAUSAL) and takes(p, target)


def _unexpanded(mask: Value) -> Value:
    """A mask before it was expanded, which costs memory here."""
    while isinstance(mask, Node) and mask.operator == "broadcast_to":
        (source,) = mask.inputs
        mask = reshape(source, (1,) * (mask.rank - source.rank) + source.shape)
    return mask


def _target(n: Operation) -> Target:
    return Target.parse("cuda" if n.device == "cuda" else "llvm")


CONVERTERS: dict[str, Converter] = dict.fromkeys(
    ("scaled_dot_product_attention", "_scaled_dot_product_flash_attention_for_cpu",
     "_scaled_dot_product_flash_attention", "_scaled_dot_product_efficient_attention",
     "_scaled_dot_product_cudnn_attention", "_scaled_dot_product_fused_attention_overrideable"),
    _attention,
)  # fmt: skip
