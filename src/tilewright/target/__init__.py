"""The machines: what they can hold, and what a schedule may ask of them."""

from tilewright.target.target import Target, current_target

__all__ = ["Target", "current_target"]
