"""How to compute it: stages, their loops, and the primitives that transform them."""

from tilewright.schedule.schedule import Schedule, create_schedule
from tilewright.schedule.stage import Stage

__all__ = ["Schedule", "Stage", "create_schedule"]
