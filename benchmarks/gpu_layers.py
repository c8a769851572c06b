"""The layers that the GPU benchmark measures, by section."""

from __future__ import annotations

from collections.abc import Iterator

from tilewright.topi.operators.conv import Conv

#: Depthwise layers of MobileNetV2: channels, height and width, stride.
MOBILENETV2 = (
    (32, 112, 1), (64, 112, 2), (96, 112, 2), (144, 56, 1), (144, 56, 2), (192, 28, 1),
    (384, 14, 1), (576, 14, 2), (960, 7, 1),
)  # fmt: skip
#: The four stages of ConvNeXt-T: channels, height and width; 7x7 filters.
CONVNEXT_T = ((96, 56), (192, 28), (384, 14), (768, 7))
#: Article 000's rows: channels, height and width, filter, multiplier.
ARTICLE_000 = (
    (256, 96, 3, 1), (256, 96, 5, 1), (256, 96, 3, 2), (256, 96, 5, 2), (256, 21, 3, 1),
    (256, 32, 3, 1), (256, 64, 3, 1),
)  # fmt: skip
PASSES = ("forward", "dgrad", "wgrad")
TYPES = ("float32", "float16", "bfloat16")
LAYOUTS = ("NCHW", "NHWC")
#: Bytes of images over which a layer is called large.
_LARGE = 50e6


def layer(
    channels: int, image: int, kernel: int, stride: int = 1, multiplier: int = 1,
    batch: int = 64, dtype: str = "float32", layout: str = "NCHW", pass_: str = "forward",
) -> Conv:  # fmt: skip
    """A square layer that is padded so that stride 1 keeps its size."""
    return Conv(
        batch=batch, channels=channels, height=image, width=image, kernel_h=kernel,
        kernel_w=kernel, stride=(stride,) * 2, padding=(kernel // 2,) * 4, multiplier=multiplier,
        dtype=dtype, layout=layout, pass_=pass_,
    )  # fmt: skip


def sections() -> Iterator[tuple[str, Conv]]:
    """Every problem with the heading that it stands under."""
    for kernel in (3, 5):
        for pass_ in PASSES:
            for dtype in TYPES:
                for layout in LAYOUTS:
                    for c, image, stride in MOBILENETV2:
                        p = layer(c, image, kernel, stride, dtype=dtype, layout=layout, pass_=pass_)
                        size = "large" if traffic(p) > _LARGE else "small"
                        yield f"MobileNetV2, K {kernel}, batch 64, {size}, {pass_}, {dtype}", p
    for pass_ in PASSES:
        for dtype in TYPES:
            for c, image in CONVNEXT_T:
                for layout in LAYOUTS:
                    p = layer(c, image, 7, dtype=dtype, layout=layout, pass_=pass_)
                    yield f"ConvNeXt-T, K 7, batch 64, {pass_}, {dtype}", p
    for dtype in TYPES[:2]:
        for layout in LAYOUTS:
            for c, image, kernel, multiplier in ARTICLE_000:
                p = layer(c, image, kernel, 1, multiplier, 1, dtype, layout)
                yield f"batch 1, forward, {dtype}", p
            three = Conv(
                batch=3, channels=4, height=16, width=32, kernel_h=7, kernel_w=7,
                padding=(3,) * 4, dtype=dtype, layout=layout,
            )  # fmt: skip
            yield f"batch 1, forward, {dtype}", three
            for c, image, stride in MOBILENETV2:
                p = layer(c, image, 3, stride, 1, 1, dtype, layout)
                yield f"batch 1, forward, {dtype}", p


def traffic(p: Conv) -> float:
    """Bytes of the images that a problem reads and writes, each once."""
    size = 4 if p.dtype == "float32" else 2
    pixels = p.channels * p.height * p.width
    results = p.out_channels * p.out_image[0] * p.out_image[1]
    return float(p.batch * (pixels + results) * size)
