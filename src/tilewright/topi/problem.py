"""A problem: one piece of work, named the same way by selection, tuning, records and reports."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from tilewright.ir.dtype import dtype as _dtype
from tilewright.ir.errors import ProblemError
from tilewright.topi import arguments
from tilewright.topi.arguments import one_of, whole
from tilewright.topi.epilogue import Step, parse_epilogue

OPERATORS = ("depthwise_conv2d", "depthwise_conv1d")
PASSES = ("forward", "dgrad", "wgrad")
PRECISIONS = ("exact", "tf32", "half")
#: By operator, the layouts of its images; letters are batch, channel, height, width.
LAYOUTS = {"depthwise_conv2d": ("NCHW", "NHWC"), "depthwise_conv1d": ("NCW", "NWC")}
#: By type of the data, the types that sums may have; the first is the default.
ACCUMULATORS = {
    "float32": ("float32", "float64"),
    "float16": ("float32", "float16", "float64"),
    "bfloat16": ("float32", "bfloat16", "float64"),
    "float64": ("float64",),
}


@dataclass(frozen=True, order=True, kw_only=True)
class Problem:
    """A depthwise convolution or one of its gradients, complete.

    Shapes are those of the forward convolution in every pass: (batch, channels, height, width)
    is the shape of x and dx. In the 1-D operator height, kernel_h and their stride are 1. The
    transposed convolution is the pass "dgrad".

    Parameters
    ----------
    operator : "depthwise_conv2d" or "depthwise_conv1d".
    pass_ : "forward" (x, filter to y), "dgrad" (dy, filter to dx) or "wgrad" (x, dy to dfilter).
    multiplier : filters a channel; y has ``channels * multiplier`` channels.
    stride, dilation : an integer or (vertical, horizontal).
    padding : an integer, (vertical, horizontal), (top, left, bottom, right), or a name of
        :func:`~tilewright.topi.arguments.named_padding`; in 1-D also (left, right).
    dtype, accumulate : the types of all tensors, but of those of wide steps of an epilogue, and of
        sums and of those; by default sums of 16-bit floats are float32.
    precision : what may be done to products: "exact", "tf32" (fp32 through TF32 tensor cores),
        "half" (16-bit sums within a thread).
    deterministic : whether two runs must agree bit for bit.
    layout : how images lie, one of :data:`LAYOUTS`. Filters lie as (channels, multiplier, KH, KW)
        in every layout, which is how PyTorch has them in memory.
    epilogue : steps as in :mod:`tilewright.topi.epilogue`, applied to the sum before it is
        rounded to ``dtype``; not in "wgrad".

    Raises :class:`ProblemError` where there is no such problem.
    """

    operator: str = "depthwise_conv2d"
    pass_: str = "forward"
    batch: int
    channels: int
    height: int = 1
    width: int
    multiplier: int = 1
    kernel_h: int = 1
    kernel_w: int
    stride: tuple[int, int] = (1, 1)
    padding: tuple[int, int, int, int] = (0, 0, 0, 0)
    dilation: tuple[int, int] = (1, 1)
    dtype: str = "float32"
    accumulate: str = ""
    precision: str = "exact"
    deterministic: bool = True
    layout: str = ""
    epilogue: tuple[Step, ...] = ()

    def __post_init__(self) -> None:
        def put(name: str, value: Any) -> None:
            object.__setattr__(self, name, value)

        one_of("operator", self.operator, OPERATORS)
        one_of("pass", self.pass_, PASSES)
        one_of("precision", self.precision, PRECISIONS)
        one_of("dtype", self.dtype, tuple(ACCUMULATORS))
        put("accumulate", self.accumulate or ACCUMULATORS[self.dtype][0])
        one_of("accumulation type", self.accumulate, ACCUMULATORS[self.dtype])
        if self.accumulate in ("float16", "bfloat16") and self.precision != "half":
            raise ProblemError(f'sums in {self.accumulate} lose digits: allow precision="half"')
        put("layout", self.layout or LAYOUTS[self.operator][0])
        one_of("layout", self.layout, LAYOUTS[self.operator])
        for name in ("batch", "channels", "height", "width", "multiplier", "kernel_h", "kernel_w"):
            put(name, whole(name, getattr(self, name)))
        put("deterministic", bool(self.deterministic))
        put("stride", arguments.pair("stride", self.stride, self.rank))
        put("dilation", arguments.pair("dilation", self.dilation, self.rank))
        put("padding", self._padding(self.padding))
        put("epilogue", parse_epilogue(self.epilogue))
        self._check()

    def _padding(self, given: Any) -> tuple[int, int, int, int]:
        if not isinstance(given, str):
            return arguments.padding(given, self.rank)
        return arguments.named_padding(given, self.image, self.kernel, self.stride, self.dilation)

    def _check(self) -> None:
        if self.rank == 1:
            vertical = (self.height, self.kernel_h, self.stride[0], self.dilation[0])
            if vertical != (1, 1, 1, 1) or self.padding[0] or self.padding[2]:
                raise ProblemError(
                    "depthwise_conv1d has no height: leave out height and kernel_h, and give "
                    "stride, padding and dilation for the width alone; or use depthwise_conv2d"
                )
        for k, (name, short) in enumerate(
            (("height", "top and bottom"), ("width", "left and right"))
        ):
            window = (self.kernel[k] - 1) * self.dilation[k] + 1
            padded = self.image[k] + self.padding[k] + self.padding[k + 2]
            if window > padded:
                raise ProblemError(
                    f"the window has a {name} of {window}, the padded image one of {padded}: "
                    f"pad {window - padded} more, {short} together, or use a smaller kernel"
                )
        if self.epilogue and self.pass_ == "wgrad":
            raise ProblemError(
                "a weight gradient has no epilogue: leave it out, or use the pass forward"
            )

    # -- making ------------------------------------------------------------------------------

    @staticmethod
    def parse(input: str | Sequence[int], filter: str | Sequence[int], **more: Any) -> Problem:
        """The problem of two shapes, the others of its parameters by name.

        ``input`` is (N, C, H, W), or (N, C, W) for the 1-D operator, in this order whatever the
        layout; ``filter`` is (C, multiplier, KH, KW) or PyTorch's (C * multiplier, 1, KH, KW).
        Either may be text.

        >>> Problem.parse("64x384x32x32", "384x1x7x7", padding=3).output_shape
        (64, 384, 32, 32)
        """
        data, weight = arguments.shape("input", input), arguments.shape("filter", filter)
        if len(data) != len(weight) or len(data) not in (3, 4):
            raise ProblemError(
                f"an input of {len(data)} and a filter of {len(weight)} dimensions: give "
                "NxCxHxW and CxMxKHxKW, or NxCxW and CxMxKW"
            )
        batch, channels, *image = data
        first, second, *kernel = weight
        if first == channels:
            multiplier = second
        elif second == 1 and first % channels == 0:
            multiplier = first // channels
        else:
            raise ProblemError(
                f"a filter of {first} x {second} does not fit {channels} channels: its shape "
                f"begins with {channels} x multiplier, or {channels} * multiplier x 1"
            )
        if len(image) == 1:
            image, kernel = [1, *image], [1, *kernel]
            more.setdefault("operator", "depthwise_conv1d")
        return Problem(
            batch=batch, channels=channels, height=image[0], width=image[1],
            multiplier=multiplier, kernel_h=kernel[0], kernel_w=kernel[1], **more,
        )  # fmt: skip

    def replace(self, **changes: Any) -> Problem:
        """The same problem but for ``changes``."""
        if "dtype" in changes:
            changes.setdefault("accumulate", "")
        return replace(self, **changes)

    def to_dict(self) -> dict[str, Any]:
        """As JSON has it; :meth:`from_dict` reads it back."""
        made = {f.name.rstrip("_"): getattr(self, f.name) for f in fields(self)}
        made["epilogue"] = [str(step) for step in self.epilogue]
        return {k: list(v) if isinstance(v, tuple) else v for k, v in made.items()}

    @staticmethod
    def from_dict(given: Mapping[str, Any]) -> Problem:
        """The problem of :meth:`to_dict`; raises :class:`ProblemError` for anything else."""
        known = {f.name.rstrip("_"): f.name for f in fields(Problem)}
        strange = sorted(set(given) - set(known))
        if strange:
            raise ProblemError(
                f"a problem has no {', '.join(strange)}: its parts are {', '.join(known)}"
            )
        try:
            return Problem(**{known[k]: v for k, v in given.items()})
        except TypeError as error:
            raise ProblemError(f"a problem is incomplete: {error}") from None

    def to_json(self) -> str:
        """One line of JSON, the same for equal problems."""
        return json.dumps(self.to_dict(), sort_keys=True)

    @staticmethod
    def from_json(text: str) -> Problem:
        """The problem of :meth:`to_json`."""
        try:
            given = json.loads(text)
        except json.JSONDecodeError as error:
            raise ProblemError(f"a problem is a JSON object: {error}") from None
        if not isinstance(given, dict):
            raise ProblemError(f"a problem is a JSON object, got {text[:40]!r}")
        return Problem.from_dict(given)

    # -- shapes ------------------------------------------------------------------------------

    @property
    def rank(self) -> int:
        """The dimensions of an image: 2, or 1 for the 1-D operator."""
        return 1 if self.operator == "depthwise_conv1d" else 2

    @property
    def image(self) -> tuple[int, int]:
        """Height and width of x."""
        return self.height, self.width

    @property
    def kernel(self) -> tuple[int, int]:
        """Height and width of the filter."""
        return self.kernel_h, self.kernel_w

    @property
    def out_image(self) -> tuple[int, int]:
        """Height and width of y."""
        return self._out(0), self._out(1)

    @property
    def result_image(self) -> tuple[int, int]:
        """Height and width of what forward or dgrad computes."""
        return self.image if self.pass_ == "dgrad" else self.out_image

    def _out(self, k: int) -> int:
        room = self.image[k] + self.padding[k] + self.padding[k + 2]
        return (room - (self.kernel[k] - 1) * self.dilation[k] - 1) // self.stride[k] + 1

    @property
    def out_channels(self) -> int:
        """Channels of y."""
        return self.channels * self.multiplier

    def in_layout(self, channels: int, image: tuple[int, int]) -> tuple[int, ...]:
        """The shape of a batch of images, dimensions in the order of the layout."""
        extents = {"N": self.batch, "C": channels, "H": image[0], "W": image[1]}
        return tuple(extents[letter] for letter in self.layout)

    @property
    def input_shape(self) -> tuple[int, ...]:
        """The shape of x and dx, in the order of the layout."""
        return self.in_layout(self.channels, self.image)

    @property
    def output_shape(self) -> tuple[int, ...]:
        """The shape of y and dy, in the order of the layout."""
        return self.in_layout(self.out_channels, self.out_image)

    @property
    def filter_shape(self) -> tuple[int, ...]:
        """(channels, multiplier, KH, KW), or (channels, multiplier, KW)."""
        return (self.channels, self.multiplier, *self.kernel[2 - self.rank :])

    @property
    def result_shape(self) -> tuple[int, ...]:
        """The shape of what the pass computes."""
        found = {"forward": self.output_shape, "dgrad": self.input_shape}
        return found.get(self.pass_, self.filter_shape)

    @property
    def result_channels(self) -> int:
        """The channels of what forward or dgrad computes; tensors of its epilogue have so many."""
        return self.channels if self.pass_ == "dgrad" else self.out_channels

    # -- work --------------------------------------------------------------------------------

    @property
    def nominal_flops(self) -> int:
        """Additions and multiplications, with those of taps in the padding."""
        (oh, ow), (kh, kw) = self.out_image, self.kernel
        return 2 * self.batch * self.out_channels * oh * ow * kh * kw

    @property
    def flops(self) -> int:
        """Additions and multiplications of taps inside the image; the same in every pass."""
        return 2 * self.batch * self.out_channels * self._taps(0) * self._taps(1)

    def _taps(self, k: int) -> int:
        """Pairs of an output and a tap along one dimension, whose input is inside the image."""
        total = 0
        for tap in range(self.kernel[k]):
            offset = tap * self.dilation[k] - self.padding[k]  # input = output * stride + offset
            first = max(0, -(offset // self.stride[k]))
            last = min(self.out_image[k] - 1, (self.image[k] - 1 - offset) // self.stride[k])
            total += max(0, last - first + 1)
        return total

    @property
    def bytes(self) -> int:
        """Memory traffic where each input is read once and each output written once."""
        batch, (h, w), (oh, ow) = self.batch, self.image, self.out_image
        x, y = batch * self.channels * h * w, batch * self.out_channels * oh * ow
        elements, wide = x + y + self.out_channels * self.kernel_h * self.kernel_w, 0
        whole = x if self.pass_ == "dgrad" else y
        for step in self.epilogue:
            for _, shape in step.tensors:
                size = whole if shape == "output" else self.result_channels
                elements, wide = elements + size * (not step.wide), wide + size * step.wide
        return elements * _dtype(self.dtype).bytes + wide * _dtype(self.accumulate).bytes

    def floor(self, bandwidth: float, rate: float, nominal: bool = False) -> float:
        """The least seconds it takes at ``bandwidth`` bytes and ``rate`` flops a second."""
        return max(self.bytes / bandwidth, (self.nominal_flops if nominal else self.flops) / rate)

    # -- names -------------------------------------------------------------------------------

    @property
    def key(self) -> str:
        """A name that no other problem has, of characters that file names may have."""
        shape = f"{self.batch}x{self.channels}x{self.height}x{self.width}"
        parts = [
            self.operator, self.pass_, shape, f"m{self.multiplier}",
            "k{}x{}".format(*self.kernel), "s{}x{}".format(*self.stride),
            "p{}.{}.{}.{}".format(*self.padding), "d{}x{}".format(*self.dilation),
            self.layout, self.dtype, self.accumulate, self.precision,
            "deterministic" if self.deterministic else "any",
            "+".join(map(str, self.epilogue)) or "plain",
        ]  # fmt: skip
        return "-".join(parts)

    def __str__(self) -> str:
        image = "x".join(map(str, (self.batch, self.channels, *self.image[2 - self.rank :])))
        text = f"{self.operator} {self.pass_} {image} K{_short(self.kernel, self.rank)}"
        text += f" s{_short(self.stride, self.rank)}"
        text += f" p{','.join(map(str, self.padding))}" if any(self.padding) else ""
        text += f" d{_short(self.dilation, self.rank)}" if self.dilation != (1, 1) else ""
        text += f" m{self.multiplier}" if self.multiplier > 1 else ""
        text += f" {self.dtype} {self.layout}"
        text += f" sums in {self.accumulate}" if self.accumulate != _usual(self.dtype) else ""
        text += f" {self.precision}" if self.precision != "exact" else ""
        text += "" if self.deterministic else " in any order"
        return text + "".join(f" + {step}" for step in self.epilogue)


def _usual(dtype: str) -> str:
    return ACCUMULATORS[dtype][0]


def _short(pair: tuple[int, int], rank: int) -> str:
    return str(pair[1]) if rank == 1 or pair[0] == pair[1] else f"{pair[0]}x{pair[1]}"
