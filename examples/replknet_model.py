"""RepLKNet, a convolutional network with filters of up to 31 x 31, and its parts.

The architecture of Ding et al., Scaling Up Your Kernels to 31x31 (arXiv 2203.06717), written from
scratch: four stages of blocks, each a large depthwise convolution beside one of 5 x 5 and a
feed-forward network of 1 x 1 convolutions, with batch normalisation throughout; without stochastic
depth.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import nn


def unit(
    channels: int, out: int, kernel: int = 1, stride: int = 1, groups: int = 1, relu: bool = True
) -> nn.Sequential:
    """A convolution that keeps the size at stride 1, normalisation, and maybe ReLU."""
    conv = nn.Conv2d(channels, out, kernel, stride, kernel // 2, groups=groups, bias=False)
    return nn.Sequential(conv, nn.BatchNorm2d(out), *([nn.ReLU()] if relu else []))


class Branches(nn.Module):
    """The sum of a large and a small depthwise convolution, each with its normalisation.

    The small one is there for training; in inference both are one convolution
    (``tilewright.torch.merge_branches_``).
    """

    def __init__(self, channels: int, kernel: int, small: int) -> None:
        super().__init__()
        self.large = unit(channels, channels, kernel, groups=channels, relu=False)
        self.small = unit(channels, channels, small, groups=channels, relu=False)

    def forward(self, x: Any) -> Any:
        return self.large(x) + self.small(x)


class LargeKernelBlock(nn.Module):
    """x + narrow(relu(branches(widen(norm(x)))))."""

    def __init__(self, channels: int, kernel: int, small: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.BatchNorm2d(channels), unit(channels, channels),
            Branches(channels, kernel, small), nn.ReLU(), unit(channels, channels, relu=False),
        )  # fmt: skip

    def forward(self, x: Any) -> Any:
        return x + self.layers(x)


class FeedForward(nn.Module):
    """x + narrow(gelu(widen(norm(x)))), four times as wide inside."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.BatchNorm2d(channels), unit(channels, 4 * channels, relu=False), nn.GELU(),
            unit(4 * channels, channels, relu=False),
        )  # fmt: skip

    def forward(self, x: Any) -> Any:
        return x + self.layers(x)


class RepLKNet(nn.Sequential):
    """Images (N, 3, H, W) to (N, classes); H and W are multiples of 32.

    Parameters
    ----------
    channels, blocks, kernels : of each stage; a stage has half the rows and columns of the one
        before it, the first a quarter of the image's.
    small : the filter of the branches beside the large ones.
    """

    def __init__(
        self,
        channels: Sequence[int],
        blocks: Sequence[int],
        kernels: Sequence[int],
        small: int = 5,
        classes: int = 1000,
    ) -> None:
        first = channels[0]
        layers = [
            unit(3, first, 3, 2), unit(first, first, 3, groups=first), unit(first, first),
            unit(first, first, 3, 2, first),
        ]  # fmt: skip
        before = first
        for k, (now, count, kernel) in enumerate(zip(channels, blocks, kernels, strict=True)):
            if k:
                layers += [unit(before, now), unit(now, now, 3, 2, now)]
            for _ in range(count):
                layers += [LargeKernelBlock(now, kernel, small), FeedForward(now)]
            before = now
        head = [nn.BatchNorm2d(before), nn.AdaptiveAvgPool2d(1), nn.Flatten()]
        super().__init__(*layers, *head, nn.Linear(before, classes))


def replknet_31b() -> RepLKNet:
    """RepLKNet-31B for images of 224 x 224: 24 large depthwise convolutions."""
    return RepLKNet((128, 256, 512, 1024), (2, 2, 18, 2), (31, 29, 27, 13))


def replknet_tiny() -> RepLKNet:
    """Two stages of one block for images of 32 x 32, to try out on a CPU what is for a GPU."""
    return RepLKNet((8, 16), (1, 1), (13, 7))


#: By the name that the scripts take: what makes it, and the side of its images.
MODELS = {"31B": (replknet_31b, 224), "tiny": (replknet_tiny, 32)}
