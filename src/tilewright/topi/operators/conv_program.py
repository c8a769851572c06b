"""A convolution and a program of its results, as one operator."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

from tilewright.ir.errors import ProblemError
from tilewright.topi.batch import Batch
from tilewright.topi.once import once
from tilewright.topi.operators.conv import Conv
from tilewright.topi.operators.program import Call, Program, apply, operand, parse
from tilewright.topi.problem import Problem, TensorType, Traits

if TYPE_CHECKING:
    from tilewright.topi.declared import Declared

#: What a problem has of its convolution.
_SAME = ("dtype", "accumulate", "precision", "deterministic", "out_dtype", "epilogue", "constants")


@dataclass(frozen=True, kw_only=True)
class ConvProgram(Problem):
    """Functions of the results of a convolution, as pooling: a graph's node where one kernel
    computes both.

    Parameters
    ----------
    conv : the forward pass of a :class:`~tilewright.topi.Conv` without epilogue and constants, as
        :meth:`of` writes it.
    operands : the types of what else the functions read, as ``float16[64]``, which they call
        ``a1`` and so on; ``a0`` is the result of the convolution, rounded to its type.
    body : the calls, as those of a :class:`~tilewright.topi.operators.Program`.
    epilogue : of the convolution.

    The types of sums and of images are those of the convolution; there are no gradients.

    >>> conv = Conv.parse("2x8x9x9", "16x8x3x3", groups=1, padding=1, layout="NHWC")
    >>> p = ConvProgram.of(conv, [max_pool(2, (4, 4))])
    >>> conv.result.shape, p.result.shape
    ((2, 9, 9, 16), (2, 4, 4, 16))
    """

    NAMES: ClassVar[tuple[str, ...]] = ("program_of_conv2d",)
    TYPES: ClassVar[Mapping[str, tuple[str, ...]]] = Conv.TYPES

    conv: str
    operands: tuple[str, ...] = ()
    body: tuple[str, ...]

    def check(self) -> None:
        """Raises :class:`ProblemError` for what is no convolution, or no program of its results."""
        try:
            given = json.loads(self.conv)
        except (TypeError, ValueError) as error:
            raise ProblemError(f"conv is a convolution as JSON, not {self.conv!r}") from error
        bare = Problem.from_dict(given) if isinstance(given, dict) else None
        if not isinstance(bare, Conv) or bare.pass_ != "forward":
            raise ProblemError(f"conv is the forward pass of a convolution, not {self.conv}")
        if bare.epilogue or bare.constants:
            raise ProblemError(f"{bare}: its epilogue and constants are the program's")
        for name in _SAME[:-2]:
            if getattr(self, name) != getattr(bare, name):
                raise ProblemError(f"{name} is that of the convolution, {getattr(bare, name)!r}")
        self.put("conv", _written(bare))
        self.put("operands", tuple(self.operands))
        self.put("body", tuple(self.body))
        self.put("body", self.program.body)

    @staticmethod
    def of(conv: Conv, body: list[Call], operands: tuple[TensorType, ...] = ()) -> ConvProgram:
        """Calls of the result of a convolution, its epilogue included, and other operands."""
        return ConvProgram(
            conv=_written(conv.replace(epilogue=(), constants=())), body=tuple(map(str, body)),
            operands=tuple(map(_text, operands)), **{name: getattr(conv, name) for name in _SAME},
        )  # fmt: skip

    @classmethod
    def of_shapes(cls, *shapes: tuple[int, ...], **values: Any) -> ConvProgram:
        """Of an image and a filter, as :meth:`~tilewright.topi.Conv.of_shapes` takes them with the
        other values of a convolution, and what ``operands`` are; ``body`` are calls."""
        own = {name: values.pop(name, ()) for name in ("body", "operands")}
        conv = Conv.of_shapes(*shapes, **values)
        assert isinstance(conv, Conv)
        return cls.of(conv, own["body"], tuple(map(operand, own["operands"])))

    @once
    def inner(self) -> Conv:
        """The convolution with its epilogue."""
        bare = Problem.from_dict(json.loads(self.conv))
        assert isinstance(bare, Conv)
        found = bare.replace(epilogue=self.epilogue)
        constants = tuple(name for name in self.constants if name in found.inputs())
        return found.replace(constants=constants) if constants else found

    @once
    def program(self) -> Program:
        """The functions, of the result of the convolution."""
        found = _text(self.inner.result), *self.operands
        return Program(operands=found, body=self.body)

    @once
    def calls(self) -> tuple[Call, ...]:
        """The same one by one."""
        return tuple(map(parse, self.body))

    @property
    def flops(self) -> int:
        """Those of the convolution."""
        return self.inner.flops

    @property
    def channels_last(self) -> bool | None:
        """As in the convolution."""
        return self.inner.channels_last

    # -- batches -----------------------------------------------------------------------------

    def batch_of(self, images: int, among: Collection[str]) -> Batch | None:
        """That of the convolution, where other operands are the same for all images."""
        more = (f"a{k}" for k, _ in enumerate(self.operands, 1))
        return None if set(more) & set(among) else self.inner.batch_of(images, among)

    def at(self, batch: Batch, count: int) -> ConvProgram:
        calls = self.program.calls_at(Batch(batch.count, ("a0",)), count)
        conv = self.inner.at(batch, count).replace(epilogue=(), constants=())
        return self.replace(conv=_written(conv), body=tuple(map(str, calls)))

    # -- tensors -----------------------------------------------------------------------------

    def inputs(self) -> dict[str, TensorType]:
        """Those of the convolution, then ``a1`` and so on."""
        bare = Problem.from_dict(json.loads(self.conv)).replace(epilogue=self.epilogue)
        more = {f"a{k}": operand(text) for k, text in enumerate(self.operands, 1)}
        return bare.inputs() | more

    @property
    def result(self) -> TensorType:
        """Of the last call."""
        return self.program.result

    @property
    def result_dtype(self) -> str:
        """Of the last call."""
        return self.result.dtype

    def declare(self, given: Any = None) -> Declared:
        """The stages of the convolution, then those of all calls."""
        return self.behind(self.inner.declare(given), given)

    def declare_as(self, form: str, given: Any = None) -> Declared:
        """One of :data:`~tilewright.topi.nn.conv_programs.FORMS`."""
        from tilewright.topi.nn.conv_programs import FORMS

        declared: Declared = FORMS[form](self, given)
        return declared

    def behind(self, d: Declared, given: Any = None) -> Declared:
        """The stages of all calls behind those of the convolution; ``given`` as for these."""
        from tilewright import te
        from tilewright.topi.declare import Given

        count = given.batch if isinstance(given, Given) else given
        own = Batch(self.inner.batch, ("a0",))
        calls = self.calls if count is None else self.program.calls_at(own, count)

        more = {
            f"a{k}": te.placeholder(t.shape, t.dtype, name=f"a{k}")
            for k, t in enumerate(map(operand, self.operands), 1)
        }
        known = {"a0": d.output, **more}
        for k, call in enumerate(calls):
            known[f"t{k}"] = apply(call, known)
        return replace(d, inputs={**d.inputs, **more}, output=known[f"t{len(calls) - 1}"])

    # -- names -------------------------------------------------------------------------------

    @property
    def key(self) -> str:
        """That of the convolution, the functions, and a digest of these."""
        names = "-".join(call.function for call in self.calls)[:80]
        text = "\n".join((*self.operands, *self.body))
        digest = hashlib.sha256(text.encode()).hexdigest()[:16]
        return f"{self.operator}-{names}-{digest}-{self.inner.key}"

    def __str__(self) -> str:
        texts = [f"t{k} = {text}" for k, text in enumerate(self.body)]
        more = f" at strides of {', '.join(self.strides)}" if self.strides else ""
        return f"{self.inner}: {'; '.join(texts)}{more}"

    def traits(self) -> Traits:
        """Those of the convolution, among problems with the same functions."""
        found = self.inner.traits()
        names = tuple(call.function for call in self.calls)
        return found._replace(same=(self.operator, names, found.same))


def max_pool(window: int, out: tuple[int, ...]) -> Call:
    """The call that pools windows side by side of a result with channels last."""
    both = (window,) * len(out)
    none, one = (0,) * len(out), (1,) * len(out)
    values = {"size": both, "strides": both, "padding": none, "dilation": one, "out": out}
    return Call("max_pool", ("a0",), {**values, "last": True})


def pooled_window(p: Problem) -> int:
    """The extent of windows side by side of which a problem is the largest results; 0 of others."""
    if not isinstance(p, ConvProgram) or len(p.calls) != 1:
        return 0
    (call,) = p.calls
    _, *image, _ = p.inner.result.shape
    window = call.attributes.get("size", (1,))[0]
    side_by_side = call == max_pool(window, tuple(n // window for n in image))
    return int(window) if side_by_side and p.inner.channels_last else 0


def _text(t: TensorType) -> str:
    return f"{t.dtype}[{'x'.join(map(str, t.shape))}]"


def _written(conv: Problem) -> str:
    return json.dumps(conv.to_short_dict(), sort_keys=True)
