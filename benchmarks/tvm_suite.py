"""TVM's own tests through :mod:`tilewright.tvm`: how many of them pass.

``python benchmarks/tvm_suite.py CHECKOUT tests/python/te`` takes a checkout of TVM 0.19 (nothing of
it is kept here), lets ``import tvm`` find Tilewright's alias, and runs the tests of a folder or a
file with pytest, each file in a process of its own. ``--only LIST`` counts the tests that are named
in a file, one a line, such as those that pass on TVM itself (``--list`` writes the names).
"""

from __future__ import annotations

import argparse
import importlib
import importlib.abc
import importlib.machinery
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path
from types import ModuleType
from typing import Any


class TvmIsTilewright(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds ``tvm``, and what stands below it, in :mod:`tilewright.tvm`."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if name != "tvm" and not name.startswith("tvm."):
            return None
        return importlib.machinery.ModuleSpec(name, self, is_package=True)

    def create_module(self, spec: Any) -> ModuleType:
        found: Any = importlib.import_module("tilewright.tvm")
        for part in spec.name.split(".")[1:]:
            try:
                found = getattr(found, part)
            except AttributeError as error:
                raise ModuleNotFoundError(str(error), name=spec.name) from None
        if isinstance(found, ModuleType):
            return found
        return _module(spec.name, found)

    def exec_module(self, module: ModuleType) -> None:
        pass


def _module(name: str, thing: Any) -> ModuleType:
    made = ModuleType(name)
    made.__getattr__ = lambda attribute: getattr(thing, attribute)  # type: ignore[method-assign]
    return made


def run_file(path: str) -> int:
    """The tests of one file, in this process."""
    import pytest

    sys.meta_path.insert(0, TvmIsTilewright())
    sys.path.insert(0, str(Path(path).parent))
    return pytest.main(
        ["-q", "-rA", "--tb=line", "-p", "no:cacheprovider", "--rootdir=/", "-c", "/dev/null", path]
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("checkout", type=Path)
    parser.add_argument("tests", help="a folder or a file of the checkout")
    parser.add_argument("--only", type=Path, help="count the tests named in this file")
    parser.add_argument("--list", type=Path, help="write the names of the tests that pass")
    parser.add_argument("--timeout", type=float, default=600, help="seconds a file")
    parser.add_argument("--tvm", action="store_true", help="run on the TVM that is installed")
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    where = options.checkout / options.tests
    if options.one:
        raise SystemExit(run_file(str(where)))
    only = set(options.only.read_text().split("\n")) if options.only else None
    passed: list[str] = []
    total: Counter[str] = Counter()
    for path in sorted(where.rglob("test_*.py")) if where.is_dir() else [where]:
        name = str(path.relative_to(options.checkout))
        command = [sys.executable, __file__, str(options.checkout), name, "--one"]
        if options.tvm:
            command = [sys.executable, "-m", "pytest", "-q", "-rA", "--tb=line", str(path)]
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, timeout=options.timeout, check=False
            )
            text = done.stdout
        except subprocess.TimeoutExpired as error:
            text = (error.stdout or b"").decode()
        counts: Counter[str] = Counter()
        for outcome, test in re.findall(r"^(PASSED|FAILED|ERROR) \S*?(test_\S+)", text, re.M):
            if only is not None and test not in only:
                continue
            counts[outcome] += 1
            passed += [test] * (outcome == "PASSED")
            if outcome != "PASSED":
                print(f"    {outcome} {test} {_reason(text, test)}")
        total += counts
        print(f"{counts['PASSED']:4} of {counts.total():4}  {name}", flush=True)
    print(f"{total['PASSED']} of {total.total()} tests of {options.tests} pass")
    if options.list:
        options.list.write_text("\n".join(passed) + "\n")


def _reason(text: str, test: str) -> str:
    found = re.search(rf"^(?:FAILED|ERROR) \S*{re.escape(test)} - (.*)", text, re.M)
    return found[1][:160] if found else ""


if __name__ == "__main__":
    main()
