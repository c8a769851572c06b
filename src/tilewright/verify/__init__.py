"""Proofs about lowered programs, with witnesses of what they refute."""

from tilewright.verify.check import check, verify
from tilewright.verify.finding import Finding

__all__ = ["Finding", "check", "verify"]
