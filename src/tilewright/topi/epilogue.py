"""What follows a convolution in the same kernel: the steps that an epilogue is made of.

A step is written as it is called: ``"bias"``, ``"leaky_relu(0.1)"``, ``"clamp(-1, 1)"``. Some read
tensors of their own; which, and of what shape, is in :data:`STEPS`. The values that steps are given
are in the type of sums. Those of integer sums are integers up to the step "dequantize", float32
behind it; :func:`chain_types` says which types follow from that.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from tilewright.ir.dtype import FLOAT8, int_range
from tilewright.ir.dtype import dtype as _dtype
from tilewright.ir.errors import ProblemError


@dataclass(frozen=True)
class StepKind:
    """What a step needs: ``tensors`` by name and shape ("channel" or "output"), and the default
    ``values`` of its parameters, None where they have to be given. ``wide`` tensors are in the type
    of sums, others in that of images. ``instructions`` are about what a GPU takes for an element
    in 16 bits."""

    tensors: tuple[tuple[str, str], ...] = ()
    values: tuple[float | None, ...] = ()
    wide: bool = False
    instructions: int = 1


_NORM = (("mean", "channel"), ("variance", "channel"), ("gamma", "channel"), ("beta", "channel"))


#: Every step there is.
STEPS = {
    "bias": StepKind((("bias", "channel"),)),
    "scale_shift": StepKind((("scale", "channel"), ("shift", "channel"))),
    # (v - mean) / sqrt(variance + eps) * gamma + beta. A model that computes in 16 bits may keep
    # these in 32: the wide one reads them so.
    "batch_norm": StepKind(_NORM, (1e-5,)),
    "wide_batch_norm": StepKind(_NORM, (1e-5,), wide=True),
    "residual": StepKind((("residual", "output"),)),
    "relu": StepKind(),
    "relu6": StepKind(),
    "leaky_relu": StepKind(values=(0.01,)),
    "hswish": StepKind(instructions=4),
    "hsigmoid": StepKind(instructions=3),
    "silu": StepKind(instructions=5),
    "gelu": StepKind(instructions=12),
    "clamp": StepKind(values=(None, None)),
    # Of sums of 8-bit types. v = float32(v) * sum_scale, of which every channel has its own.
    "dequantize": StepKind((("sum_scale", "channel"),), wide=True, instructions=2),
    # v + scale * (residual - zero_point), of a residual in the type of what is quantised.
    "quantized_residual": StepKind((("residual", "output"),), (None, 0.0)),
    # round(v * (1 / scale)) + zero_point, in the type of images, or in that of the result. Where
    # that is a float of 8 bits, the nearest to v * (1 / scale), of what is beyond the largest one.
    "quantize": StepKind(values=(None, 0.0), instructions=1),
}
#: What integer sums may have before they are dequantised.
_OF_INTEGERS = ("bias", "dequantize")
#: Steps with a scale and a zero point.
_SCALED = ("quantized_residual", "quantize")

_CALL = re.compile(r"^\s*(\w+)\s*(?:\(([^()]*)\))?\s*$")


@dataclass(frozen=True, order=True)
class Step:
    """One step of an epilogue: its name in :data:`STEPS`, the values of its parameters, and by name
    and shape the ``tensors`` that it reads.

    >>> str(Step("clamp", (-1.0, 1.0)))
    'clamp(-1,1)'
    """

    name: str
    values: tuple[float, ...] = ()
    tensors: tuple[tuple[str, str], ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        kind = STEPS.get(self.name)
        if kind is None:
            raise ProblemError(f"no epilogue has a step {self.name!r}: use {', '.join(STEPS)}")
        given = tuple(float(v) for v in self.values)
        defaults = kind.values[len(given) :]
        if len(given) > len(kind.values) or any(v is None for v in defaults):
            raise ProblemError(
                f"step {self.name} takes {len(kind.values)} values, got {len(given)}: "
                f"write it as {_signature(self.name)}"
            )
        values = given + tuple(v for v in defaults if v is not None)
        if any(math.isnan(v) for v in values):
            raise ProblemError(f"step {self.name}: its values are numbers, got {values}")
        if "norm" in self.name and not 0 <= values[0] < math.inf:
            raise ProblemError(
                f"{self.name}({values[0]:g}): its eps is a small number, not negative"
            )
        if self.name == "clamp" and values[0] > values[1]:
            raise ProblemError(f"clamp({values[0]:g}, {values[1]:g}): put the lower bound first")
        if self.name in _SCALED and not (2.0**-126 <= values[0] <= 2.0**126):
            raise ProblemError(f"{self.name}: its scale is a positive number, got {values[0]:g}")
        object.__setattr__(self, "values", values)
        object.__setattr__(self, "tensors", kind.tensors)

    @staticmethod
    def parse(text: str | Step) -> Step:
        """The step written as ``text``; raises :class:`ProblemError` where there is none."""
        if isinstance(text, Step):
            return text
        match = _CALL.match(text) if isinstance(text, str) else None
        if match is None:
            raise ProblemError(f"a step of an epilogue is written like clamp(0, 6), got {text!r}")
        name, inside = match.groups()
        try:
            values = tuple(float(v) for v in (inside or "").split(",") if v.strip())
        except ValueError:
            raise ProblemError(f"the values of step {text!r} are numbers") from None
        return Step(name, values)

    @property
    def wide(self) -> bool:
        """Whether they are in the type of sums."""
        return STEPS[self.name].wide

    def __str__(self) -> str:
        return f"{self.name}({','.join(map(_number, self.values))})" if self.values else self.name


def parse_epilogue(given: str | Iterable[str | Step]) -> tuple[Step, ...]:
    """Steps from ``"bias+relu"`` or a sequence of them; each step with tensors at most once."""
    # A plus within a number, as in 1e+3, stands behind a digit and an e.
    parts = re.split(r"(?<![0-9.][eE])\+", given) if isinstance(given, str) else list(given)
    steps = tuple(Step.parse(p) for p in parts if p != "")
    seen: set[str] = set()
    for step in steps:
        names = {name for name, _ in step.tensors}
        if names & seen:
            raise ProblemError(f"the epilogue has {step.name} twice: join their tensors beforehand")
        seen |= names
    return steps


class ChainTypes(NamedTuple):
    """The types in an epilogue: of each step's tensors, and of the result."""

    tensors: tuple[str, ...]
    result: str


def chain_types(
    steps: Sequence[Step], dtype: str, accumulate: str, out_dtype: str = ""
) -> ChainTypes:
    """The types of an epilogue of a problem whose images have ``dtype`` and whose sums
    ``accumulate``; of floats of 8 bits, and what is quantised, the result has ``out_dtype``, by
    default that of images. Tensors of steps before results in floats of 8 bits are in the type of
    sums. Raises :class:`ProblemError` for steps that do not follow one another.

    >>> chain_types(parse_epilogue("bias+dequantize+relu+quantize(0.1)"), "int8", "int32")
    ChainTypes(tensors=('int32', 'float32', 'float32', 'float32'), result='int8')
    """
    if not _dtype(accumulate).is_int:
        narrow = out_dtype in FLOAT8
        for step in steps:
            if narrow and step is steps[-1] and step.name == "quantize" and not step.values[1]:
                continue
            if step.name in _SCALED or (step.name == "dequantize" and not out_dtype):
                raise ProblemError(
                    f"step {step.name} is for sums of integers, those of {dtype} are {accumulate}: "
                    "leave it out, or use images in int8; of float8 the last step may be quantize, "
                    "without a zero point, where out_dtype is float8"
                )
        kind = out_dtype or dtype
        tensors = (accumulate if narrow or s.wide else kind for s in steps)
        return ChainTypes(tuple(tensors), kind)
    kind, found, made = accumulate, [], out_dtype or dtype
    for step in steps:
        if kind == made:
            raise ProblemError(f"step {step.name} follows quantize: put it before, in float32")
        if kind == accumulate and step.name not in _OF_INTEGERS:
            raise ProblemError(
                f"step {step.name} is of floats, the sums are {accumulate}: put dequantize before"
            )
        if kind == "float32" and step.name == "dequantize":
            raise ProblemError("the epilogue has dequantize twice: join their scales beforehand")
        if step.name in _SCALED:
            _check_zero(step, made)
        kind = "float32" if step.name == "dequantize" else kind
        found.append(made if step.name == "quantized_residual" else kind)
        kind = made if step.name == "quantize" else kind
    return ChainTypes(tuple(found), kind)


def _check_zero(step: Step, dtype: str) -> None:
    low, high = int_range(_dtype(dtype))
    if not (step.values[1].is_integer() and low <= step.values[1] <= high):
        raise ProblemError(
            f"step {step}: its zero point is an integer from {low} to {high}, as {dtype} has"
        )


def _signature(name: str) -> str:
    return f"{name}({', '.join('v' + str(k) for k in range(len(STEPS[name].values)))})"


def _number(value: float) -> str:
    return str(int(value)) if value.is_integer() and abs(value) < 1e15 else repr(value)
