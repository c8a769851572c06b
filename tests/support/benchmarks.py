"""The scripts in benchmarks/, as modules that tests look into."""

from __future__ import annotations

import importlib
import sys
from functools import cache
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parents[2] / "benchmarks"


@cache
def benchmark(name: str) -> Any:
    """The module ``name``, and, left behind, those of the folder that it imports."""
    sys.path.insert(0, str(FOLDER))
    try:
        return importlib.import_module(name)
    finally:
        sys.path.remove(str(FOLDER))
