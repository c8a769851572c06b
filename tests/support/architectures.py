"""Small models with the blocks of published architectures, by name: timm's, and some that need
nothing but PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from tests.support.timm_models import timm
from torch import nn


class ConvBNReLU(nn.Sequential):
    """As torchvision's models have it."""

    def __init__(self, given: int, out: int, kernel: int, stride: int = 1, groups: int = 1) -> None:
        conv = nn.Conv2d(given, out, kernel, stride, kernel // 2, groups=groups, bias=False)
        super().__init__(conv, nn.BatchNorm2d(out), nn.ReLU6(inplace=True))


class Inverted(nn.Module):
    """MobileNetV2's block."""

    def __init__(self, channels: int, wide: int, kernel: int = 3) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            ConvBNReLU(channels, wide, 1), ConvBNReLU(wide, wide, kernel, groups=wide),
            nn.Conv2d(wide, channels, 1, bias=False), nn.BatchNorm2d(channels),
        )  # fmt: skip

    def forward(self, x: Any) -> Any:
        return x + self.layers(x)


class Next(nn.Module):
    """ConvNeXt's block, whose normalisation and products are channels last."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.depthwise = nn.Conv2d(channels, channels, 7, padding=3, groups=channels)
        self.norm = nn.LayerNorm(channels)
        self.mix = nn.Sequential(nn.Linear(channels, 16), nn.GELU(), nn.Linear(16, channels))

    def forward(self, x: Any) -> Any:
        y = self.norm(self.depthwise(x).permute(0, 2, 3, 1))
        return x + self.mix(y).permute(0, 3, 1, 2)


class Up(nn.Module):
    """A decoder that upsamples by transposed convolutions, and flat ones over what is left."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.up = nn.ConvTranspose2d(channels, channels, 4, 2, 1, groups=channels)
        self.flat = nn.Conv1d(channels, channels, 5, padding="same", groups=channels)

    def forward(self, x: Any) -> Any:
        return self.flat(F.relu(self.up(x)).mean(3)).mean(2)


def _torchvision() -> Any:
    return nn.Sequential(
        ConvBNReLU(3, 8, 3, 4), Inverted(8, 16), nn.Sequential(ConvBNReLU(8, 8, 5, 2, 8)),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 8),
    )  # fmt: skip


def _next() -> Any:
    return nn.Sequential(nn.Conv2d(3, 8, 4, 4), Next(8), nn.AdaptiveAvgPool2d(1), nn.Flatten())


def _decoder() -> Any:
    return nn.Sequential(nn.Conv2d(3, 8, 8, 8), Up(8))


def _blocks(*stages: str, kind: str = "EfficientNet", **settings: Any) -> Callable[[], Any]:
    """Of timm's builder for mobile networks, from its words for blocks."""

    def make() -> Any:
        models = timm().models
        cls = {"EfficientNet": models.EfficientNet, "MobileNetV3": models.MobileNetV3}[kind]
        defs = models._efficientnet_builder.decode_arch_def([[stage] for stage in stages])
        return cls(defs, num_classes=8, num_features=16, stem_size=8, **settings)

    return make


def _mobileone() -> Any:
    byobnet = timm().models.byobnet
    shared = {"type": "one", "d": 1, "c": 8, "gs": 1, "br": 1}
    blocks = (
        byobnet.ByoBlockCfg(s=2, block_kwargs={"num_conv_branches": 2}, **shared),
        byobnet.ByoBlockCfg(s=1, block_kwargs={"num_conv_branches": 1}, **shared),
    )
    config = byobnet.ByoModelCfg(blocks=blocks, stem_type="one", stem_chs=8)
    return byobnet.ByobNet(config, num_classes=8)


def _ghost() -> Any:
    blocks = [[[3, 16, 8, 0, 1]], [[5, 24, 8, 0.25, 2]]]
    return timm().models.GhostNet(blocks, num_classes=8, width=1.0)


def _named(name: str, **settings: Any) -> Callable[[], Any]:
    """One that timm has by name, made small."""
    return lambda: timm().create_model(name, pretrained=False, num_classes=8, **settings)


_FOUR: dict[str, Any] = {"depths": (1, 1, 1, 1)}
_NARROW: dict[str, Any] = _FOUR | {"dims": (8, 8, 8, 8)}
_WIDE = _FOUR | {"dims": (16, 16, 16, 16)}
_EMBED: dict[str, Any] = {"embed_dims": (8, 8, 8, 8)}
_HEADS: dict[str, Any] = _EMBED | {"num_heads": (1, 1, 1, 1)} | _FOUR
#: By name, what makes them; images are (3, 64, 64).
ARCHITECTURES: dict[str, Callable[[], Any]] = {
    "torchvision's MobileNetV2": _torchvision,
    "a ConvNeXt": _next,
    "a decoder": _decoder,
    "MixNet": _blocks("ds_r1_k3_s1_c8", "ir_r1_k3.5.7_a1.1_p1.1_s2_e4_c8_se0.5_nsw"),
    "MobileNetV4": _blocks("cn_r1_k3_s2_e1_c8", "uir_r1_a3_k3_s2_e2_c8", "uir_r1_a0_k3_s1_e2_c8"),
    "TensorFlow's EfficientNet": _blocks(
        "ds_r1_k3_s1_e1_c8_se0.25", "ir_r1_k5_s2_e6_c8_se0.25", pad_type="same"
    ),
    "MobileNetV3": _blocks(
        "ds_r1_k3_s1_e1_c8_nre", "ir_r1_k5_s2_e3_c8_se0.25", "cn_r1_k1_s1_c16",
        kind="MobileNetV3", act_layer=nn.Hardswish,
    ),
    "GhostNet": _ghost,
    "MobileOne": _mobileone,
    "ConvNeXt V2": _named("convnextv2_atto", **_NARROW),
    "MambaOut": _named("mambaout_femto", **_NARROW),
    "EdgeNeXt": _named("edgenext_xx_small", **_WIDE),
    "StarNet": _named("starnet_s050", base_dim=8, **_FOUR),
    "XCiT": _named(
        "xcit_nano_12_p16_224", depth=1, cls_attn_layers=1, embed_dim=16, num_heads=2
    ),
    "PVT v2": _named("pvt_v2_b0", **_HEADS),
}  # fmt: skip


def architecture(name: str) -> Any:
    """A model of :data:`ARCHITECTURES` in evaluation mode, with statistics as after training."""
    model = ARCHITECTURES[name]().eval()
    with torch.no_grad():
        for key, value in model.state_dict().items():
            if key.endswith("gamma"):  # of a layer's scale, which begins at almost nothing
                value.normal_()
            elif key.endswith("running_mean"):
                value.normal_(0, 0.5)
            elif key.endswith("running_var"):
                value.uniform_(0.5, 2)
    return model
