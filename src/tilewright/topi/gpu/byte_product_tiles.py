"""The tiles worth trying for products of bytes on tensor cores since Ampere, best guess first.

The guess is what a block multiplies and brings, as often as blocks follow one another.
"""

from __future__ import annotations

import math
from itertools import product

from tilewright.target.devices import COMMON_SHARED, WARP
from tilewright.target.target import Target
from tilewright.topi.gpu.box_sizes import Sizes, channels_of, result_block, suited
from tilewright.topi.gpu.machine import BARRIERS
from tilewright.topi.opencl.candidates import machine
from tilewright.topi.pieces.warp_tiles import WarpProductTile
from tilewright.topi.problem import Problem

#: Results of a tile, channels of one that may have any, those of a warp, and results of one.
_PIXELS, _CHANNELS, _OWN, _PARTS = (128, 64, 256), (128, 64, 32, 256, 16), (64, 32, 16), (64, 32)
#: Channels of a step that are fewer than boxes have.
_DEPTHS = (64, 32)
#: Warps of a block and sums of a thread, at most, and steps that are under way.
_WARPS, _SUMS, _STAGES = 8, 128, (3, 4, 2)
#: Of rows or columns that are multiplied, how many take as long as bringing one to a block, or
#: loading one by a warp; what a block does beside, in steps; and of fewer rounds the last counts.
_BROUGHT, _LOADED, _BESIDE, _FEW = 32.0, 16.0, 4.0, 8
#: By how much less is hidden of what warps wait for, the fewer they are.
_LATENCY = 4.0


def suits_byte_products(problem: Problem) -> bool:
    """Whether it is a forward pass of integers of 8 bits, dense or in groups of which tiles have
    whole ones, in any layout, of images of two dimensions at most; or a product of matrices that is
    one."""
    if not problem.is_quantized or getattr(problem, "rank", 0) > 2:
        return False
    return suited(problem) is not None and bool(_channels(problem))


def byte_product_times(problem: Problem, target: Target) -> dict[WarpProductTile, float]:
    """For :func:`~tilewright.topi.sketches.byte_products.schedule_byte_products`: tiles, and how
    long they are predicted to take beside one another, in no unit."""
    p = suited(problem)
    assert p is not None
    of, wide, units = Sizes.of(p, problem.result_dtype), p.result_channels, machine(target).units
    steps, results = of.taps * of.parts, math.prod(of.extents)
    found = dict[WarpProductTile, float]()
    depths = [n for n in _DEPTHS if n < of.depth] or [of.depth]
    for pixels, channels, own, part, depth, stages in product(
        _PIXELS, _channels(problem), _OWN, _PARTS, [of.depth, *depths[:1]], _STAGES
    ):
        tile = WarpProductTile(pixels, channels, own, pixels // part, depth, stages)
        shared = stages * (pixels + channels) * depth + of.staged(problem, pixels, channels)
        if channels % own or not 2 <= tile.groups <= _WARPS or part * own > _SUMS * WARP:
            continue
        if shared + BARRIERS > COMMON_SHARED:
            continue
        blocks = -(-results // pixels) * -(-wide // channels)
        resident = min(COMMON_SHARED // shared, 2 * _WARPS // tile.groups)
        rounds = blocks / (units * resident)
        rounds = math.ceil(rounds) if rounds < _FEW else rounds
        # A warp loads fragments of what a block brings.
        brought = _BROUGHT / pixels + _BROUGHT / channels + _LOADED / part + _LOADED / own
        busy = min(resident, -(-blocks // units))
        hidden = 1 + _LATENCY / (busy * tile.groups)
        alone = pixels * channels * (1 + brought) * (1 + 1 / stages) * hidden
        found[tile] = rounds * busy * alone * (steps + _BESIDE * of.depth / depth)
    return found


def _channels(problem: Problem) -> list[int]:
    p = suited(problem)
    assert p is not None
    if p.groups > 1:
        return [c for c in channels_of(problem, p) if c % _OWN[-1] == 0]
    block, most = result_block(problem), 2 * max(p.result_channels, _OWN[-1])
    return [c for c in _CHANNELS if c % block == 0 and c < max(most, 2 * block)]
