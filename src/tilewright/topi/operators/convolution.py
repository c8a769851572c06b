"""What convolutions of any number of dimensions have in common: shapes, tensors, work, checks."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Self

from tilewright.ir.errors import ProblemError
from tilewright.topi import arguments
from tilewright.topi.batch import Batch
from tilewright.topi.operators.conv_shapes import (
    BLOCKED,
    Dimension,
    by_dimension,
    channels_first,
    transposed_shape,
)
from tilewright.topi.operators.conv_torch import torch_convolution
from tilewright.topi.problem import ACCUMULATORS, FLOAT8_SUMS, QUANTIZED, Problem, TensorType

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tilewright.topi.declared import Declared

#: By pass, the tensors that it reads: x, the filter, the gradient of y.
OPERANDS = {
    "forward": ("data", "filter"),
    "dgrad": ("grad", "filter"),
    "wgrad": ("data", "grad"),
}
#: The inputs that are batches of images.
IMAGES = ("data", "grad", "residual")
#: Of the dimensions of an image, by their letter: what they are called, and both of their ends.
_WORDS = {
    "D": ("depth", "front and back"),
    "H": ("height", "top and bottom"),
    "W": ("width", "left and right"),
}


class Convolution(Problem):
    """A convolution or one of its gradients, in as many dimensions as its operator's name ends
    with. A subclass has what is named here as fields or properties, and :attr:`dims`.

    ``image``, ``kernel``, ``stride`` and ``dilation`` have at least two numbers, a height of 1
    where there is none, and ``padding`` twice as many.
    """

    LINEAR = True
    TYPES: ClassVar[Mapping[str, tuple[str, ...]]] = ACCUMULATORS | QUANTIZED | FLOAT8_SUMS
    #: Whether filters of depthwise convolutions lie as (channels, multiplier, ...) in every layout.
    OWN_FILTERS: ClassVar[bool] = False
    FORMS: ClassVar[tuple[str, ...]] = (
        "declare", "nn.flat_sums", "nn.group_windows", "nn.group_words", "nn.box_windows",
        "nn.packed_windows", "nn.byte_dots", "nn.matrix_tiles", "nn.winograd",
    )  # fmt: skip
    PASSES: ClassVar[Mapping[str, str]] = {"forward": "", "dgrad": "data", "wgrad": "filter"}

    batch: int
    channels: int
    groups: int
    multiplier: int
    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]
    layout: str

    if TYPE_CHECKING:  # a dataclass takes what it has before for the default of a field

        @property
        def image(self) -> tuple[int, ...]: ...
        @property
        def kernel(self) -> tuple[int, ...]: ...

        @staticmethod
        def parse(
            input: str | Sequence[int],
            filter: str | Sequence[int],
            groups: int | None = None,
            **more: Any,
        ) -> Convolution: ...

    @classmethod
    def of_shapes(cls, *shapes: tuple[int, ...], **values: Any) -> Convolution:
        """The convolution of an image and a filter of these shapes, which lie as ``layout`` says,
        channels first by default, of ``groups``, 1 by default.

        With ``pass_`` "dgrad" it is the transposed one, of an image of y. Of the images of x that
        have such a y the result is the smallest, and larger by ``output_padding``: an integer below
        the stride, or one for each dimension. With "wgrad" the second shape is that of y, and
        ``kernel`` has the extents of the filter.

        >>> from tilewright.topi import Conv
        >>> p = Conv.of_shapes((1, 8, 5, 5), (8, 4, 3, 3), pass_="dgrad", stride=2, padding=1)
        >>> p.result_shape
        (1, 4, 9, 9)
        """
        if len(shapes) < 2 or min(map(len, shapes[:2])) < 3:
            raise ProblemError(
                f"a convolution is of an image and a filter of three dimensions or more, not of "
                f"{', '.join(map(str, map(tuple, shapes))) or 'nothing'}"
            )
        image, filter, groups = *shapes[:2], values.pop("groups", 1)
        transposed = values.get("pass_") == "dgrad"
        last = str(values.get("layout", "")).endswith("C")
        image = channels_first(image) if last else image
        own = cls.OWN_FILTERS and (groups is None or (groups == image[1] and not transposed))
        if last and not own:
            filter = channels_first(filter)
        if transposed:
            image = transposed_shape(image, filter, groups, values)
        elif values.get("pass_") == "wgrad":
            if "kernel" not in values:
                raise ProblemError("x and dy leave open which filter: give its extents as kernel")
            result = channels_first(shapes[1]) if last else shapes[1]
            channels = image[1] // (groups or image[1])
            filter = (result[1], channels, *values.pop("kernel"))
        return cls.parse(image, filter, None if own else groups, **values)

    @cached_property
    def dims(self) -> tuple[Dimension, ...]:
        """The dimensions of an image, outermost first."""
        raise NotImplementedError

    @property
    def rank(self) -> int:
        """The number of dimensions of an image."""
        return int(self.operator[-2])

    def sides(self, padding: Any) -> tuple[int, ...]:
        """Padding, given in numbers or by name, of all sides."""
        if not isinstance(padding, str):
            return arguments.padding(padding, self.rank)
        return arguments.named_padding(padding, self.image, self.kernel, self.stride, self.dilation)

    def check_windows(self) -> None:
        """Raises :class:`ProblemError` for a window that the padded image has no place for, and for
        an epilogue of a gradient by the filter."""
        for d in self.dims:
            if d.window > d.padded:
                name, ends = _WORDS[d.letter]
                raise ProblemError(
                    f"the window has a {name} of {d.window}, the padded image one of {d.padded}: "
                    f"pad {d.window - d.padded} more, {ends} together, or use a smaller kernel"
                )
        if self.epilogue and self.pass_ == "wgrad":
            raise ProblemError(
                "a weight gradient has no epilogue: leave it out, or use the pass forward"
            )

    def resized(
        self, image: Sequence[int], kernel: Sequence[int] | None = None, **changes: Any
    ) -> Self:
        """The same problem of images and filters of other extents, and with other ``changes``."""
        raise NotImplementedError

    # -- shapes ------------------------------------------------------------------------------

    @property
    def is_depthwise(self) -> bool:
        """Whether each channel has filters of its own."""
        return self.groups == self.channels

    @property
    def out_channels(self) -> int:
        """Channels of y."""
        return self.groups * self.multiplier

    @property
    def image_extents(self) -> tuple[int, ...]:
        """The extents of an image of x."""
        return tuple(d.extent for d in self.dims)

    @property
    def out_extents(self) -> tuple[int, ...]:
        """Those of an image of y."""
        return tuple(d.results for d in self.dims)

    @property
    def out_image(self) -> tuple[int, ...]:
        """The same, as ``image`` has them."""
        return self.out_extents

    def in_layout(self, channels: int, image: Sequence[int], layout: str = "") -> tuple[int, ...]:
        """The shape of a batch of images, dimensions in the order of a layout, by default that of
        x."""
        layout = layout or self.layout
        if layout.endswith("C"):
            return (self.batch, *image, channels)
        if block := BLOCKED.get(layout, 0):
            return (self.batch, channels // block, *image, block)
        return (self.batch, channels, *image)

    @property
    def block(self) -> int:
        """Channels of x that lie next to one another, in blocks; 0 where they do not."""
        return BLOCKED.get(self.layout, 0)

    @property
    def result_layout(self) -> str:
        """How the result lies, and what the epilogue adds to each of its elements."""
        return self.layout

    @property
    def is_relaid(self) -> bool:
        """Whether the result lies in another layout than x."""
        return self.result_layout != self.layout

    @property
    def input_shape(self) -> tuple[int, ...]:
        """The shape of x and dx, in the order of the layout."""
        return self.in_layout(self.channels, self.image_extents)

    @property
    def output_shape(self) -> tuple[int, ...]:
        """The shape of y and dy, in the order of their layout."""
        return self.in_layout(self.out_channels, self.out_extents, self.result_layout)

    @property
    def filter_shape(self) -> tuple[int, ...]:
        """(groups * multiplier, channels / groups, taps of every dimension), in the order of the
        layout."""
        taps, own = tuple(d.taps for d in self.dims), self.channels // self.groups
        if self.block:
            return (self.out_channels, own // self.block, *taps, self.block)
        return self.filter_place(self.out_channels, own, taps)

    def filter_place(self, m: Any, c: Any, taps: Sequence[Any]) -> tuple[Any, ...]:
        """Where such a filter has a tap, by its channels of y and of x."""
        if self.block:
            return (m, c // self.block, *taps, c % self.block)
        return (m, *taps, c) if self.layout.endswith("C") else (m, c, *taps)

    @property
    def result_shape(self) -> tuple[int, ...]:
        """The shape of what the pass computes."""
        found = {"forward": self.output_shape, "dgrad": self.input_shape}
        return found.get(self.pass_, self.filter_shape)

    @property
    def result_channels(self) -> int:
        """The channels of what forward or dgrad computes; tensors of its epilogue have as many."""
        return self.channels if self.pass_ == "dgrad" else self.out_channels

    # -- tensors -----------------------------------------------------------------------------

    def inputs(self) -> dict[str, TensorType]:
        """By name, in calling order: "data", "filter" or "grad" as in :data:`OPERANDS`, then those
        of the epilogue's steps."""
        known = {
            "data": TensorType(self.input_shape, self.dtype),
            "filter": TensorType(self.filter_shape, self.filter_dtype),
            "grad": TensorType(self.output_shape, self.dtype),
        }
        found = {name: known[name] for name in OPERANDS[self.pass_]}
        return found | self.epilogue_inputs(self.result_shape, self.result_channels)

    @property
    def result(self) -> TensorType:
        """What the pass computes."""
        return TensorType(self.result_shape, self.result_dtype)

    def declare(self, given: Any = None) -> Declared:
        """See :mod:`~tilewright.topi.operators.conv_dense`."""
        from tilewright.topi.operators.conv_dense import declare_dense

        return declare_dense(self, given)

    @cached_property
    def channels_last(self) -> bool | None:
        """Whether channels lie next to one another; None where they do in blocks, or those of the
        result lie otherwise."""
        return None if self.block or self.is_relaid else self.layout.endswith("C")

    def batch_of(self, images: int, among: Collection[str]) -> Batch | None:
        shapes = self.shapes()
        names = [n for n in shapes if n in IMAGES]
        return Batch.of(shapes, names, images) if set(names) <= set(among) else None

    def at(self, batch: Batch, count: int) -> Self:
        return self.replace(batch=count)

    @property
    def most_batch(self) -> int:
        """The largest batch in which all offsets are below 2^31, so that 32 bits count them."""
        padded = math.prod(d.padded for d in self.dims)
        largest = max(self.channels * padded, self.out_channels * math.prod(self.out_extents))
        return (2**31 - 1) // largest or 2**31 - 1

    # -- work --------------------------------------------------------------------------------

    @property
    def nominal_flops(self) -> int:
        """Additions and multiplications, with those of taps in the padding."""
        return 2 * self.batch * self._products * math.prod(d.results * d.taps for d in self.dims)

    @property
    def _products(self) -> int:
        """Pairs of an output channel and an input channel that it reads."""
        return self.out_channels * (self.channels // self.groups)

    @property
    def flops(self) -> int:
        """Additions and multiplications of taps inside the image; the same in every pass."""
        return 2 * self.batch * self._products * math.prod(d.pairs for d in self.dims)

    # -- on the command line -------------------------------------------------------------------

    @classmethod
    def add_arguments(cls, add: Any) -> None:
        """``--input``, ``--filter`` and so on."""
        from tilewright.topi.operators import conv_arguments  # for the command line alone

        conv_arguments.add_arguments(add)

    @classmethod
    def from_arguments(cls, args: Any, common: Mapping[str, Any]) -> list[Problem]:
        """One for each of the shapes and layouts."""
        from tilewright.topi.operators import conv_arguments

        return list(conv_arguments.from_arguments(cls, args, common))

    # -- in PyTorch's words -------------------------------------------------------------------

    def torch_function(self, torch: Any) -> Callable[..., Any] | None:
        """``F.conv2d`` and its siblings, or a gradient of one, and the epilogue."""
        return None if self.block or self.is_relaid else torch_convolution(self, torch)

    def plain(self) -> Self:
        """The same problem, channels first."""
        return self.replace(layout="", **({"out_layout": ""} if self.is_relaid else {}))

    def permutation(self, name: str) -> tuple[int, ...] | None:
        """Of images and filters in channels-last layouts."""
        if not self.channels_last or name not in ("data", "grad", "residual", "filter", "result"):
            return None
        return (0, *range(2, self.rank + 2), 1)

    def lay(self, name: str, values: Any) -> Any:
        """See :meth:`~tilewright.topi.problem.Problem.lay`; blocks are put innermost."""
        layout = self.result_layout if name in ("result", "residual") else self.layout
        block = BLOCKED.get(layout, 0)
        whole = self.inputs()[name].shape if name != "result" else self.result.shape
        if block and len(whole) == 5:  # a filter that is depthwise has no blocks
            n, c, *space = values.shape
            blocks = values.reshape(n, c // block, block, *space)
            return blocks.transpose(0, 1, *range(3, blocks.ndim), 2)
        if self.is_relaid and layout.endswith("C") and len(whole) == self.rank + 2:
            return values.transpose(0, *range(2, self.rank + 2), 1)
        return super().lay(name, values)

    def excerpt(
        self, arrays: Mapping[str, Any], result: Any
    ) -> tuple[Problem, dict[str, Any], Any]:
        """The first and the last image; all of them of a weight gradient."""
        if self.pass_ == "wgrad":
            return self, dict(arrays), result
        ends = sorted({0, self.batch - 1})
        given = {n: v[ends] if v.ndim > 2 and n != "filter" else v for n, v in arrays.items()}
        return self.replace(batch=len(ends)), given, result[ends]

    # -- names -------------------------------------------------------------------------------

    @property
    def short(self) -> str:
        """:meth:`__str__` without the operator, the pass, and padding by half the filter."""
        text = super().short
        half = tuple((k - 1) * d // 2 for k, d in zip(self.kernel, self.dilation, strict=True))
        if self.padding == (*half, *half):  # as in every network
            text = text.replace(f" p{','.join(map(str, self.padding))}", "")
        return text

    def columns(self) -> dict[str, str]:
        """The shape of x, of the filter, and so on."""
        return {
            "shape": "x".join(map(str, (self.batch, self.channels, *self.image_extents))),
            "kernel": "x".join(str(d.taps) for d in self.dims),
            "stride": by_dimension([d.stride for d in self.dims]),
            "layout": self.layout + f" to {self.result_layout}" * self.is_relaid,
        }

    def __str__(self) -> str:
        image = "x".join(map(str, (self.batch, self.channels, *self.image_extents)))
        text = f"{self.operator} {self.pass_} {image} K{by_dimension([d.taps for d in self.dims])}"
        text += f" s{by_dimension([d.stride for d in self.dims])}"
        text += f" p{','.join(map(str, self.padding))}" if any(self.padding) else ""
        spread = [d.dilation for d in self.dims]
        text += f" d{by_dimension(spread)}" if set(spread) != {1} else ""
        if self.operator.startswith("depthwise"):
            text += f" m{self.multiplier}" if self.multiplier > 1 else ""
        else:
            text += f" to {self.out_channels}"
            text += f" in {self.groups} groups" if self.groups > 1 else ""
        text += f" {self.dtype} {self.layout}" + f" to {self.result_layout}" * self.is_relaid
        return text + self.common_text()
