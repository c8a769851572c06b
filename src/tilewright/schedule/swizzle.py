"""Swizzles: 16-byte chunks of a tile in shared memory, permuted within its rows."""

from __future__ import annotations

from tilewright.ir.errors import user_location
from tilewright.ir.swizzle import WIDTHS
from tilewright.schedule.stage import Stage
from tilewright.schedule.storage import is_argument


def swizzle(stage: Stage, bytes: int) -> None:
    """Permute the 16-byte chunks of each row of a tile in shared memory by the row's number.

    Threads that read a column of rows of ``bytes`` then find them in different banks, without the
    gaps of :func:`~tilewright.schedule.storage.storage_align`. ``tma_load`` writes, and ``wgmma``
    reads, tiles that lie so. A row, the last dimension, is to be a multiple of ``bytes`` long.

    Raises :class:`ScheduleError` for widths other than 32, 64 and 128, for arguments and outputs of
    the program, and with ``storage_align``.
    """
    if bytes not in WIDTHS or isinstance(bytes, bool):
        raise stage.error(
            f"swizzle: there is none of {bytes!r} bytes",
            mend=f"The widths are {', '.join(map(str, WIDTHS))} bytes, that of a row or a part of "
            "it",
        )
    if is_argument(stage):
        raise stage.error(
            "swizzle: the tensor is an argument or output, which lies as the caller has it",
            mend="Use s.cache_read(tensor, 'shared', readers), and swizzle the copy",
        )
    if stage.alignments:
        raise stage.error(
            "swizzle: storage_align has put gaps between the rows",
            mend="Leave out one of them: either keeps columns out of one bank",
        )
    stage.swizzled = bytes
    stage.lines["swizzle"] = user_location()
