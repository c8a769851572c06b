"""Measuring on the machine at hand: what is timed, against what, and how."""
