"""The templates for OpenCL devices."""

from __future__ import annotations

from tilewright.topi.gpu.depthwise_wgrad import (
    ReductionTile,
    schedule_reduction_pixels,
    schedule_reduction_planes,
)
from tilewright.topi.opencl import candidates as opencl
from tilewright.topi.opencl.depthwise_vectors import VectorTile, schedule_vectors
from tilewright.topi.template import Template

#: In the order in which they are tried.
OPENCL = (
    Template("opencl.vectors", VectorTile, schedule_vectors, ("forward", "dgrad"), True, True,
             opencl.vector_tiles, ("opencl", "sim")),
    Template("opencl.item_planes", ReductionTile, schedule_reduction_planes, ("wgrad",),
             False, True, opencl.item_tiles, ("opencl", "sim")),
    Template("opencl.item_pixels", ReductionTile, schedule_reduction_pixels, ("wgrad",),
             True, True, opencl.item_tiles, ("opencl", "sim")),
)  # fmt: skip
