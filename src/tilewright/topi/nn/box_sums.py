"""The sums of a convolution as products of boxes, and the declaration of a problem with them."""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.te import Tensor
from tilewright.topi.declare import Declaration
from tilewright.topi.nn.box_factors import reach  # fmt: skip
from tilewright.topi.nn.box_problems import in_boxes
from tilewright.topi.nn.images import Images
from tilewright.topi.operators.convolution import Convolution


@dataclass(frozen=True)
class BoxSums:
    """The sums of a convolution as products of boxes.

    ``total`` is (batch, place, channel), with a place in an image along each of its dimensions, or
    of a gradient by the filter (filter, place, channel); of a gradient by the input with strides
    (batch, place, phase, channel), of the results that are a stride apart. ``left`` and ``right``
    are its factors; ``left`` has the group first where there are several, but where a row holds the
    channels of ``slices`` groups, all of which a tile multiplies. Where boxes are ``whole``, taps
    read parts of them. Where ``right`` is ``turned``, channels of the result lie side by side in
    it, a row of them last, which of a gradient by the filter is so of both factors. Where channels
    of a factor lie in blocks, whose size ``blocks`` has, it has those of one last, and its number
    first. ``pixels`` are images, and extents in them, of a box of that gradient. Where boxes are of
    ``windows``, results are images of a pixel each. ``seen`` is what results see through each tap,
    where that is a stage. Where ``beside`` pixels of a row of blocks lie side by side in ``left``,
    the number among them is a further axis of ``total``, behind the place. ``halves`` is the
    number of channels of halves that are multiplied in a step; 0 where there are none. Of groups
    that are joined, sums are over channels that are in the same ``eights`` as the result's alone.
    """

    total: Tensor
    left: Tensor
    right: Tensor
    turned: bool = False
    slices: int = 1
    whole: bool = False
    pixels: tuple[int, ...] = (1, 1, 1)
    windows: bool = False
    blocks: tuple[int, int] = (0, 0)
    seen: Tensor | None = None
    beside: int = 1
    halves: int = 0
    eights: bool = False


@dataclass(frozen=True)
class BoxDeclaration(Declaration):
    """A convolution as products of ``boxes``.

    ``numbers`` hold what the epilogue multiplies channels with and adds, ``copies`` are operands
    that are copied first. ``phased`` are the sums of a gradient with strides in the type of the
    result; ``alone`` says along which dimensions one phase of it is summed. A gradient by the
    filter is ``placed`` where its elements lie elsewhere in the sums. ``added`` is what an epilogue
    reads for each result, as :class:`~tilewright.topi.nn.box_factors.Added`. Where results see the
    pixel in their place alone, or lie otherwise than with channels last, ``by_pixels`` are all of
    them with channels last, as images of one pixel each, or of one row. Where results are pooled,
    ``before`` is what windows of ``pooled`` by as many of them are read of. ``after`` is what
    another kernel makes of the output, where that is not what the problem asks for.
    """

    boxes: BoxSums
    numbers: tuple[Tensor, ...] = ()
    copies: tuple[Tensor, ...] = ()
    phased: Tensor | None = None
    alone: tuple[bool, ...] = (False, False)
    placed: bool = False
    added: tuple[Tensor, ...] = ()
    by_pixels: Tensor | None = None
    before: Tensor | None = None
    pooled: int = 1
    after: Tensor | None = None

    @property
    def left(self) -> Tensor:
        return self.boxes.left

    @property
    def right(self) -> Tensor:
        return self.boxes.right

    @property
    def numbered(self) -> bool:
        """Whether a tile has results by their number among all, not a box of them."""
        if self.by_pixels is None:
            return self.boxes.windows
        return all(int(e) == 1 for e in self.by_pixels.shape[1:-1])

    @property
    def in_rows(self) -> bool:
        """Whether a tile has results by their number among those of an image."""
        if self.by_pixels is None or self.numbered:
            return False
        _, _, space = Images(self.problem.result_layout).extents(self.output.shape)
        return [int(e) for e in self.by_pixels.shape[1:-1]] != [int(e) for e in space]

    @property
    def space(self) -> int:
        """Dimensions of an image, also where the first has one row."""
        return len(self.sum.shape) - 2 - (self.phased is not None) - (self.boxes.beside > 1)

    def reach(self, box: tuple[int, ...], rows: int = 0) -> tuple[int, ...]:
        """Images, and extents in them, of what a box of results sees through all taps, or of dy
        through ``rows`` of them."""
        if not isinstance(self.problem, Convolution):
            return box
        p = in_boxes(self.problem)
        assert p is not None
        return reach(p, box, rows)
