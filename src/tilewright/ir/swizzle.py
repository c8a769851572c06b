"""Swizzles of shared memory: 16-byte chunks that are permuted so that columns meet all banks.

In a tile whose rows are ``width`` bytes long, 32, 64 or 128, the chunks of a row are permuted by
the row's number: the bits of an address that count chunks are XORed with those that count blocks
of 128 bytes. Hopper's tile loads write such tiles and its tensor cores read them (PTX ISA,
"Swizzling modes"). The permutation repeats after eight times the width.

>>> from tilewright.ir.dtype import dtype
>>> swizzle_of(128, dtype("float16")), pattern(128)
((3, 3, 3), 1024)
"""

from __future__ import annotations

from tilewright.ir.buffer import Buffer
from tilewright.ir.dtype import DType

#: Bytes of a row of which the chunks are permuted.
WIDTHS = (32, 64, 128)
#: Bytes that stay together.
CHUNK = 16
#: Which bits choose the permutation: those that count blocks of 128 bytes.
_SHIFT = 3


def swizzle_of(width: int, t: DType) -> tuple[int, int, int]:
    """:attr:`~tilewright.ir.buffer.Layout.swizzle` for rows of ``width`` bytes of ``t``."""
    return (width // CHUNK).bit_length() - 1, (CHUNK // t.bytes).bit_length() - 1, _SHIFT


def pattern(width: int) -> int:
    """After how many bytes a swizzle of ``width`` repeats: what such memory has to begin at."""
    return width << _SHIFT


def width_of(b: Buffer) -> int | None:
    """The width of a buffer's swizzle in bytes; 0 without one, None where it is of another kind."""
    if b.layout is None or b.layout.swizzle is None:
        return 0
    for width in WIDTHS:
        if b.layout.swizzle == swizzle_of(width, b.dtype):
            return width
    return None
