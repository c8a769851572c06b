"""Schedules of any operator, as functions of a declaration and a tiling."""
