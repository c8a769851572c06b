"""The schedules that the library has for a problem, with the parameters worth trying for each."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tilewright.ir.errors import ScheduleError
from tilewright.schedule import Schedule
from tilewright.target.target import Target, compute_capability
from tilewright.topi.cpu import candidates as cpu
from tilewright.topi.cpu.amx_tiles import amx_tiles, suits_amx
from tilewright.topi.cpu.conv2d_im2col import ColumnTile
from tilewright.topi.cpu.depthwise_blocks import BlockTile, schedule_blocks
from tilewright.topi.cpu.depthwise_channels import ChannelTile, schedule_channels
from tilewright.topi.cpu.depthwise_fast_fir import FirTile, declare_fir, schedule_fir
from tilewright.topi.cpu.depthwise_lines import LineTile, schedule_lines
from tilewright.topi.cpu.depthwise_pairs import PairTile, declare_pairs, schedule_pairs
from tilewright.topi.cpu.depthwise_tiles import AmxTile, declare_amx, schedule_amx
from tilewright.topi.cpu.depthwise_wgrad import (
    GradTile,
    schedule_wgrad_channels,
    schedule_wgrad_lines,
)
from tilewright.topi.declare import Declaration, declare, declare_wide
from tilewright.topi.depthwise_products import (
    column_tiles,
    declare_products,
    lane_tiles,
    mma_tiles,
    schedule_products_cpu,
    schedule_products_lanes,
    schedule_products_mma,
    suits_products,
    suits_products_mma,
)
from tilewright.topi.gpu import candidates as gpu
from tilewright.topi.gpu.conv2d_lanes import LaneTile
from tilewright.topi.gpu.conv2d_mma import MmaTile
from tilewright.topi.gpu.depthwise_diagonal import declare_diagonal, schedule_diagonal
from tilewright.topi.gpu.depthwise_direct import (
    DirectTile,
    declare_direct,
    direct_tiles,
    schedule_direct,
    suits_direct,
)
from tilewright.topi.gpu.depthwise_fourier import (
    FourierTile,
    declare_fourier,
    fourier_tiles,
    schedule_fourier,
    suits_fourier,
)
from tilewright.topi.gpu.depthwise_pixel_tiles import (
    BoxTile,
    declare_boxes,
    schedule_boxes,
    suits_boxes,
)
from tilewright.topi.gpu.depthwise_pixels import PixelTile, schedule_pixels
from tilewright.topi.gpu.depthwise_plane_gradient import (
    PlaneGradientTile,
    declare_plane_gradient,
    plane_gradient_tiles,
    schedule_plane_gradient,
    suits_plane_gradient,
)
from tilewright.topi.gpu.depthwise_plane_products import (
    PlaneProductTile,
    declare_plane_products,
    plane_product_tiles,
    schedule_plane_products,
    suits_plane_products,
)
from tilewright.topi.gpu.depthwise_planes import PlaneTile, schedule_planes
from tilewright.topi.gpu.depthwise_row_products import (
    RowProductTile,
    declare_row_products,
    row_product_tiles,
    schedule_row_products,
    suits_row_products,
)
from tilewright.topi.gpu.depthwise_sparse_diagonal import declare_sparse, schedule_sparse
from tilewright.topi.gpu.depthwise_strips import StripTile, schedule_strips
from tilewright.topi.gpu.depthwise_toeplitz import (
    ToeplitzTile,
    declare_toeplitz,
    schedule_toeplitz,
    suits_toeplitz,
    toeplitz_tiles,
)
from tilewright.topi.gpu.depthwise_toeplitz_rows import (
    RowTile,
    declare_rows,
    row_tiles,
    schedule_rows,
    suits_rows,
)
from tilewright.topi.gpu.depthwise_toeplitz_staged import (
    StagedTile,
    declare_staged,
    schedule_staged,
    staged_tiles,
    suits_staged,
)
from tilewright.topi.gpu.depthwise_toeplitz_tf32 import (
    SplitTile,
    declare_split,
    schedule_split,
    split_tiles,
    suits_split,
)
from tilewright.topi.gpu.depthwise_toeplitz_tf32_rows import (
    SplitRowTile,
    declare_split_rows,
    schedule_split_rows,
    split_row_tiles,
    suits_split_rows,
)
from tilewright.topi.gpu.depthwise_toeplitz_tf32_wgrad import (
    SplitGradientTile,
    declare_split_gradient,
    schedule_split_gradient,
    split_gradient_tiles,
    suits_split_gradient,
)
from tilewright.topi.gpu.depthwise_toeplitz_warps import (
    WarpTile,
    declare_warps,
    schedule_warps,
    suits_warps,
    warp_tiles,
)
from tilewright.topi.gpu.depthwise_toeplitz_wgrad import (
    GradientTile,
    declare_gradient,
    gradient_tiles,
    schedule_gradient,
    suits_gradient,
)
from tilewright.topi.gpu.depthwise_wgrad import (
    ReductionTile,
    schedule_reduction_pixels,
    schedule_reduction_planes,
)
from tilewright.topi.gpu.depthwise_wgrad_diagonal import (
    DiagonalGradientTile,
    declare_diagonal_gradient,
    schedule_diagonal_gradient,
)
from tilewright.topi.gpu.depthwise_wgrad_tiles import (
    GradientPixelTile,
    declare_pixel_sums,
    schedule_pixel_sums,
)
from tilewright.topi.gpu.diagonal_blocks import DiagonalTile
from tilewright.topi.gpu.diagonal_tiles import (
    diagonal_tiles,
    sparse_tiles,
    suits_diagonal,
    suits_sparse,
)
from tilewright.topi.gpu.gradient_diagonal_tiles import (
    gradient_diagonal_tiles,
    suits_diagonal_gradient,
)
from tilewright.topi.gpu.gradient_pixel_tiles import gradient_pixel_tiles, suits_pixel_sums
from tilewright.topi.gpu.pixel_tiles import box_tiles
from tilewright.topi.gpu.reductions import reduction_tiles
from tilewright.topi.opencl import candidates as opencl
from tilewright.topi.opencl.depthwise_vectors import VectorTile, schedule_vectors
from tilewright.topi.problem import Problem


@dataclass(frozen=True)
class Template:
    """A schedule with parameters.

    Attributes
    ----------
    name : as it stands in records.
    config : the dataclass of its parameters; all of them are integers.
    schedule : the schedule of a declaration with given parameters.
    passes, channels_last, gpu : what it is for.
    kinds : the kinds of target that it is for, where that is not every kind of GPU or CPU.
    shared : whether threads share memory, which some OpenCL devices only emulate.
    where : what else a problem must be.
    arch : the one CUDA architecture that it is for, where that is not every one.
    least : the least compute capability that it is for, as 80 for 8.0.
    features : what a CPU must have, in LLVM's names.
    matrices : whether it multiplies matrices, on tensor cores.
    declares : the declaration that it schedules, where that is not :func:`declare`'s, of a problem,
        the parameters and a batch.
    tiles : the parameters worth trying for a problem and a target, the best guess first; there is
        at least one, and each is correct for every problem that the template is for.
    """

    name: str
    config: type[Any]
    schedule: Callable[[Declaration, Any], Schedule]
    passes: tuple[str, ...]
    channels_last: bool
    gpu: bool
    tiles: Callable[[Problem, Target], list[Any]]
    kinds: tuple[str, ...] = ()
    shared: bool = False
    where: Callable[[Problem], bool] | None = None
    arch: str = ""
    least: int = 0
    features: tuple[str, ...] = ()
    matrices: bool = False
    declares: Callable[[Problem, Any, Any], Declaration] | None = None

    def declare(self, p: Problem, config: Any, batch: Any = None) -> Declaration:
        """What :attr:`schedule` takes: the program of a problem; see :func:`declare`."""
        return declare(p, batch) if self.declares is None else self.declares(p, config, batch)

    def fits(self, p: Problem, target: Target) -> bool:
        """Whether it is for a problem on a target."""
        return (
            p.pass_ in self.passes
            and p.layout.endswith("C") == self.channels_last
            and target.is_gpu == self.gpu
            and (not self.kinds or target.kind in self.kinds)
            and (target.kind != "cuda" or self._runs_on(target.arch))
            and (not self.features or cpu.features(target).issuperset(self.features))
            and (not self.shared or opencl.shares_memory(target))
            and (self.where is None or self.where(p))
        )

    def _runs_on(self, arch: str) -> bool:
        if self.arch:
            return arch == self.arch
        return not self.least or (bool(arch) and compute_capability(arch) >= self.least)

    def candidates(self, p: Problem, target: Target) -> list[Any]:
        """The parameters worth trying, the best guess first, each once."""
        return list(dict.fromkeys(self.tiles(p, target)))

    def parse(self, values: Mapping[str, Any]) -> Any:
        """Parameters as records have them; one that came later may be left out, for its default.
        Raises :class:`ScheduleError` for strange ones."""
        fields = dataclasses.fields(self.config)
        known = {f.name for f in fields}
        needed = {f.name for f in fields if "later" not in f.metadata}
        given = set(values)
        if not needed <= given <= known or not all(type(v) is int for v in values.values()):
            raise ScheduleError(
                f"template {self.name} has the integer parameters {', '.join(sorted(known))}, "
                f"got {dict(values)!r}",
                mend="Tune the problem again",
            )
        return self.config(**values)


def _wide(p: Problem, _: Any, batch: Any) -> Declaration:
    return declare_wide(p, batch)


#: Every template, by name.
TEMPLATES = {
    t.name: t
    for t in (
        Template("cpu.pairs", PairTile, schedule_pairs, ("forward", "dgrad"), True, False,
                 cpu.pair_tiles, where=cpu.suits_pairs, features=("avx512f", "avx512bf16"),
                 declares=declare_pairs),
        Template("cpu.tiles", AmxTile, schedule_amx, ("forward", "dgrad"), False, False,
                 amx_tiles, where=suits_amx, features=("avx512f", "amx-tile", "amx-bf16"),
                 declares=declare_amx),
        Template("cpu.fir_lines", FirTile, schedule_fir, ("forward", "dgrad"), False, False,
                 cpu.fir_tiles, where=cpu.suits_fir, declares=declare_fir),
        Template("cpu.fir_channels", FirTile, schedule_fir, ("forward", "dgrad"), True, False,
                 cpu.fir_tiles, where=cpu.suits_fir, declares=declare_fir),
        Template("cpu.lines", LineTile, schedule_lines, ("forward", "dgrad"), False, False,
                 cpu.line_tiles, declares=_wide),
        Template("cpu.blocks", BlockTile, schedule_blocks, ("forward", "dgrad"), True, False,
                 cpu.block_tiles, where=cpu.suits_blocks, declares=_wide),
        Template("cpu.channels", ChannelTile, schedule_channels, ("forward", "dgrad"), True, False,
                 cpu.channel_tiles),
        Template("cpu.im2col", ColumnTile, schedule_products_cpu, ("forward", "dgrad"), False,
                 False, column_tiles, where=suits_products, declares=declare_products),
        Template("cpu.wgrad_lines", GradTile, schedule_wgrad_lines, ("wgrad",), False, False,
                 cpu.grad_tiles),
        Template("cpu.wgrad_channels", GradTile, schedule_wgrad_channels, ("wgrad",), True, False,
                 cpu.grad_tiles),
        Template("gpu.strips", StripTile, schedule_strips, ("forward", "dgrad"), False, True,
                 opencl.short_strips),
        Template("gpu.planes", PlaneTile, schedule_planes, ("forward", "dgrad"), False, True,
                 gpu.plane_tiles, shared=True, where=gpu.has_small_planes),
        Template("gpu.toeplitz", ToeplitzTile, schedule_toeplitz, ("forward", "dgrad"), False, True,
                 toeplitz_tiles, ("cuda", "sim"), shared=True, where=suits_toeplitz, arch="sm_90a",
                 declares=declare_toeplitz, matrices=True),
        Template("gpu.toeplitz_staged", StagedTile, schedule_staged, ("forward", "dgrad"), False,
                 True, staged_tiles, ("cuda", "sim"), shared=True, where=suits_staged,
                 arch="sm_90a", declares=declare_staged, matrices=True),
        Template("gpu.toeplitz_warps", WarpTile, schedule_warps, ("forward", "dgrad"), False, True,
                 warp_tiles, ("cuda", "sim"), shared=True, where=suits_warps, least=80,
                 declares=declare_warps, matrices=True),
        Template("gpu.toeplitz_rows", RowTile, schedule_rows, ("forward", "dgrad"), False, True,
                 row_tiles, ("cuda", "sim"), shared=True, where=suits_rows, least=80,
                 declares=declare_rows, matrices=True),
        Template("gpu.plane_products", PlaneProductTile, schedule_plane_products,
                 ("forward", "dgrad"), False, True, plane_product_tiles, ("cuda", "sim"),
                 shared=True, where=suits_plane_products, least=80,
                 declares=declare_plane_products, matrices=True),
        Template("gpu.toeplitz_tf32", SplitTile, schedule_split, ("forward", "dgrad"), False, True,
                 split_tiles, ("cuda", "sim"), shared=True, where=suits_split, least=80,
                 declares=declare_split, matrices=True),
        Template("gpu.toeplitz_tf32_rows", SplitRowTile, schedule_split_rows, ("forward", "dgrad"),
                 False, True, split_row_tiles, ("cuda", "sim"), shared=True,
                 where=suits_split_rows, least=80, declares=declare_split_rows, matrices=True),
        Template("gpu.direct", DirectTile, schedule_direct, ("forward", "dgrad"), False, True,
                 direct_tiles, ("cuda", "sim"), shared=True, where=suits_direct, least=70,
                 declares=declare_direct),
        Template("gpu.fourier", FourierTile, schedule_fourier, ("forward", "dgrad", "wgrad"), False,
                 True, fourier_tiles, ("cuda", "sim"), shared=True, where=suits_fourier, least=70,
                 declares=declare_fourier),
        Template("gpu.im2col_mma", MmaTile, schedule_products_mma, ("forward", "dgrad"), False,
                 True, mma_tiles, ("cuda", "sim"), shared=True, where=suits_products_mma,
                 least=80, declares=declare_products, matrices=True),
        Template("gpu.im2col", LaneTile, schedule_products_lanes, ("forward", "dgrad"), False, True,
                 lane_tiles, ("cuda", "sim"), shared=True, where=suits_products, least=80,
                 declares=declare_products),
        Template("gpu.pixels", PixelTile, schedule_pixels, ("forward", "dgrad"), True, True,
                 gpu.pixel_tiles, shared=True),
        Template("gpu.pixel_tiles", BoxTile, schedule_boxes, ("forward", "dgrad"), True, True,
                 box_tiles, ("cuda", "sim"), shared=True, where=suits_boxes, least=90,
                 declares=declare_boxes),
        Template("gpu.diagonal", DiagonalTile, schedule_diagonal, ("forward", "dgrad"), True, True,
                 diagonal_tiles, ("cuda", "sim"), shared=True, where=suits_diagonal, least=90,
                 declares=declare_diagonal, matrices=True),
        Template("gpu.sparse_diagonal", DiagonalTile, schedule_sparse, ("forward", "dgrad"), True,
                 True, sparse_tiles, ("cuda", "sim"), shared=True, where=suits_sparse, least=90,
                 declares=declare_sparse, matrices=True),
        Template("gpu.reduction_planes", ReductionTile, schedule_reduction_planes, ("wgrad",),
                 False, True, reduction_tiles, shared=True),
        Template("gpu.toeplitz_wgrad", GradientTile, schedule_gradient, ("wgrad",), False, True,
                 gradient_tiles, ("cuda", "sim"), shared=True, where=suits_gradient, least=80,
                 declares=declare_gradient, matrices=True),
        Template("gpu.row_products", RowProductTile, schedule_row_products, ("wgrad",), False, True,
                 row_product_tiles, ("cuda", "sim"), shared=True, where=suits_row_products,
                 arch="sm_90a", declares=declare_row_products, matrices=True),
        Template("gpu.plane_gradient", PlaneGradientTile, schedule_plane_gradient, ("wgrad",),
                 False, True, plane_gradient_tiles, ("cuda", "sim"), shared=True,
                 where=suits_plane_gradient, least=80, declares=declare_plane_gradient,
                 matrices=True),
        Template("gpu.toeplitz_tf32_wgrad", SplitGradientTile, schedule_split_gradient, ("wgrad",),
                 False, True, split_gradient_tiles, ("cuda", "sim"), shared=True,
                 where=suits_split_gradient, least=80, declares=declare_split_gradient,
                 matrices=True),
        Template("gpu.reduction_pixels", ReductionTile, schedule_reduction_pixels, ("wgrad",),
                 True, True, reduction_tiles, shared=True),
        Template("gpu.reduction_pixel_tiles", GradientPixelTile, schedule_pixel_sums, ("wgrad",),
                 True, True, gradient_pixel_tiles, ("cuda", "sim"), shared=True,
                 where=suits_pixel_sums, least=90, declares=declare_pixel_sums),
        Template("gpu.diagonal_wgrad", DiagonalGradientTile, schedule_diagonal_gradient,
                 ("wgrad",), True, True, gradient_diagonal_tiles, ("cuda", "sim"), shared=True,
                 where=suits_diagonal_gradient, least=90, declares=declare_diagonal_gradient,
                 matrices=True),
        Template("opencl.vectors", VectorTile, schedule_vectors, ("forward", "dgrad"), True, True,
                 opencl.vector_tiles, ("opencl", "sim")),
        Template("opencl.item_planes", ReductionTile, schedule_reduction_planes, ("wgrad",),
                 False, True, opencl.item_tiles, ("opencl", "sim")),
        Template("opencl.item_pixels", ReductionTile, schedule_reduction_pixels, ("wgrad",),
                 True, True, opencl.item_tiles, ("opencl", "sim")),
    )
}  # fmt: skip


def templates(p: Problem, target: str | Target) -> list[Template]:
    """The templates for a problem on a target."""
    machine = Target.parse(target)
    return [t for t in TEMPLATES.values() if t.fits(p, machine)]


def candidates(p: Problem, target: str | Target) -> Iterator[tuple[Template, Any]]:
    """Templates with parameters; those that are likely to be fast come early."""
    machine = Target.parse(target)
    found = [(t, t.candidates(p, machine)) for t in templates(p, machine)]
    for rank in range(max((len(configs) for _, configs in found), default=0)):
        for template, configs in found:
            if rank < len(configs):
                yield template, configs[rank]


def default_schedule(p: Problem, target: str | Target) -> tuple[Declaration, Schedule]:
    """A declaration of ``p``, and the schedule that is guessed to be best for it.

    Raises :class:`ScheduleError` where the library has none.
    """
    for template, config in candidates(p, target):
        declaration = template.declare(p, config)
        return declaration, template.schedule(declaration, config)
    raise ScheduleError(f"there is no schedule for {p} on {target}", mend="Write one in te")
