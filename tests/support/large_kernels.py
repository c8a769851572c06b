"""The modules of networks with large filters, in the style of those that published them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import nn

CHANNELS = 6
#: Of each network: the filters of one module, rows and columns, and their dilation.
NETWORKS: dict[str, Sequence[tuple[int, int, int]]] = {
    "RepLKNet": ((31, 31, 1), (5, 5, 1)),
    "SLaK": ((51, 5, 1), (5, 51, 1), (5, 5, 1)),
    "UniRepLKNet": (
        (13, 13, 1), (5, 5, 1), (7, 7, 2), (3, 3, 3), (3, 3, 4), (3, 3, 5),
    ),
}  # fmt: skip


def normalised(rows: int, columns: int, dilation: int = 1, stride: int = 1) -> nn.Sequential:
    """A depthwise convolution that keeps the size at stride 1, and its normalisation."""
    around = rows // 2 * dilation, columns // 2 * dilation
    conv = nn.Conv2d(
        CHANNELS, CHANNELS, (rows, columns), stride, around, dilation, CHANNELS, bias=False
    )
    return nn.Sequential(conv, nn.BatchNorm2d(CHANNELS))


class Parallel(nn.Module):
    """The sum of parallel convolutions."""

    def __init__(self, filters: Sequence[tuple[int, int, int]], stride: int = 1) -> None:
        super().__init__()
        self.branches = nn.ModuleList(normalised(*f, stride) for f in filters)

    def forward(self, x: Any) -> Any:
        made = self.branches[0](x)
        for branch in self.branches[1:]:
            made = made + branch(x)
        return made


class Block(nn.Module):
    """Parallel convolutions between two of 1x1, around which the input goes."""

    def __init__(self, network: str) -> None:
        super().__init__()
        self.before = nn.Conv2d(CHANNELS, CHANNELS, 1)
        self.large = Parallel(NETWORKS[network])
        self.after = nn.Sequential(nn.ReLU(), nn.Conv2d(CHANNELS, CHANNELS, 1))

    def forward(self, x: Any) -> Any:
        return x + self.after(self.large(self.before(x)))
