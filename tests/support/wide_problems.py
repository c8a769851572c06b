"""Problems over every parameter: odd and large kernels, named paddings, rows of whole vectors."""

from __future__ import annotations

from typing import Any

from hypothesis import assume
from hypothesis import strategies as st

from tilewright.topi.arguments import named_padding
from tilewright.topi.operators.conv import LAYOUTS, Conv

STEPS = ("bias", "scale_shift", "batch_norm(0.1)", "wide_batch_norm(1e-05)", "residual", "relu",
         "relu6", "leaky_relu(0.2)", "hswish", "hsigmoid", "silu", "gelu",
         "clamp(-0.5,1)")  # fmt: skip

#: Of one dimension, small ones mostly.
_KERNELS = st.one_of(st.integers(1, 5), st.sampled_from([3, 5, 7, 7, 9, 11]))
#: Both dimensions, of a kind that the above does not draw often.
_KERNELS_2D = st.one_of(
    st.tuples(_KERNELS, _KERNELS),
    _KERNELS.map(lambda k: (k, k)),
    st.tuples(st.just(1), st.integers(1, 31)),
    st.tuples(st.integers(1, 31), st.just(1)),
    st.sampled_from([(51, 5), (5, 51), (13, 13), (31, 31), (2, 2), (4, 4)]),
)
#: Extents of images: any, and those that vectors and blocks divide.
_EXTENTS = st.one_of(st.integers(1, 40), st.sampled_from([7, 8, 14, 16, 28, 32, 56, 64]))
_CHANNELS = st.one_of(st.integers(1, 20), st.sampled_from([4, 8, 16, 24, 32, 64, 96, 130]))
_PADDINGS = ("none", "symmetric", "asymmetric", "SAME", "SAME_LOWER", "CAUSAL")


@st.composite
def wide_problems(
    draw: st.DrawFn,
    work: int = 2_000_000,
    kernels: st.SearchStrategy[tuple[int, int]] = _KERNELS_2D,
    **fixed: Any,
) -> Conv:
    """Problems of up to ``work`` multiplications over all that a problem may be.

    What makes one larger is drawn last, within what is left; ``fixed`` parameters are not drawn,
    and those of two dimensions are of ``kernels``.
    """
    layout = fixed.get("layout") or draw(st.sampled_from(["NCHW", "NHWC", "NCHW", "NHWC", "NCW",
                                                          "NWC"]))  # fmt: skip
    operator = next(name for name, layouts in LAYOUTS.items() if layout in layouts)
    flat = operator == "depthwise_conv1d"
    kernel = draw(st.tuples(st.just(1), st.integers(1, 51)) if flat else kernels)

    def pair(values: st.SearchStrategy[int]) -> tuple[int, int]:
        found = draw(values)
        return (1, found) if flat else (found, draw(st.one_of(st.just(found), values)))

    stride = pair(st.sampled_from([1, 1, 1, 2, 2, 3, 4]))
    dilation = pair(st.sampled_from([1, 1, 1, 1, 2, 3]))
    windows = [(k - 1) * d + 1 for k, d in zip(kernel, dilation, strict=True)]
    image = (1 if flat else draw(_EXTENTS), draw(_EXTENTS))
    kind = draw(st.sampled_from(_PADDINGS))
    padding = (0, 0, 0, 0)
    if kind == "symmetric":
        top, left = (draw(st.integers(0, w // 2 + 1)) for w in windows)
        padding = (top, left, top, left)
    elif kind == "asymmetric":
        padding = tuple(draw(st.integers(0, w)) for w in windows * 2)
    elif kind != "none":
        padding = named_padding(kind, image, kernel, stride, dilation)
    if flat:
        padding = (0, padding[1], 0, padding[3])
    height, width = (
        max(e, w - padding[k] - padding[k + 2]) for k, (e, w) in enumerate(zip(image, windows))
    )
    pass_ = fixed.get("pass_") or draw(st.sampled_from(["forward", "forward", "dgrad", "wgrad"]))
    # Either normalisation reads the tensors of the other one.
    steps = st.lists(
        st.sampled_from(STEPS), max_size=3, unique_by=lambda s: "norm" if "norm" in s else s
    )
    chosen: dict[str, Any] = dict(
        operator=operator, layout=layout, pass_=pass_, height=height, width=width,
        kernel_h=kernel[0], kernel_w=kernel[1], stride=stride, padding=padding, dilation=dilation,
        dtype=draw(st.sampled_from(["float32", "float16", "bfloat16"])),
        epilogue=[] if pass_ == "wgrad" else draw(steps),
    )  # fmt: skip
    chosen |= fixed
    buffer = work // (Conv(batch=1, channels=1, **chosen).nominal_flops // 2)
    assume(buffer)
    for name, values in (
        ("channels", _CHANNELS),
        ("multiplier", st.sampled_from([1, 1, 1, 1, 2, 3])),
        ("batch", st.sampled_from([1, 1, 2, 3, 8, 17])),
    ):
        if name not in fixed:
            chosen[name] = min(draw(values), buffer)
        buffer = max(1, buffer // chosen[name])
    return Conv(**chosen)
