"""Programs for Hopper alone run on a Hopper."""

from __future__ import annotations

import pytest

from tilewright.runtime.cuda import compute_capability


def skip_unless_hopper() -> None:
    """For tests that need a CUDA device already."""
    if compute_capability() != 90:
        pytest.skip("the GPU is no Hopper")
