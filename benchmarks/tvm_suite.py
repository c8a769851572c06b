"""TVM's own tests through :mod:`tilewright.tvm`: how many of them pass, and why others do not.

``python benchmarks/tvm_suite.py CHECKOUT tests/python/te`` takes a checkout of TVM 0.19 (nothing of
it is kept here), lets ``import tvm`` find Tilewright's alias, and runs the tests of a folder or a
file with pytest, each file in a process of its own. It prints a line a file and, below, the reasons
by how many tests have them.

``--only LIST`` counts the tests that are named in a file, one a line, such as those that pass on
TVM itself: ``--tvm --list LIST``, with the Python that has TVM. A test speaks of TVM's internals
where its text, or a helper that it calls, has a name of ``INTERNALS``, or one that the file imports
from such a module; all tests do of a file that cannot be loaded without. These are counted apart.
"""

from __future__ import annotations

import argparse
import ast
import importlib
import importlib.abc
import importlib.machinery
import json
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path
from types import ModuleType
from typing import Any

#: Names of what has no counterpart: passes, TVMScript, hybrid script, Relay and Relax, registered
#: functions of TVM's own tests, schedules of TIR, and what AutoTVM falls back to for each operator.
INTERNALS = (
    r"tir\.transform|tvm\.script|tvm\.te\.hybrid|\brelay\b|\brelax\b|tir\.analysis|_ffi\b|"
    r"schedule_record|primitive_record|\btest\.op\.|tir\.Schedule|_fallback_schedule|"
    r"fallback_schedule_cpu|micro_kernel"
)
_RESULT = "tvm_suite "


class TvmIsTilewright(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds ``tvm``, and what stands below it, in :mod:`tilewright.tvm`, and ``topi``, which was a
    package of its own until 2020."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if name.split(".")[0] not in ("tvm", "topi"):
            return None
        return importlib.machinery.ModuleSpec(name, self, is_package=True)

    def create_module(self, spec: Any) -> ModuleType:
        found: Any = importlib.import_module("tilewright.tvm")
        around = found
        below = spec.name.split(".")
        for part in below if below[0] == "topi" else below[1:]:
            try:
                around, found = found, getattr(found, part)
            except AttributeError as error:
                raise ModuleNotFoundError(str(error), name=spec.name) from None
        if isinstance(found, ModuleType):
            return found
        return _Named(spec.name, found, around)

    def exec_module(self, module: ModuleType) -> None:
        pass


class _Named(ModuleType):
    """A module of TVM's that has the name of a function, which it takes the place of: its names are
    those of the heading ``around`` it."""

    def __init__(self, name: str, thing: Any, around: Any) -> None:
        super().__init__(name)
        self.thing, self.around = thing, around

    def __getattr__(self, name: str) -> Any:
        return getattr(self.thing, name, None) or getattr(self.around, name)

    def __call__(self, *args: Any, **more: Any) -> Any:
        return self.thing(*args, **more)


class Results:
    """A plugin of pytest that prints what became of each test, a line of JSON each."""

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.when == "call" or report.outcome != "passed":
            self._print(report)

    def pytest_collectreport(self, report: Any) -> None:
        if report.failed:
            self._print(report)

    def _print(self, report: Any) -> None:
        crash = getattr(report.longrepr, "reprcrash", None)
        reason = crash.message if crash else str(report.longrepr or "")
        line = [report.nodeid.rsplit("/", 1)[-1], report.outcome, _first(reason)]
        print("\n" + _RESULT + json.dumps(line), flush=True)


def _first(reason: str) -> str:
    """The line of an error that says what is wrong."""
    lines = [line.removeprefix("E").strip() for line in reason.split("\n") if line.strip()]
    named = [line for line in lines if re.match(r"[\w.]*(Error|Exception|Failed)\b", line)]
    return (named or lines or [""])[0][:300]


def run_file(path: str, tvm: bool) -> int:
    """The tests of one file, in this process."""
    import pytest

    if not tvm:
        sys.meta_path.insert(0, TvmIsTilewright())
    sys.path.insert(0, str(Path(path).parent))
    flags = ["-q", "--tb=short", "-p", "no:cacheprovider", "-p", "tvm.testing.plugin"]
    return pytest.main([*flags, "--rootdir=/", "-c", "/dev/null", path], plugins=[Results()])


def internal(path: Path) -> set[str]:
    """The tests of a file, by name, that speak of TVM's internals."""
    text = path.read_text()
    tree = ast.parse(text)
    head = [n for n in tree.body if isinstance(n, (ast.Import, ast.ImportFrom))]
    imported = {
        alias.asname or alias.name.split(".")[0]
        for n in head
        for alias in n.names
        if re.search(INTERNALS, _imported(n, alias))
    } - {"tvm"}
    if any(imported & _evaluated(n) for n in tree.body):
        return {n.name for n in ast.walk(tree) if isinstance(n, ast.FunctionDef)}
    classes = [node for node in tree.body if isinstance(node, ast.ClassDef)]
    everything = [*tree.body, *(node for c in classes for node in c.body)]
    speaks: dict[str, bool] = {}
    calls: dict[str, set[str]] = {}
    for node in everything:
        if isinstance(node, ast.FunctionDef):
            source = "\n".join(ast.unparse(part) for part in (*node.decorator_list, *node.body))
            calls[node.name] = {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}
            named = bool(imported & calls[node.name])
            speaks[node.name] = named or re.search(INTERNALS, source) is not None
    for _ in calls:
        for name, used in calls.items():
            speaks[name] |= any(speaks.get(other, False) for other in used if other != name)
    return {name for name, found in speaks.items() if found}


def _evaluated(node: ast.stmt) -> set[str]:
    """The names that are needed while a file is loaded."""
    if isinstance(node, (ast.Import, ast.ImportFrom)):
        return set()
    parts: list[ast.AST] = [node]
    if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
        parts = list(node.decorator_list)
    if isinstance(node, ast.FunctionDef):
        parts += [
            a.annotation for a in ast.walk(node.args) if isinstance(a, ast.arg) and a.annotation
        ]
    return {n.id for part in parts for n in ast.walk(part) if isinstance(n, ast.Name)}


def _imported(node: ast.Import | ast.ImportFrom, alias: ast.alias) -> str:
    return f"{node.module}.{alias.name}" if isinstance(node, ast.ImportFrom) else alias.name


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
        raise SystemExit(run_file(str(where), options.tvm))
    only = set(options.only.read_text().split("\n")) - {""} if options.only else None
    passed: list[str] = []
    total: Counter[str] = Counter()
    causes: Counter[str] = Counter()
    for path in sorted(where.rglob("test_*.py")) if where.is_dir() else [where]:
        name = str(path.relative_to(options.checkout))
        command = [sys.executable, __file__, str(options.checkout), name, "--one"]
        command += ["--tvm"] * options.tvm
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, timeout=options.timeout, check=False
            )
            text, rest = done.stdout, done.stderr.strip().split("\n")[-1]
        except subprocess.TimeoutExpired as error:
            text, rest = (error.stdout or b"").decode(), "no result in time"
        found = {}
        for line in re.findall(rf"^{_RESULT}(.*)$", text, re.M):
            test, outcome, reason = json.loads(line)
            found[test] = outcome, reason
        whole = found.pop(path.name, None)  # an error at the head of a file
        apart = internal(path)
        wanted = {t for t in only or () if t.startswith(path.name)} if only is not None else None
        counts: Counter[str] = Counter()
        for test in sorted(found if wanted is None else wanted):
            outcome, reason = found.get(test, whole or ("failed", rest))
            if outcome == "skipped" and wanted is None:
                continue
            kind = "internals" if re.split(r"::|\[", test)[-1 - ("[" in test)] in apart else "other"
            counts[kind] += 1
            counts[f"{kind} passed"] += outcome == "passed"
            passed += [test] * (outcome == "passed")
            if outcome != "passed":
                print(f"    {outcome} {test} {reason}")
                causes[f"{'internals: ' * (kind == 'internals')}{_cause(reason)}"] += 1
        if whole is not None and wanted is None:
            print(f"    {whole[0]} {path.name} {whole[1]}")
        total += counts
        print(f"{_counted(counts)}  {name}", flush=True)
        if options.list:
            options.list.write_text("".join(f"{test}\n" for test in passed))
    print(f"{_counted(total)}  {options.tests}\n\ntests  reason")
    for cause, count in causes.most_common():
        print(f"{count:5}  {cause}")


def _counted(counts: Counter[str]) -> str:
    text = f"{counts['other passed']:4} of {counts['other']:4}"
    return f"{text}, internals {counts['internals passed']:3} of {counts['internals']:3}"


def _cause(reason: str) -> str:
    """A reason without the numbers in which its tests differ."""
    return re.sub(r"\b\d+\b", "N", reason)[:140]


if __name__ == "__main__":
    main()
