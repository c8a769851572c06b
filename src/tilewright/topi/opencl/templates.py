"""The templates for OpenCL devices."""

from __future__ import annotations

from tilewright.topi.opencl import candidates as opencl
from tilewright.topi.opencl.depthwise_vectors import VectorTile, schedule_vectors
from tilewright.topi.pieces.reduction_tiles import ReductionTile
from tilewright.topi.sketches.reductions import schedule_reductions
from tilewright.topi.template import Template

#: In the order in which they are tried.
OPENCL = (
    Template("opencl.vectors", VectorTile, schedule_vectors, ("forward", "dgrad"), True, True,
             opencl.vector_tiles, ("opencl", "sim")),
    Template("opencl.item_planes", ReductionTile, schedule_reductions, ("wgrad",),
             False, True, opencl.item_tiles, ("opencl", "sim")),
    Template("opencl.item_pixels", ReductionTile, schedule_reductions, ("wgrad",),
             True, True, opencl.item_tiles, ("opencl", "sim")),
)  # fmt: skip
