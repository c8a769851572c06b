"""Depthwise convolution as products of matrices of two channels side by side, channels last.

Eight pixels, or four, next to one another in a row, of two channels, are a row of a matrix A. A row
of a filter, for two channels, makes a matrix B: its columns are four outputs next to one another,
of two channels, and hold the taps of that channel where the pixel is in the output's window, and
zeros elsewhere. A times B is what the filter's row adds to four outputs
of two channels, for all rows of A. Of five taps nearly every third product counts.

Channels last, two channels of a pixel are one word of memory, so that words are operands as they
lie there. Rows of A may come from different rows and columns of an image, and from different
images. A row of an image is read once for all rows of results that see it. What is not finite in
the image spreads to the other channel of the pair, and to the four outputs of a product.

Every other element of B is zero for its channel. Sparse MMAs skip them: of eight
outputs next to one another, sixteen pixels are then multiplied with the taps of their own channel.
Of seven taps, seven in sixteen of these products count, where seven in 24 do of the others. What is
not finite then spreads to eight outputs, of its own channel alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tilewright import te
from tilewright.te import Tensor
from tilewright.topi.nn.depthwise_forward import whole
from tilewright.topi.nn.images import Images, padded
from tilewright.topi.nn.strips import Strips

#: Outputs next to one another of a product, where zeros are multiplied and where they are skipped;
#: pixels of a product that skips them; its channels.
OUTPUTS, SPARSE_OUTPUTS, SPARSE_PIXELS, CHANNELS = 4, 8, 16, 2


@dataclass(frozen=True)
class PairCut(Strips):
    """How a problem is cut into products of pairs of channels.

    ``matrix`` are the rows of A, or where zeros are skipped the places of a product: images;
    strips; groups of ``outputs`` output columns. ``tile`` are rows, columns and channels of
    results, of which whole ones are computed: multiples of those of ``matrix`` and of ``pairs``.

    Parameters
    ----------
    pairs : pairs of channels that are read together.
    outputs : :data:`OUTPUTS`, or :data:`SPARSE_OUTPUTS` to skip what is zero.
    """

    pairs: int
    outputs: int = OUTPUTS

    @property
    def sparse(self) -> bool:
        """Whether products are only of pixels with the taps of their channel."""
        return self.outputs == SPARSE_OUTPUTS

    @property
    def seen_columns(self) -> int:
        """Columns of the input that the outputs of a product see."""
        return self.sees(1, self.outputs)

    @property
    def pixels(self) -> int:
        """Pixels of a product: of those that skip nothing eight, or four where fewer are then read
        that no output sees."""
        if self.sparse:
            return SPARSE_PIXELS
        return 4 if -(-self.seen_columns // 4) % 2 else 8

    @property
    def parts(self) -> int:
        """Products that go over what the outputs of one see."""
        return -(-self.seen_columns // self.pixels)

    def seen(self, rows: int, columns: int) -> tuple[int, int]:
        """Rows and columns of the input that are read for those of results."""
        last = (columns - self.outputs) * self.stride[1]
        return self.sees(0, rows), last + self.parts * self.pixels


@dataclass(frozen=True)
class PairStages:
    """The stages: the padded ``image``; its ``pixels`` as products read them; the ``taps`` of the
    filter that a pixel has in an output's window, and zeros; the ``bands``, in which those of a
    channel stand, unless zeros are skipped; and the ``sum`` of products."""

    image: Tensor
    pixels: Tensor
    taps: Tensor
    bands: Tensor | None
    sum: Tensor


def depthwise_channel_pairs(t: PairCut, image: Tensor, filter: Tensor) -> PairStages:
    """The stages of a forward pass, or of a gradient by the input with stride 1, in NHWC.

    ``pixels`` is (images, strips and groups of blocks, lots of channels, rows, parts, and then a
    product's images, strips, groups, pairs, pixels, channels), ``taps`` (lots of channels, rows,
    parts, pairs, pixels, outputs, channels), and ``bands`` the same with channels behind pixels.
    """
    p, images, (sh, sw), dh = t.problem, Images(t.problem.layout), t.stride, t.dilation[0]
    deep, strips, groups = t.matrix
    high, wide, lot = strips * t.rows, groups * t.outputs, t.pairs * CHANNELS
    height, width = (whole(n, size) for n, size in zip(t.result, t.tile, strict=False))
    channels = whole(p.channels, t.tile[2])
    batch = (image.shape[0] + deep - 1) // deep
    source = padded(
        images, image, t.before, t.seen(height, width), "PaddedInput", channels,
        batch * deep if deep > 1 else None,
    )  # fmt: skip
    blocks = (batch, height // high, width // wide, channels // lot)

    def pixel(
        n: Any, h: Any, w: Any, e: Any, row: Any, part: Any,
        i: Any, strip: Any, group: Any, pair: Any, q: Any, c: Any,
    ) -> Any:  # fmt: skip
        return source[
            n * deep + i,
            (h * strips + strip) * t.rows * sh + row,
            (w * groups + group) * t.outputs * sw + part * t.pixels + q,
            (e * t.pairs + pair) * CHANNELS + c,
        ]

    pixels = te.compute(
        (*blocks, t.seen_rows, t.parts, *t.matrix, t.pairs, t.pixels, CHANNELS), pixel,
        name="Pixels",
    )  # fmt: skip

    def tap(e: Any, di: Any, part: Any, pair: Any, q: Any, output: Any, cj: Any) -> Any:
        c = (e * t.pairs + pair) * CHANNELS + cj
        where, (kh, kw) = t.tap(di * dh, part * t.pixels + q - output * sw)
        inside = [*where, *([c < p.channels] if channels > p.channels else [])]
        return te.if_then_else(te.all(*inside), filter[c, 0, kh, kw], te.const(0, p.dtype))

    shape = (blocks[3], t.kernel[0], t.parts, t.pairs, t.pixels)
    taps = te.compute((*shape, t.outputs, CHANNELS), tap, name="Taps")
    bands = None if t.sparse else _bands(taps)

    extents = {"r": t.seen_rows, "part": t.parts, "q": t.pixels}
    r, part, q = (te.reduce_axis((0, n), name=name) for name, n in extents.items())
    both = [] if t.sparse else [te.reduce_axis((0, CHANNELS), name="ci")]

    def product(
        n: Any, h: Any, w: Any, e: Any, pair: Any, row: Any,
        i: Any, strip: Any, group: Any, output: Any, cj: Any,
    ) -> Any:  # fmt: skip
        joined, di = t.meets(r, row)
        at = (e, di, part, pair, q)
        x = pixels[n, h, w, e, r, part, i, strip, group, pair, q, both[0] if both else cj]
        f = taps[*at, output, cj] if bands is None else bands[*at, both[0], output, cj]
        return te.sum(
            x.astype(p.accumulate) * f.astype(p.accumulate),
            axis=[r, part, q, *both],
            where=te.all(*joined),
        )

    total = te.compute(
        (*blocks, t.pairs, t.rows, *t.matrix, t.outputs, CHANNELS), product, name="PairSum",
        varargs_names=[
            "n", "h", "w", "e", "pair", "row", "i", "strip", "group", "output", "cj",
        ],
    )  # fmt: skip
    return PairStages(source, pixels, taps, bands, total)


def _bands(taps: Tensor) -> Tensor:
    """A pixel's two channels beside an output's: taps where they are the same, zeros elsewhere."""

    def band(e: Any, di: Any, part: Any, pair: Any, q: Any, ci: Any, output: Any, cj: Any) -> Any:
        own = taps[e, di, part, pair, q, output, cj]
        return te.if_then_else(ci.equal(cj), own, te.const(0, taps.dtype))

    *shape, outputs, channels = taps.shape
    made: Tensor = te.compute((*shape, channels, outputs, channels), band, name="Bands")
    return made


def element_of(t: PairCut, total: Tensor, n: Any, c: Any, h: Any, w: Any) -> Any:
    """The sum of an output, of what :func:`depthwise_channel_pairs` calls ``sum``."""
    deep, strips, groups = t.matrix
    high, wide, lot = strips * t.rows, groups * t.outputs, t.pairs * CHANNELS
    return total[
        n // deep, h // high, w // wide, c // lot, c % lot // CHANNELS, h % t.rows,
        n % deep, h % high // t.rows, w % wide // t.outputs, w % t.outputs, c % CHANNELS,
    ]  # fmt: skip
