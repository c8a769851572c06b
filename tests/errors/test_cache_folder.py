"""Code comes only from a folder of the user's own, and only with the user's mark."""

from __future__ import annotations

import os
import warnings
from pathlib import Path

import numpy as np
import pytest

import tilewright
from tilewright import te
from tilewright.runtime import Kernel, cache, cache_folder, llvm_pool
from tilewright.runtime.build import forget
from tilewright.tune.records import Records, default_path

pytestmark = pytest.mark.skipif(not hasattr(os, "geteuid"), reason="no owners and modes here")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    llvm_pool.symbols()  # compiled once a process, so not part of what a test finds
    place = tmp_path / "cache"
    monkeypatch.setenv("TILEWRIGHT_CACHE", str(place))
    monkeypatch.setattr(cache_folder, "_warned", set())
    return place


def plus(number: float) -> Kernel:
    """A kernel that adds ``number``; as the next process would build it."""
    forget()
    a = te.placeholder((8,), name="A")
    b = te.compute((8,), lambda i: a[i] + number, name="B")
    return tilewright.build(te.create_schedule(b.op), [a, b])


def adds(number: float) -> bool:
    found = np.zeros(8, np.float32)
    plus(number)(np.zeros(8, np.float32), found)
    return bool((found == number).all())


def entries(folder: Path) -> set[Path]:
    return set(folder.glob("??/*.tw"))


def name_of(path: Path) -> str:
    return path.parent.name + path.stem


def test_a_folder_is_made_for_the_user_alone(folder: Path) -> None:
    before = os.umask(0o002)
    try:
        assert adds(1)
    finally:
        os.umask(before)
    assert folder.stat().st_mode & 0o777 == 0o700
    assert (folder / "key").stat().st_mode & 0o777 == 0o600
    assert len(entries(folder)) == 1


@pytest.mark.parametrize("mode", [0o777, 0o1777, 0o775, 0o757])
def test_a_folder_that_others_may_write_to_is_refused_once(folder: Path, mode: int) -> None:
    assert adds(1)
    (entry,) = entries(folder)
    content = entry.read_bytes()
    folder.chmod(mode)
    with pytest.warns(UserWarning, match=rf"{folder} is not used: others may write.*chmod go-w"):
        assert adds(1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert adds(2)
        assert default_path() is None
        with Records() as records:
            assert records.path is None
    assert entries(folder) == {entry}
    assert entry.read_bytes() == content
    assert not (folder / "records.sqlite").exists()


def test_a_folder_of_another_user_is_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert adds(1)
    owner = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: owner + 1)
    with pytest.warns(UserWarning, match=f"it belongs to user {owner}, and you are user"):
        assert adds(1)
    assert len(entries(folder)) == 1


def test_a_file_in_the_place_of_the_folder_is_refused(folder: Path) -> None:
    folder.touch()
    with pytest.warns(UserWarning, match=rf"{folder} is not used: it is a file\. Nothing is kept"):
        assert default_path() is None


def test_a_link_of_another_user_is_refused(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = tmp_path / "own"
    own.mkdir(0o700)
    folder.symlink_to(own)
    assert cache_folder.refusal(folder) == ""
    lstat, user = os.lstat, os.geteuid()

    def of_another(path: os.PathLike[str]) -> os.stat_result:
        found = list(lstat(path))
        found[4] = user + 1
        return os.stat_result(found)

    monkeypatch.setattr(os, "lstat", of_another)
    assert "a link that belongs to user" in cache_folder.refusal(folder)


def test_the_usual_folder_is_closed_to_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A umask of 002 let a group write to it."""
    monkeypatch.delenv("TILEWRIGHT_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    place = tmp_path / "tilewright"
    place.mkdir()
    place.chmod(0o775)
    assert cache_folder.folder() == place
    assert place.stat().st_mode & 0o777 == 0o755


def test_code_without_the_mark_of_the_user_does_not_run(folder: Path) -> None:
    assert adds(1)
    (victim,) = entries(folder)
    assert adds(666)
    (evil,) = entries(folder) - {victim}
    key = cache_folder.secret(folder)
    assert key is not None
    of_victim, of_evil = (
        cache.unpack(path.read_bytes(), name_of(path), key) for path in (victim, evil)
    )
    assert of_victim is not None
    assert of_evil is not None
    mixed = {**of_victim, "artifacts/object.o": of_evil["artifacts/object.o"]}
    for content in (
        evil.read_bytes(),  # the user's own code, under another name
        cache.pack(mixed),
        cache.pack(mixed, name_of(victim)),
        cache.pack(mixed, name_of(victim), b"k" * 32),
    ):
        victim.write_bytes(content)
        assert adds(1)
        assert cache.get(name_of(victim)) == of_victim  # written again


@pytest.mark.parametrize("what", ["readable", "short", "gone", "a link", "a folder"])
def test_a_key_that_others_may_know_is_replaced(folder: Path, what: str) -> None:
    assert adds(1)
    (entry,), key = entries(folder), folder / "key"
    before, content = key.read_bytes(), entry.read_bytes()
    if what == "readable":
        key.chmod(0o644)
    elif what == "short":
        key.write_bytes(b"short")
    else:
        key.unlink()
    if what == "a link":
        (folder / "other").write_bytes(before)
        (folder / "other").chmod(0o600)
        key.symlink_to(folder / "other")
    if what == "a folder":
        key.mkdir()
        assert adds(1)  # without a cache
        return
    assert adds(1)
    assert key.read_bytes() != before
    assert not key.is_symlink()
    assert key.stat().st_mode & 0o777 == 0o600
    assert entry.read_bytes() != content
    assert cache.get(name_of(entry)) is not None


@pytest.mark.parametrize(
    "changed",
    [
        {"head.json": b"{}"}, {"head.json": b"[" * 100_000}, {"head.json": b"\xff"},
        {"outputs.json": b"7"}, {"outputs.json": b'["x"]'}, {"artifacts/code.json": b"[]"},
        {"artifacts/object.o": b"no object"}, {"head.json": None}, {"artifacts/source.ll": None},
    ],
    ids=str,
)  # fmt: skip
def test_a_malformed_entry_is_written_again(folder: Path, changed: dict[str, bytes | None]) -> None:
    assert adds(1)
    (entry,) = entries(folder)
    good = cache.get(name_of(entry))
    assert good is not None
    bad = {k: v for k, v in (good | changed).items() if v is not None}
    cache.put(name_of(entry), bad)
    assert adds(1)
    assert cache.get(name_of(entry)) == good


def test_parts_of_our_own_that_are_malformed_are_made_again(folder: Path) -> None:
    name = "ab" * 32
    cache.put(name, {"other": b"x"})
    assert cache.get(name) == {"other": b"x"}
    assert cache.get(name, "pool.o") is None
    assert cache.get(name) is None
