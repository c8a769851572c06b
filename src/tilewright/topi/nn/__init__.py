"""Declarations of the operators of neural networks, under the names of TVM's topi."""

from tilewright.topi.elementwise import relu
from tilewright.topi.nn.conv2d_nchw import conv2d_nchw
from tilewright.topi.nn.depthwise_conv2d import depthwise_conv2d, depthwise_conv2d_nchw
from tilewright.topi.nn.padding import pad
from tilewright.topi.nn.scale_shift import scale_shift, scale_shift_nchw

__all__ = [
    "conv2d_nchw",
    "depthwise_conv2d",
    "depthwise_conv2d_nchw",
    "pad",
    "relu",
    "scale_shift",
    "scale_shift_nchw",
]
