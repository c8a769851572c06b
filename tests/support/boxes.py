"""Small convolutions of which TMA can bring boxes."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st
from tests.support.dense import convolutions

from tilewright.topi import Conv, Conv3d

#: What most layers of networks have in common.
SMALL: dict[str, Any] = {"padding": 1, "dtype": "float16", "layout": "NHWC"}


@st.composite
def drawn(draw: st.DrawFn, pass_: str) -> Conv:
    """Dense or in groups; images are brought as they are, or copies of them."""
    groups = draw(st.sampled_from([1, 1, 2, 3, 8, 16]))
    own = draw(
        st.sampled_from([2, 3, 8, 16, 24, 40, 64, 72, 136] if groups == 1 else [2, 4, 8, 16, 72])
    )
    filters = draw(st.sampled_from([2, 3, 8, 20, 72] if groups == 1 else [1, 4, 8, 16, 24]))
    p = draw(
        convolutions(
            pass_=pass_, channels=groups * own, groups=groups, multiplier=filters,
            dtype=draw(st.sampled_from(["float16", "bfloat16"])),
        )
    )  # fmt: skip
    p = p.replace(layout="NHWC" if p.rank == 2 else "NWC")
    if pass_ == "dgrad" and max(p.stride) > 1:
        p = p.replace(dilation=1, epilogue=())
    return p


def volume(filters: int, shape: tuple[int, ...], **values: Any) -> Conv3d:
    """A convolution in three dimensions, channels last."""
    groups, kernel = values.pop("groups", 1), values.pop("kernel", (2, 3, 2))
    values = SMALL | {"layout": "NDHWC"} | values
    return Conv3d.parse(shape, (filters, shape[1] // groups, *kernel), groups, **values)
