"""From a problem to the program that says what it computes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from tilewright import te
from tilewright.te import Tensor
from tilewright.topi.batch import Batch
from tilewright.topi.declared import Declared
from tilewright.topi.elementwise import ELEMENTWISE, elementwise
from tilewright.topi.epilogue import Step
from tilewright.topi.nn.depthwise_dgrad import depthwise_dgrad, gathers
from tilewright.topi.nn.depthwise_forward import depthwise_forward, summed_in
from tilewright.topi.nn.depthwise_wgrad import depthwise_wgrad
from tilewright.topi.nn.images import Images
from tilewright.topi.nn.steps import apply_step, by_channel
from tilewright.topi.nn.taken_steps import NOTHING, Taken, all_products, bias_alone
from tilewright.topi.operators.convolution import IMAGES, OPERANDS, Convolution
from tilewright.topi.problem import Problem


@dataclass(frozen=True)
class Declaration(Declared):
    """A convolution as tensors.

    Attributes
    ----------
    sum : the stage that sums; between it and ``output`` stand element-wise stages only.
    padded : the stage of the padded image (x, or dy in "dgrad"), None where it needs none.
    packed : the filter as channels-last layouts read it, None in the others.
    """

    problem: Convolution
    sum: Tensor
    padded: Tensor | None
    packed: Tensor | None

    @property
    def image(self) -> Tensor:
        """What windows slide over: x, or dy in "dgrad"."""
        return next(iter(self.inputs.values()))

    @property
    def widened(self) -> Tensor | None:
        """``image`` in the type of sums, where :func:`declare_wide` converts it first."""
        reader = self.sum if self.padded is None else self.padded
        return next((t for t in reader.op.inputs if t.op.tag == "wide"), None)

    @property
    def scaled(self) -> Tensor | None:
        """The filter times what :func:`declare_scaled` finds for it, None where that is nothing."""
        return next((t for t in self.sum.op.inputs if t.op.tag == "scaled"), None)

    @property
    def weights(self) -> Tensor:
        """What it is convolved with: the filter, or dy in "wgrad"."""
        return list(self.inputs.values())[1]

    @property
    def source(self) -> Tensor:
        """``image``, padded where it is."""
        return self.image if self.padded is None else self.padded

    @property
    def layout(self) -> str:
        """What the dimensions of images are, in the order of memory."""
        return self.problem.layout

    @property
    def channels_last(self) -> bool:
        """Whether channels lie next to one another."""
        return bool(self.problem.channels_last)

    @property
    def rank(self) -> int:
        """Dimensions of an image."""
        return self.problem.rank

    @property
    def window(self) -> tuple[int, ...]:
        """Extents of the filter, rows and columns last."""
        return self.problem.kernel

    @property
    def filters(self) -> int:
        """Neighbouring channels of the result that read the same one of the image."""
        return self.problem.multiplier if self.problem.pass_ == "forward" else 1

    @property
    def phases(self) -> tuple[int, ...]:
        """By dimension, kinds of results that take turns, each with taps of its own: the strides
        of a gradient by the input."""
        phased = len(self.sum.shape) != self.rank + 2
        return self.problem.stride if phased else (1, 1)

    @property
    def first_column(self) -> int:
        """Where column 0 of ``image`` stands in ``source``."""
        if self.padded is None:
            return 0
        p = self.problem
        return gathers(p)[-1].before if p.pass_ == "dgrad" else p.dims[-1].before


@dataclass(frozen=True)
class Given:
    """How a call gives its operands: the batch where it is symbolic, and the strides of the first
    operand, in elements and in the order of its layout, where it is no dense array. The batch is
    that of images, or the count ``of`` another one."""

    batch: Any = None
    strides: tuple[int, ...] | None = None
    of: Batch | None = None


def declare(p: Convolution, batch: Any = None) -> Declaration:
    """The program of a problem, in its layout; no tensor is transposed on the way.

    ``batch`` may be a symbolic extent (``te.var("n")``) to leave the batch to the call, or say more
    as a :class:`Given`. Sums, and
    the epilogue on them, are in ``p.accumulate``; the last stage rounds. Sums of a forward pass
    begin with the bias where that is the first step, which then costs no addition.
    """
    inputs = placeholders(p, batch)
    read = [inputs[name] for name in OPERANDS[p.pass_]]
    return _declare(p, inputs, read, bias_alone(p, inputs))


def declare_scaled(p: Convolution, batch: Any = None) -> Declaration:
    """The same, where in a forward pass the filter is scaled instead of the sums, for a product
    with a number a channel that comes first and whatever else
    :func:`~tilewright.topi.nn.taken_steps.all_products` finds: for schedules in which a thread, or
    a block, multiplies with each number of the filter often.

    Such a filter is in the type of sums, and of numbers that are finite, results are as right.
    """
    inputs = placeholders(p, batch)
    read = [inputs[name] for name in OPERANDS[p.pass_]]
    return _declare(p, inputs, read, all_products(p, inputs))


def declare_wide(p: Convolution, batch: Any = None) -> Declaration:
    """The same, where 16-bit tensors are converted before they are padded and packed, not after:
    for schedules that keep copies of what they read many times, in the type of sums."""
    inputs = placeholders(p, batch)
    read = [inputs[name] for name in OPERANDS[p.pass_]]
    if p.dtype != summed_in(p):
        read = [_wide(t, summed_in(p), tag) for t, tag in zip(read, ("wide", ""), strict=True)]
    return _declare(p, inputs, read, bias_alone(p, inputs))


#: The declarations of a depthwise convolution, by name.
FORMS = {"windows": declare, "scaled": declare_scaled, "wide": declare_wide}


def _wide(x: Tensor, dtype: str, tag: str) -> Tensor:
    made: Tensor = te.compute(
        x.shape, lambda *at: x[at].astype(dtype), name=f"{x.name}.wide", tag=tag
    )
    return made


def _declare(
    p: Convolution, inputs: dict[str, Tensor], read: list[Tensor], taken: Taken
) -> Declaration:
    first, second = read
    if p.pass_ == "forward":
        result = total = depthwise_forward(p, first, second, taken)
    elif p.pass_ == "dgrad":
        result, total = depthwise_dgrad(p, first, second)
    else:
        result, total = depthwise_wgrad(p, first, second)
    reads = {t.op.tag: t for t in total.op.inputs}
    if "scaled" in reads:
        reads |= {t.op.tag: t for t in reads["scaled"].op.inputs}
    dequantized = [step.name for step in p.epilogue[:1]] == ["dequantize"]
    if result.dtype != p.accumulate and not dequantized:  # which takes sums of floats as they are
        result = elementwise(result, lambda v: v.astype(p.accumulate), "Exact")
    result = finished(p, result, inputs, taken)
    return Declaration(p, inputs, result, total, reads.get("pad"), reads.get("filter"))


class Layered(Protocol):
    """A problem whose result has channels, which epilogues speak of, at a place in its layout."""

    @property
    def layout(self) -> str: ...

    @property
    def result_layout(self) -> str: ...

    @property
    def dtype(self) -> str: ...

    @property
    def is_quantized(self) -> bool: ...

    @property
    def result_dtype(self) -> str: ...

    @property
    def epilogue(self) -> tuple[Step, ...]: ...


def finished_by_channel(
    p: Layered, result: Tensor, inputs: dict[str, Any]
) -> tuple[Tensor, tuple[Tensor, ...]]:
    """As :func:`finished`, and the stages that hold what is the same for a channel."""
    held: list[Tensor] = []
    steps, rectified = _needed(p, p.epilogue)
    for step in steps:
        last = rectified and step is steps[-1]
        result, found = by_channel(
            step, result, Images(p.result_layout), inputs, _quantized(p), last
        )
        held += found
    return rounded(p, result), tuple(held)


def finished(
    p: Layered, result: Tensor, inputs: dict[str, Tensor], taken: Taken = NOTHING
) -> Tensor:
    """The result of a problem from its sums, in their layout: the epilogue, but for what the sums
    have taken over, then rounding, in that of the result."""
    unit, images = taken.unit, Images(p.result_layout)
    if p.result_layout != p.layout:
        result = relaid(result, Images(p.layout), images)
    steps, rectified = _needed(p, p.epilogue[taken.steps :])
    for step in steps:
        last = rectified and step is steps[-1]
        result = apply_step(step, result, images, inputs, unit, _quantized(p), last)
        unit = 1.0
    return rounded(p, result)


def relaid(x: Any, before: Images, after: Images, name: str = "Relaid") -> Tensor:
    """Images in another layout; ``x`` is anything with their shape that is read by indices."""

    def element(n: Any, c: Any, at: list[Any]) -> Any:
        return x[before.order(n, c, at)]

    return after.compute(*before.extents(x.shape), element, name, ELEMENTWISE)


def rounded(p: Layered, result: Tensor) -> Tensor:
    """A result in the type of the problem's."""
    kind = p.result_dtype
    if result.dtype != kind:
        result = elementwise(result, lambda v: v.astype(kind), "Rounded")
    return result


def _needed(p: Layered, steps: tuple[Step, ...]) -> tuple[tuple[Step, ...], bool]:
    """The steps but for a ReLU before the last one, which quantises, and whether there is such."""
    rectified = p.is_quantized and [step.name for step in steps[-2:]] == ["relu", "quantize"]
    return ((*steps[:-2], steps[-1]) if rectified else steps), rectified


def _quantized(p: Layered) -> str:
    return p.result_dtype if p.is_quantized else ""


def placeholders(p: Problem, batch: Any = None) -> dict[str, Tensor]:
    """The inputs of a problem by name, in calling order; see :func:`declare`."""
    given = batch if isinstance(batch, Given) else Given(batch)
    strides = given.strides
    found = {}
    for name, (shape, dtype) in p.inputs().items():
        whole = _with_batch(name, shape, given)
        found[name] = te.placeholder(whole, dtype, name=name, strides=strides)
        strides = None
    return found


def _with_batch(name: str, shape: tuple[int, ...], given: Given) -> tuple[Any, ...]:
    if given.batch is None:
        return shape
    if given.of is not None:
        return given.of.shape(name, shape, given.batch)
    return (given.batch, *shape[1:]) if name in IMAGES else shape
