"""What convolutions of any number of dimensions have in common: shapes, tensors, work, checks."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Self

from tilewright.ir.errors import ProblemError
from tilewright.topi import arguments
from tilewright.topi.operators.conv_torch import torch_convolution
from tilewright.topi.problem import Problem, TensorType

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tilewright.topi.declared import Declared

#: By pass, the tensors that it reads: x, the filter, the gradient of y.
OPERANDS = {
    "forward": ("data", "filter"),
    "dgrad": ("grad", "filter"),
    "wgrad": ("data", "grad"),
}
#: Of the dimensions of an image, by their letter: what they are called, and both of their ends.
_WORDS = {
    "D": ("depth", "front and back"),
    "H": ("height", "top and bottom"),
    "W": ("width", "left and right"),
}


def layouts(rank: int) -> tuple[str, str]:
    """The layouts of images of ``rank`` dimensions: channels first, channels last.

    >>> layouts(3)
    ('NCDHW', 'NDHWC')
    """
    space = "DHW"[3 - rank :]
    return f"NC{space}", f"N{space}C"


class Dimension(NamedTuple):
    """A dimension of an image: its letter and extent, the taps of the filter along it, and how they
    lie. ``before`` and ``after`` are padding."""

    letter: str
    extent: int
    taps: int
    stride: int
    dilation: int
    before: int
    after: int

    @property
    def padded(self) -> int:
        """The extent of the padded image."""
        return self.extent + self.before + self.after

    @property
    def window(self) -> int:
        """From the first to the last tap."""
        return (self.taps - 1) * self.dilation + 1

    @property
    def results(self) -> int:
        """The extent of y."""
        return (self.padded - self.window) // self.stride + 1

    @property
    def pairs(self) -> int:
        """Pairs of an output and a tap whose input is inside the image."""
        total = 0
        for tap in range(self.taps):
            offset = tap * self.dilation - self.before  # input = output * stride + offset
            first = max(0, -(offset // self.stride))
            last = min(self.results - 1, (self.extent - 1 - offset) // self.stride)
            total += max(0, last - first + 1)
        return total


def dimensions(
    extents: Sequence[int], taps: Sequence[int], stride: Sequence[int], dilation: Sequence[int],
    padding: Sequence[int],
) -> tuple[Dimension, ...]:  # fmt: skip
    """The dimensions of an image; ``padding`` before all of them, then after."""
    count = len(extents)
    before, after = padding[:count], padding[count:]
    letters = "DHW"[3 - count :]
    each = zip(letters, extents, taps, stride, dilation, before, after, strict=True)
    return tuple(Dimension(*one) for one in each)


class Convolution(Problem):
    """A convolution or one of its gradients, in as many dimensions as its operator's name ends
    with. A subclass has what is named here as fields or properties, and :attr:`dims`.

    ``image``, ``kernel``, ``stride`` and ``dilation`` have at least two numbers, a height of 1
    where there is none, and ``padding`` twice as many.
    """

    LINEAR = True
    #: Whether filters of depthwise convolutions lie as (channels, multiplier, ...) in every layout.
    OWN_FILTERS: ClassVar[bool] = False
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
        the stride, or one for each dimension.

        >>> from tilewright.topi import Conv
        >>> p = Conv.of_shapes((1, 8, 5, 5), (8, 4, 3, 3), pass_="dgrad", stride=2, padding=1)
        >>> p.result_shape
        (1, 4, 9, 9)
        """
        if len(shapes) < 2 or min(map(len, shapes[:2])) < 3:
            raise ProblemError("a convolution is of an image and a filter")
        image, filter, groups = *shapes[:2], values.pop("groups", 1)
        transposed = values.get("pass_") == "dgrad"
        last = str(values.get("layout", "")).endswith("C")
        image = _channels_first(image) if last else image
        own = cls.OWN_FILTERS and (groups is None or (groups == image[1] and not transposed))
        if last and not own:
            filter = _channels_first(filter)
        if transposed:
            image = _transposed(image, filter, groups, values)
        elif values.get("pass_") == "wgrad":
            raise ProblemError("x and dy leave open which filter: a gradient by it has no call")
        return cls.parse(image, filter, None if own else groups, **values)

    @cached_property
    def dims(self) -> tuple[Dimension, ...]:
        """The dimensions of an image, outermost first."""
        raise NotImplementedError

    @property
    def rank(self) -> int:
        """The number of dimensions of an image."""
        return int(self.operator[-2])

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

    def in_layout(self, channels: int, image: Sequence[int]) -> tuple[int, ...]:
        """The shape of a batch of images, dimensions in the order of the layout."""
        if self.channels_last:
            return (self.batch, *image, channels)
        return (self.batch, channels, *image)

    @property
    def input_shape(self) -> tuple[int, ...]:
        """The shape of x and dx, in the order of the layout."""
        return self.in_layout(self.channels, self.image_extents)

    @property
    def output_shape(self) -> tuple[int, ...]:
        """The shape of y and dy, in the order of the layout."""
        return self.in_layout(self.out_channels, self.out_extents)

    @property
    def filter_shape(self) -> tuple[int, ...]:
        """(groups * multiplier, channels / groups, taps of every dimension), in the order of the
        layout."""
        taps = tuple(d.taps for d in self.dims)
        return self.filter_place(self.out_channels, self.channels // self.groups, taps)

    def filter_place(self, m: Any, c: Any, taps: Sequence[Any]) -> tuple[Any, ...]:
        """Where such a filter has a tap, by its channels of y and of x."""
        return (m, *taps, c) if self.channels_last else (m, c, *taps)

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
        known = {"data": self.input_shape, "filter": self.filter_shape, "grad": self.output_shape}
        found = {name: TensorType(known[name], self.dtype) for name in OPERANDS[self.pass_]}
        for step in self.epilogue:
            kind = self.accumulate if step.wide else self.dtype
            for name, shape in step.tensors:
                size = self.result_shape if shape == "output" else (self.result_channels,)
                found[name] = TensorType(size, kind)
        return found

    @property
    def result(self) -> TensorType:
        """What the pass computes."""
        return TensorType(self.result_shape, self.dtype)

    def declare(self, given: Any = None) -> Declared:
        """See :mod:`~tilewright.topi.operators.conv_dense`."""
        from tilewright.topi.operators.conv_dense import declare_dense

        return declare_dense(self, given)

    def declare_as(self, form: str, given: Any = None) -> Declared:
        """One of :data:`~tilewright.topi.nn.flat_windows.FORMS`."""
        from tilewright.topi.nn.flat_windows import FORMS

        return FORMS[form](self, given)

    @property
    def channels_last(self) -> bool:
        """Whether channels lie next to one another."""
        return self.layout.endswith("C")

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
        conv_arguments().add_arguments(add)

    @classmethod
    def from_arguments(cls, args: Any, common: Mapping[str, Any]) -> list[Problem]:
        """One for each of the shapes and layouts."""
        return list(conv_arguments().from_arguments(cls, args, common))

    # -- in PyTorch's words -------------------------------------------------------------------

    def torch_function(self, torch: Any) -> Callable[..., Any]:
        """``F.conv2d`` and its siblings, or a gradient of one, and the epilogue."""
        return torch_convolution(self, torch)

    def plain(self) -> Self:
        """The same problem, channels first."""
        return self.replace(layout="")

    def permutation(self, name: str) -> tuple[int, ...] | None:
        """Of images and filters in channels-last layouts."""
        if not self.channels_last or name not in ("data", "grad", "residual", "filter", "result"):
            return None
        return (0, *range(2, self.rank + 2), 1)

    def excerpt(
        self, arrays: Mapping[str, Any], result: Any
    ) -> tuple[Problem, dict[str, Any], Any]:
        """The first and the last image; all of them of a weight gradient."""
        if self.pass_ == "wgrad":
            return self, dict(arrays), result
        ends = sorted({0, self.batch - 1})
        given = {n: v[ends] if v.ndim > 2 and n != "filter" else v for n, v in arrays.items()}
        return self.replace(batch=len(ends)), given, result[ends]


def _channels_first(shape: tuple[int, ...]) -> tuple[int, ...]:
    return (shape[0], shape[-1], *shape[1:-1])


def _transposed(
    grad: tuple[int, ...], filter: tuple[int, ...], groups: int | None, values: dict[str, Any]
) -> tuple[int, ...]:
    """The shape of x, from those of y and the filter; takes ``output_padding`` out of
    ``values``."""
    rank = len(grad) - 2
    more = arguments.each("output_padding", values.pop("output_padding", 0), rank, 0)[-rank:]
    if isinstance(values.get("padding"), str):
        raise ProblemError("the padding of a transposed convolution is given in numbers")
    stride, dilation = (
        arguments.each(name, values.get(name, 1), rank)[-rank:] for name in ("stride", "dilation")
    )
    sides = arguments.padding(values.get("padding", 0), rank)
    half = len(sides) // 2
    around = [a + b for a, b in zip(sides[:half], sides[half:], strict=True)][-rank:]
    image = []
    each = zip(grad[2:], filter[2:], stride, dilation, around, more, strict=False)
    for extent, taps, s, d, both, extra in each:
        if extra >= s:
            raise ProblemError(f"output_padding {extra} is smaller than the stride, which is {s}")
        image.append((extent - 1) * s - both + (taps - 1) * d + 1 + extra)
    channels = filter[0] if groups is None else filter[1] * groups
    if min(image) < 1:
        raise ProblemError(f"the result would be {image}: use less padding")
    if grad[1] != filter[0] * (filter[1] if groups is None else 1):
        raise ProblemError(
            f"an image of {grad[1]} channels and a filter of {filter[0]}: a transposed convolution "
            "has a filter for each channel that it reads"
        )
    return (grad[0], channels, *image)


def multiplier_of(first: int, second: int, channels: int, groups: int) -> int:
    """The filters of a group, of a filter whose shape begins with ``first`` x ``second``; raises
    :class:`ProblemError` where it is not one of these channels in these groups."""
    if groups < 1 or second * groups != channels or first % groups:
        raise ProblemError(
            f"a filter of {first} x {second} does not fit {channels} channels in {groups} "
            f"groups: its shape begins with OC x {channels} / {groups}, OC a multiple of "
            f"{groups}"
        )
    return first // groups


def conv_arguments() -> Any:
    """The module that reads and writes options, which only the command line needs."""
    from tilewright.topi.operators import conv_arguments

    return conv_arguments
