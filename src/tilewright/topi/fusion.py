"""What a schedule has to find in a program: the convolution, its padding, and what follows it."""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.ir.errors import ScheduleError
from tilewright.ir.expr import Reduce
from tilewright.schedule import Schedule, create_schedule
from tilewright.te import ComputeOp, Tensor
from tilewright.topi.nn.conv2d_im2col import TAG, ProductStages
from tilewright.topi.nn.padding import static


@dataclass(frozen=True)
class ConvolutionStages:
    """The parts of a program that ends in a convolution and element-wise stages after it.

    ``output`` is the last tensor, ``conv`` the convolution (the same where nothing follows),
    ``padded`` the padding before it or None, ``data`` and ``filter`` its arguments.
    """

    schedule: Schedule
    output: Tensor
    conv: Tensor
    padded: Tensor | None
    data: Tensor
    filter: Tensor

    @property
    def fused(self) -> bool:
        """Whether element-wise stages follow the convolution."""
        return self.conv is not self.output


def find_convolution(output: Tensor, tag: str = "depthwise_conv2d") -> ConvolutionStages:
    """A schedule of ``output``, with the stages between the convolution and it inlined.

    Raises :class:`ScheduleError` where there is not exactly one operation with ``tag``.
    """
    s = create_schedule(output.op)
    found = [stage.op for stage in s.stages if stage.op.tag.startswith(tag)]
    if len(found) != 1:
        raise ScheduleError(
            f"the schedule needs one operation tagged {tag!r}, there are {len(found)}",
            mend="Declare it by the functions of tilewright.topi.nn",
        )
    conv = found[0].outputs[0]
    reads = conv.op.inputs
    source, filter = reads[0], reads[-1]
    padded = source if source.op.tag == "pad" else None
    for stage in s.stages:
        op = stage.op
        between = isinstance(op, ComputeOp) and op not in (output.op, conv.op)
        if between and (padded is None or op is not padded.op):
            if isinstance(op, ComputeOp) and isinstance(op.body[0], Reduce):
                raise ScheduleError("a reduction stands beside the convolution", stage=op.name)
            stage.compute_inline()
    data = padded.op.inputs[0] if padded is not None else source
    return ConvolutionStages(s, output, conv, padded, data, filter)


def find_products(output: Tensor, rows: int, down: int = 1) -> tuple[Schedule, ProductStages]:
    """A schedule of a convolution and what is fused to it, which is inlined, and its matrices.

    Raises :class:`ScheduleError` where ``output`` is no :func:`~tilewright.topi.nn.conv2d_im2col`
    with element-wise stages behind it, or where tiles of ``rows`` output channels, of which
    ``down`` threads or warps have a part each, would be of several groups.
    """
    s = create_schedule(output.op)
    images = [stage.op for stage in s.stages if stage.op.tag == TAG]
    if len(images) != 1:
        raise ScheduleError(
            f"the schedule needs one operation tagged {TAG!r}, there are {len(images)}",
            mend="Declare it by tilewright.topi.nn.conv2d_im2col",
        )
    (product,) = images[0].inputs
    weights, columns = product.op.inputs
    groups = static(weights.shape[0], "groups")
    filters = static(output.shape[1], "channels") // groups
    if groups > 1 and filters % rows and (filters > rows or down > 1):
        raise ScheduleError(
            f"a group of {filters} output channels is no number of tiles of {rows} rows",
            stage=product.op.name,
            mend="Tile groups by a divisor of their output channels, or by more, undivided",
        )
    kept = {output.op, product.op, weights.op, columns.op}
    for stage in s.stages:
        if isinstance(stage.op, ComputeOp) and stage.op not in kept:
            if isinstance(stage.op.body[0], Reduce):
                raise ScheduleError("a reduction stands beside the product", stage=stage.op.name)
            stage.compute_inline()
    return s, ProductStages(columns, weights, product)
