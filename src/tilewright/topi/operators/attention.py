"""Scaled dot-product attention."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from tilewright.ir.errors import ProblemError
from tilewright.topi.arguments import one_of, whole
from tilewright.topi.problem import Problem, TensorType

if TYPE_CHECKING:
    from tilewright.topi.nn.attention import AttentionDeclaration

#: How queries, keys and values lie: B counts the batch, H heads, S rows or keys, D elements of a
#: head. In the last they are three of one tensor, as a layer that projects to all of them makes it.
LAYOUTS = ("BHSD", "BSHD", "BS3HD")
#: Types of masks, beside that of the other tensors.
_BOOL = "bool"


@dataclass(frozen=True, kw_only=True)
class Attention(Problem):
    """``softmax(scale * Q K^T + mask) V`` for each head: (rows, depth), (keys, depth) and (keys,
    width) to (rows, width).

    Parameters
    ----------
    batch, heads : heads of queries, and of the result, for each of a batch.
    kv_heads : heads of keys and values, a divisor of ``heads``: neighbouring heads of queries share
        one of them. 0 are as many as ``heads``.
    rows, keys : of Q and of K and V.
    depth, width : elements of a query and of a value; a ``width`` of 0 is ``depth``.
    scale : of products, in a text of a number; by default ``1 / sqrt(depth)``.
    causal : whether row i attends to the keys up to i alone.
    mask : the shape of a mask, which is broadcast to (batch, heads, rows, keys), or repeated along
        a batch that is a multiple of its first extent, as of the windows of some images; empty
        without one.
    mask_dtype : "" for a mask of ``dtype`` that is added, "bool" for one that is true where a row
        attends to a key.
    layout : one of :data:`LAYOUTS`; the result lies as queries do, without the 3.

    A row that attends to no key is 0, as it is in PyTorch. Sums and the softmax are in
    ``accumulate``. The other parameters are those of
    :class:`~tilewright.topi.problem.Problem`; there are no gradients and no epilogue.

    >>> p = Attention.of_shapes((2, 3, 5, 8), (2, 3, 7, 8), (2, 3, 7, 8))
    >>> p.result.shape, p.flops
    ((2, 3, 5, 8), 6720)
    """

    NAMES: ClassVar[tuple[str, ...]] = ("attention",)
    FORMS: ClassVar[tuple[str, ...]] = ("nn.attention",)
    TYPES: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "float32": ("float32", "float64"), "float16": ("float32", "float64"),
        "bfloat16": ("float32", "float64"), "float64": ("float64",),
    }  # fmt: skip

    batch: int = 1
    heads: int = 1
    kv_heads: int = 0
    rows: int
    keys: int
    depth: int
    width: int = 0
    scale: str = ""
    causal: bool = False
    mask: tuple[int, ...] = ()
    mask_dtype: str = ""
    layout: str = LAYOUTS[0]

    def check(self) -> None:
        """Values in one form; raises :class:`ProblemError` for what is no attention."""
        self.sizes("batch", "heads", "rows", "keys", "depth")
        self.put("kv_heads", whole("kv_heads", self.kv_heads, 0) or self.heads)
        self.put("width", whole("width", self.width, 0) or self.depth)
        self.put("causal", bool(self.causal))
        self.put("scale", self._scale())
        one_of("layout", self.layout, LAYOUTS)
        if self.epilogue:
            raise ProblemError("attention has no epilogue: leave it out")
        if self.heads % self.kv_heads:
            raise ProblemError(
                f"{self.heads} heads of queries do not share {self.kv_heads} of keys evenly: "
                "kv_heads divides heads"
            )
        packed = self.kv_heads == self.heads and self.keys == self.rows and self.width == self.depth
        if self.is_packed and not packed:
            raise ProblemError("queries, keys and values of one tensor are of one shape")
        self.put("mask", tuple(whole("an extent of the mask", e) for e in self.mask))
        one_of("type of the mask", self.mask_dtype, ("", _BOOL))
        if not self.mask:
            self.put("mask_dtype", "")
        whole_mask = (self.batch, self.heads, self.rows, self.keys)
        behind = whole_mask[4 - len(self.mask) :]
        divides = [n % e == 0 if k == len(behind) - 4 else e in (1, n)
                   for k, (e, n) in enumerate(zip(self.mask, behind, strict=False))]  # fmt: skip
        if len(self.mask) > 4 or not all(divides):
            raise ProblemError(f"a mask of shape {self.mask} is not broadcast to {whole_mask}")

    def _scale(self) -> str:
        """The scale as it is kept: empty where it is the default."""
        if self.scale == "":
            return ""
        try:
            value = float(self.scale)
        except (TypeError, ValueError):
            raise ProblemError(f"scale is a number, got {self.scale!r}") from None
        return "" if value == 1 / math.sqrt(self.depth) else repr(value)

    @classmethod
    def of_shapes(cls, *shapes: tuple[int, ...], **values: Any) -> Attention:
        """Of queries, keys and values, or of the one tensor of all three, and of a mask."""
        layout = values.get("layout", LAYOUTS[0])
        own = 1 if layout == "BS3HD" else 3
        if len(shapes) not in (own, own + 1):
            raise ProblemError(f"{own} tensors and a mask at most, not {len(shapes)}")
        rank = len(str(layout))
        if any(len(s) != rank for s in shapes[:own]):
            raise ProblemError(f"tensors of {layout} have {rank} dimensions, not {shapes[:own]}")
        mask = shapes[own] if len(shapes) > own else ()
        if own == 1:
            batch, rows, three, heads, depth = shapes[0]
            if three != 3:
                raise ProblemError(f"queries, keys and values are 3 of {shapes[0]}, not {three}")
            return cls(batch=batch, heads=heads, rows=rows, keys=rows, depth=depth, mask=mask,
                       **values)  # fmt: skip
        first = layout == "BHSD"
        q, k, v = (s if first else (s[0], s[2], s[1], s[3]) for s in shapes[:3])
        if k[:3] != v[:3] or q[0] != k[0] or q[3] != k[3]:
            raise ProblemError(f"queries, keys and values do not fit: {shapes[:3]} in {layout}")
        return cls(
            batch=q[0], heads=q[1], kv_heads=k[1], rows=q[2], keys=k[2], depth=q[3], width=v[3],
            mask=mask, **values,
        )  # fmt: skip

    @property
    def is_packed(self) -> bool:
        """Whether queries, keys and values are one tensor."""
        return self.layout == "BS3HD"

    @property
    def scaled_by(self) -> float:
        """What products of queries and keys are multiplied by."""
        return float(self.scale) if self.scale else 1 / math.sqrt(self.depth)

    @property
    def flops(self) -> int:
        """Of both products; half of them where rows attend to no key behind them."""
        pairs = self.rows * self.keys
        if self.causal:
            full = min(self.rows, self.keys)
            pairs = full * (full + 1) // 2 + (self.rows - full) * self.keys
        return 2 * self.batch * self.heads * pairs * (self.depth + self.width)

    # -- tensors -----------------------------------------------------------------------------

    def _shape(self, heads: int, rows: int, depth: int) -> tuple[int, ...]:
        if self.layout == "BHSD":
            return self.batch, heads, rows, depth
        return self.batch, rows, heads, depth

    def inputs(self) -> dict[str, TensorType]:
        """ "q", "k" and "v", or "qkv", and "mask"."""
        shapes: dict[str, tuple[int, ...]]
        if self.is_packed:
            shapes = {"qkv": (self.batch, self.rows, 3, self.heads, self.depth)}
        else:
            shapes = {
                "q": self._shape(self.heads, self.rows, self.depth),
                "k": self._shape(self.kv_heads, self.keys, self.depth),
                "v": self._shape(self.kv_heads, self.keys, self.width),
            }
        found = {name: TensorType(shape, self.dtype) for name, shape in shapes.items()}
        if self.mask:
            found["mask"] = TensorType(self.mask, self.mask_dtype or self.dtype)
        return found

    @property
    def result(self) -> TensorType:
        """A row of values for each row of queries."""
        return TensorType(self._shape(self.heads, self.rows, self.width), self.dtype)

    def declare(self, given: Any = None) -> AttentionDeclaration:
        """The stages of one head after the other; see :mod:`tilewright.topi.nn.attention`."""
        from tilewright.topi.nn.attention import declare_attention

        return declare_attention(self)

    # -- in PyTorch's words --------------------------------------------------------------------

    def torch_function(self, torch: Any) -> Callable[..., Any]:
        """``torch.nn.functional.scaled_dot_product_attention`` of views."""

        def forward(*tensors: Any) -> Any:
            own, mask = _split(tensors, 1 if self.is_packed else 3)
            q, k, v = own[0].permute(2, 0, 3, 1, 4) if self.is_packed else own
            if self.layout == "BSHD":
                q, k, v = (x.transpose(1, 2) for x in (q, k, v))
            y = torch.nn.functional.scaled_dot_product_attention(
                q, k, v, attn_mask=self._whole_mask(torch, q, mask), scale=self.scaled_by,
                is_causal=self.causal and mask is None, enable_gqa=self.kv_heads != self.heads,
            )  # fmt: skip
            return y if self.layout == "BHSD" else y.transpose(1, 2)

        return forward

    def _whole_mask(self, torch: Any, q: Any, mask: Any) -> Any:
        """A mask that says what ``causal`` does as well, which PyTorch takes without one only."""
        if mask is not None and len(self.mask) == 4:
            mask = mask.repeat(self.batch // self.mask[0], 1, 1, 1)
        if mask is None or not self.causal:
            return mask
        until = torch.ones(self.rows, self.keys, dtype=torch.bool, device=q.device).tril()
        if mask.dtype == torch.bool:
            return mask & until
        return mask.masked_fill(~until, -math.inf)


def _split(tensors: Sequence[Any], own: int) -> tuple[Sequence[Any], Any]:
    return tensors[:own], tensors[own] if len(tensors) > own else None
