"""Convolution in one and two dimensions: dense, in groups and depthwise, with its gradients."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Self

from tilewright.ir.dtype import dtype as _dtype
from tilewright.ir.errors import ProblemError
from tilewright.topi import arguments
from tilewright.topi.arguments import one_of
from tilewright.topi.operators.conv_shapes import (
    BLOCKED,
    Dimension,
    dimensions,
    layouts,
    multiplier_of,
)
from tilewright.topi.operators.convolution import Convolution
from tilewright.topi.problem import Traits

if TYPE_CHECKING:
    from tilewright.topi.declared import Declared

#: Channels of images whose copies have another layout in every case: as many as 16 bytes hold.
_FEW = 8

#: By operator, the layouts of its images; letters are batch, channel, height, width.
LAYOUTS = {
    "depthwise_conv2d": layouts(2),
    "depthwise_conv1d": layouts(1),
    "conv2d": layouts(2),
    "conv1d": layouts(1),
}


@dataclass(frozen=True, kw_only=True)
class Conv(Convolution):
    """A convolution or one of its gradients, complete.

    Shapes are those of the forward convolution in every pass: (batch, channels, height, width)
    is the shape of x and dx. In 1-D operators height, kernel_h and their stride are 1. The
    transposed convolution is the pass "dgrad". A convolution with as many groups as channels is
    depthwise, whatever it was called when it was made.

    Parameters
    ----------
    operator : "depthwise_conv2d", "depthwise_conv1d", "conv2d" or "conv1d".
    pass_ : "forward" (x, filter to y), "dgrad" (dy, filter to dx) or "wgrad" (x, dy to dfilter).
    groups : the number of groups of channels, each with filters of its own; as many as channels, or
        0, where the operator is depthwise, by default 1 where it is not.
    multiplier : filters of a group; y has ``groups * multiplier`` channels.
    stride, dilation : an integer or (vertical, horizontal).
    padding : an integer, (vertical, horizontal), (top, left, bottom, right), or a name of
        :func:`~tilewright.topi.arguments.named_padding`; in 1-D also (left, right).
    layout : how images lie, one of :data:`LAYOUTS`, or of integers "NCHW4" or "NCHW32", (batch,
        channels / 4, height, width, 4), with filters (groups * multiplier, channels / groups / 4,
        KH, KW, 4). Other filters lie as (channels, multiplier, KH, KW)
        in every layout where they are depthwise, else as (groups * multiplier, channels / groups,
        KH, KW), or with channels last too: as PyTorch has them in memory in either format.
    out_layout : of integers in two dimensions how the result lies, and what the epilogue adds to
        each of its elements, where that is another layout than ``layout``; in 16 bits it may be
        "NHWC" in a forward pass that is dense, of images of 2 to 8 channels in "NCHW".
    epilogue : not in "wgrad".

    The other parameters are those of :class:`~tilewright.topi.problem.Problem`.
    """

    NAMES: ClassVar[tuple[str, ...]] = tuple(LAYOUTS)
    FORMS: ClassVar[tuple[str, ...]] = (
        *Convolution.FORMS, "nn.depthwise_byte_dots", "nn.tap_gradients", "nn.thin_boxes",
        "nn.turned_gradients",
    )  # fmt: skip
    OWN_FILTERS = True

    batch: int
    channels: int
    height: int = 1
    width: int
    groups: int = 0
    multiplier: int = 1
    kernel_h: int = 1
    kernel_w: int
    stride: tuple[int, int] = (1, 1)
    padding: tuple[int, int, int, int] = (0, 0, 0, 0)
    dilation: tuple[int, int] = (1, 1)
    layout: str = ""
    out_layout: str = ""

    def check(self) -> None:
        """Values in one form; raises :class:`ProblemError` for what is no convolution."""
        put = self.put
        put("layout", self.layout or LAYOUTS[self.operator][0])
        blocked = tuple(BLOCKED) if self.is_quantized and self.rank == 2 else ()
        one_of("layout", self.layout, (*LAYOUTS[self.operator], *blocked))
        self._check_out_layout((*LAYOUTS[self.operator], *blocked) if blocked else self._turns())
        self.sizes("batch", "channels", "height", "width", "multiplier", "kernel_h", "kernel_w")
        self.sizes("groups", least=0)
        self._check_groups()
        self._check_blocks()
        put("stride", arguments.each("stride", self.stride, self.rank))
        put("dilation", arguments.each("dilation", self.dilation, self.rank))
        put("padding", self.sides(self.padding))
        self._check_height()
        self.check_windows()

    def _check_groups(self) -> None:
        depthwise = self.operator.startswith("depthwise")
        groups = self.groups or (self.channels if depthwise else 1)
        if self.channels % groups or (depthwise and groups != self.channels):
            raise ProblemError(
                f"{self.channels} channels in {groups} groups: "
                + ("a depthwise convolution has as many groups as channels; use conv2d"
                   if depthwise else "their number is a multiple of that of the groups")
            )  # fmt: skip
        self.put("groups", groups)
        if groups == self.channels and not depthwise:
            self.put("operator", f"depthwise_{self.operator}")

    def _check_blocks(self) -> None:
        block, own = self.block, 0 if self.is_depthwise else self.channels // self.groups
        made = BLOCKED.get(self.result_layout, 1)
        if (block and any(c % block for c in (self.channels, own))) or self.out_channels % made:
            layouts = f"{self.layout} has channels in blocks of {block}"
            if self.is_relaid:
                blocks = f"{block} and {made}" if block and made > 1 else f"{block or made}"
                layouts = f"{self.layout} to {self.out_layout} has channels in blocks of {blocks}"
            raise ProblemError(
                f"{layouts}, and {self.channels} to {self.out_channels} in {self.groups} groups "
                "are not: fill them up, or use NHWC"
            )

    def _turns(self) -> tuple[str, ...]:
        """Of floats the layouts that a result may have: channels last, of images of few channels
        that have them first."""
        dense = self.operator == "conv2d" and self.groups in (0, 1) and self.pass_ == "forward"
        few = 1 < self.channels <= _FEW and self.dtype in ("float16", "bfloat16")
        return ("NCHW", "NHWC") if dense and few and self.layout == "NCHW" else ()

    def _check_out_layout(self, known: tuple[str, ...]) -> None:
        """That the result may lie so; it is said only where it is another layout."""
        if self.out_layout and not known:
            raise ProblemError(
                f"out_layout {self.out_layout!r}: results of integers in two dimensions may lie "
                "in another layout than images, and channels last those of images of 16 bits and "
                f"2 to {_FEW} channels in NCHW; those of {self.operator} in {self.dtype} and "
                f"{self.layout} do not: leave it out"
            )
        if self.out_layout:
            one_of("out_layout", self.out_layout, known)
        self.put("out_layout", self.out_layout if self.out_layout != self.layout else "")

    @property
    def result_layout(self) -> str:
        """How the result lies, and what the epilogue adds to each of its elements."""
        return self.out_layout or self.layout

    def _check_height(self) -> None:
        if self.rank == 1:
            vertical = (self.height, self.kernel_h, self.stride[0], self.dilation[0])
            if vertical != (1, 1, 1, 1) or self.padding[0] or self.padding[2]:
                raise ProblemError(
                    f"{self.operator} has no height: leave out height and kernel_h, and give "
                    "stride, padding and dilation for the width alone; or use "
                    f"{self.operator.replace('1d', '2d')}"
                )

    # -- making ------------------------------------------------------------------------------

    @staticmethod
    def parse(
        input: str | Sequence[int],
        filter: str | Sequence[int],
        groups: int | None = None,
        **more: Any,
    ) -> Conv:
        """The problem of two shapes, the others of its parameters by name.

        ``input`` is (N, C, H, W), or (N, C, W) for the 1-D operator, in this order whatever the
        layout. ``filter`` is (C, multiplier, KH, KW) or PyTorch's (C * multiplier, 1, KH, KW) of a
        depthwise convolution; with ``groups``, it is PyTorch's (OC, C / groups, KH, KW). Either
        may be text.

        >>> Conv.parse("64x384x32x32", "384x1x7x7", padding=3).output_shape
        (64, 384, 32, 32)
        >>> Conv.parse("64x384x32x32", "512x384x1x1", groups=1).output_shape
        (64, 512, 32, 32)
        """
        data, weight = arguments.shape("input", input), arguments.shape("filter", filter)
        if len(data) != len(weight) or len(data) not in (3, 4):
            raise ProblemError(
                f"an input of {len(data)} and a filter of {len(weight)} dimensions: give "
                "NxCxHxW and CxMxKHxKW, or NxCxW and CxMxKW"
            )
        batch, channels, *image = data
        first, second, *kernel = weight
        if groups is not None:
            multiplier = multiplier_of(first, second, channels, groups)
        elif first == channels:
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
        kind = "depthwise_conv" if groups is None else "conv"
        more.setdefault("operator", f"{kind}{len(data) - 2}d")
        return Conv(
            batch=batch, channels=channels, height=image[0], width=image[1], groups=groups or 0,
            multiplier=multiplier, kernel_h=kernel[0], kernel_w=kernel[1], **more,
        )  # fmt: skip

    def replace(self, **changes: Any) -> Self:
        """The same problem but for ``changes``; a depthwise convolution stays one."""
        if self.is_depthwise and not changes.keys() & {"groups", "operator"}:
            changes["groups"] = 0
        return super().replace(**changes)

    def resized(
        self, image: Sequence[int], kernel: Sequence[int] | None = None, **changes: Any
    ) -> Self:
        """The same problem of images and filters of other extents, and with other ``changes``."""
        (height, width), (kernel_h, kernel_w) = image, kernel or self.kernel
        return self.replace(
            height=height, width=width, kernel_h=kernel_h, kernel_w=kernel_w, **changes
        )

    def to_dict(self) -> dict[str, Any]:
        """As JSON has it."""
        made = super().to_dict()
        if self.is_depthwise:
            del made["groups"]
        if not self.out_layout:
            del made["out_layout"]
        return made

    def to_short_dict(self) -> dict[str, Any]:
        """:meth:`to_dict` without what is as usual."""
        made = super().to_short_dict()
        if self.operator == self.NAMES[0]:
            made.pop("operator", None)
        if self.layout == LAYOUTS[self.operator][0]:
            del made["layout"]
        return made

    # -- shapes ------------------------------------------------------------------------------

    @cached_property
    def dims(self) -> tuple[Dimension, ...]:
        """Height and width of an image, or its width."""
        both = dimensions(self.image, self.kernel, self.stride, self.dilation, self.padding)
        return both[2 - self.rank :]

    @cached_property
    def image(self) -> tuple[int, int]:
        """Height and width of x."""
        return self.height, self.width

    @cached_property
    def kernel(self) -> tuple[int, int]:
        """Height and width of the filter."""
        return self.kernel_h, self.kernel_w

    @cached_property
    def out_image(self) -> tuple[int, int]:
        """Height and width of y."""
        high, wide = (1, *self.out_extents)[-2:]
        return high, wide

    @property
    def result_image(self) -> tuple[int, int]:
        """Height and width of what forward or dgrad computes."""
        return self.image if self.pass_ == "dgrad" else self.out_image

    @property
    def filter_shape(self) -> tuple[int, ...]:
        """(channels, multiplier, KH, KW), or (channels, multiplier, KW); where it is not depthwise
        (groups * multiplier, channels / groups, KH, KW) in the order of the layout, or without
        KH."""
        if not self.is_depthwise:
            return super().filter_shape
        return (self.channels, self.multiplier, *self.kernel[2 - self.rank :])

    def filter_place(self, m: Any, c: Any, taps: Sequence[Any]) -> tuple[Any, ...]:
        """Where such a filter has a tap, by its channels of y and of x in its group."""
        if not self.is_depthwise:
            return super().filter_place(m, c, taps)
        return (m // self.multiplier, m % self.multiplier, *taps)

    @property
    def is_winograd(self) -> bool:
        """Whether Winograd's algorithm may compute it: it is allowed, and this is the forward pass
        of a dense one in float32 with a filter of 3x3 and stride 1."""
        return (
            (self.precision, self.pass_, self.dtype, self.accumulate)
            == ("winograd", "forward", "float32", "float32")
            and (self.rank, self.kernel, self.groups) == (2, (3, 3), 1)
            and self.stride == self.dilation == (1, 1)
            and not self.is_depthwise
        )

    # -- tensors -----------------------------------------------------------------------------

    def declare(self, given: Any = None) -> Declared:
        """See :func:`~tilewright.topi.declare.declare`, and
        :mod:`~tilewright.topi.operators.conv_dense` where it is not depthwise."""
        if not self.is_depthwise:
            return super().declare(given)
        from tilewright.topi.declare import declare

        return declare(self, given)

    def permutation(self, name: str) -> tuple[int, ...] | None:
        """Of images in channels-last layouts, and of filters there that are not depthwise."""
        filter = "result" if self.pass_ == "wgrad" else "filter"
        return None if self.is_depthwise and name == filter else super().permutation(name)

    # -- names -------------------------------------------------------------------------------

    @property
    def key(self) -> str:
        """A name that no other problem has, of characters that file names may have."""
        shape = f"{self.batch}x{self.channels}x{self.height}x{self.width}"
        parts = [
            self.operator, self.pass_, shape,
            *(() if self.is_depthwise else (f"g{self.groups}",)), f"m{self.multiplier}",
            "k{}x{}".format(*self.kernel), "s{}x{}".format(*self.stride),
            "p{}.{}.{}.{}".format(*self.padding), "d{}x{}".format(*self.dilation),
            self.layout, *((f"to_{self.out_layout}",) if self.out_layout else ()),
        ]  # fmt: skip
        return "-".join([*parts, *self.common_key()])

    @property
    def name(self) -> str:
        """A name for files and C functions: unlike those of others, of letters and digits."""
        first = self.multiplier if self.is_depthwise else f"{self.groups}x{self.multiplier}"
        words = [
            self.operator, self.pass_,
            f"{self.batch}x{self.channels}x{self.height}x{self.width}",
            f"{first}x{self.kernel_h}x{self.kernel_w}", self.dtype, self.layout.lower(),
            *(f"to_{x.lower()}" for x in (self.out_layout, self.out_dtype) if x),
            "stride", *map(str, self.stride), "pad", *map(str, self.padding),
            "dilation", *map(str, self.dilation), *(step.name for step in self.epilogue),
        ]  # fmt: skip
        return "_".join(words)

    def traits(self) -> Traits:
        """Sizes count by their logarithms; so does what divides the extent that vectors run
        along."""
        last = self.channels_last
        (height, width), outputs = self.out_image, self.batch * self.out_channels
        weighed = (
            (height, 0.7),
            (width, 0.5 if last else 1.0),
            (self.channels, 0.7 if last else 0.3),
            (self.batch, 0.3),
            (self.kernel_h, 1.5),
            (self.kernel_w, 1.5),
            (math.gcd(16, self.channels if last else self.width), 0.7),
            (outputs * height * width, 0.2),
        )
        steps = tuple(step.name for step in self.epilogue)
        others = (
            (1.5, self.kernel), (2.0, self.stride), (2.0, self.dilation),
            (2.0, _dtype(self.dtype).bytes), (0.2, self.dtype), (2.0, self.rank),
            (2.0, self.multiplier), (0.5, self.accumulate), (0.3, self.precision),
            (0.1, self.deterministic), (0.1, self.padding), (0.2, steps),
        )  # fmt: skip
        same: tuple[Any, ...] = (0 if self.is_depthwise else self.groups, self.pass_, last)
        same += (self.layout, self.result_layout) if last is None else ()
        same += ("winograd",) if self.is_winograd else ()  # what is fast for others is not for it
        twin = (self.image, self.out_image, self.kernel, self.stride, self.dilation)
        return Traits(same, tuple(w * math.log2(x) for x, w in weighed), others, twin)
