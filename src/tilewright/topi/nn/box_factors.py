"""The factors of products of boxes: what results see, and the taps they see it through.

Either is declared further than there is anything, up to multiples of 256: so far any tile goes at
an edge. They are never stored whole, and nobody reads what lies beyond a tile.

Where boxes are whole, a box of the image has what all taps of a tile see, in parts of as many
channels as a row of shared memory has, and taps read parts of it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tilewright import te
from tilewright.te import Tensor
from tilewright.topi.nn.box_phases import all_phases, is_phased
from tilewright.topi.nn.box_problems import BLOCK, of_a_group, sliced, widths
from tilewright.topi.nn.convolved import Convolved
from tilewright.topi.nn.images import Images, or_zero, within
from tilewright.topi.operators.convolution import Convolution

#: Of what extents of factors are multiples: the largest extent of a box.
WHOLE = 256
#: Pixels of a block of 32 channels in a row of shared memory of 128 bytes, or of 64.
BESIDE, PAIR = 4, 2
#: Channels that the shortest product of a warp sums, and results of it.
EIGHT = 8


class Windows:
    """What results see: a ``tensor`` (batch, place in the image, taps, channel), with the group
    first where there are several, but those of slices; where channels lie in blocks, with that of
    the block behind the group. With ``steps``, the distances of results and of taps, boxes are
    whole: (part, batch, place, channel), behind the group. What a column of results sees of each
    row of them through a column of taps is a stage where it is ``staged``: (batch, rows, column of
    results, column of taps, channel). Of blocks, a row of ``tensor`` has ``beside`` neighbours side
    by side, and the number among them is a further place."""

    def __init__(
        self, p: Convolution, window: Callable[..., Any], results: Sequence[Any],
        taps: Sequence[int], filled: int, steps: tuple[Sequence[int], Sequence[int]] | None = None,
        staged: bool = False, beside: int = 1,
    ) -> None:  # fmt: skip
        self.problem, self.beside = p, beside
        self.steps: tuple[Sequence[int], Sequence[int]] | None = steps
        self.apart = p.groups > 1 and sliced(p) == 1
        self.blocked = bool(p.block)
        self.row = row = p.block or sliced(p) * widths(p.dtype).step(filled)
        groups = [p.groups] if self.apart else []
        deep = filled if self.apart or p.groups == 1 else up(filled * p.groups, row)
        batch, *extents = (up(e, WHOLE) for e in results)
        if steps is not None and max(taps) == 1:  # of which no two overlap
            self.steps = ([1] * len(taps), [1] * len(taps))

        def channel(group: Sequence[Any], c: Any) -> Any:
            return c + group[0] * filled if group else c

        def by_taps(*at: Any) -> Any:
            group, n, (*place, c) = at[: len(groups)], at[len(groups)], at[len(groups) + 1 :]
            return window(n, place[: len(taps)], place[len(taps) :], channel(group, c))

        def by_parts(*at: Any) -> Any:
            group, (part, n, *place, c) = at[: len(groups)], at[len(groups) :]
            c, corner = channel(group, part * row + c), [0] * len(taps)
            if max(taps) == 1:
                return window(n, place, corner, c)
            return window(n, corner, corner, c, place)

        def by_blocks(*at: Any) -> Any:
            *group, part, n, y, x, r, s, c = at
            if beside > 1:
                x, c = x * beside + c // row, c % row
            return window(n, (y, x), (r, s), channel(group, part * row + c))

        shape = [*groups, batch, *extents[:-1], extents[-1] // beside, *taps, deep]
        if self.blocked:
            shape = [*groups, deep // row, *shape[len(groups) : -1], beside * row]
        if steps is not None:
            extents = [
                (e - 1) * step + (t - 1) * apart + 1
                for e, t, step, apart in zip(extents, taps, *(self.steps or steps), strict=True)
            ]
            shape = [*groups, deep // row, batch, *extents, row]
        element = by_parts if steps is not None else by_blocks if self.blocked else by_taps
        self.tensor: Tensor = te.compute(shape, element, name="Seen")
        self.staged: Tensor | None = None
        if staged:
            seen = (*groups, batch, *extents[:-1], up(results[-1], WHOLE), taps[-1], deep)
            self.staged = te.compute(seen, self._of_columns, name="Windows")

    def _of_columns(self, *at: Any) -> Any:
        """What a column of results sees of a row of a whole box through a column of taps."""
        assert self.steps is not None
        *outer, x, t, c = at
        first = len(outer) + 1 - len(self.steps[0])
        *group, n = outer[:first]
        (column,) = self._places([x], [t])
        return self.tensor[(*group, c // self.row, n, *outer[first:], column, c % self.row)]

    def _read(self, *at: Any) -> Any:
        """What a result sees of a whole box through a tap."""
        assert self.steps is not None
        rank = len(self.steps[0])
        *group, n = at[: -1 - 2 * rank]
        *results, c = at[-1 - 2 * rank :]
        *rows, column = self._places(results[:rank], results[rank:])
        if self.staged is not None:
            return self.staged[(*group, n, *rows, results[rank - 1], results[-1], c)]
        return self.tensor[(*group, c // self.row, n, *rows, column, c % self.row)]

    def _places(self, results: Sequence[Any], taps: Sequence[Any]) -> list[Any]:
        """Where in a box results see through taps, along its last dimensions."""
        assert self.steps is not None
        far, near = (each[-len(taps) :] for each in self.steps)
        each = zip(results, taps, far, near, strict=True)
        return [o * step + t * apart for o, t, step, apart in each]

    def __call__(self, f: Any, result: Sequence[Any], taps: Sequence[Any], c: Any) -> Any:
        """What a result with channel ``f`` sees of channel ``c`` of its group through a tap."""
        n, *place = result
        read, made = of_a_group(self.problem)
        group = [f // made] if self.apart else []
        if self.problem.groups > 1 and not self.apart:
            c = f // made * read + c
        if self.beside > 1:
            *place, among = place
            at = (c // self.row, n, *place, *taps, among * self.row + c % self.row)
            return self.tensor[(*group, *at)]
        if self.steps is None and self.blocked:
            return self.tensor[(*group, c // self.row, n, *place, *taps, c % self.row)]
        at = (*group, n, *place, *taps, c)
        return self.tensor[at] if self.steps is None else self._read(*at)


class Taps:
    """A filter by taps: a ``tensor`` (channel, taps, what is summed), behind the phase where there
    are some; where it is ``turned``, (part, what is summed, taps, channel), channels of a row last.
    Where boxes are ``whole``, (taps, part, channel, what is summed of it), or turned (taps, part,
    part of channels, what is summed of it, channel); all of them behind the phase. Of channels in
    a ``block`` that is a part, which comes first where boxes are not whole."""

    def __init__(
        self, element: Callable[..., Any], wide: int, filled: int, taps: Sequence[int], kind: str,
        *, turned: bool = False, whole: bool = False, number: int | None = None, block: int = 0,
    ) -> None:  # fmt: skip
        self.turned, self.whole, self.step = turned, whole, block or widths(kind).step(filled)
        self.row = row_of = widths(kind).row
        self.blocked = bool(block)
        step, channels = self.step, up(wide, WHOLE) + WHOLE
        phase = [] if number is None else [up(number, WHOLE)]
        lead = len(phase)
        parts = filled // step
        if turned and whole:

            def turned_part(*at: Any) -> Any:
                first, (part, row, c, f) = at[:-4], at[-4:]
                return element(row * row_of + f, part * step + c, first[lead:], *first[:lead])

            shape = [*phase, *taps, parts, channels // row_of, step, row_of]
            self.tensor = te.compute(shape, turned_part, name="Taps")
        elif turned:

            def of_row(*at: Any) -> Any:
                phase, (row, c, *place, f) = at[:lead], at[lead:]
                return element(row * row_of + f, c, place, *phase)

            shape = [*phase, channels // row_of, filled, *taps, row_of]
            self.tensor = te.compute(shape, of_row, name="Taps")
        elif whole:

            def part_of(*at: Any) -> Any:
                first, (part, f, c) = at[:-3], at[-3:]
                return element(f, part * step + c, first[lead:], *first[:lead])

            self.tensor = te.compute([*phase, *taps, parts, channels, step], part_of, name="Taps")
        elif block:

            def of_block(part: Any, f: Any, r: Any, s: Any, c: Any) -> Any:
                return element(f, part * step + c, (r, s))

            self.tensor = te.compute([parts, channels, *taps, step], of_block, name="Taps")
        else:

            def of_all(*at: Any) -> Any:
                phase, (f, *place, c) = at[:lead], at[lead:]
                return element(f, c, place, *phase)

            self.tensor = te.compute([*phase, channels, *taps, filled], of_all, name="Taps")

    def __call__(self, f: Any, taps: Sequence[Any], c: Any, *phase: Any) -> Any:
        """An element, ``c`` being of what is summed."""
        if self.whole:
            part, c = c // self.step, c % self.step
            if self.turned:
                return self.tensor[(*phase, *taps, part, f // self.row, c, f % self.row)]
            return self.tensor[(*phase, *taps, part, f, c)]
        if self.turned:
            return self.tensor[(*phase, f // self.row, c, *taps, f % self.row)]
        if self.blocked:
            return self.tensor[(c // self.step, f, *taps, c % self.step)]
        return self.tensor[(*phase, f, *taps, c)]


class Added:
    """What an epilogue reads for each element of a result with channels last, by rows of shared
    memory: a ``tensor`` (part, ..., channel), whose parts have as many channels as a row, or as a
    ``block`` of those of memory. It is read by the indices of the result's."""

    def __init__(self, given: Tensor, block: int = 0) -> None:
        *outer, wide = given.shape
        self.row = row = block or widths(str(given.dtype)).row

        def element(part: Any, *at: Any) -> Any:
            c = part * row + at[-1]
            return or_zero([c < wide], given[(*at[:-1], c)])

        name = given.name.title()
        self.tensor: Tensor = te.compute([up(wide, row) // row, *outer, row], element, name=name)

    def __getitem__(self, index: tuple[Any, ...]) -> Any:
        *at, c = index
        return self.tensor[(c // self.row, *at, c % self.row)]

    @staticmethod
    def of(p: Any, inputs: dict[str, Tensor], layout: str = "") -> dict[str, Added]:
        """Those that an epilogue reads, by name, which lie in that ``layout`` if not with channels
        last; none where TMA has no map of them."""
        names = [name for step in p.epilogue for name, shape in step.tensors if shape == "output"]
        found = {name: inputs[name] for name in names}
        block, last = Images(layout).block, Images(layout).last or not layout
        return {
            name: Added(x, block) for name, x in found.items()
            if int(x.shape[-1]) % widths(str(x.dtype)).chunk == 0 and (last or block == BLOCK)
        }  # fmt: skip


def reach(p: Convolution, box: tuple[int, ...], rows: int = 0) -> tuple[int, ...]:
    """Images and the extents in them of what a box of results of a problem that boxes can bring
    sees through all taps; of a gradient by the filter, through ``rows`` of a plane's."""
    w, (images, *space) = Convolved(p), box
    if max(w.kernel) == 1 and not is_phased(p):
        return box
    steps: Any = zip(space, w.kernel, w.stride, w.dilation, strict=True)
    if p.pass_ == "wgrad":  # whose boxes are of dy, and whose blocks have taps of one plane
        taps = (*[1] * (len(space) - 2), rows or w.result[-2], w.result[-1])
        steps = zip(space, taps, w.dilation, w.stride, strict=True)
    if is_phased(p):
        steps = [(e, c.taps, 1, 1) for e, c in zip(space, all_phases(p), strict=True)]
    return images, *((e - 1) * step + (t - 1) * apart + 1 for e, t, step, apart in steps)


def window_of(
    p: Convolution, image: Any, batch: Any, channels: int, extents: Sequence[int],
    steps: Sequence[Sequence[int]],
) -> Callable[..., Any]:  # fmt: skip
    """What is seen of a channel by a result through a tap, or of a pixel that is further by
    ``more``; zero outside of the image. ``steps`` are the distances of results and of taps, and
    what lies before the image."""
    images, none = Images(p.layout), [0] * len(extents)

    def seen(
        n: Any, result: Sequence[Any], tap: Sequence[Any], c: Any, more: Sequence[Any] = none
    ) -> Any:
        places = [
            o * s + t * d + further - low
            for o, t, further, s, d, low in zip(result, tap, more, *steps, strict=True)
        ]
        inside = [n < batch, c < channels]
        if p.block:  # as the image has them
            inside[1] = c // p.block < channels // p.block
        inside += within(places, extents)
        read = image[images.order(n, c, places[len(places) - p.rank :])]
        return or_zero(inside, read)

    return seen


def up(extent: Any, whole: int) -> Any:
    """The next multiple of ``whole``."""
    return (extent + (whole - 1)) // whole * whole


def in_eights(p: Convolution) -> bool:
    """Whether eight channels of a result of joined groups see the same eight of a pixel."""
    read, made = of_a_group(p)
    return p.groups > 1 and read == made and EIGHT % read == 0


def of_eights(c: Any, f: Any, deep: int, eights: bool) -> list[Any]:
    """When a channel, of ``deep``, is in the eight that a channel of the result sees."""
    return [(c // EIGHT).equal(f // EIGHT % (deep // EIGHT))] if eights else []
