"""Operators: declarations in :mod:`tilewright.topi.nn`, schedules in a folder a target family."""

from tilewright.topi import nn
from tilewright.topi.elementwise import clip, exp, identity, negative, relu, sigmoid, sqrt, tanh

__all__ = ["clip", "exp", "identity", "negative", "nn", "relu", "sigmoid", "sqrt", "tanh"]
