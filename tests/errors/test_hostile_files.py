"""Records, saved kernels and cache entries that are damaged, or that an enemy wrote: 500 of them
end in an error in words or in the right result, and never in an error of another kind."""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import random
import sqlite3
import subprocess
import sys
import warnings
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.support.hostile import TEXTS, VALUES, mutated_bytes, mutated_json

import tilewright
from tilewright import select, te
from tilewright.cli.main import main
from tilewright.ir.errors import TilewrightError
from tilewright.report.histories import histories
from tilewright.runtime import Kernel, cache, cache_folder, llvm_pool
from tilewright.runtime.build import forget
from tilewright.target import Target
from tilewright.topi import Conv
from tilewright.tune import records as records_module
from tilewright.tune.entity import TuningError
from tilewright.tune.log_format import decode, encode
from tilewright.tune.measure import Device, MeasureInput, MeasureResult
from tilewright.tune.records import Records

PROBLEM = Conv.parse("1x8x14x14", "8x1x3x3", padding=1)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    llvm_pool.symbols()  # compiled once a process, so not part of what a test finds
    place = tmp_path / "cache"
    monkeypatch.setenv("TILEWRIGHT_CACHE", str(place))
    monkeypatch.setattr(cache_folder, "_warned", set())
    monkeypatch.setattr(records_module, "_warned", set())
    return place


# -- records: 200 ---------------------------------------------------------------------------------


def measured() -> tuple[MeasureInput, MeasureResult, Device]:
    """A sound record of this machine, of what the library has for the problem."""
    from tilewright.tune.library import task
    from tilewright.tune.machine import machine

    known = machine("llvm")
    made = task(PROBLEM, Target.parse(known["target"]))
    config = made.config_space.get(made.config_space.guesses[-1])
    device = Device(known["device"], known["driver"], known["version"])
    return MeasureInput(made, config), MeasureResult((1e-6,), timestamp=1.0), device


def hostile_row(row: dict[str, Any], rng: random.Random) -> dict[str, Any]:
    """A row of which one or two columns are other ones, of any of SQLite's types."""
    made = dict(row)
    for column in rng.sample(sorted(row), rng.choice((1, 1, 2))):
        if column in ("args", "config", "costs", "extra") and rng.random() < 0.8:
            made[column] = mutated_json(row[column], rng)
        else:
            plain = [v for v in VALUES if isinstance(v, (bool, float, str)) or v in (0, -1)]
            made[column] = rng.choice([*plain, *TEXTS[:3], b"\xff\xfe", b"[]"])
    return made


def result_of(choice: select.Choice) -> np.ndarray:
    rng = np.random.default_rng(0)
    x, w = (rng.integers(-3, 4, s).astype(np.float32) for s in ((1, 8, 14, 14), (8, 1, 3, 3)))
    found = np.zeros((1, 8, 14, 14), np.float32)
    choice.build()(x, w, found)
    return found


def test_hostile_records_are_passed_over(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    inp, result, device = measured()
    with Records() as records:
        records.add([(inp, result)], device)
    expected = select.choose(PROBLEM)
    wanted = result_of(expected)
    with sqlite3.connect(folder / "records.sqlite") as db:
        db.row_factory = sqlite3.Row
        good = dict(db.execute("SELECT * FROM measurements").fetchone())
        del good["id"]
        rng, written = random.Random(13), 0
        while written < 200:
            row = hostile_row(good, rng) | {"timestamp": 2.0 + written}
            columns, marks = ", ".join(row), ", ".join("?" * len(row))
            text = f"INSERT INTO measurements ({columns}) VALUES ({marks})"
            try:
                written += db.execute(text, list(row.values())).rowcount
            except (sqlite3.IntegrityError, OverflowError):
                continue
    with pytest.warns(UserWarning, match=r"has \d+ rows that are no records, and are passed over"):
        choice = select.choose(PROBLEM)
    np.testing.assert_array_equal(result_of(choice), wanted)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        select.choose(PROBLEM.replace(batch=2))
        with Records() as records:
            assert any(r.input.config == inp.config for r in records.find(PROBLEM.key))
            records.summaries()
            histories(records)
        for command in (["records", "list"], ["records", "export", "-o", os.devnull]):
            assert main(command) == 0
    assert "Traceback" not in capsys.readouterr().err


def test_hostile_lines_of_a_log_are_named(folder: Path) -> None:
    line, rng = encode(*measured()), random.Random(31)
    for _ in range(200):
        with contextlib.suppress(TuningError):
            decode(mutated_json(line, rng))


def test_hostile_answers_are_measured_again(folder: Path) -> None:
    cache = select.ProfileCache(folder.parent / "select.sqlite")
    one = {
        "algorithm": "a", "version": "1", "config": {"rows": 1}, "seconds": 1e-6, "workspace": 0,
        "reproducible": True, "error": "",
    }  # fmt: skip
    rng, text = random.Random(5), json.dumps([one])
    cache.put("p", "m", [])
    with sqlite3.connect(folder.parent / "select.sqlite") as db:
        for k in range(100):
            row = (f"p{k}", "m", mutated_json(text, rng), 1.0)
            db.execute("INSERT INTO answers VALUES (?, ?, ?, ?)", row)
        db.execute("INSERT INTO answers VALUES ('good', 'm', ?, 1.0)", (text,))
    assert [m.algorithm for m in cache.get("good", "m")] == ["a"]
    for k in range(100):
        for m in cache.get(f"p{k}", "m"):
            assert isinstance(m.algorithm, str)
            assert m.error or m.seconds > 0


# -- saved kernels: 150 ---------------------------------------------------------------------------


def plus_two(target: str) -> Kernel:
    forget()
    a = te.placeholder((8,), name="A")
    b = te.compute((8,), lambda i: a[i] + 2.0, name="B")
    s = te.create_schedule(b.op)
    if target != "llvm":
        s[b].bind(b.op.axis[0], te.thread_axis("threadIdx.x"))
    return tilewright.build(s, [a, b], target)


def adds_two(kernel: Kernel) -> bool:
    found = np.zeros(8, np.float32)
    kernel(np.ones(8, np.float32), found)
    return bool((found == 3).all())


def resigned(data: bytes, rng: random.Random) -> bytes:
    """A saved kernel in which a part in JSON is another one, whose checksums are right."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        files = {name: archive.read(name) for name in archive.namelist()}
    # machine code is trusted: whoever changes that has no need to change anything else
    part = rng.choice(["metadata.json", *(n for n in sorted(files) if n.endswith(".json"))])
    files[part] = mutated_json(files[part].decode(), rng).encode()
    if part != "metadata.json":
        meta = json.loads(files["metadata.json"])
        meta["files"][part] = hashlib.sha256(files[part]).hexdigest()
        files["metadata.json"] = json.dumps(meta).encode()
    whole = io.BytesIO()
    with zipfile.ZipFile(whole, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return whole.getvalue()


@pytest.mark.parametrize("target", ["llvm", "sim"])
def test_hostile_saved_kernels_are_refused_in_words(target: str, tmp_path: Path) -> None:
    path = tmp_path / "k.tw"
    plus_two(target).save(path)
    good, rng = path.read_bytes(), random.Random(16)
    refused: list[str] = []
    for k in range(75):
        signed = k % 2 == 0
        path.write_bytes(resigned(good, rng) if signed else mutated_bytes(good, rng))
        try:
            kernel = tilewright.load(path)
        except TilewrightError as error:
            refused.append(str(error))
            continue
        if not signed:
            assert adds_two(kernel)  # what changed says nothing, such as a file's date
        else:
            with contextlib.suppress(TilewrightError):
                assert kernel.ir
    assert len(refused) > 40
    assert all(str(path) in message for message in refused)


# -- cache entries: 150 ---------------------------------------------------------------------------


@pytest.mark.parametrize(("target", "count"), [("llvm", 50), ("sim", 100)])
def test_hostile_cache_entries_are_written_again(target: str, count: int, folder: Path) -> None:
    assert adds_two(plus_two(target))
    (entry,) = folder.glob("??/*.tw")
    name = entry.parent.name + entry.stem
    good, rng = cache.get(name), random.Random(14)
    assert good is not None
    content = entry.read_bytes()
    for k in range(count):
        changed = mutated_bytes(content, rng)
        if k % 3 == 0:  # sound but for the user's mark
            part = rng.choice(sorted(good))
            changed = cache.pack({**good, part: mutated_bytes(good[part] + b" ", rng)}, name)
        entry.write_bytes(changed)
        assert adds_two(plus_two(target))
        assert cache.get(name) == good


# -- a full disk ----------------------------------------------------------------------------------

#: In a process of its own, whose files may not become larger than a few KiB.
FULL = """
import resource, sys, warnings
from pathlib import Path
import numpy as np, tilewright
from tilewright import te
from tilewright.ir.errors import TilewrightError
from tests.errors.test_hostile_files import measured, plus_two, adds_two
from tilewright.tune.callback import log_to_file
from tilewright.tune.records import Records

folder = Path(sys.argv[1])
kernel = plus_two("llvm")
inp, result, device = measured()
records = Records(folder / "records.sqlite")
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]), resource.RLIM_INFINITY))

def save(): kernel.save(folder / "k.tw")
def export(): kernel.export_c(folder / "k.c")
def new_records(): Records(folder / "new.sqlite")
def log():
    write = log_to_file(folder / "log.json")
    for _ in range(100): write(None, [inp], [result])
def add():
    for k in range(1000): records.add([(inp, type(result)((1e-6,), timestamp=float(k)))], device)

for act in (save, export, new_records, log, add):
    try:
        act()
        print(act.__name__, "was done")
    except TilewrightError as error:
        print(act.__name__, type(error).__name__, error)
with warnings.catch_warnings(record=True) as seen:
    warnings.simplefilter("always")
    for number in (5.0, 6.0):
        a = te.placeholder((8,), name="A")
        b = te.compute((8,), lambda i: a[i] + number, name="B")
        out = np.zeros(8, np.float32)
        tilewright.build(te.create_schedule(b.op), [a, b])(np.ones(8, np.float32), out)
        assert (out == number + 1).all()
print("cache", *[w.message for w in seen])
print("left", *sorted(p.name for p in folder.iterdir()))
"""


@pytest.mark.skipif(sys.platform == "win32", reason="no limits of processes here")
def test_a_full_disk_is_named(tmp_path: Path) -> None:
    (tmp_path / "cache").mkdir(0o700)
    run = subprocess.run(
        [sys.executable, "-c", FULL, str(tmp_path), "512"],
        env={**os.environ, "TILEWRIGHT_CACHE": str(tmp_path / "cache"), "PYTHONPATH":
             os.pathsep.join([str(Path(tilewright.__file__).parent.parent), str(Path.cwd())])},
        capture_output=True, text=True, timeout=120, check=True,
    )  # fmt: skip
    said = dict(line.partition(" ")[::2] for line in run.stdout.splitlines())
    limit = "files of this process may not become so large"
    assert said["save"].startswith(f"FileError cannot write {tmp_path / 'k.tw'}: {limit}")
    assert said["export"].startswith("FileError")
    assert limit in said["export"]
    assert said["log"].startswith("TuningError")
    assert limit in said["log"]
    for act in ("new_records", "add"):
        assert said[act].startswith("RecordsError the disk is full, or a quota reached"), said[act]
    assert said["cache"].count("compiled code is not kept in") == 1
    assert not {"k.tw", "k.c", "k.h"} & set(said["left"].split())
