"""The parts of ``tilewright demo``: its layers, its search, what it compares with, its views."""
