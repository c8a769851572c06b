"""The gradient of a depthwise convolution by its input, which is the transposed convolution.

Row ``h`` of dx gathers the rows of dy whose windows saw it: ``dy[o] * filter[k]`` for all taps with
``o * stride + k * dilation = h + padding``. With stride 1 these are all taps, and the gradient is a
convolution of dy, padded, with the filter rotated. With a larger stride a row sees the taps of one
congruence class, which is that of ``h`` modulo the stride, its phase: the sum is the stage
``Phases``, indexed by ``h // stride`` and ``h % stride``, in which no tap is tried without effect
once the phase is known.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd
from typing import Any

from tilewright import te
from tilewright.ir.expr import Expr
from tilewright.te import Tensor
from tilewright.topi.nn.depthwise_forward import filter_reader, tap_names
from tilewright.topi.nn.images import Images, padded
from tilewright.topi.operators.convolution import Convolution


@dataclass(frozen=True)
class Gather:
    """What rows of dx gather, along one dimension; ``h = group * stride + phase``.

    Of dy, padded by ``before`` rows at its beginning to ``seen`` rows, row ``group`` and so on is
    multiplied by tap number ``first(phase) + step * (taps - 1 - t)`` for ``t`` in ``range(taps)``.
    """

    stride: int
    padding: int
    dilation: int
    kernel: int
    groups: int

    @property
    def common(self) -> int:
        """Only every ``common``-th phase, counted from the padding, sees any tap."""
        return gcd(self.stride, self.dilation)

    @property
    def step(self) -> int:
        """From one tap of a phase to the next."""
        return self.stride // self.common

    @property
    def taps(self) -> int:
        """The taps of a phase, at most."""
        return -(-self.kernel // self.step)

    def first(self, phase: Any) -> Any:
        """The first tap of a phase."""
        if self.step == 1:
            return 0 * phase
        inverse = pow(self.dilation // self.common, -1, self.step)
        # The padding counts modulo the stride here; a smaller one keeps the expressions simple.
        shifted = phase + self.padding % self.stride
        steps = shifted if self.common == 1 else shifted // self.common
        return (steps if inverse == 1 else steps * inverse) % self.step

    def base(self, phase: Any) -> Any:
        """The row of dy that the first tap of a phase meets, in group 0."""
        return (phase + self.padding - self.first(phase) * self.dilation) // self.stride

    @property
    def bases(self) -> list[int]:
        """:meth:`base` of every phase."""
        return [self.base(r) for r in range(self.stride)]

    @property
    def reach(self) -> int:
        """Rows of dy from the last tap of a phase to the first."""
        return (self.taps - 1) * (self.dilation // self.common)

    @property
    def before(self) -> int:
        return self.reach - min(self.bases)

    @property
    def seen(self) -> int:
        return self.groups + max(self.bases) - min(self.bases) + self.reach

    def row(self, group: Any, phase: Any, t: Any) -> Any:
        """The row of the padded dy."""
        near = group + t * (self.dilation // self.common)
        if self.stride == 1:
            return near
        if self.dilation == 1:  # (phase + padding) // stride, which is the base, less the lowest
            return near + (phase + self.padding % self.stride) // self.stride
        return near + self.base(phase) - min(self.bases)

    def tap(self, phase: Any, t: Any) -> Any:
        """The tap of the filter."""
        last = (self.taps - 1 - t) * self.step
        return last if self.step == 1 else self.first(phase) + last

    def conditions(self, phase: Any, t: Any) -> list[Expr]:
        """Where there is such a tap."""
        found = (
            [] if self.common == 1 else [te.floormod(phase + self.padding, self.common).equal(0)]
        )
        return found if self.kernel % self.step == 0 else [*found, self.tap(phase, t) < self.kernel]


def gathers(p: Convolution) -> list[Gather]:
    """By dimension of the image."""
    return [
        Gather(d.stride, d.before, d.dilation, d.taps, -(-d.extent // d.stride)) for d in p.dims
    ]


def depthwise_dgrad(p: Convolution, grad: Tensor, filter: Tensor) -> tuple[Tensor, Tensor]:
    """dx in the type of sums, and the stage of the sum, which is the same with stride 1."""
    images, along = Images(p.layout), gathers(p)
    seen = [g.seen for g in along]
    source = padded(images, grad, [g.before for g in along], seen, "PaddedGrad")
    weight = filter_reader(p, filter)
    batch = images.meaning(grad.shape)[0]
    names = tap_names(p)
    taps = [te.reduce_axis((0, g.taps), name=n) for g, n in zip(along, names, strict=True)]
    each = [te.reduce_axis((0, p.multiplier), name="dm")] if p.multiplier > 1 else []
    m = each[0] if each else 0
    tag = f"{p.operator}_dgrad_{p.layout.lower()}"

    def gathered(n: Any, c: Any, groups: list[Any], phases: list[Any]) -> Any:
        at = list(zip(along, groups, phases, taps, strict=True))
        rows = [g.row(a, r, t) for g, a, r, t in at]
        channel = c * p.multiplier + m
        read = source[images.order(n, channel, rows)].astype(p.accumulate)
        tap = weight(channel, [g.tap(r, t) for g, _, r, t in at]).astype(p.accumulate)
        where = [w for g, _, r, t in at for w in g.conditions(r, t)]
        return te.sum(read * tap, axis=[*each, *taps], where=te.all(*where) if where else None)

    if all(g.stride == 1 for g in along):
        still = [0] * p.rank
        made = images.compute(
            batch,
            p.channels,
            p.image_extents,
            lambda n, c, at: gathered(n, c, at, still),
            "DepthwiseGrad",
            tag,
        )
        return made, made
    space = [g.groups for g in along] + [g.stride for g in along]
    if images.last:  # neighbours of an image stay close, as channels are the vectors
        order: list[Any] = [batch, *space, p.channels]
        phases = te.compute(
            order,
            lambda *i: gathered(i[0], i[-1], list(i[1 : 1 + p.rank]), list(i[1 + p.rank : -1])),
            name="Phases",
            tag=tag,
        )
    else:  # vectors are groups of one phase
        order = [batch, p.channels, *space[p.rank :], *space[: p.rank]]
        phases = te.compute(
            order,
            lambda *i: gathered(i[0], i[1], list(i[2 + p.rank :]), list(i[2 : 2 + p.rank])),
            name="Phases",
            tag=tag,
        )

    def phase_of(n: Any, c: Any, at: list[Any]) -> Any:
        groups = [h // g.stride if g.stride > 1 else h for h, g in zip(at, along, strict=True)]
        rest = [h % g.stride if g.stride > 1 else 0 for h, g in zip(at, along, strict=True)]
        if images.last:
            return phases[(n, *groups, *rest, c)]
        return phases[(n, c, *rest, *groups)]

    made = images.compute(batch, p.channels, p.image_extents, phase_of, "DepthwiseGrad", "elemwise")
    return made, phases
