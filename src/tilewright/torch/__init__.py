"""Convolutions for PyTorch, faster: depthwise ones above all.

:func:`optimize_` swaps the convolutions of a model in place; :func:`depthwise_conv2d`
and :class:`DepthwiseConv2d` are what to write in a new one. ``torch.compile(model,
backend="tilewright")`` takes whole models, and :func:`compile_` does so where it is faster.
"""

try:
    import torch as _torch  # noqa: F401
except ImportError as error:
    raise ImportError("tilewright.torch needs PyTorch: pip install torch") from error

from tilewright.torch.any_operator import compute
from tilewright.torch.attention import scaled_dot_product_attention
from tilewright.torch.compile import CompileReport, compile_
from tilewright.torch.convolutions import (
    conv1d,
    conv2d,
    conv3d,
    conv_transpose1d,
    conv_transpose2d,
    conv_transpose3d,
)
from tilewright.torch.explain import Explanation, explain
from tilewright.torch.functional import depthwise_conv1d, depthwise_conv2d
from tilewright.torch.grouped import GroupedConv2d
from tilewright.torch.kernels import set_policy, share_threads
from tilewright.torch.linear import linear
from tilewright.torch.modules import DepthwiseConv1d, DepthwiseConv2d, DepthwiseConvTranspose2d
from tilewright.torch.optimize import Report, optimize_, undo_
from tilewright.torch.portable import portable
from tilewright.torch.registered import register
from tilewright.torch.reparameterize import MergeReport, merge_branches_
from tilewright.torch.transposed import depthwise_conv_transpose2d

register()

__all__ = [
    "CompileReport", "DepthwiseConv1d", "DepthwiseConv2d", "DepthwiseConvTranspose2d",
    "Explanation", "GroupedConv2d", "MergeReport", "Report", "compile_", "compute", "conv1d",
    "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d",
    "depthwise_conv1d", "depthwise_conv2d", "depthwise_conv_transpose2d", "explain",
    "linear", "merge_branches_", "optimize_", "portable",
    "scaled_dot_product_attention", "set_policy", "share_threads", "undo_",
]  # fmt: skip
