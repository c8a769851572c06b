"""Tilewright: fast tensor operators from tensor expressions and schedules."""

__version__ = "0.1.0"
