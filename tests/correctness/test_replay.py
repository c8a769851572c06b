"""benchmarks/replay.py: equal hashes in every process, and a list of what changed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.benchmarks import benchmark

ROOT = Path(__file__).parents[2]
FEW = r"^article 003: v4: .*(cuda|opencl)|^latency: lines K 3:"


@pytest.fixture(scope="module")
def replay():
    return benchmark("replay")


def run(*args: str, seed: int = 0) -> subprocess.CompletedProcess[str]:
    paths = os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])
    return subprocess.run(
        [sys.executable, str(ROOT / "benchmarks" / "replay.py"), "--only", FEW, *args],
        capture_output=True, text=True, timeout=300, check=False,
        env={**os.environ, "PYTHONPATH": paths, "PYTHONHASHSEED": str(seed)},
    )  # fmt: skip


def test_processes_with_other_seeds_agree_and_changes_are_listed(tmp_path):
    known = tmp_path / "known.json"
    assert run("--jobs", "1", "--out", str(known), seed=1).returncode == 0
    same = run("--jobs", "2", "--against", str(known), seed=2)
    assert same.returncode == 0, same.stdout + same.stderr
    assert same.stdout.splitlines() == [
        "5 programs, 0 of them refused", "added: 0", "removed: 0", "lowered: 0", "source: 0"
    ]  # fmt: skip

    whole = json.loads(known.read_text())
    names = list(whole["programs"])
    whole["programs"][names[0]]["lowered"] = "another"
    whole["programs"][names[1]]["source"] = "another"
    whole["programs"]["article 003: v4: gone: cuda"] = whole["programs"].pop(names[2])
    known.write_text(json.dumps(whole))
    changed = run("--jobs", "1", "--against", str(known))
    assert changed.returncode == 1
    assert changed.stdout.splitlines()[1:] == [
        "added: 1", f"  {names[2]}", "removed: 1", "  article 003: v4: gone: cuda",
        "lowered: 1", f"  {names[0]}", "source: 1", f"  {names[1]}",
    ]  # fmt: skip


def test_every_shipped_record_every_template_and_every_article_has_a_program(replay):
    from tilewright.topi.templates import TEMPLATES
    from tilewright.tune.tuned import FOLDER, read

    names = list(replay.cases())
    tuned = [t for path in FOLDER.glob("*.jsonl") for t in read(path)]
    assert {f"record: {t.device}: {t.problem.key}" for t in tuned} <= set(names)
    for template in TEMPLATES:
        assert any(name.startswith(f"template: {template}: ") for name in names), template
    articles = {path.stem for path in (ROOT / "tests" / "articles").glob("*.md")}
    assert {n.split()[1].rstrip(":") for n in names if n.startswith("article ")} == articles


def test_a_program_that_is_refused_is_listed_with_why(replay, monkeypatch):
    from tilewright.ir.errors import LoweringError

    def refuse() -> None:
        raise LoweringError("no program")

    monkeypatch.setattr(replay, "cases", lambda: {"one": ("llvm -arch=avx2", refuse)})
    now = replay.replay(["one"], jobs=1)
    assert now == {"one": {"error": replay.digest("LoweringError: no program")}}
    before = {"one": {"lowered": "a", "source": "b"}}
    assert replay.changes(before, now)["lowered"] == ["one"]


def test_texts_are_saved_under_names_that_versions_share(replay, tmp_path):
    name = next(n for n in replay.cases() if n.startswith("article 003: v4: ") and "cuda" in n)
    now = replay.replay([name], jobs=1, folder=str(tmp_path))
    saved = sorted(tmp_path.iterdir())
    assert [p.name.split(".")[-2] for p in saved] == ["lowered", "source"]
    assert {replay.digest(p.read_text()) for p in saved} == set(now[name].values())
