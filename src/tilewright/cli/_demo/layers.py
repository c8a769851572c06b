"""The layers of the demo: depthwise convolutions of three networks at batch 1."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from tilewright.ir.errors import ArgumentError
from tilewright.topi.operators.conv import Conv

if TYPE_CHECKING:
    import numpy as np


@dataclass(frozen=True)
class Layer:
    """A depthwise convolution of (1, channels, height, width) by kernel x kernel filters.

    The padding is ``kernel // 2`` on every side, float32, NCHW.
    """

    network: str
    channels: int
    height: int
    width: int
    kernel: int
    stride: int = 1

    @property
    def key(self) -> str:
        """``"144x56x56k3s2"``, as the command line takes it."""
        stride = f"s{self.stride}" if self.stride > 1 else ""
        return f"{self.channels}x{self.height}x{self.width}k{self.kernel}{stride}"

    @property
    def shape(self) -> str:
        """``"144×56×56 K3 s2"``, as people read it."""
        stride = f" s{self.stride}" if self.stride > 1 else ""
        return f"{self.channels}×{self.height}×{self.width} K{self.kernel}{stride}"

    @property
    def name(self) -> str:
        return f"{self.network} {self.shape}".strip()

    @property
    def out(self) -> tuple[int, int]:
        """Rows and columns of the output."""
        pad = 2 * (self.kernel // 2) - self.kernel
        return (self.height + pad) // self.stride + 1, (self.width + pad) // self.stride + 1

    @property
    def bytes(self) -> int:
        """What must be moved at the least: the input, the filter and the output, once."""
        pixels = self.height * self.width + self.kernel**2 + self.out[0] * self.out[1]
        return 4 * self.channels * pixels

    @property
    def flops(self) -> int:
        """Operations that matter: two for each tap that meets the image, not its padding."""
        taps = [
            sum(_meeting(self, o, size) for o in range(out))
            for size, out in zip((self.height, self.width), self.out, strict=True)
        ]
        return 2 * self.channels * taps[0] * taps[1]

    @property
    def problem(self) -> Conv:
        """As everything but the demo names it."""
        return Conv(
            batch=1, channels=self.channels, height=self.height, width=self.width,
            kernel_h=self.kernel, kernel_w=self.kernel, stride=(self.stride, self.stride),
            padding=(self.kernel // 2,) * 4,
        )  # fmt: skip

    def arrays(self) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any], np.ndarray[Any, Any]]:
        """Input, filter, and an output full of NaN."""
        import numpy as np

        rng = np.random.default_rng(0)
        x = rng.standard_normal((1, self.channels, self.height, self.width), np.float32)
        w = rng.standard_normal((self.channels, 1, self.kernel, self.kernel), np.float32)
        return x, w, np.full((1, self.channels, *self.out), np.nan, np.float32)

    def cut(self, channels: int, size: int) -> Layer:
        """The layer with no more channels, rows and columns than these."""
        return replace(
            self,
            channels=min(channels, self.channels),
            height=min(size, self.height),
            width=min(size, self.width),
        )


def _meeting(layer: Layer, o: int, size: int) -> int:
    """How many taps of one dimension meet the image at output ``o``."""
    first = o * layer.stride - layer.kernel // 2
    return min(size, first + layer.kernel) - max(0, first)


def reference(layer: Layer, x: Any, w: Any) -> np.ndarray[Any, Any]:
    """The convolution in float64 by NumPy, from its definition.

    For every filter row, the taps of each channel as a matrix from input to output columns.
    """
    import numpy as np

    (rows, columns), pad, stride = layer.out, layer.kernel // 2, layer.stride
    image, taps = x[0].astype(np.float64), w[:, 0].astype(np.float64)
    result = np.zeros((layer.channels, rows, columns))
    tap = np.arange(layer.width)[:, None] - np.arange(columns) * stride + pad
    inside = (tap >= 0) & (tap < layer.kernel)
    for di in range(layer.kernel):
        source = np.arange(rows) * stride + di - pad
        valid = (source >= 0) & (source < layer.height)
        if valid.any():
            matrix = np.where(inside, taps[:, di][:, tap.clip(0, layer.kernel - 1)], 0.0)
            result[:, valid] += image[:, source[valid]] @ matrix
    return result[None]


LAYERS = (
    Layer("MobileNetV2", 96, 112, 112, 3, 2),
    Layer("MobileNetV2", 144, 56, 56, 3),
    Layer("MobileNetV2", 144, 56, 56, 3, 2),
    Layer("MobileNetV2", 384, 14, 14, 3),
    Layer("ConvNeXt-T", 96, 56, 56, 7),
    Layer("ConvNeXt-T", 384, 14, 14, 7),
    Layer("RepLKNet-31B", 128, 56, 56, 31),
    Layer("RepLKNet-31B", 256, 28, 28, 29),
    Layer("RepLKNet-31B", 512, 14, 14, 27),
)

#: One of each network.
QUICK = (LAYERS[1], LAYERS[4], LAYERS[8])

_KEY = re.compile(r"(?:1x)?(\d+)x(\d+)x(\d+)k(\d+)(?:s(\d+))?")


def choose(words: Sequence[str], quick: bool = False) -> tuple[Layer, ...]:
    """The layers that ``words`` name: parts of a network's name, or shapes like 144x56x56k3s2.

    None are all, or one of each network where ``quick``. Raises :class:`ArgumentError` for a word
    that names none.
    """
    if not words:
        return QUICK if quick else LAYERS
    found: list[Layer] = []
    for word in (part.strip().lower() for text in words for part in text.split(",")):
        known = [layer for layer in LAYERS if word and word in (layer.key, layer.network.lower())]
        known = known or [x for x in LAYERS if word and word in x.network.lower()]
        shape = _KEY.fullmatch(word)
        if not known and shape:
            known = [_custom(word, *(int(n or 1) for n in shape.groups()))]
        if not known:
            networks = ", ".join(dict.fromkeys(layer.network for layer in LAYERS))
            raise ArgumentError(
                f"--layers {word}: not a network ({networks}) and not a shape like "
                "144x56x56k3s2 (channels x height x width, k and the filter's size, s and the "
                "stride)"
            )
        found += [layer for layer in known if layer not in found]
    return tuple(found)


def _custom(word: str, c: int, h: int, w: int, k: int, s: int) -> Layer:
    if not (c and h and w and s and k % 2):
        raise ArgumentError(f"--layers {word}: sizes are positive, and the filter's is odd")
    return Layer("", c, h, w, k, s)
