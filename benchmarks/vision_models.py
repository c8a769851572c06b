"""Vision models in the fewest lines that define them, for 1,000 classes.

Channels, blocks and strides are those of the papers. Depthwise convolutions take the time of
ConvNeXt-T (Liu et al., A ConvNet for the 2020s, arXiv 2201.03545; without stochastic depth) and
MobileNetV2 (Sandler et al., arXiv 1801.04381); others that of ResNet-50 (He et al., arXiv
1512.03385; with the stride in the 3x3 layers, as torchvision has it) and ResNeXt-50 32x4d (Xie et
al., arXiv 1611.05431).
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import nn


class ChannelNorm(nn.LayerNorm):
    """Layer normalisation over the channels of (N, C, H, W)."""

    def forward(self, x: Any) -> Any:
        return super().forward(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


class ConvNeXtBlock(nn.Module):
    """x + gamma * mix(norm(depthwise(x))), 7x7; gamma as after training, which starts at 1e-6."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.depthwise = nn.Conv2d(channels, channels, 7, padding=3, groups=channels)
        self.norm = nn.LayerNorm(channels, eps=1e-6)
        self.widen, self.narrow = (
            nn.Linear(channels, 4 * channels),
            nn.Linear(4 * channels, channels),
        )
        self.gamma = nn.Parameter(torch.full((channels,), 0.1))

    def forward(self, x: Any) -> Any:
        y = self.norm(self.depthwise(x).permute(0, 2, 3, 1))
        y = self.gamma * self.narrow(F.gelu(self.widen(y)))
        return x + y.permute(0, 3, 1, 2)


def convnext_t() -> nn.Module:
    """ConvNeXt-T: 28.6 million parameters, 18 depthwise convolutions."""
    layers: list[nn.Module] = [nn.Conv2d(3, 96, 4, 4), ChannelNorm(96, eps=1e-6)]
    before = 96
    for channels, blocks in ((96, 3), (192, 3), (384, 9), (768, 3)):
        if channels != before:
            layers += [ChannelNorm(before, eps=1e-6), nn.Conv2d(before, channels, 2, 2)]
        layers += [ConvNeXtBlock(channels) for _ in range(blocks)]
        before = channels
    head = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.LayerNorm(768, eps=1e-6)]
    return nn.Sequential(*layers, *head, nn.Linear(768, 1000))


def _unit(
    channels: int, out: int, kernel: int, stride: int = 1, groups: int = 1
) -> list[nn.Module]:
    conv = nn.Conv2d(channels, out, kernel, stride, kernel // 2, groups=groups, bias=False)
    return [conv, nn.BatchNorm2d(out)]


class InvertedResidual(nn.Module):
    """1x1 to ``factor`` times the channels, depthwise 3x3, 1x1 back."""

    def __init__(self, channels: int, out: int, stride: int, factor: int) -> None:
        super().__init__()
        wide = channels * factor
        widen = [*_unit(channels, wide, 1), nn.ReLU6()] if factor > 1 else []
        depthwise = [*_unit(wide, wide, 3, stride, wide), nn.ReLU6()]
        self.layers = nn.Sequential(*widen, *depthwise, *_unit(wide, out, 1))
        self.adds = stride == 1 and channels == out

    def forward(self, x: Any) -> Any:
        return x + self.layers(x) if self.adds else self.layers(x)


def mobilenet_v2() -> nn.Module:
    """MobileNetV2 of width 1: 3.5 million parameters, 17 depthwise convolutions."""
    layers: list[nn.Module] = [*_unit(3, 32, 3, 2), nn.ReLU6()]
    channels = 32
    for factor, out, blocks, stride in (
        (1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1),
        (6, 160, 3, 2), (6, 320, 1, 1),
    ):  # fmt: skip
        for k in range(blocks):
            layers.append(InvertedResidual(channels, out, stride if k == 0 else 1, factor))
            channels = out
    layers += [*_unit(320, 1280, 1), nn.ReLU6(), nn.AdaptiveAvgPool2d(1), nn.Flatten()]
    return nn.Sequential(*layers, nn.Dropout(0.2), nn.Linear(1280, 1000))


class Bottleneck(nn.Module):
    """1x1, 3x3 in groups, 1x1 to four times ``planes``, and what is added to it."""

    def __init__(self, channels: int, planes: int, width: int, stride: int, groups: int) -> None:
        super().__init__()
        self.conv1, self.norm1 = _unit(channels, width, 1)
        self.conv2, self.norm2 = _unit(width, width, 3, stride, groups)
        self.conv3, self.norm3 = _unit(width, 4 * planes, 1)
        self.act = nn.ReLU(inplace=True)
        self.shortcut = None
        if stride > 1 or channels != 4 * planes:
            self.shortcut = nn.Sequential(*_unit(channels, 4 * planes, 1, stride))

    def forward(self, x: Any) -> Any:
        y = self.act(self.norm1(self.conv1(x)))
        y = self.act(self.norm2(self.conv2(y)))
        y = self.norm3(self.conv3(y))
        y += x if self.shortcut is None else self.shortcut(x)
        return self.act(y)


def resnet50(groups: int = 1, width: int = 64) -> nn.Module:
    """25.6 million parameters; ``width`` is that of a group where there are 64 planes."""
    layers: list[nn.Module] = [*_unit(3, 64, 7, 2), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1)]
    channels = 64
    for stage, blocks in enumerate((3, 4, 6, 3)):
        planes = 64 << stage
        for k in range(blocks):
            stride = 2 if stage and not k else 1
            layers.append(
                Bottleneck(channels, planes, planes * width // 64 * groups, stride, groups)
            )
            channels = 4 * planes
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(2048, 1000))


def resnext50() -> nn.Module:
    """32 groups, of 4 channels in the first stage: 25.0 million parameters."""
    return resnet50(32, 4)


#: Those whose time goes into depthwise convolutions.
MODELS = {"ConvNeXt-T": convnext_t, "MobileNetV2": mobilenet_v2}
#: Those whose time goes into others.
NETWORKS = {"ResNet-50": resnet50, "ResNeXt-50": resnext50, "MobileNetV2": mobilenet_v2}
