"""What was measured, kept for later processes: one SQLite file in the user's cache folder.

A row holds all that was measured of one problem on one machine, so that it answers whatever the
limit on workspaces, and whether reproducible or not. The file is in WAL mode: processes write to
it at once, and one that is killed leaves all that it committed. A damaged one is moved aside.
"""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
import threading
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tilewright.ir.errors import TilewrightError
from tilewright.runtime import forks
from tilewright.runtime.cache_folder import folder, make_folder
from tilewright.tune import untrusted
from tilewright.tune.entity import TuningError

#: Of the table; files of another format are left alone, and nothing is kept.
FORMAT = 1
_TABLE = """CREATE TABLE IF NOT EXISTS answers (
    problem TEXT, machine TEXT, results TEXT NOT NULL, made REAL NOT NULL,
    PRIMARY KEY (problem, machine))"""


#: Of the database: one thread at a time.
_lock = threading.Lock()
forks.hold(_lock, forks.ANSWERS)


@dataclass(frozen=True)
class Measured:
    """One candidate, and the seconds that it takes; ``error`` says why it takes none."""

    algorithm: str
    version: str
    config: dict[str, Any]
    seconds: float
    workspace: int
    reproducible: bool
    error: str = ""


class ProfileCache:
    """The measurements in one file, by default ``select.sqlite`` in the cache folder.

    Where the cache is switched off, or the file can be neither read nor written, they live as
    long as the process.
    """

    def __init__(self, path: Path | None = None) -> None:
        root = folder()
        self.path = path or (None if root is None else root / "select.sqlite")
        self._memory: dict[tuple[str, str], list[Measured]] = {}

    def get(self, problem: str, machine: str) -> list[Measured]:
        """What was measured, fastest first, failures last; empty where nothing was."""
        known = self._memory.get((problem, machine))
        if known is not None:
            return known
        found: list[Measured] = []
        with self._database() as db:
            if db is not None:
                row = db.execute(
                    "SELECT results FROM answers WHERE problem = ? AND machine = ?",
                    (problem, machine),
                ).fetchone()
                found = [] if row is None else _parse(row[0])
        if found:
            self._memory[problem, machine] = found
        return found

    def put(self, problem: str, machine: str, results: list[Measured]) -> None:
        """Keep them, in place of earlier ones."""
        ordered = sorted(results, key=lambda m: (bool(m.error), m.seconds))
        self._memory[problem, machine] = ordered
        text = json.dumps([asdict(m) for m in ordered], sort_keys=True)
        with self._database() as db:
            if db is not None:
                db.execute(
                    "INSERT OR REPLACE INTO answers VALUES (?, ?, ?, ?)",
                    (problem, machine, text, time.time()),
                )
                db.commit()

    @contextlib.contextmanager
    def _database(self) -> Any:
        """The database, None where there is none to be had."""
        if self.path is None:
            yield None
            return
        with _lock:
            db = None
            try:
                db = self._open(self.path)
            except (sqlite3.Error, OSError) as error:
                self._set_aside(error)
            try:
                yield db
            except sqlite3.Error as error:
                self._set_aside(error)
            finally:
                if db is not None:
                    db.close()

    def _open(self, path: Path) -> sqlite3.Connection | None:
        make_folder()
        path.parent.mkdir(parents=True, exist_ok=True)
        db = sqlite3.connect(path, timeout=30)
        version = db.execute("PRAGMA user_version").fetchone()[0]
        if version not in (0, FORMAT):
            db.close()
            return None
        if version == 0:
            db.execute("PRAGMA journal_mode = WAL")
            db.execute(_TABLE)
            db.execute(f"PRAGMA user_version = {FORMAT}")
            db.commit()
        return db

    def _set_aside(self, error: Exception) -> None:
        name = getattr(error, "sqlite_errorname", "")
        if name.startswith(("SQLITE_NOTADB", "SQLITE_CORRUPT")) and self.path is not None:
            with contextlib.suppress(OSError):
                os.replace(self.path, f"{self.path}.damaged-{time.time_ns()}")


def _parse(text: Any) -> list[Measured]:
    """The measurements of a file that somebody else may have written; empty where they are none."""
    try:
        return [_measured(**entry) for entry in untrusted.parse(text)]
    except (TilewrightError, TypeError, ValueError):
        return []


def _measured(**given: Any) -> Measured:
    """Raises :class:`TuningError` where a part is of another type."""
    m = Measured(**given)
    untrusted.text(m.algorithm, m.version, m.error)
    kinds = type(m.config), type(m.workspace), type(m.reproducible)
    if kinds != (dict, int, bool) or not (m.error or untrusted.seconds(m.seconds)):
        raise TuningError(f"{m} is no measurement")
    return m
