"""Products of matrices, one or a batch of them, with their gradients."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from tilewright import te
from tilewright.ir.errors import ProblemError
from tilewright.topi.batch import Batch
from tilewright.topi.problem import ACCUMULATORS, FLOAT8_SUMS, QUANTIZED, Problem, TensorType

if TYPE_CHECKING:
    from tilewright.topi.declared import Declared


@dataclass(frozen=True, kw_only=True)
class Gemm(Problem):
    """C = A B: (m, k) by (k, n) to (m, n), or ``batch`` such products.

    Parameters
    ----------
    pass_ : "forward" (a, b to c), "dgrad" (dc, b to da) or "wgrad" (a, dc to db).
    m, n, k : of the forward product, in every pass.
    batch : how many products; tensors have that dimension first where it is more than 1.
    transpose_a, transpose_b : A lies as (k, m), B as (n, k), as the weight of a linear layer.
    epilogue : tensors a channel have one element a column of C; not in gradients.

    The other parameters are those of :class:`~tilewright.topi.problem.Problem`.
    """

    NAMES: ClassVar[tuple[str, ...]] = ("gemm",)
    FORMS: ClassVar[tuple[str, ...]] = ("nn.box_matmul", "nn.byte_dots", "nn.matrix_tiles")
    LINEAR = True
    TYPES: ClassVar[Mapping[str, tuple[str, ...]]] = ACCUMULATORS | QUANTIZED | FLOAT8_SUMS
    PASSES: ClassVar[Mapping[str, str]] = {"forward": "", "dgrad": "a", "wgrad": "b"}

    m: int
    n: int
    k: int
    batch: int = 1
    transpose_a: bool = False
    transpose_b: bool = False

    def check(self) -> None:
        """Values in one form; raises :class:`ProblemError` for what is no product."""
        self.sizes("m", "n", "k", "batch")
        self.put("transpose_a", bool(self.transpose_a))
        self.put("transpose_b", bool(self.transpose_b))
        if self.epilogue and self.pass_ != "forward":
            raise ProblemError("a gradient of a product has no epilogue: leave it out")

    @classmethod
    def of_shapes(cls, *shapes: tuple[int, ...], **values: Any) -> Gemm:
        """The product of matrices of the first two shapes, or of batches of as many."""
        if len(shapes) < 2 or not len(shapes[0]) == len(shapes[1]) in (2, 3):
            raise ProblemError(f"two matrices, or two batches of them, not {shapes[:2]}")
        (*batch, m, k), (*other, depth, n) = shapes[:2]
        m, k = (k, m) if values.get("transpose_a") else (m, k)
        depth, n = (n, depth) if values.get("transpose_b") else (depth, n)
        if k != depth or batch != other:
            raise ProblemError(f"A has {k} columns and B {depth} rows, of {shapes[:2]}")
        if batch == [1]:
            raise ProblemError("a batch of one product is a product of two matrices: say these")
        return cls(m=m, n=n, k=k, batch=batch[0] if batch else 1, **values)

    def batch_of(self, images: int, among: Collection[str]) -> Batch | None:
        """Rows of A, or of its gradient; of several products how many there are."""
        shapes = self.shapes()
        names = [n for n, t in shapes.items() if (n != "b" or self.batch > 1) and len(t) > 1]
        able = self._is_by_rows and set(names) <= set(among)
        return Batch.of(shapes, names, images) if able else None

    @property
    def _is_by_rows(self) -> bool:
        """Whether the first dimension of the first input is that of the result."""
        return self.batch > 1 or (self.pass_ != "wgrad" and not self.transpose_a)

    def at(self, batch: Batch, count: int) -> Gemm:
        return self.replace(batch=count) if self.batch > 1 else self.replace(m=count)

    @property
    def flops(self) -> int:
        """Additions and multiplications; the same in every pass."""
        return 2 * self.batch * self.m * self.n * self.k

    # -- tensors -----------------------------------------------------------------------------

    def _shape(self, name: str) -> tuple[int, ...]:
        shape = {
            "a": (self.k, self.m) if self.transpose_a else (self.m, self.k),
            "b": (self.n, self.k) if self.transpose_b else (self.k, self.n),
            "c": (self.m, self.n),
        }[name]
        return (self.batch, *shape) if self.batch > 1 else shape

    def inputs(self) -> dict[str, TensorType]:
        """ "a" and "b" or, in gradients, "grad" of C, in calling order; then the epilogue's."""
        names = {"forward": "ab", "dgrad": "cb", "wgrad": "ac"}[self.pass_]
        types = {"a": self.dtype, "b": self.filter_dtype, "c": self.dtype}
        found = {"grad" if x == "c" else x: TensorType(self._shape(x), types[x]) for x in names}
        return found | self.epilogue_inputs(self._shape("c"), self.n)

    @property
    def result(self) -> TensorType:
        """C, or the gradient by A or by B."""
        name = {"forward": "c", "dgrad": "a", "wgrad": "b"}[self.pass_]
        return TensorType(self._shape(name), self.result_dtype)

    def factors(self, inputs: Mapping[str, Any]) -> Factors:
        """The pass as a product of two matrices, whatever way they lie."""
        a = _matrix(inputs.get("a"), self.transpose_a)
        b = _matrix(inputs.get("b"), self.transpose_b)
        c = _matrix(inputs.get("grad"), False)
        if self.pass_ == "forward":
            return Factors(self.m, self.n, self.k, a, b)
        if self.pass_ == "dgrad":  # dA = dC B^T, or its transpose
            if self.transpose_a:
                return Factors(self.k, self.m, self.n, b, _turned(c))
            return Factors(self.m, self.k, self.n, c, _turned(b))
        if self.transpose_b:  # dB^T = dC^T A
            return Factors(self.n, self.k, self.m, _turned(c), a)
        return Factors(self.k, self.n, self.m, _turned(a), c)

    @property
    def sides(self) -> tuple[tuple[str, bool], tuple[str, bool]]:
        """The inputs that are the left and the right of :meth:`factors`, and whether neighbours in
        memory are neighbours along the sum."""
        along_a, along_b = not self.transpose_a, self.transpose_b
        if self.pass_ == "forward":
            return ("a", along_a), ("b", along_b)
        if self.pass_ == "dgrad":
            b = ("b", not along_b)
            return (b, ("grad", True)) if self.transpose_a else (("grad", True), b)
        a, grad = ("a", not along_a), ("grad", False)
        return (grad, a) if self.transpose_b else (a, grad)

    def declare(self, given: Any = None) -> Declared:
        """One stage that sums, then the epilogue."""
        from tilewright.topi.declare import finished, placeholders
        from tilewright.topi.declared import Declared

        inputs = placeholders(self, given)
        shape: tuple[Any, ...] = self.result.shape
        if self._is_by_rows:
            shape = (next(iter(inputs.values())).shape[0], *shape[1:])
        found = self.factors(inputs)
        r = te.reduce_axis((0, found.depth), "k")

        def element(*at: Any) -> Any:
            *g, i, j = at
            left, right = found.left(g, i, r), found.right(g, r, j)
            return te.sum(left.astype(self.accumulate) * right.astype(self.accumulate), axis=r)

        total = te.compute(shape, element, name="Product", tag="gemm")
        return Declared(self, inputs, finished(self, total, inputs))

    @property
    def layout(self) -> str:
        """How the epilogue sees C: columns are channels."""
        return "NWC" if self.batch > 1 else "NC"

    @property
    def result_layout(self) -> str:
        """The same."""
        return self.layout

    # -- in PyTorch's words --------------------------------------------------------------------

    def torch_function(self, torch: Any) -> Callable[..., Any]:
        """``torch.matmul`` of views, and the epilogue."""
        from tilewright.topi.operators.conv_torch import apply

        def plain(x: Any, turned: bool) -> Any:
            return x.mT if turned else x

        def forward(a: Any, b: Any, *more: Any) -> Any:
            if self.is_8bit:  # sums that are exact
                a, b = a.double(), b.double()
            y = torch.matmul(plain(a, self.transpose_a), plain(b, self.transpose_b))
            y = y.to(torch.int32) if self.is_quantized else y
            rest = list(more)
            for step in self.epilogue:
                read = [rest.pop(0) for _ in step.tensors]
                y = apply(torch, step, y, read, last=True, dtype=self.result_dtype)
            return y.to(getattr(torch, self.out_dtype)) if self.out_dtype else y

        def dgrad(c: Any, b: Any) -> Any:
            found = torch.matmul(c, plain(b, not self.transpose_b))
            return plain(found, self.transpose_a).contiguous()

        def wgrad(a: Any, c: Any) -> Any:
            found = torch.matmul(plain(a, not self.transpose_a), c)
            return plain(found, self.transpose_b).contiguous()

        passes: dict[str, Callable[..., Any]] = {
            "forward": forward, "dgrad": dgrad, "wgrad": wgrad,
        }  # fmt: skip
        return passes[self.pass_]

    def torch_integers(self, torch: Any) -> Callable[..., Any] | None:
        """``torch._int_mm`` of matrices of int8; on a GPU it takes more than 16 rows."""
        asked = (self.dtype, self.pass_, self.epilogue, self.batch, self.transpose_a)
        if asked != ("int8", "forward", (), 1, False):
            return None
        return lambda a, b: torch._int_mm(a, b.T if self.transpose_b else b)


#: An element of a matrix: of (index of the batch, row, column).
Read = Callable[[Any, Any, Any], Any]


@dataclass(frozen=True)
class Factors:
    """``result[i, j] = sum(left(i, r) * right(r, j) for r in range(depth))``."""

    rows: int
    columns: int
    depth: int
    left: Read
    right: Read


def _matrix(tensor: Any, turned: bool) -> Read:
    def read(g: Any, i: Any, j: Any) -> Any:
        return tensor[(*g, j, i) if turned else (*g, i, j)]

    return read


def _turned(matrix: Read) -> Read:
    return lambda g, i, j: matrix(g, j, i)
