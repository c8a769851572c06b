"""Operators: declarations in :mod:`tilewright.topi.nn`, schedules in a folder a target family."""

from tilewright.ir.errors import ProblemError
from tilewright.topi import nn, utils
from tilewright.topi.declared import Declared
from tilewright.topi.elementwise import clip, exp, identity, negative, relu, sigmoid, sqrt, tanh
from tilewright.topi.operators import Attention, Conv, Conv3d, ConvProgram, Gemm, Mlp
from tilewright.topi.problem import Problem, TensorType

__all__ = [
    "Attention",
    "Conv",
    "Conv3d",
    "ConvProgram",
    "Declared",
    "Gemm",
    "Mlp",
    "Problem",
    "ProblemError",
    "TensorType",
    "clip",
    "exp",
    "identity",
    "negative",
    "nn",
    "relu",
    "sigmoid",
    "sqrt",
    "tanh",
    "util",
    "utils",
]

util = utils  # its name until 2020
