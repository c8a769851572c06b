"""What is provable about integers: affine forms, intervals, simplification."""

from tilewright.arith.analyzer import Analyzer
from tilewright.arith.interval import Interval
from tilewright.arith.regions import Unbounded
from tilewright.arith.solve import solve

__all__ = ["Analyzer", "Interval", "Unbounded", "solve"]
