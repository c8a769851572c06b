"""Two products of matrices with a function of elements between them, as one operator."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from tilewright.ir.errors import ProblemError
from tilewright.topi.batch import Batch
from tilewright.topi.epilogue import Step, chain_types, parse_epilogue
from tilewright.topi.once import once
from tilewright.topi.problem import Problem, TensorType

if TYPE_CHECKING:
    from tilewright.topi.nn.mlp import MlpDeclaration


@dataclass(frozen=True, kw_only=True)
class Mlp(Problem):
    """``f(A B^T) C`` of matrices A (m, k), B (hidden, k) and C (hidden, n): two layers of a network
    and the activation between them.

    Parameters
    ----------
    m, k, hidden, n : extents.
    inner : f, as an epilogue of the first product without tensors of its shape, in a text, such as
        "bias+gelu". Its result is rounded to ``dtype``.
    norm : where rows of A are normalised first, to a mean of 0 and a variance of 1, the small
        number that is added to the variance, in a text; the result is rounded to ``dtype``. A
        factor and a term of each column, as layer normalisation has them, belong into B and a bias.
    epilogue : of the second product; tensors a channel have one element a column of the result.

    B lies as the weight of a linear layer, C as the transposed weight of one. The other parameters
    are those of :class:`~tilewright.topi.problem.Problem`; there are no gradients.

    >>> p = Mlp(m=5, k=3, hidden=8, n=4, inner="bias+relu", epilogue="residual")
    >>> {name: t.shape for name, t in p.inputs().items()}
    {'a': (5, 3), 'b': (8, 3), 'inner_bias': (8,), 'c': (8, 4), 'residual': (5, 4)}
    """

    NAMES: ClassVar[tuple[str, ...]] = ("mlp",)
    TYPES: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "float32": ("float32", "float64"), "float16": ("float32", "float64"),
        "bfloat16": ("float32", "float64"), "float64": ("float64",),
    }  # fmt: skip

    m: int
    k: int
    hidden: int
    n: int
    inner: str = ""
    norm: str = ""

    def check(self) -> None:
        """Values in one form; raises :class:`ProblemError` for what are no two products."""
        self.sizes("m", "k", "hidden", "n")
        steps = parse_epilogue(self.inner)
        chain_types(steps, self.dtype, self.accumulate)
        if any(shape == "output" for step in steps for _, shape in step.tensors):
            raise ProblemError(
                f"inner {self.inner!r} reads a tensor of the shape of the first product: compute "
                "the two products apart"
            )
        self.put("inner", "+".join(map(str, steps)))
        self.put("norm", self._norm())

    def _norm(self) -> str:
        """As it is kept."""
        if self.norm == "":
            return ""
        try:
            value = float(self.norm)
        except (TypeError, ValueError):
            value = -1.0
        if not 0 <= value < math.inf:
            raise ProblemError(f"norm is a small number, not negative, got {self.norm!r}")
        return repr(abs(value))  # of zeros the positive one

    @classmethod
    def of_shapes(cls, *shapes: tuple[int, ...], **values: Any) -> Mlp:
        """Of A, B, what ``inner`` reads, and C."""
        steps = parse_epilogue(values.get("inner", ""))
        last = 2 + sum(len(step.tensors) for step in steps)
        if len(shapes) <= last or any(len(shapes[k]) != 2 for k in (0, 1, last)):
            raise ProblemError(f"two matrices, what {steps} reads, and another one, not {shapes}")
        (m, k), (hidden, depth), (rows, n) = shapes[0], shapes[1], shapes[last]
        if k != depth or hidden != rows:
            raise ProblemError(f"products of {shapes[0]}, {shapes[1]} and {shapes[last]}")
        return cls(m=m, k=k, hidden=hidden, n=n, **values)

    @once
    def steps(self) -> tuple[Step, ...]:
        """Those of ``inner``."""
        return parse_epilogue(self.inner)

    @property
    def flops(self) -> int:
        """Of both products."""
        return 2 * self.m * self.hidden * (self.k + self.n)

    # -- batches -----------------------------------------------------------------------------

    def batch_of(self, images: int, among: Collection[str]) -> Batch | None:
        """Rows of A, and of what an epilogue reads of them."""
        shapes = self.shapes()
        names = {n for n, t in shapes.items() if len(t) > 1} - {"b", "c"}
        return Batch.of(shapes, sorted(names), images) if names <= set(among) else None

    def at(self, batch: Batch, count: int) -> Mlp:
        return self.replace(m=count)

    # -- tensors -----------------------------------------------------------------------------

    def inputs(self) -> dict[str, TensorType]:
        """ "a" and "b", those of ``inner`` with that before their names, "c", the epilogue's."""
        kinds = chain_types(self.steps, self.dtype, self.accumulate).tensors
        inner = {
            f"inner_{name}": TensorType((self.hidden,), kind)
            for step, kind in zip(self.steps, kinds, strict=True)
            for name, _ in step.tensors
        }
        a, b = (TensorType((rows, self.k), self.dtype) for rows in (self.m, self.hidden))
        c = TensorType((self.hidden, self.n), self.dtype)
        more = self.epilogue_inputs((self.m, self.n), self.n)
        return {"a": a, "b": b} | inner | {"c": c} | more

    @property
    def result(self) -> TensorType:
        """(m, n)."""
        return TensorType((self.m, self.n), self.result_dtype)

    def declare(self, given: Any = None) -> MlpDeclaration:
        """The stages; see :mod:`tilewright.topi.nn.mlp`."""
        from tilewright.topi.nn.mlp import declare_mlp

        return declare_mlp(self, given=given)

    @property
    def layout(self) -> str:
        """How epilogues see results: columns are channels."""
        return "NC"

    @property
    def result_layout(self) -> str:
        """The same."""
        return self.layout

    # -- in PyTorch's words --------------------------------------------------------------------

    def torch_function(self, torch: Any) -> Callable[..., Any]:
        """Two ``torch.matmul``, and what is before, between and behind them."""
        from tilewright.topi.operators.conv_torch import apply

        def steps(y: Any, chain: tuple[Step, ...], rest: list[Any]) -> Any:
            for step in chain:
                read = [rest.pop(0) for _ in step.tensors]
                y = apply(torch, step, y, read, last=True, dtype=self.result_dtype)
            return y

        def forward(a: Any, b: Any, *more: Any) -> Any:
            rest = list(more)
            if self.norm:
                a = torch.nn.functional.layer_norm(a, (self.k,), eps=float(self.norm))
            inner = steps(torch.matmul(a, b.mT), self.steps, rest)
            return steps(torch.matmul(inner, rest.pop(0)), self.epilogue, rest)

        return forward
