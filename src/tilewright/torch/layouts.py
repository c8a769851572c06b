"""Runs of channels-last tensors by way of NCHW."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class ByNCHW:
    """A run in NCHW on channels-last tensors.

    Attributes
    ----------
    inner : the run on tensors in NCHW, whose result is in NCHW.
    images : how many of the operands, the first ones, are images.
    memory_format : the memory format that the result is wanted in.
    """

    inner: Callable[..., Any]
    images: int
    memory_format: Any

    def __call__(self, *operands: Any) -> Any:
        images = (t.contiguous() for t in operands[: self.images])
        made = self.inner(*images, *operands[self.images :])
        return made.contiguous(memory_format=self.memory_format)
