"""Convolutions as ``torch.jit.script`` compiles them: calls of the operators.

What PyTorch's compiler of Python takes is all that stands here.
"""

from __future__ import annotations

import torch


def conv2d(
    input: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    stride: tuple[int, int],
    padding: list[int],
    dilation: tuple[int, int],
    channels: int,
) -> torch.Tensor:
    """The convolution of (N, C, H, W) or (C, H, W), which has ``channels`` channels.

    ``padding`` is (top, left, bottom, right).
    """
    if input.shape[-3] != channels:
        raise ValueError(f"an input of {input.shape} for {channels} channels")
    image = input if input.dim() == 4 else input.unsqueeze(0)
    made = torch.ops.tilewright.depthwise_conv2d(image, weight, bias, stride, padding, dilation)
    return made if input.dim() == 4 else made.squeeze(0)


def conv1d(
    input: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    stride: tuple[int],
    padding: list[int],
    dilation: tuple[int],
    channels: int,
) -> torch.Tensor:
    """The convolution of (N, C, W) or (C, W), which has ``channels`` channels.

    ``padding`` is (0, left, 0, right).
    """
    made = conv2d(
        input.unsqueeze(-2), weight.unsqueeze(-2), bias, (1, stride[0]), padding, (1, dilation[0]),
        channels,
    )  # fmt: skip
    return made.squeeze(-2)
