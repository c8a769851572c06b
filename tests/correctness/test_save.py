"""A saved kernel runs where its schedule is not; what cannot be loaded says why."""

from __future__ import annotations

import json
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.correctness.test_llvm_loops import convolved, depthwise
from tests.support.cpu import poisoned

from tilewright.ir.errors import ArgumentError, TargetError, TilewrightError
from tilewright.ir.expr import Var
from tilewright.ir.stmt import ForKind
from tilewright.runtime import build, load
from tilewright.target import Target


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    path = tmp_path / "conv.tw"
    module = depthwise(3, 5, 6, 3, ForKind.PARALLEL, Var.make("n"))
    build(module, Target.parse("llvm -threads=2")).save(path)
    return path


def edit(path: Path, change: Any) -> None:
    """Change the metadata and the files of what was saved."""
    with zipfile.ZipFile(path) as archive:
        files = {name: archive.read(name) for name in archive.namelist()}
    meta = json.loads(files["metadata.json"])
    change(meta, files)
    files["metadata.json"] = json.dumps(meta).encode()
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in files.items():
            archive.writestr(name, data)


def test_a_loaded_kernel_is_the_saved_one(saved: Path) -> None:
    run = load(saved)
    rng = np.random.default_rng(0)
    x = rng.integers(-3, 4, (2, 3, 5, 6)).astype(np.float32)
    f = rng.integers(-3, 4, (3, 3, 3)).astype(np.float32)
    found = poisoned(x.shape)
    run(x, f, found)
    np.testing.assert_array_equal(found, convolved(x, f))
    assert run.target.threads == 2
    assert "depthwise" in run.ir
    assert "tw_entry" in run.source
    assert "tw_entry" in run.assembly
    with pytest.raises(ArgumentError, match=r"argument 1 \(f\)"):
        run(x, x, found)
    with pytest.raises(ArgumentError, match="is written"):
        run(found, f, found)


def test_another_process_runs_it_without_the_schedule(saved: Path) -> None:
    program = f"""
import numpy as np
from tilewright.runtime import load
y = np.empty((1, 3, 5, 6), np.float32)
load({str(saved)!r})(np.ones_like(y), np.ones((3, 3, 3), np.float32), y)
assert y[0, 0, 2, 2] == 9 and y[0, 2, 0, 0] == 4
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=120)


def test_other_files_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "x"
    with pytest.raises(FileNotFoundError):
        load(path)
    path.write_bytes(b"hello")
    with pytest.raises(TilewrightError, match="is not a saved kernel or model, or is damaged"):
        load(path)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("something", "else")
    with pytest.raises(TilewrightError, match="is not a saved kernel or model"):
        load(path)


def test_damage_is_noticed(saved: Path) -> None:
    def flip(meta: Any, files: dict[str, bytes]) -> None:
        data = bytearray(files["artifacts/object.o"])
        data[len(data) // 2] ^= 1
        files["artifacts/object.o"] = bytes(data)

    edit(saved, flip)
    with pytest.raises(
        TilewrightError, match=r"the checksum of artifacts/object\.o does not match"
    ):
        load(saved)
    saved.write_bytes(saved.read_bytes()[:500])
    with pytest.raises(TilewrightError, match="damaged"):
        load(saved)


def test_other_formats_and_machines_are_named(saved: Path) -> None:
    whole = saved.read_bytes()

    def newer(meta: Any, files: dict[str, bytes]) -> None:
        meta["format"] = 99

    edit(saved, newer)
    with pytest.raises(TilewrightError, match="format 99"):
        load(saved)

    def elsewhere(meta: Any, files: dict[str, bytes]) -> None:
        tag = json.loads(meta["tag"])
        meta["tag"] = json.dumps(tag | {"features": [*tag["features"], "avx9000"]})

    saved.write_bytes(whole)
    edit(saved, elsewhere)
    with pytest.raises(TargetError, match="this processor lacks avx9000"):
        load(saved)

    def foreign(meta: Any, files: dict[str, bytes]) -> None:
        meta["tag"] = json.dumps(json.loads(meta["tag"]) | {"triple": "riscv64-unknown-linux"})

    saved.write_bytes(whole)
    edit(saved, foreign)
    with pytest.raises(TargetError, match="it is for riscv64"):
        load(saved)


def test_saving_leaves_no_half_written_file(tmp_path: Path) -> None:
    run = build(depthwise(3, 5, 6, 3, ForKind.SERIAL), Target.parse("llvm"))
    for write in (run.save, run.export_c):
        with pytest.raises(TilewrightError, match="there is no folder .*absent; make it first"):
            write(tmp_path / "absent" / "x.c")
        with pytest.raises(OSError, match="it is a folder; name a file in it"):
            write(tmp_path)
    run.save(tmp_path / "x.tw")
    assert [p.name for p in tmp_path.iterdir()] == ["x.tw"]
