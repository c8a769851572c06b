"""Operators: declarations in :mod:`tilewright.topi.nn`, schedules in a folder a target family."""

from tilewright.topi import nn, utils
from tilewright.topi.elementwise import clip, exp, identity, negative, relu, sigmoid, sqrt, tanh
from tilewright.topi.problem import Problem

__all__ = [
    "Problem",
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
