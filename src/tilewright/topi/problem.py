"""A problem: one piece of work, named the same way by selection, tuning, records and reports.

An operator is a class of problems: what describes them are its fields, what they compute is its
:meth:`~Problem.declare`. A new operator is one such class; whatever works on problems works on its.
"""

from __future__ import annotations

import functools
import importlib
import math
import re
import sys
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Self

from tilewright.ir.dtype import FLOAT8
from tilewright.ir.dtype import dtype as _dtype
from tilewright.ir.errors import ProblemError
from tilewright.topi.arguments import one_of, whole
from tilewright.topi.batch import Batch
from tilewright.topi.epilogue import STEPS, ChainTypes, chain_types, parse_epilogue
from tilewright.topi.once import once
from tilewright.topi.written import Written, joined

if TYPE_CHECKING:
    from tilewright.topi.declared import Declared

PRECISIONS = ("exact", "tf32", "tf32x3", "half", "winograd")
#: By type of the data, the types that sums may have; the first is the default.
ACCUMULATORS = {
    "float32": ("float32", "float64"),
    "float16": ("float32", "float16", "float64"),
    "bfloat16": ("float32", "bfloat16", "float64"),
    "float64": ("float64",),
}
#: The same of images in 8 bits, beside which filters are int8.
QUANTIZED = {"int8": ("int32",), "uint8": ("int32",)}
#: The same of floats of 8 bits, and the types that results may have; the first is the default.
FLOAT8_SUMS = dict.fromkeys(FLOAT8, ("float32",))
OUT_DTYPES = ("bfloat16", "float16", "float32", *FLOAT8)


class TensorType(NamedTuple):
    """A tensor of a problem: its shape in the order in which it lies, and its type."""

    shape: tuple[int, ...]
    dtype: str


class Traits(NamedTuple):
    """What two problems are compared by, to find schedules for one that are fast for the other.

    Attributes
    ----------
    same : what has to be equal for them to have any schedule in common.
    sizes : numbers, weighed: how far apart two are is the sum of their differences.
    others : what is equal or not, each with its weight, in one order for all of an operator.
    twin : what has to be equal for the same schedules to be fast, where they are near.
    """

    same: Any
    sizes: tuple[float, ...]
    others: tuple[tuple[float, Any], ...]
    twin: Any


#: The operators by name: classes of problems.
OPERATORS: dict[str, type[Problem]] = {}


@functools.cache
def _forms(modules: tuple[str, ...]) -> dict[str, Callable[..., Any]]:
    """The declarations of modules, by name, loaded when one is asked for."""
    known: dict[str, Callable[..., Any]] = {}
    for module in modules:
        known |= importlib.import_module(f"tilewright.topi.{module}").FORMS
    return known


@dataclass(frozen=True, kw_only=True)
class Problem(Written):
    """One piece of work, complete: an operator, a pass and the values that describe it.

    A subclass is an operator. It adds fields, all integers, booleans, texts or tuples of them, and
    says with :attr:`NAMES` and :attr:`PASSES` what it is, with :meth:`inputs`, :attr:`result` and
    :meth:`declare` what it computes, and with :attr:`flops` how much work that is.

    Parameters
    ----------
    operator : its name, one of :attr:`NAMES`, the first by default.
    pass_ : "forward", or one of the gradients that the operator has.
    dtype, accumulate : the types of tensors, where :meth:`inputs` says nothing else, and of sums;
        by default sums of 16-bit floats are float32. In "int8" and "uint8", which have no
        gradients, the result is int32, float32 after the step "dequantize", and of 8 bits after
        "quantize". Floats of 8 bits have no gradients, either.
    out_dtype : the type of the result, and of the tensors of the epilogue, where ``dtype`` is a
        float of 8 bits: one of :data:`OUT_DTYPES`; beside results of 8 bits these tensors are in
        the type of sums, and "quantize" may end the epilogue. Of integers whose epilogue ends in
        "quantize" that of the result and of a quantised residual, by default ``dtype``. Others
        leave it out.
    precision : what may be done to products: "exact", "tf32" (fp32 through TF32 tensor cores),
        "tf32x3" (the same by three products of halves), "half" (16-bit sums within a thread, and of
        floats of 8 bits all sums with the digits that tensor cores keep), "winograd" (convolutions
        in fewer products, whose rounding errors are some two times as large).
    deterministic : whether two runs must agree bit for bit.
    epilogue : steps as in :mod:`tilewright.topi.epilogue`, applied to the result before it is
        rounded to ``dtype``.
    constants : names of inputs that are the same in every call, as the weights of a network: what
        is computed of them alone is done ahead (:meth:`~tilewright.Kernel.prepare`), and costs a
        call nothing.
    strides : how inputs, and "result", lie that are no dense tensors but views of larger ones, each
        by its name and how far neighbours along its dimensions are apart, in elements:
        "result_6400x640x128x1".

    Raises :class:`ProblemError` where there is no such problem.
    """

    #: "forward", and the gradients: by name, of which input each is the gradient.
    PASSES: ClassVar[Mapping[str, str]] = {"forward": ""}
    #: Whether the result is linear in each input that it has a gradient by. Gradients of gradients
    #: are then passes, too.
    LINEAR: ClassVar[bool] = False
    #: The modules of this package whose ``FORMS`` are other declarations of it, by name.
    FORMS: ClassVar[tuple[str, ...]] = ()
    #: By type of the data, the types that sums may have; the first is the default.
    TYPES: ClassVar[Mapping[str, tuple[str, ...]]] = ACCUMULATORS

    def __init_subclass__(cls) -> None:
        for name in cls.NAMES:
            known = OPERATORS.get(name, cls)
            if _declared_at(known) != _declared_at(cls):
                first, second = (f"{c.__module__}.{c.__qualname__}" for c in (known, cls))
                raise ProblemError(
                    f"two operators are called {name!r}: {first} and {second}. Give this one NAMES "
                    "of its own"
                )
            OPERATORS[name] = cls

    def __post_init__(self) -> None:
        self.put("operator", self.operator or self.NAMES[0])
        one_of("operator", self.operator, self.NAMES)
        one_of("pass", self.pass_, tuple(self.PASSES))
        one_of("precision", self.precision, PRECISIONS)
        one_of("dtype", self.dtype, tuple(self.TYPES))
        self.put("accumulate", self.accumulate or self.TYPES[self.dtype][0])
        one_of("accumulation type", self.accumulate, self.TYPES[self.dtype])
        if self.accumulate in ("float16", "bfloat16") and self.precision != "half":
            raise ProblemError(f'sums in {self.accumulate} lose digits: allow precision="half"')
        if self.is_float8:
            self.put("out_dtype", str(self.out_dtype or OUT_DTYPES[0]).removeprefix("torch."))
            one_of("type of the result", self.out_dtype, OUT_DTYPES)
        elif self.out_dtype:
            self._check_quantized()
        if self.is_8bit and self.pass_ != "forward":
            raise ProblemError(
                f"{self.dtype} has no gradients: use the pass forward, or floats of 16 bits"
            )
        self.put("deterministic", bool(self.deterministic))
        self.put("epilogue", parse_epilogue(self.epilogue))
        self._chain_types()
        self.check()
        if self.constants:
            for name in self.constants:
                one_of("constant", name, tuple(self.inputs()))
            self.put("constants", tuple(x for x in self.inputs() if x in self.constants))
        if self.strides:
            self._check_strides()

    def _check_strides(self) -> None:
        """That strides are of tensors that there are, each once, one for each of its dimensions."""
        given = self.strides_of()
        known = {**self.inputs(), "result": self.result}
        for name, strides in given.items():
            one_of("tensor with strides", name, tuple(known))
            if len(strides) != len(known[name].shape) or min(strides, default=0) < 0:
                raise ProblemError(
                    f"strides of {name}: {len(known[name].shape)} numbers, none below 0, got "
                    f"{joined(strides)}"
                )
        found = (f"{name}_{joined(given[name])}" for name in known if name in given)
        self.put("strides", tuple(found))

    def _check_quantized(self) -> None:
        """That a result of integers is quantised, whose type is said only where it is another."""
        if not self.is_quantized or not _is_quantized(self.epilogue):
            raise ProblemError(
                f"the type of a result of {self.dtype} follows from its epilogue: leave out_dtype "
                f"out; it is for {', '.join(FLOAT8)}, and for what ends in quantize"
            )
        self.put("out_dtype", str(self.out_dtype).removeprefix("torch."))
        one_of("type of the result", self.out_dtype, tuple(QUANTIZED))
        self.put("out_dtype", self.out_dtype if self.out_dtype != self.dtype else "")

    def put(self, name: str, value: Any) -> None:
        """Set a field while the problem is made: in :meth:`check`."""
        object.__setattr__(self, name, value)

    def sizes(self, *names: str, least: int = 1) -> None:
        """Check that these fields are integers, at least ``least``: for :meth:`check`."""
        for name in names:
            self.put(name, whole(name, getattr(self, name), least))

    def __lt__(self, other: Problem) -> bool:
        return self.key < other.key

    # -- what an operator says of itself -----------------------------------------------------

    def check(self) -> None:
        """Bring the values of the operator into one form; raises :class:`ProblemError`."""

    def inputs(self) -> dict[str, TensorType]:
        """The tensors that are read, by name, in calling order, those of the epilogue last."""
        raise NotImplementedError

    @property
    def result(self) -> TensorType:
        """The tensor that is computed."""
        raise NotImplementedError

    @classmethod
    def of_shapes(cls, *shapes: Any, **values: Any) -> Problem:  # a subclass may name them
        """The problem of inputs of these shapes, in calling order, forward or of another ``pass_``
        that they determine, where :meth:`inputs`
        has more those of an epilogue too; ``values`` are other fields by name. Raises
        :class:`ProblemError` where there is none."""
        raise NotImplementedError

    def batch_of(self, images: int, among: Collection[str]) -> Batch | None:
        """What of a problem on some ``images`` a call may decide, where no inputs but those
        ``among`` these depend on how many there are; None where nothing is known of it."""
        return None

    def at(self, batch: Batch, count: int) -> Problem:
        """The same problem where a batch of :meth:`batch_of` has another count. Raises
        :class:`ProblemError` where there is none."""
        raise ProblemError(f"{self.operator} has no batch")

    def most_of(self, batch: Batch) -> int:
        """The largest count of a batch for which offsets are below 2^31 in all that grows with it:
        a filter has as many elements whatever it is. Raises :class:`ProblemError` where there is no
        such problem of one more."""
        more = self.at(batch, batch.count + 1)
        ones, others = ((*p.inputs().values(), p.result) for p in (self, more))
        pairs = zip(ones, others, strict=True)
        sizes = [math.prod(t.shape) for t, other in pairs if t.shape != other.shape]
        return min(self.most_batch, (2**31 - 1) * batch.count // max(1, *sizes))

    def declare(self, given: Any = None) -> Declared:
        """The tensor expression, which knows no tile; ``given`` may say that the batch is symbolic,
        or how an operand lies, where the operator has one of these."""
        raise NotImplementedError

    def declare_as(self, form: str, given: Any = None) -> Declared:
        """Another expression of the same result, which rounds in other places, by its name in one
        of :attr:`FORMS`; none knows a tile."""
        declared: Declared = _forms(self.FORMS)[form](self, given)
        return declared

    @property
    def flops(self) -> int:
        """Additions and multiplications that are needed."""
        raise NotImplementedError

    @property
    def channels_last(self) -> bool | None:
        """Whether channels lie next to one another; None where layouts do not matter."""
        return None

    @property
    def is_relaid(self) -> bool:
        """Whether the result lies in another layout than images."""
        return False

    @property
    def most_batch(self) -> int:
        """The largest batch in which all offsets are below 2^31, so that 32 bits count them."""
        return 2**31 - 1

    @property
    def name(self) -> str:
        """A name for files and C functions, unlike those of others: of letters and digits."""
        return re.sub("[^a-zA-Z0-9]+", "_", self.key)

    def traits(self) -> Traits:
        """What it is compared with others by: by default integers by their logarithms, all else by
        whether it is equal."""
        own = [getattr(self, name) for name in self.own_fields()]
        sizes = tuple(math.log2(1 + x) for x in own if type(x) is int and x >= 0)
        others = tuple((1.0, x) for x in own if type(x) is not int)
        kind = (self.operator, self.pass_)
        steps = tuple(step.name for step in self.epilogue)
        common = ((0.5, self.dtype), (0.5, self.accumulate), (0.3, self.precision), (0.2, steps))
        return Traits(kind, sizes, (*others, *common), tuple(own))

    # -- in PyTorch's words --------------------------------------------------------------------

    def torch_function(self, torch: Any) -> Callable[..., Any] | None:
        """The problem as a function of PyTorch's tensors, for comparisons; ``torch`` is the module.

        It takes the inputs in calling order, in the shapes of :meth:`plain`; None where PyTorch
        has no such operator.
        """
        return None

    def torch_integers(self, torch: Any) -> Callable[..., Any] | None:
        """The same of integers, by an operator that PyTorch has for them; None without one."""
        return None

    def plain(self) -> Self:
        """The same problem with dimensions in PyTorch's order."""
        return self

    def permutation(self, name: str) -> tuple[int, ...] | None:
        """The order in which the dimensions of an input, or of "result", lie, as positions among
        those of :meth:`plain`; None where it is the same."""
        return None

    def lay(self, name: str, values: Any) -> Any:
        """A NumPy array of an input, or of "result", in the shape that it has in :meth:`plain`, as
        it lies in this problem."""
        order = self.permutation(name)
        return values if order is None else values.transpose(order)

    def excerpt(
        self, arrays: Mapping[str, Any], result: Any
    ) -> tuple[Problem, dict[str, Any], Any]:
        """A smaller problem whose result is part of that of this one, with its arrays in the shapes
        of :meth:`plain` and that part of ``result``: for checking."""
        return self, dict(arrays), result

    # -- tensors -----------------------------------------------------------------------------

    @once
    def is_quantized(self) -> bool:
        """Whether images are integers, and sums of products exact."""
        return self.dtype in QUANTIZED

    @once
    def is_float8(self) -> bool:
        """Whether images are floats of 8 bits, whose products are summed in float32."""
        return self.dtype in FLOAT8

    @property
    def is_8bit(self) -> bool:
        """Whether images are integers or floats of 8 bits, which have no gradients."""
        return self.is_quantized or self.is_float8

    @property
    def filter_dtype(self) -> str:
        """The type of what images are multiplied with."""
        return "int8" if self.is_quantized else self.dtype

    @property
    def result_dtype(self) -> str:
        """The type of the result: that of images, if the epilogue says nothing else."""
        return self._chain_types().result

    def _chain_types(self) -> ChainTypes:
        return chain_types(self.epilogue, self.dtype, self.accumulate, self.out_dtype)

    @once
    def epilogue_shapes(self) -> frozenset[str]:
        """Of the tensors of the epilogue: "channel", "output", both or none."""
        return frozenset(shape for step in self.epilogue for _, shape in step.tensors)

    @once
    def epilogue_instructions(self) -> int:
        """About what a GPU takes for an element of the epilogue in 16 bits."""
        return sum(STEPS[step.name].instructions for step in self.epilogue)

    def epilogue_inputs(self, shape: tuple[int, ...], channels: int) -> dict[str, TensorType]:
        """The tensors of the epilogue by name, of a result of this shape."""
        types = self._chain_types().tensors
        return {
            name: TensorType(shape if of == "output" else (channels,), kind)
            for step, kind in zip(self.epilogue, types, strict=True)
            for name, of in step.tensors
        }

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """The shapes of the inputs by name, in calling order."""
        return {name: t.shape for name, t in self.inputs().items()}

    def dtypes(self) -> dict[str, str]:
        """The types of the inputs by name, in calling order."""
        return {name: t.dtype for name, t in self.inputs().items()}

    # -- making ------------------------------------------------------------------------------

    def replace(self, **changes: Any) -> Self:
        """The same problem but for ``changes``."""
        if "dtype" in changes:
            changes = {"accumulate": "", "out_dtype": ""} | changes
        if self.is_quantized and not _is_quantized(changes.get("epilogue", self.epilogue)):
            changes = {"out_dtype": ""} | changes
        return replace(self, **changes)

    # -- work --------------------------------------------------------------------------------

    @property
    def nominal_flops(self) -> int:
        """Those that a count of the shapes alone gives, as other libraries print."""
        return self.flops

    @functools.cached_property
    def bytes(self) -> int:
        """Memory traffic where each input is read once and each output written once."""
        return sum(
            math.prod(t.shape) * _dtype(t.dtype).bytes
            for t in (*self.inputs().values(), self.result)
        )

    def floor(self, bandwidth: float, rate: float, nominal: bool = False) -> float:
        """The least seconds it takes at ``bandwidth`` bytes and ``rate`` flops a second."""
        return max(self.bytes / bandwidth, (self.nominal_flops if nominal else self.flops) / rate)

    def columns(self) -> dict[str, str]:
        """What stands of its own values in a row of a table of results, by name."""
        return {name.rstrip("_"): joined(getattr(self, name)) for name in self.own_fields()} | {
            "shape": joined(next(iter(self.inputs().values())).shape)
        }


def _is_quantized(epilogue: Any) -> bool:
    """Whether an epilogue ends in integers of 8 bits."""
    return any(step.name == "quantize" for step in parse_epilogue(epilogue))


def _declared_at(cls: type) -> tuple[str, str]:
    """Where a class is declared, the same where its file is run again."""
    file = getattr(sys.modules.get(cls.__module__), "__file__", None)
    return str(Path(file).resolve()) if file else cls.__module__, cls.__qualname__


def operator(name: str) -> type[Problem]:
    """The operator of that name; raises :class:`ProblemError` where there is none."""
    import tilewright.topi.operators  # noqa: F401  # those of the library make themselves known

    one_of("operator", name, tuple(OPERATORS))
    return OPERATORS[name]
