"""The passes over graphs, in their order: a table of contents."""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import partial

from tilewright.graph.by_nchw import is_faster_by_nchw
from tilewright.graph.graph import Graph
from tilewright.graph.passes.allow_precision import allow_precision
from tilewright.graph.passes.channels_last import channels_last, types_last
from tilewright.graph.passes.collapse_dims import collapse_dims
from tilewright.graph.passes.compare_digits import compare_digits
from tilewright.graph.passes.find_attention import find_attention
from tilewright.graph.passes.fold_epilogues import fold_epilogues
from tilewright.graph.passes.fold_scales import fold_scales
from tilewright.graph.passes.gate_weights import gate_weights
from tilewright.graph.passes.integer_products import integer_products
from tilewright.graph.passes.join_parts import join_parts, own_parts
from tilewright.graph.passes.join_pools import join_pools
from tilewright.graph.passes.join_products import join_products
from tilewright.graph.passes.join_siblings import join_siblings
from tilewright.graph.passes.join_sums import join_sums
from tilewright.graph.passes.lift_slices import lift_slices
from tilewright.graph.passes.make_programs import make_programs
from tilewright.graph.passes.narrow_residuals import narrow_residuals
from tilewright.graph.passes.narrow_types import narrow_types
from tilewright.graph.passes.own_outputs import own_outputs
from tilewright.graph.passes.quantize_products import Quantization, quantize_products
from tilewright.graph.passes.read_planes import read_planes
from tilewright.graph.passes.read_turned import read_turned
from tilewright.graph.passes.recompute import merge_equal, recompute
from tilewright.graph.passes.simplify import simplify
from tilewright.graph.passes.single_pixels import single_pixels
from tilewright.graph.passes.sink_broadcasts import sink_broadcasts
from tilewright.graph.passes.sink_reshapes import (
    lift_reshapes,
    sink_moves,
    sink_reshapes,
    sink_reshapes_of_sums,
    sink_thin_reshapes,
)
from tilewright.graph.passes.split_sums import split_sums
from tilewright.graph.passes.transposed_apart import transposed_apart
from tilewright.graph.passes.turn_weights import turn_weights
from tilewright.graph.passes.view_slices import view_slices
from tilewright.graph.passes.whole_windows import whole_windows
from tilewright.graph.passes.windows_apart import windows_apart
from tilewright.target import Target

#: Each is a function of a graph; its file says what it does, and why it stands where it stands.
PASSES: tuple[Callable[[Graph], Graph], ...] = (
    integer_products,  # which leaves functions of floats behind, for all others
    simplify,  # one form of everything, for what comes after
    sink_broadcasts,  # nothing is stored for each pixel that is the same for all
    lift_slices,  # nothing is computed that nobody reads
    sink_reshapes,  # nothing between a product and what follows it
    fold_scales,  # products of channels into weights, which leaves biases
    fold_epilogues,  # biases, residual sums and activations into products
    whole_windows,  # convolutions of whole images are products of matrices
    make_programs,  # what is left, several functions a kernel
    collapse_dims,  # long loops, and one kernel for several shapes
    own_outputs,  # whatever replaces a node may make two outputs one
)


#: Behind :func:`channels_last`, which stands before what makes programs.
AFTER_LAYOUT: tuple[Callable[[Graph], Graph], ...] = (
    narrow_residuals,  # types do not stand between a product and a sum
    sink_reshapes_of_sums,  # what stood between a product and a sum in another layout is gone
    fold_epilogues,
    sink_thin_reshapes,  # reductions are of rows where they can be
    turn_weights,  # no image is turned for a product of its rows
)

#: Of CPUs, behind that.
ON_CPUS: tuple[Callable[[Graph], Graph], ...] = (
    transposed_apart,  # a product and a move
    sink_moves,  # what follows is part of that
    read_planes,
    single_pixels,
    join_parts,  # what is concatenated is written where it lies
    compare_digits,
)

#: Of GPUs, before what makes programs, and behind it.
BEFORE_PROGRAMS: tuple[Callable[[Graph], Graph], ...] = (
    lift_reshapes,  # nothing between a normalisation and what it is of
    gate_weights,  # images are not scaled by a program of its own
    windows_apart,  # what moves images into patches is a program
    split_sums,  # columns first, which blocks share
    recompute,  # what is cheap is not worth its bytes in memory
    join_sums,  # of columns that are read once for all of them
    recompute,  # the parts of these
)
_MOVED = 1 + BEFORE_PROGRAMS.index(windows_apart)
AFTER_PROGRAMS: tuple[Callable[[Graph], Graph], ...] = (
    merge_equal,  # what no program took in is computed once again
)


def passes(
    target: Target | None = None,
    dtype: str = "",
    quantization: Quantization | None = None,
    precision: str = "",
    parts: Collection[str] | None = None,
) -> tuple[Callable[[Graph], Graph], ...]:
    """The passes in their order: of a target, for products of a type, and for a precision, where
    one is chosen, and in 8 bits where ranges are known. With ``parts``, kernels may read parts of
    others' results where these lie, and the outputs of these names may be such."""
    at, begin = PASSES.index(make_programs), PASSES.index(fold_epilogues)
    bytes_ = () if quantization is None else (quantize_products(quantization), integer_products)
    narrow = (narrow_types(dtype),) if dtype else ()
    types = () if target is None else types_last(target)
    gpu = target if target is not None and target.is_gpu else None
    planes = None if gpu is None else partial(is_faster_by_nchw, target=gpu)
    layout = (channels_last(types, planes), *AFTER_LAYOUT) if types else ()
    before, after = (
        # First of all: once products have their epilogues.
        (
            (
                join_products(gpu),
                join_pools(gpu),
                *BEFORE_PROGRAMS[:_MOVED],
                read_turned(gpu),  # behind windows_apart, which moves other images
                *BEFORE_PROGRAMS[_MOVED:],
            ),
            AFTER_PROGRAMS,
        )
        if gpu is not None
        else ((), ())
    )
    # Before what moves functions between its two products; calibrated products stay apart.
    whole = target is not None and quantization is None
    attention = (find_attention(target, dtype),) if whole and target is not None else ()
    first = (PASSES[0], *attention, *PASSES[1:begin], *bytes_, *PASSES[begin:at])
    on_cpu = target is not None and target.kind == "llvm"
    pixels = ON_CPUS if on_cpu else ()
    fewer = (allow_precision(precision),) if precision and on_cpu else ()
    last = PASSES[at + 1 :]
    if parts is not None and target is not None and target.kind == "cuda":
        before, after = (*before, view_slices), (*after, join_siblings(parts))
        last = (*last[:-1], partial(own_outputs, parts=parts))
    return (
        *first,
        *narrow,
        *layout,
        *pixels,
        *fewer,
        *before,
        PASSES[at],
        *after,
        *last,
        *((own_parts,) if on_cpu else ()),
    )


def prepared(graph: Graph) -> Graph:
    """A graph as :func:`quantize_products` takes it."""
    for run in PASSES[: PASSES.index(fold_epilogues)]:
        graph = run(graph)
    return graph


def optimized(
    graph: Graph,
    trace: Callable[[str, Graph], None] | None = None,
    target: Target | None = None,
    dtype: str = "",
    quantization: Quantization | None = None,
    precision: str = "",
    parts: Collection[str] | None = None,
) -> Graph:
    """A graph after all passes of a target and types (:func:`passes`); ``trace`` is given each
    pass's name and what it leaves."""
    for run in passes(target, dtype, quantization, precision, parts):
        graph = run(graph)
        if trace is not None:
            trace(getattr(run, "__name__", "own_outputs"), graph)
    return graph
